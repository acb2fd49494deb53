#!/usr/bin/env python
"""Measure the steps of a build in microseconds per image, here and at an earlier commit.

Each round measures both checkouts (writing_steps.py), one after the other. The table shows what to
optimize, and why one reading thread is the default for local files: reading and writing 80 KB
images is limited by memory bandwidth, so a second reading thread adds nothing. Figures are the best
of the rounds, because other load only makes a round slower.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import page
import raw_results
from guard import BASELINE, checked_out
from measure import RunFailedError
from photos import make_photos

_PHOTOS, _ROUNDS = 4000, 3
_STEPS = Path(__file__).with_name("writing_steps.py")
_Steps = dict[str, float]  # step -> microseconds per image


def measure_steps(tree: Path, photos: Path, out: Path) -> _Steps:
    """Return the steps of a checkout.

    Raises:
        RunFailedError: It lacks a function that is measured.
    """
    done = subprocess.run(
        [sys.executable, str(_STEPS), str(photos), str(out)],
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RunFailedError(f"{_STEPS.name} fails with {tree}: {done.stderr[-500:]}")
    found: _Steps = json.loads(done.stdout)
    return found


def best_of(rounds: Sequence[_Steps]) -> _Steps:
    return {name: min(steps[name] for steps in rounds) for name in rounds[0]}


def measure_both(commit: str, folder: Path, rounds: int) -> dict[str, _Steps]:
    """Return the best steps of the earlier commit, if this clone has it, and of this checkout."""
    photos, out = make_photos(folder / "photos", photos=_PHOTOS).folder, folder / "writing"
    out.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[_Steps]] = {}
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, out)
        trees = {"now": page.REPO}
        try:
            trees = {"before": stack.enter_context(checked_out(commit, out)), **trees}
        except RunFailedError as error:
            page.say(f"only this checkout: {error}")
        for number in range(rounds):
            for name in page.turned(list(trees), number):
                found.setdefault(name, []).append(measure_steps(trees[name], photos, out))
    return {name: best_of(found[name]) for name in trees}


def unpack(raw: dict[str, Any]) -> dict[str, Any]:
    return raw


def targets(_: dict[str, Any]) -> list[page.Target]:
    return []


def render(found: dict[str, Any], lines: Sequence[str]) -> str:
    measured = found["steps"]
    head = ["step, one thread", *(f"{name}, us" for name in measured)]
    rows = [
        [step, *(f"{steps[step]:.1f}" for steps in measured.values())] for step in measured["now"]
    ]
    return "\n".join(
        [
            "## Where the time of writing goes", "", *lines,
            f"- Before: commit {found['commit'][:12]}", "", *page.table(head, rows), "",
            "Microseconds per image, the best of the rounds. `tar` above reads and writes the same "
            "bytes unprocessed.",
        ]
    )  # fmt: skip


def main() -> int:
    parser = page.parser(__doc__, rounds=_ROUNDS)
    parser.add_argument("--commit", help="the earlier commit (default: benchmarks/BASELINE)")
    args = parser.parse_args()
    commit = args.commit or BASELINE.read_text().strip()
    folder = page.work_folder(args.dir, 2 * 10**9)
    measured = measure_both(commit, folder, args.rounds)
    about = raw_results.circumstances(folder, args.rounds)
    result = raw_results.Result("writing", about, {"commit": commit, "steps": measured})
    return raw_results.finish(result, sys.modules[__name__], args)


if __name__ == "__main__":
    sys.exit(main())
