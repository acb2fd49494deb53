"""Run the whole path on one machine: images -> dataset -> verify -> read back -> train.

Takes about a minute (`make demo`). Everything is written below ./demo, which may be deleted at any
time. A second run finds its datasets up to date.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from demo_images import make_digits, make_photo_crops

DEMO = Path("demo")
DIGITS, PHOTOS = DEMO / "images" / "digits", DEMO / "images" / "photos"
DIGITS_DATASET, PHOTOS_DATASET = DEMO / "datasets" / "digits", DEMO / "datasets" / "photos"
SPLIT = "--split=train=0.8,validation=0.1,test=0.1"
MIN_ACCURACY = 0.9
EXAMPLES = Path(__file__).resolve().parent


class StepFailedError(Exception):
    """A failed command of the demo."""


def heading(text: str) -> None:
    print(f"\n== {text}", flush=True)


def shardwright(*args: str | Path) -> None:
    """Run the `shardwright` command of this environment, as a user would."""
    beside = Path(sys.executable).with_name("shardwright")
    program = str(beside) if beside.exists() else shutil.which("shardwright")
    if program is None:
        raise StepFailedError("the command `shardwright` is not installed: run `make install`")
    words = [str(arg) for arg in args]
    print(f"$ {shlex.join(['shardwright', *words])}", flush=True)
    _check(subprocess.run([program, *words], check=False).returncode, words[0])


def example(script: str, *args: str | Path) -> None:
    """Run another example; show its stderr (TensorFlow's device messages) only if it fails."""
    words = [str(arg) for arg in args]
    print(f"$ {shlex.join(['python', f'examples/{script}', *words])}", flush=True)
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *words],
        check=False,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        print(done.stderr, file=sys.stderr)
    _check(done.returncode, script)


def _check(exit_code: int, step: str) -> None:
    if exit_code:
        raise StepFailedError(f"`{step}` failed with exit code {exit_code}; see its message above")


def run_demo() -> None:
    heading("1. Make real images from scikit-learn's own data")
    print(f"{make_digits(DIGITS):,} handwritten digits as PNG in {DIGITS}/<0-9>/")
    print(f"{make_photo_crops(PHOTOS):,} crops of two photos as JPEG in {PHOTOS}/<china, flower>/")

    heading("2. Build: images -> shuffled TFRecord shards, with Apache Beam")
    shardwright("build", DIGITS, DIGITS_DATASET, SPLIT, "--records-per-shard", "256")
    shardwright("build", PHOTOS, PHOTOS_DATASET, SPLIT, "--shard-size", "2MB")

    heading("3. Verify: every byte, count and checksum")
    shardwright("verify", DIGITS_DATASET)
    shardwright("verify", PHOTOS_DATASET)

    heading("4. Inspect")
    shardwright("inspect", PHOTOS_DATASET)

    heading("5. Read back with tf.data, and compare with the files")
    example("read_back.py", DIGITS_DATASET, DIGITS)
    example("read_back.py", PHOTOS_DATASET, PHOTOS)

    heading("6. Train on the digits with Keras")
    example("train_keras.py", DIGITS_DATASET, "--above", str(MIN_ACCURACY))


def print_what_next() -> None:
    commands = {
        "make demo": "again: both datasets are up to date",
        f".venv/bin/shardwright show {DIGITS_DATASET} 0": "the first record",
        ".venv/bin/shardwright build YOUR_IMAGES YOUR_DATASET": "class folders, images or a table",
        ".venv/bin/python examples/train_keras.py YOUR_DATASET": "a training script to start from",
    }
    print(f"images    {DIGITS}/  {PHOTOS}/")
    print(f"datasets  {DIGITS_DATASET}/  {PHOTOS_DATASET}/")
    print(f"report    {DIGITS_DATASET}/report.html")
    print("\nTry next")
    for command, what in commands.items():
        print(f"  {command:<55}{what}")


def main() -> int:
    start = time.monotonic()
    try:
        run_demo()
    except StepFailedError as error:
        print(f"\ndemo: failed: {error}", file=sys.stderr)
        return 1
    print(
        f"\n== Done in {time.monotonic() - start:.0f} s: "
        f"built, verified, read back, trained to over {MIN_ACCURACY:.0%} test accuracy"
    )
    print_what_next()
    return 0


if __name__ == "__main__":
    sys.exit(main())
