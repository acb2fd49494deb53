"""Run one command and measure its whole process tree: wall time, CPU and peak memory.

A system under test may start workers, so every figure covers all processes:

* wall: from just before the start until the kernel returns the command's exit status; * CPU: user +
system time, the larger of two sums: by `wait4`, which covers every descendant that was waited for,
and the last value in /proc of every process, which also covers a killed worker; * memory: the
resident sizes (RSS) of all processes, summed from /proc every 100 ms. RSS counts a page shared by
two processes twice, so the proportional size (PSS) is given too.

Linux only. No third-party imports: the parent must stay small and idle.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

SAMPLE_S = 0.1
# For PSS the kernel walks page tables (about 1 ms per GB), so it is read at every 5th sample.
PSS_EVERY = 5
# Helper processes of a pool may need a moment to notice that their parent is gone.
GRACE_S = 2.0
# Commands run from here, so that `python -m pipelines...` works without an installation.
_REPO = Path(__file__).resolve().parent.parent
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Files of a build that are not shards; names of unfinished files may have further suffixes.
_NOT_SHARDS = (".attempt", ".json", ".parquet", ".txt", ".pbtxt", ".html", ".lock", ".log")


class RunFailedError(RuntimeError):
    """A measured command did not do its work, so its figures must not be used."""


class Usage(NamedTuple):
    """The resources that one command used, summed over its processes."""

    wall_s: float
    cpu_s: float
    peak_rss_bytes: int
    peak_pss_bytes: int
    stdout: Path = Path()

    def told(self) -> Any:
        """Return the JSON in the last line that the command printed."""
        return json.loads(self.stdout.read_text().splitlines()[-1])


@dataclass(frozen=True)
class _Stat:
    parent: int
    session: int
    zombie: bool
    cpu_s: float


def _read_stat(pid: int) -> _Stat | None:
    """Return the needed fields of /proc/PID/stat, or None if the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before may contain blanks and brackets
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return _Stat(int(fields[1]), int(fields[3]), fields[0] == "Z", cpu_s)


def cpu_seconds_of_children() -> dict[str, float]:
    """Return name -> CPU seconds so far of the running child processes of this one."""
    found: dict[str, float] = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        stat = _read_stat(pid)
        if stat is not None and stat.parent == os.getpid():
            with contextlib.suppress(OSError):  # it ended meanwhile
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                found[name] = found.get(name, 0.0) + stat.cpu_s
    return found


def _rss_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _pss_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


class _Tree:
    """The processes of one command, which leads its own session, so that orphans are found too."""

    def __init__(self, root: int) -> None:
        self.root = root
        self._ours = {root}
        self._others: set[int] = set()  # so that each foreign process is read only once

    def pids(self) -> list[int]:
        alive = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        self._ours &= alive
        self._others &= alive
        for pid in sorted(alive - self._ours - self._others):
            stat = _read_stat(pid)
            if stat is not None:
                ours = stat.parent in self._ours or stat.session == self.root
                (self._ours if ours else self._others).add(pid)
        return sorted(self._ours)

    def running(self) -> list[int]:
        stats = {pid: _read_stat(pid) for pid in self.pids()}
        return [pid for pid, stat in stats.items() if stat is not None and not stat.zombie]

    def kill(self) -> None:
        for pid in self.running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Servers:
    """Server processes that work for a measured command without being its children.

    Args:
        roots: Process ids of the servers; each leads its own session.
    """

    def __init__(self, roots: Sequence[int]) -> None:
        self._trees = [_Tree(root) for root in roots]

    def rss_bytes(self) -> int:
        """Return the sum of the resident sizes."""
        return sum(map(_rss_bytes, self.pids()))

    def pids(self) -> list[int]:
        """Return the ids of the servers and of their descendants, as of now."""
        return [pid for tree in self._trees for pid in tree.pids()]


