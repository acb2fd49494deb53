"""Repeat the random tests of damage with new seeds: `python -m tests.torture --minutes 60`.

Builds are killed at random moments, workers are lost and go on, stores fail at random requests, and
bytes of datasets change.
Each round runs all of that with one seed, which is printed; with it, a failed round is repeated.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence

from tests import ROOT
from tests.support import random_tests

# Of these files, `--long` runs the long and the random tests.
FILES = (
    "tests/builds/test_torture.py",
    "tests/builds/test_lost_workers.py",
    "tests/transforms/write/test_late_writers.py",
    "tests/builds/test_damaged_builds.py",
    "tests/shardwright/inspect",
    "tests/shardwright/format",
    "tests/fuzz",
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="start no round after these")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    options = parser.parse_args(argv)
    started, seeds, failed = time.monotonic(), random.Random(options.seed), []
    for number in itertools.count():
        # The first round has the seed itself, so that --seed repeats any round.
        seed = seeds.getrandbits(32) if number else options.seed
        print(f"torture: round {number}, --seed {seed}", flush=True)
        command = [sys.executable, "-m", "pytest", "--long", "--tb", "short", *FILES]
        environment = {**os.environ, random_tests.SEED: str(seed)}
        if subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode:
            failed.append(seed)
        if time.monotonic() > started + options.minutes * 60:
            break
    print(f"torture: {number + 1} rounds, {len(failed)} failed" + "".join(
        f"; repeat with: python -m tests.torture --minutes 0 --seed {seed}" for seed in failed
    ))  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
