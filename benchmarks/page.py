"""Shared parts of the benchmarks: options, the work folder, and pieces of Markdown."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeVar

from measure import Usage

REPO = Path(__file__).resolve().parent.parent
RESULTS = REPO / "benchmarks" / "RESULTS.md"
# A tmpfs lives in memory, and the systems under test need some too.
_MEMORY_FOR_SYSTEMS = 6 * 10**9
USAGE_HEAD = ("wall s", "CPU s", "peak RSS GB", "peak PSS GB")
Item = TypeVar("Item")


def meminfo_bytes(key: str) -> int:
    match = re.search(rf"^{key}:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(match.group(1)) * 1024 if match else 0


def _mounts() -> list[tuple[str, str]]:
    """Return (mount point, file system type) of every mount."""
    lines = Path("/proc/mounts").read_text().splitlines()
    return [(fields[1], fields[2]) for fields in map(str.split, lines)]


def directory_kind(folder: Path) -> str:
    """Return `tmpfs` or `disk`, by the innermost mount that holds the folder."""
    folder = folder.resolve()
    holding = [(len(where), kind) for where, kind in _mounts() if folder.is_relative_to(where)]
    return "tmpfs" if holding and max(holding)[1] == "tmpfs" else "disk"


def _default_directory(need_bytes: int) -> Path:
    """Return a tmpfs with enough space, or else the temp folder.

    On one slow disk all systems would look equal.
    """
    memory_left = meminfo_bytes("MemAvailable") - need_bytes
    for where, kind in _mounts():
        usable = kind == "tmpfs" and os.access(where, os.W_OK) and memory_left > _MEMORY_FOR_SYSTEMS
        if usable and shutil.disk_usage(where).free > need_bytes:
            return Path(where) / "shardwright-bench"
    return Path(tempfile.gettempdir()) / "shardwright-bench"


def work_folder(chosen: Path | None, need_bytes: int) -> Path:
    """Return the folder to work in; exit if it has too little space, before the work starts."""
    folder = (chosen or _default_directory(need_bytes)).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < need_bytes:
        sys.exit(
            f"--dir needs {need_bytes / 1e9:.1f} GB of free space, got {free / 1e9:.1f} GB: choose "
            "another folder or smaller --sizes"
        )
    _exit_on_sigterm()
    return folder


@contextmanager
def scratch_folder(prefix: str, within: Path | str | None) -> Iterator[Path]:
    """Make a folder that is removed at the end, after SIGTERM, too."""
    _exit_on_sigterm()
    with tempfile.TemporaryDirectory(prefix=prefix, dir=within) as folder:
        yield Path(folder)


def _exit_on_sigterm() -> None:
    # So that `timeout` and a stopped terminal leave nothing behind: an exit cleans up.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def say(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)


def numbers(text: str) -> list[int]:
    """Parse an option such as 8000,40_000; return the numbers in order."""
    return sorted(int(part.replace("_", "")) for part in text.split(","))


def choice(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Return the parser of an option such as NAME,NAME; its names come in the order of `known`."""

    def chosen_of(text: str) -> list[str]:
        chosen = text.split(",")
        if unknown := sorted(set(chosen) - set(known)):
            raise argparse.ArgumentTypeError(f"unknown {unknown}; choose from {', '.join(known)}")
        return [name for name in known if name in chosen]

    return chosen_of


def in_rounds(items: Sequence[Item], rounds: int) -> Iterator[tuple[int, Item]]:
    """Yield the number of the round and an item, all items in each round, turned evenly."""
    step = max(1, len(items) // rounds)
    for number in range(rounds):
        for item in turned(items, number * step):
            yield number + 1, item


def turned(items: Sequence[Item], turn: int) -> list[Item]:
    """Return the items rotated by round, because the first one may find a colder machine."""
    turn %= len(items)
    return [*items[turn:], *items[:turn]]


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help that keeps the lines of a docstring, and adds the default of each option."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        has_default = action.default not in (None, False, argparse.SUPPRESS)
        return f"{text} (default: %(default)s)" if has_default and "default" not in text else text


def parser(doc: str | None, *, rounds: int = 3) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks have."""
    made = argparse.ArgumentParser(description=doc, formatter_class=_Help)
    add = made.add_argument
    add("--rounds", type=int, default=rounds, help="rounds of all runs")
    add("--dir", type=Path, help="work here (default: a tmpfs with room, else the temp folder)")
    add("--write", action="store_true", help="keep the raw results, and render all pages")
    add("--no-check", action="store_true", help="exit code 0 even when a target fails")
    return made


class Target(NamedTuple):
    """One required figure; `passed` is None if this run did not measure it."""

    text: str
    found: str
    passed: bool | None


def verdict(passed: bool | None) -> str:
    return "-" if passed is None else "PASS" if passed else "**FAIL**"


def spread(values: Sequence[float], form: str) -> str:
    """Return "median (smallest-largest)", or a single value alone."""
    if not values:
        return "-"
    middle = format(median(values), form)
    if len(values) == 1:
        return middle
    return f"{middle} ({format(min(values), form)}-{format(max(values), form)})"


def usage_cells(usages: Sequence[Usage], form: str) -> list[str]:
    """Return the cells of USAGE_HEAD; memory is the worst round's."""
    return [
        spread([usage.wall_s for usage in usages], form),
        spread([usage.cpu_s for usage in usages], form),
        f"{max(usage.peak_rss_bytes for usage in usages) / 1e9:.2f}",
        f"{max(usage.peak_pss_bytes for usage in usages) / 1e9:.2f}",
    ]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table, with the first column left-aligned and figures right-aligned."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return ["| " + " | ".join(cells) + " |" for cells in (head, rule, *rows)]


def with_section(page: str, name: str, text: str) -> str:
    """Return the page with the text between <!-- NAME:start --> and <!-- NAME:end -->.

    A page that lacks the section gets it at its end.
    """
    start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
    block = f"{start}\n{text.strip()}\n{end}"
    if start in page and end in page:
        return page[: page.index(start)] + block + page[page.index(end) + len(end) :]
    return page.rstrip("\n") + f"\n\n{block}\n"
