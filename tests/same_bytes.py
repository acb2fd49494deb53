"""Compare the shards that two checkouts build: `python -m tests.same_bytes BEFORE [AFTER]`.

Builds every input form in three encodings with each checkout, and compares all shards. AFTER is
this checkout by default. Settings that a checkout does not know fail both builds alike.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests import ROOT
from tests.support.build_helpers import hashes_of
from tests.support.input_forms import FORMS

ENCODINGS = ("keep", "jpeg", "tensor")
# Builds in one process: argument lists come on stdin, a line each.
_BUILDER = """
import shlex, sys
from shardwright.pipelines import build_dataset
for line in sys.stdin:
    assert build_dataset.main(shlex.split(line)) == 0, line
"""


def argument_lines(inputs: Path, outputs: Path) -> list[str]:
    """Return the arguments of every build."""
    lines = []
    for form in FORMS:
        root = inputs / form.name
        options = [option.format(root=root) for option in form.options]
        for encoding in ENCODINGS:
            output = outputs / f"{form.name}-{encoding}"
            words = [root / form.input, output, "--name=same", "--encode", encoding, *options]
            lines.append(" ".join(f"'{word}'" for word in words))
    return lines


def build_all(tree: Path, inputs: Path, outputs: Path) -> dict[str, dict[str, str]]:
    """Return dataset -> shard -> SHA-256, built by a checkout."""
    text = "\n".join(argument_lines(inputs, outputs)) + "\n"
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-c", _BUILDER]
    done = subprocess.run(
        command, cwd=tree, env=environment, input=text, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{tree}: {done.stderr[-2000:]}")
    return {path.name: hashes_of(path) for path in sorted(outputs.iterdir())}


def main(argv: Sequence[str]) -> int:
    """Print how many datasets and shards are equal; return 1 if one differs."""
    trees = [Path(arg).resolve() for arg in argv] + [ROOT]
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder, "in")
        inputs.mkdir()
        for form in FORMS:
            form.write(inputs / form.name)
        before, after = (
            build_all(tree, inputs, Path(folder, str(number)))
            for number, tree in enumerate(trees[:2])
        )
    different = [name for name in before.keys() | after.keys() if before[name] != after[name]]
    shards = sum(map(len, before.values()))
    print(f"{len(before)} datasets, {shards} shards; different: {sorted(different) or 'none'}")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
