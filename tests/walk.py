"""Print the files that code runs through: `python -m tests.walk KIND [TREE]`.

  detection  `shardwright plan`, from main to the source that is found
  build      `shardwright build`, from main to the listing of the first image
  append     `shardwright append`, likewise
  erase      `shardwright erase` of one of two records, from main to its end
  record     one image of a folder, from its listing to a batch

A file is a stop each time that the code enters it from another one. TREE is another checkout, to
compare with this one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests import ROOT
from tests.support.build_helpers import make_images

_FOLLOW = """
import shutil, sys, threading
from pathlib import Path
tree, kind, inputs, output = sys.argv[1:]
names = ("shardwright", "schemas", "transforms", "pipelines")
packages = tuple(f"{tree}/{name}/" for name in names)
from shardwright.pipelines.commands.plan import main as plan
from shardwright.pipelines.commands.build import append, main as build
from shardwright.inspect.cli import main as command
import shardwright as sw
stops, done = [], []

def follow(frame, event, _):
    code = frame.f_code
    if event == "return" and code.co_name == "detect_source" and kind == "detection":
        done.append(True)
    if event == "call" and code.co_name == "list_part" and kind in ("build", "append"):
        done.append(True)
    if event != "call" or done:
        return
    if code.co_filename.startswith(packages):
        name = code.co_filename.removeprefix(f"{tree}/")
        if not stops or stops[-1] != name:
            stops.append(name)

def followed(action):
    threading.setprofile(follow)
    sys.setprofile(follow)
    action()
    sys.setprofile(None)
    threading.setprofile(None)

def read(dataset):
    reader = sw.Reader(dataset, "train", global_batch_size=1, epochs=1, image=sw.EvalImage(8))
    return next(iter(reader))

# All of it runs once before, so that imports are no stops.
plan([inputs, output])
if kind == "detection":
    followed(lambda: plan([inputs, output]))
elif kind == "build":
    followed(lambda: build([inputs, output]))
elif kind == "append":
    build([inputs, output])
    shutil.copytree(inputs, f"{inputs}/more")
    followed(lambda: append([inputs, output]))
elif kind == "erase":
    build([inputs, output])
    ids = next(iter(sw.Reader(output, "train", global_batch_size=1, features=["id"])))["id"]
    Path(f"{output}.txt").write_text(ids[0])
    words = ["erase", output, "--ids", f"{output}.txt", "--receipt", f"{output}.json", "--yes"]
    followed(lambda: command(words))
else:
    build([inputs, output])
    read(output)
    followed(lambda: build([inputs, f"{output}-2"]))
    followed(lambda: read(f"{output}-2"))
print("STOPS", *stops, sep="\\n")
"""


def walk(tree: Path, kind: str) -> list[str]:
    """Return the files in the order in which the code of a checkout enters them."""
    with tempfile.TemporaryDirectory() as folder:
        inputs = make_images(Path(folder, "in"), 2)
        done = subprocess.run(
            [sys.executable, "-c", _FOLLOW, tree, kind, inputs, f"{folder}/out"],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return done.stdout.partition("STOPS\n")[2].split()


def main(argv: Sequence[str]) -> int:
    """Print each file at its first stop, and the numbers of files and stops."""
    stops = walk(Path(argv[1]).resolve() if argv[1:] else ROOT, argv[0])
    print(*dict.fromkeys(stops), sep="\n")
    print(f"{len(set(stops))} files, {len(stops)} stops")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
