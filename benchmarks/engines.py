"""The runners that `runners.py` compares: their build arguments and their server processes."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
_FLINK = {"Flink-2": 2, "Flink-4": 4}  # Python workers
PRISM = REPO / ".engines" / "prism" / "prism"
CORES = os.cpu_count() or 1
# One process with the threads of a build; one process per core; one of Beam's threads per core.
THREADS, PROCESSES, BEAM_THREADS = "FnApiRunner", "FnApiRunner-processes", "FnApiRunner-threads"
OFFLINE = "DirectRunner-offline"
# No network beyond this machine, so Beam's DirectRunner cannot download Prism.
_OFFLINE = {"https_proxy": "http://127.0.0.1:9", "HOME": tempfile.gettempdir()}


class MissingError(Exception):
    """An engine is not installed; the message is the command that installs it."""


@dataclass(frozen=True)
class Engine:
    """A runner that is ready.

    Attributes:
        arguments: Arguments for `shardwright build`.
        environment: Additional environment variables of the build.
        servers: Ids of its server processes that are not children of the build's process.
    """

    arguments: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)
    servers: Sequence[int] = ()


Group = dict[str, Engine]


def _fn_api(mode: str) -> Engine:
    return Engine(
        ("--runner=FnApiRunner", f"--direct_running_mode={mode}", f"--direct_num_workers={CORES}")
    )


@contextmanager
def _local() -> Iterator[Group]:
    yield {
        THREADS: Engine(()),
        PROCESSES: _fn_api("multi_processing"),
        BEAM_THREADS: _fn_api("multi_threading"),
        OFFLINE: Engine(("--runner=DirectRunner",), _OFFLINE),
    }


@contextmanager
def _prism() -> Iterator[Group]:
    if not PRISM.exists():
        raise MissingError("make test-prism")
    yield {
        "Prism": Engine(
            ("--runner=PrismRunner", f"--prism_location={PRISM}", "--environment_type=LOOPBACK")
        )
    }


@contextmanager
def _flink() -> Iterator[Group]:
    sys.path.insert(0, str(REPO))
    # Imported here, because the other engines do not need it.
    from deploy.flink.cluster import FlinkMissingError, cluster

    with tempfile.TemporaryDirectory(prefix="flink-bench-") as folder:
        try:
            starting = cluster(Path(folder) / "cluster", 2)
            started = starting.__enter__()
        except FlinkMissingError as error:
            raise MissingError("make test-flink") from error
        try:
            servers = [process.pid for process in (*started.others, *started.workers)]
            yield {
                name: Engine(
                    (
                        *started.arguments(number, python_processes=number // 2),
                        "--shared-filesystem",
                    ),
                    servers=servers,
                )
                for name, number in _FLINK.items()
            }
        finally:
            starting.__exit__(None, None, None)


# Runners that share servers are measured together. No server of one group runs during another.
_GROUPS = (
    ((THREADS, PROCESSES, BEAM_THREADS, OFFLINE), _local),
    (("Prism",), _prism),
    (tuple(_FLINK), _flink),
)
NAMES = tuple(name for names, _ in _GROUPS for name in names)


def groups(chosen: Sequence[str]) -> Iterator[tuple[list[str], AbstractContextManager[Group]]]:
    """Yield the chosen runners in groups, each with the context manager that starts its engines.

    Entering it raises MissingError if the engine is not installed.
    """
    for names, start in _GROUPS:
        wanted = [name for name in names if name in chosen]
        if wanted:
            yield wanted, start()
