"""Processes killed while Flink builds: the job or the same command goes on, to equal bytes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.flink.cluster import Cluster
from shardwright.inspect.cli import main
from tests.engines.engine_builds import (
    LOCAL,
    OPTIONS,
    Ended,
    EngineBuild,
    build,
    shard_digests,
    start,
)
from tests.engines.engine_transforms import FOLDER, SLEEP, WATCHED
from tests.engines.flink_cluster import SECONDS, TEST_SECONDS
from tests.support.build_helpers import leftovers_of

ENDED = ("FINISHED", "FAILED", "CANCELED")
SLEEP_S = "0.3"  # an image; a shard of 9 takes 3 s, and there are 8 of them
pytestmark = pytest.mark.timeout(TEST_SECONDS)


@dataclass
class Slow:
    """Builds of the same, slow enough to be killed in the middle."""

    cluster: Cluster
    images: Path
    folder: Path

    @property
    def output(self) -> Path:
        return self.folder / "out"

    @property
    def command(self) -> tuple[list[str], Path, Path, *tuple[str, ...]]:
        """The engine's options, INPUT, OUTPUT and the build's options."""
        environment = {FOLDER: str(self.folder / "processes"), SLEEP: SLEEP_S}
        arguments = self.cluster.arguments(2, environment=environment)
        options = (*OPTIONS, "--transform", WATCHED, "--shared-filesystem")
        return arguments, self.images, self.output, *options

    def start(self) -> EngineBuild:
        """Start one, and wait for its first finished shards."""
        build = start(*self.command)
        wait_for(lambda: build.process.poll() is not None or bool(self.finished()), SECONDS)
        assert build.process.poll() is None, build.log
        return build

    def again(self) -> Ended:
        """Run the same command once more, to its end."""
        return build(*self.command, timeout=SECONDS)

    def finished(self) -> dict[str, tuple[int, int]]:
        """(inode, mtime in ns) of every shard that has a sidecar, which makes it finished."""
        places = [path.stem.partition("-") for path in self.output.glob("index/*.parquet")]
        names = [f"engine-{split}.tfrecord-{number}" for split, _, number in places]
        stats = {name: (self.output / name).stat() for name in names}
        return {name: (status.st_ino, status.st_mtime_ns) for name, status in stats.items()}

    def python_workers(self) -> list[int]:
        """Return the processes that have written records."""
        return [int(path.name) for path in (self.folder / "processes").iterdir()]


@pytest.fixture(scope="module")
def expected(engine_images: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The digests of the local runner's shards."""
    folder = tmp_path_factory.mktemp("local")
    build(LOCAL, engine_images, folder / "out", *OPTIONS, "--transform", WATCHED)
    return shard_digests(folder / "out")


@pytest.fixture
def slow(flink: Cluster, engine_images: Path, tmp_path: Path) -> Slow:
    (tmp_path / "processes").mkdir()
    return Slow(flink, engine_images, tmp_path)


def check(slow: Slow, expected: dict[str, str], finished: dict[str, tuple[int, int]]) -> None:
    """Assert that the dataset is whole and the same, and finished files are untouched."""
    assert shard_digests(slow.output) == expected
    assert leftovers_of(slow.output) == []
    assert main(["verify", str(slow.output)]) == 0
    assert slow.finished() | finished == slow.finished()


def kill_worker(slow: Slow) -> None:
    slow.cluster.living[-1].kill()


def kill_worker_and_start_another(slow: Slow) -> None:
    slow.cluster.living[-1].kill()
    slow.cluster.add_worker()


def kill_python(slow: Slow) -> None:
    os.kill(slow.python_workers()[0], signal.SIGKILL)


@pytest.mark.parametrize("kill", [kill_worker_and_start_another, kill_worker, kill_python])
def test_the_job_survives(
    slow: Slow, expected: dict[str, str], kill: Callable[[Slow], None]
) -> None:
    running = slow.start()
    finished, processes = slow.finished(), slow.python_workers()
    assert len(finished) < len(expected) // 2
    kill(slow)
    ended = running.wait(SECONDS)
    assert ended.code == 0, ended.log
    check(slow, expected, finished)
    # None outlives its worker, or a try that failed.
    wait_for(lambda: not any(map(is_alive, processes)))


def test_a_killed_command_leaves_its_job_and_may_be_given_again_meanwhile(
    slow: Slow, expected: dict[str, str]
) -> None:
    slow.start().kill()
    finished = slow.finished()
    (job,) = running_jobs(slow.cluster)
    slow.again()
    wait_for(lambda: not running_jobs(slow.cluster))
    assert slow.cluster.jobs()[job] in ("FINISHED", "FAILED")
    check(slow, expected, finished)


def test_the_job_of_a_killed_command_can_be_cancelled(slow: Slow, expected: dict[str, str]) -> None:
    slow.start().kill()
    (job,) = running_jobs(slow.cluster)
    slow.cluster.cancel(job)
    wait_for(lambda: slow.cluster.jobs()[job] == "CANCELED")
    finished = slow.finished()
    slow.again()
    check(slow, expected, finished)


def test_a_stopped_command_cancels_its_job(slow: Slow, expected: dict[str, str]) -> None:
    before = set(slow.cluster.jobs())
    running = slow.start()
    running.process.send_signal(signal.SIGTERM)
    ended = running.wait(SECONDS)
    assert ended.code == 128 + signal.SIGTERM, ended.log
    told = "stopped by SIGTERM; run the same command again to resume"
    assert ended.log.splitlines()[-1] == f"shardwright: {told}"
    wait_for(lambda: not running_jobs(slow.cluster))
    (job,) = set(slow.cluster.jobs()) - before
    assert slow.cluster.jobs()[job] == "CANCELED"
    finished = slow.finished()
    assert len(finished) < len(expected)
    slow.again()
    check(slow, expected, finished)


def is_alive(process: int) -> bool:
    """Tell if it runs; one that ended and was not waited for has no command line."""
    command = Path(f"/proc/{process}/cmdline")
    return command.exists() and command.read_bytes() != b""


def running_jobs(cluster: Cluster) -> list[str]:
    return [job for job, state in cluster.jobs().items() if state not in ENDED]


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "this never came"
        time.sleep(0.1)
