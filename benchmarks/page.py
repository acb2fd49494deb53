"""Shared parts of the results pages: the work folder, the circumstances and the page itself.

The page is public, so it states the machine's type and the versions, never a host, a user or an
absolute path.
"""

from __future__ import annotations

import datetime
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
RESULTS = REPO / "benchmarks" / "RESULTS.md"
_PACKAGES = ("apache-beam", "tensorflow", "webdataset", "pyarrow")
# A tmpfs lives in memory, and the systems under test need some too.
_MEMORY_FOR_SYSTEMS = 6 * 10**9


def _meminfo_bytes(key: str) -> int:
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


def default_directory(need_bytes: int) -> Path:
    """Return a tmpfs with enough space, or else the temp folder.

    On one slow disk all systems would look equal.
    """
    memory_left = _meminfo_bytes("MemAvailable") - need_bytes
    for where, kind in _mounts():
        usable = kind == "tmpfs" and os.access(where, os.W_OK) and memory_left > _MEMORY_FOR_SYSTEMS
        if usable and shutil.disk_usage(where).free > need_bytes:
            return Path(where) / "shardwright-bench"
    return Path(tempfile.gettempdir()) / "shardwright-bench"


def require_room(folder: Path, need_bytes: int) -> None:
    """Exit if the folder has too little space, before the work and not in the middle of it."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < need_bytes:
        sys.exit(
            f"--dir needs {need_bytes / 1e9:.1f} GB of free space, got {free / 1e9:.1f} GB: choose "
            "another folder or smaller --sizes"
        )


def _git_sha() -> str:
    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(REPO), *words], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    sha = git("rev-parse", "--short", "HEAD")
    if not sha:
        return "no commit"
    # The previous run rewrote the page itself; that is no change of the program.
    return sha + (
        " with changes" if git("status", "--porcelain", "--", ":!benchmarks/RESULTS.md") else ""
    )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _cpu_model() -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return match.group(1).strip() if match else platform.machine()


def _shown_command(script: str, argv: list[str]) -> str:
    """Return the command as typed, without the path of `--dir`, which is private."""
    text = " ".join(["python", f"benchmarks/{script}", *argv])
    return re.sub(r"(--dir[= ])\S+", r"\1DIR", text)


def circumstances(
    script: str, argv: list[str], *, rounds: int, folder: Path, more: tuple[str, ...] = ()
) -> list[str]:
    """Return the lines about the machine, the versions and the command."""
    versions = ", ".join(f"{name} {_version(name)}" for name in (*_PACKAGES, *more))
    memory = _meminfo_bytes("MemTotal") / 1e9
    return [
        f"- Machine: {_cpu_model()}, {os.cpu_count()} cores, {memory:.0f} GB of memory, "
        f"{platform.system()}",
        f"- Versions: Python {platform.python_version()}, {versions}, shardwright git {_git_sha()}",
        f"- Command: `{_shown_command(script, argv)}`; {rounds} round{'s' if rounds > 1 else ''}; "
        f"input and output on {directory_kind(folder)}; {datetime.date.today().isoformat()}",
    ]


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Return a Markdown table, with the first column left-aligned and figures right-aligned."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return ["| " + " | ".join(cells) + " |" for cells in (head, rule, *rows)]


def write_section(name: str, text: str, path: Path = RESULTS) -> None:
    """Write the text between <!-- NAME:start --> and <!-- NAME:end -->; the rest is unchanged."""
    start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
    block = f"{start}\n{text.strip()}\n{end}"
    page = path.read_text() if path.exists() else "# Results\n"
    if start in page and end in page:
        page = page[: page.index(start)] + block + page[page.index(end) + len(end) :]
    else:
        page = page.rstrip("\n") + f"\n\n{block}\n"
    path.write_text(page)
