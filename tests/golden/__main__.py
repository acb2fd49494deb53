"""Prove that what users rely on has not changed: `python -m tests.golden [--write] [NAME ...]`.

Compares the texts in `expected/`, all of them or those of these names: those of `texts.py`, and
those of `runs.py`, which take minutes. Prints unified diffs, and returns 1 if there are any.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.golden.runs import RUNS
from tests.golden.snapshots import difference, write
from tests.golden.texts import TEXTS


def main(argv: Sequence[str]) -> int:
    """Compare, or with --write accept, the texts."""
    names = [each for each in argv if each != "--write"]
    differs = False
    with tempfile.TemporaryDirectory() as folder:
        runs = {name: partial(run, Path(folder)) for name, run in RUNS.items()}
        for name, make in {**TEXTS, **runs}.items():
            if names and name not in names:
                continue
            if "--write" in argv:
                write(name, make())
                continue
            found = difference(name, make())
            differs |= bool(found)
            print(found or f"{name}: as expected", flush=True)
    return differs


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
