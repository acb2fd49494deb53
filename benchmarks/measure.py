"""Run one command and measure its whole process tree: wall clock, CPU and peak memory.

A system under test may start workers, so nothing here looks at one process only:

* wall: from just before the start to the moment the kernel hands back the command's exit status;
* CPU: user + system time by `wait4`, which covers every descendant that was waited for, or the sum of
  what /proc last showed for every process of the tree (a killed worker is only in this), the larger one;
* memory: /proc is looked at every 100 ms and the resident sizes (RSS) of all processes of the tree are
  added up. RSS counts a page shared by two processes twice, so the proportional size (PSS) is given too.

Linux only. No third-party imports: the parent must stay small and idle.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SAMPLE_S = 0.1
# Reading PSS makes the kernel walk page tables (about 1 ms per GB), so it is read at every 5th sample.
PSS_EVERY = 5
# A pool's helper processes may need a moment to see that their parent is gone.
GRACE_S = 2.0
# Commands run from here, so that `python -m pipelines...` works without an installation.
_REPO = Path(__file__).resolve().parent.parent
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# What a build writes beside its shards; names of unfinished files may carry more dots behind these.
_NOT_SHARDS = (".json", ".parquet", ".txt", ".pbtxt", ".html", ".lock", ".log")


class RunFailedError(RuntimeError):
    """A measured command did not do its work, so its figures must not be used."""


@dataclass(frozen=True)
class Usage:
    """What one command used, all of its processes together."""

    wall_s: float
    cpu_s: float
    peak_rss_bytes: int
    peak_pss_bytes: int
    stdout: Path


@dataclass(frozen=True)
class _Stat:
    parent: int
    session: int
    zombie: bool
    cpu_s: float


def _read_stat(pid: int) -> _Stat | None:
    """The few fields of /proc/PID/stat needed here; None when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold blanks and brackets
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return _Stat(int(fields[1]), int(fields[3]), fields[0] == "Z", cpu_s)


def cpu_seconds_of_children() -> dict[str, float]:
    """CPU seconds so far of the processes that this one started and that still run, by their names."""
    found: dict[str, float] = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        stat = _read_stat(pid)
        if stat is not None and stat.parent == os.getpid():
            with contextlib.suppress(OSError):  # gone between the two looks
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
    """The processes of one command. The command leads its own session, so orphans are found too."""

    def __init__(self, root: int) -> None:
        self.root = root
        self._ours = {root}
        self._others: set[int] = set()  # remembered, so that each foreign process is read only once

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
    """Processes that work for a measured command and are not its children, each with all that it starts.

    Args:
        roots: Their process ids; each leads a session of its own.
    """

    def __init__(self, roots: Sequence[int]) -> None:
        self._trees = [_Tree(root) for root in roots]

    def rss_bytes(self) -> int:
        """Their resident sizes, added up."""
        return sum(map(_rss_bytes, self.pids()))

    def pids(self) -> list[int]:
        """All of them, now."""
        return [pid for tree in self._trees for pid in tree.pids()]


class _Sampler(threading.Thread):
    """Looks at a tree until stopped; kills it when it runs past its time."""

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
        """Ends the sampling and returns the CPU seconds seen."""
        self._stop_asked.set()
        self.join()
        return sum(self._cpu_s.values())


def _start(
    command: Sequence[str], log: Path, env: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **(env or {})}
    with open(log.with_suffix(".out"), "wb") as out, open(log.with_suffix(".err"), "wb") as err:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=_REPO,
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
) -> Usage:
    """Runs the command to its end. Output goes to LOG.out and LOG.err.

    `each_look` is called every 100 ms with the tree's RSS in bytes, beside the running command.
    Raises RunFailedError on a non-zero exit, past `timeout_s`, and when processes stay behind (their work
    would be missing from the wall clock).
    """
    start = time.perf_counter()
    child = _start(command, log, env)
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
        raise RunFailedError(f"{why}: {' '.join(command)}\n{_log_tail(log)}")
    return Usage(
        wall_s, cpu_s, sampler.peak_rss_bytes, sampler.peak_pss_bytes, log.with_suffix(".out")
    )


def _first_shard(folder: Path) -> Path | None:
    """Any file under the folder with bytes in it that could be a shard, finished or not."""
    for where, _, names in os.walk(folder):
        for name in names:
            path = Path(where, name)
            try:
                if not any(end in name for end in _NOT_SHARDS) and path.stat().st_size > 0:
                    return path
            except FileNotFoundError:  # renamed between the listing and the look
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
    """Time from the start to the first byte of the first shard under `out`, and that file's name.

    The command is killed then: the looking costs CPU, so the rest of this run would be no measurement.
    """
    start = time.perf_counter()
    child = _start(command, log, env)
    tree = _Tree(child.pid)
    try:
        while time.perf_counter() - start < timeout_s:
            ended = (
                child.poll() is not None
            )  # asked first: a run may write all and end between two looks
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
