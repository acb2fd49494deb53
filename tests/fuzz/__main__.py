"""Fuzz the targets with atheris, guided by the branches that inputs reach: `make fuzz MINUTES=10`.

    python -m tests.fuzz [TARGET ...] --minutes 10    (of each target; default: all targets)

Corpora and findings are kept in .fuzz/. A finding is a file TARGET-crash-..., TARGET-timeout-... or
TARGET-oom-...; once mended, its bytes go to FINDINGS in test_targets.py.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests import ROOT
from tests.fuzz import jpeg_part

FOLDER = ROOT / ".fuzz"
LIMITS = ("-timeout=20", "-rss_limit_mb=4000", "-max_len=20000", "-verbosity=0")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--minutes", type=float, default=10, help="of each target (default: 10)")
    parser.add_argument("--guided", help=argparse.SUPPRESS)  # the process of one target
    options, limits = parser.parse_known_args(argv)
    if options.guided:
        return guided(options.guided, limits)
    from tests.fuzz.targets import NAMES

    failed = []
    for name in options.targets or NAMES:
        print(f"fuzz: {name}", flush=True)
        if not is_sound(name, max(1, round(options.minutes * 60))):
            failed.append(name)
    print(f"fuzz: {len(failed)} targets with findings: {' '.join(failed)}")
    return 1 if failed else 0


def is_sound(name: str, seconds: int) -> bool:
    """Fuzz one target in another process; return whether nothing was found."""
    command = [sys.executable, "-m", "tests.fuzz", "--guided", name, f"-max_total_time={seconds}"]
    try:
        if name == jpeg_part.NAME:
            return not jpeg_part.fuzz(seconds, FOLDER)
        # libFuzzer's own timeout does not end every process that hangs in native code.
        return not subprocess.run([*command, *LIMITS], cwd=ROOT, timeout=seconds + 300).returncode
    except subprocess.TimeoutExpired:
        return False


def guided(name: str, limits: Sequence[str]) -> int:
    """Fuzz one target in this process, which ends at the first finding."""
    sys.path.append(str(FOLDER / "site"))
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["shardwright", "transforms"]):
        from tests.fuzz.targets import make_target
    corpus = FOLDER / name
    corpus.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        target = make_target(name, Path(folder))
        for number, seed in enumerate(target.seeds):
            (corpus / f"seed-{number}").write_bytes(seed)
        prefix = f"-artifact_prefix={FOLDER}/{name}-"
        atheris.Setup([sys.argv[0], *limits, prefix, str(corpus)], target.run)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
