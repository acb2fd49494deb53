"""Simulate histories of datasets in a store, from new seeds: `make simulate MINUTES=10`.

    python -m tests.simulator --minutes 10              # from new seeds, on all cores
    python -m tests.simulator --seed 7 --histories 100  # those of seeds 7 to 106
    python -m tests.simulator --seed 42 --trace         # one, with the requests of its actors

The real code runs over a store, a clock and random numbers that are simulated. A failure prints the
seed of its history, which repeats it.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from itertools import count

from tests import ROOT

_SAME_HASHES = {"PYTHONHASHSEED": "0"}  # the order of a set of texts is part of a history


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, help="how long, on all cores without --seed")
    parser.add_argument("--seed", type=int, help="that of the first history")
    parser.add_argument("--histories", type=int, default=1, help="how many, without --minutes")
    parser.add_argument("--trace", action="store_true", help="print the requests before a failure")
    args = parser.parse_args(argv)
    if args.seed is None:
        return _run_processes(args.minutes or 1)
    if os.environ.items() >= _SAME_HASHES.items():
        return _run(args.seed, args.histories, args.minutes, trace=args.trace)
    words = sys.argv[1:] if argv is None else argv
    return subprocess.run(
        [sys.executable, "-m", "tests.simulator", *words], cwd=ROOT, env=os.environ | _SAME_HASHES
    ).returncode


def _run_processes(minutes: float) -> int:
    """Run a process a core; return 1 if one of them has found a failure."""
    words = [sys.executable, "-m", "tests.simulator", "--minutes", str(minutes)]
    running = [
        subprocess.Popen(
            [*words, "--seed", str(secrets.randbits(32))], cwd=ROOT, env=os.environ | _SAME_HASHES
        )
        for _ in range(os.cpu_count() or 1)
    ]
    return max([process.wait() for process in running])


def _run(first: int, histories: int, minutes: float | None, *, trace: bool) -> int:
    """Run histories in this process, up to the first one that fails."""
    from tests.simulator.world import make_simulation

    out, sys.stdout, sys.stderr = sys.stdout, *2 * [open(os.devnull, "w")]  # noqa: SIM115
    simulation, scheduler = make_simulation()
    scheduler.trace = [] if trace else None
    started, number = time.monotonic(), 0
    for number in count():
        seconds = time.monotonic() - started
        if number == histories if minutes is None else seconds > 60 * minutes:
            break
        try:
            simulation.run(first + number)
        except BaseException:
            print(*scheduler.trace or (), traceback.format_exc(), sep="\n", file=out)
            again = f"{sys.executable} -m tests.simulator --seed {first + number} --trace"
            print(f"after {seconds:.0f} s; repeat with: {again}", file=out)
            return 1
    print(
        f"{number:,} histories from seed {first} on in {seconds:.0f} s: "
        f"{number / seconds * 3600:,.0f} an hour",
        file=out,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
