#!/usr/bin/env python
"""Compare the speed of this checkout with an earlier commit (`make bench-guard`).

The earlier commit is checked out beside this one and runs in the same environment. Each round runs
both, in alternating order, on the same input: a build of 40,000 photographs (photos.py), a plan of
1,000,000 rows (plan.py), and two epochs of 4,000 training images (sw.Reader). A ratio is the
earlier wall time divided by this one's, so 0.80 means a quarter more time. Ratios of whole
commands, start-up included, hardly depend on the machine.

Exit code 1 if the median of a ratio is below --fail-below, in a second run, too. Takes under 4
minutes.
"""

from __future__ import annotations

import argparse
import compileall
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import page
from ballast import Ballast
from measure import RunFailedError, Usage, measure
from page import spread
from photos import make_photos
from plan import PLAN_OPTIONS, check_plan, make_table

BASELINE = page.REPO / "benchmarks" / "BASELINE"
_COMMAND = ("-m", "shardwright.inspect.cli")
_PHOTOS, _ROWS = 4_000, 1_000_000
# Two epochs, so that start-up is the smaller part.
_READ = """
import sys, shardwright as sw
image = sw.TrainImage(224)
reader = sw.Reader(
    sys.argv[1], "train", global_batch_size=250, shuffle=True, epochs=2, image=image
)
print(sum(len(batch["image"]) for batch in reader))
"""
_PACKAGES = ("shardwright", "schemas", "transforms", "pipelines")


class Guard:
    """The two trees, their inputs, and the work folder.

    Args:
        trees: The earlier checkout and this one.
        folder: For inputs, outputs and logs.
        names: Names for each photograph; see photos.py.
        rows: Rows of the table to plan.
    """

    def __init__(self, trees: tuple[Path, Path], folder: Path, names: int, rows: int) -> None:
        self.trees, self.out, self.log = trees, folder / "out", folder / "log"
        self.photos = make_photos(folder, photos=_PHOTOS, names=names)
        self.rows, self.table = rows, make_table(folder, rows)
        self.dataset = folder / "dataset"
        out_bytes = 0 if page.directory_kind(folder) == "disk" else int(1.1 * self.photos.num_bytes)
        self.ballast = Ballast(folder / "ballast", out_bytes)

    def _run(self, tree: Path, *words: str) -> Usage:
        self.ballast.swap(self.out)
        self.ballast.follow(self.out, 0)
        usage = measure(
            [sys.executable, *words],
            log=self.log,
            env={"TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": str(tree)},
            each_look=lambda rss_bytes: self.ballast.follow(self.out, rss_bytes),
            cwd=tree,
        )
        self.ballast.swap(self.out)
        return usage

    def build(self, tree: Path) -> Usage:
        words = (*_COMMAND, "build", str(self.photos.folder), str(self.out))
        return self._run(tree, *words, "--shard-size", "150MB")

    def plan(self, tree: Path) -> Usage:
        words = (*_COMMAND, "plan", str(self.table), str(self.out))
        usage = self._run(tree, *words, *PLAN_OPTIONS)
        check_plan(usage.stdout.read_text(), self.rows)
        return usage

    def read(self, tree: Path) -> Usage:
        if not self.dataset.exists():
            photos = make_photos(self.dataset.parent, photos=_PHOTOS).folder
            # By the earlier one: it may not know all that a newer manifest says.
            before = self.trees[0]
            self._run(before, *_COMMAND, "build", str(photos), str(self.dataset))
        usage = self._run(tree, "-c", _READ, str(self.dataset))
        if int(usage.stdout.read_text()) != 2 * _PHOTOS:
            raise RunFailedError(f"read {usage.stdout.read_text()} images of {2 * _PHOTOS}")
        return usage

    def ratios(self, run: Callable[[Path], Usage], rounds: int) -> list[float]:
        """Return earlier wall time / this one's for each round."""
        found = []
        run(self.trees[1])  # the first run warms the file cache and the output's memory
        for number in range(rounds):
            order = self.trees if number % 2 else self.trees[::-1]
            walls = {tree: run(tree).wall_s for tree in order}
            before, now = (walls[tree] for tree in self.trees)
            print(f"  before {before:6.2f} s, now {now:6.2f} s", file=sys.stderr, flush=True)
            found.append(before / now)
        return found

    def compare(self, rounds: int, fail_below: float) -> bool:
        """Print both ratios; return whether one is below the limit."""
        slow = False
        works = {
            f"build of {self.photos.files:,} photographs": self.build,
            f"plan of {self.rows:,} rows": self.plan,
            f"{2 * _PHOTOS:,} training images": self.read,
        }
        for name, run in works.items():
            ratios = self.ratios(run, rounds)
            slow |= median(ratios) < fail_below
            print(f"{name}: {spread(ratios, '.2f')} times the speed of before", flush=True)
        return slow


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-C", str(page.REPO), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _has_history() -> bool:
    return _git("rev-parse", "--is-shallow-repository").stdout.strip() == "false"


@contextmanager
def checked_out(commit: str, folder: Path) -> Iterator[Path]:
    """Check a commit out beside this one for as long as the block runs.

    Raises:
        RunFailedError: The commit is not in this clone.
    """
    tree = folder / "before"
    _git("worktree", "prune")
    done = _git("worktree", "add", "--force", "--detach", str(tree), commit)
    if done.returncode:
        raise RunFailedError(f"cannot check {commit} out: {done.stderr.strip()}")
    try:
        # Its own entry points, which name its input formats, instead of the installed ones.
        subprocess.run([sys.executable, "setup.py", "-q", "egg_info"], cwd=tree, check=True)
        yield tree
    finally:
        _git("worktree", "remove", "--force", str(tree))


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--commit", help="compare with this commit (default: the one in benchmarks/BASELINE)")
    add("--names", type=int, default=10, help="names of each of 4,000 photographs (default 10)")
    add("--rows", type=int, default=_ROWS, help="rows to plan (default 1,000,000)")
    add("--rounds", type=int, default=4, help="runs of each commit (default %(default)s)")
    add("--fail-below", type=float, default=0.8, help="smallest ratio (default %(default)s)")
    add("--dir", type=Path, help="work here (default: a tmpfs with room, else the temp folder)")
    return parser.parse_args(argv)


def main() -> int:
    args = parse_args(sys.argv[1:])
    commit = args.commit or BASELINE.read_text().strip()
    if _git("cat-file", "-e", commit).returncode and not _has_history():
        print(f"not compared: {commit[:12]} is not here, because this is no full clone")
        return 0
    need_bytes = args.names * _PHOTOS * 100_000 + 10**9
    folder = page.work_folder(args.dir, need_bytes) / "guard"
    try:
        with checked_out(commit, folder) as before:
            trees = (before, page.REPO)
            for package in (tree / name for tree in trees for name in _PACKAGES):
                compileall.compile_dir(package, quiet=1)  # else the first run would compile
            guard = Guard(trees, folder, args.names, args.rows)
            print(f"this checkout against {commit[:12]}, {args.rounds} rounds", flush=True)
            slow = guard.compare(args.rounds, args.fail_below)
            if slow:
                print(f"below {args.fail_below}: once more, to rule chance out", flush=True)
                slow = guard.compare(args.rounds, args.fail_below)
    except RunFailedError as failure:
        sys.exit(str(failure))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