class _Sampler(threading.Thread):
    """A thread that samples a process tree until stopped, and kills it at the deadline."""

    def __init__(
        self, tree: _Tree, timeout_s: float, each_look: Callable[[int], None] | None
    ) -> None:
        super().__init__(daemon=True)
        self.tree = tree
        self.each_look = each_look
        self.peak_rss_bytes = self.peak_pss_bytes = 0
        self.timed_out = False
        self._cpu_s: dict[int, float] = {}
        self._deadline = time.monotonic() + timeout_s
        self._stop_asked = threading.Event()

    def run(self) -> None:
        count = 0
        while not self._stop_asked.is_set():
            self._sample(with_pss=count % PSS_EVERY == 0)
            count += 1
            if time.monotonic() > self._deadline:
                self.timed_out = True
                self.tree.kill()
            self._stop_asked.wait(SAMPLE_S)

    def _sample(self, *, with_pss: bool) -> None:
        pids = self.tree.pids()
        rss_bytes = sum(map(_rss_bytes, pids))
        self.peak_rss_bytes = max(self.peak_rss_bytes, rss_bytes)
        if self.each_look is not None:
            self.each_look(rss_bytes)
        if with_pss:
            self.peak_pss_bytes = max(self.peak_pss_bytes, sum(map(_pss_bytes, pids)))
        for pid in pids:
            stat = _read_stat(pid)
            if stat is not None:
                self._cpu_s[pid] = stat.cpu_s

    def stop(self) -> float:
        """Stop sampling and return the CPU seconds seen."""
        self._stop_asked.set()
        self.join()
        return sum(self._cpu_s.values())


def _start(
    command: Sequence[str], log: Path, env: Mapping[str, str] | None, cwd: Path
) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **(env or {})}
    with open(log.with_suffix(".out"), "wb") as out, open(log.with_suffix(".err"), "wb") as err:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=cwd,
            env=environment,
            start_new_session=True,
        )


def _log_tail(log: Path) -> str:
    text = "".join(log.with_suffix(end).read_text(errors="replace") for end in (".out", ".err"))
    return text[-3000:]


def _wait_until_empty(tree: _Tree) -> bool:
    deadline = time.monotonic() + GRACE_S
    while tree.running():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def measure(
    command: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 1800,
    each_look: Callable[[int], None] | None = None,
    cwd: Path = _REPO,
) -> Usage:
    """Run a command in `cwd` to its end, with its output in LOG.out and LOG.err.

    `each_look` is called every 100 ms with the tree's RSS in bytes while the command runs.

    Raises:
        RunFailedError: The exit code is not 0, `timeout_s` is over, or processes are left running,
            whose work would be missing from the wall time.
    """
    start = time.perf_counter()
    child = _start(command, log, env, cwd)
    tree = _Tree(child.pid)
    sampler = _Sampler(tree, timeout_s, each_look)
    sampler.start()
    try:
        _, status, used = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        cpu_s = max(used.ru_utime + used.ru_stime, sampler.stop())
        all_gone = _wait_until_empty(tree)
    finally:
        tree.kill()
    if sampler.timed_out or child.returncode or not all_gone:
        why = "processes stayed behind" if not all_gone else f"exit code {child.returncode}"
        why = f"timed out after {timeout_s:.0f} s" if sampler.timed_out else why
        # Relative, because pages keep the message.
        shown = " ".join(command).replace(f"{_REPO}/", "")
        raise RunFailedError(f"{why}: {shown}\n{_log_tail(log)}")
    return Usage(
        wall_s, cpu_s, sampler.peak_rss_bytes, sampler.peak_pss_bytes, log.with_suffix(".out")
    )


def _first_shard(folder: Path) -> Path | None:
    """Return a non-empty file below the folder that may be a shard, finished or not."""
    for where, _, names in os.walk(folder):
        for name in names:
            path = Path(where, name)
            try:
                if not any(end in name for end in _NOT_SHARDS) and path.stat().st_size > 0:
                    return path
            except FileNotFoundError:  # renamed since the listing
                continue
    return None


def seconds_to_first_shard(
    command: Sequence[str],
    out: Path,
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 120,
) -> tuple[float, str]:
    """Return the seconds until the first byte of the first shard below `out`, and its name.

    The command is then killed: this polling costs CPU and would distort the rest of the run.
    """
    start = time.perf_counter()
    child = _start(command, log, env, _REPO)
    tree = _Tree(child.pid)
    try:
        while time.perf_counter() - start < timeout_s:
            # Before looking for a shard: a run may write it and end in between.
            ended = child.poll() is not None
            found = _first_shard(out)
            if found is not None:
                return time.perf_counter() - start, found.name
            if ended:
                break
            time.sleep(0.01)
    finally:
        tree.kill()
        child.wait()
    raise RunFailedError(
        f"no shard appeared within {timeout_s:.0f} s: {' '.join(command)}\n{_log_tail(log)}"
    )
