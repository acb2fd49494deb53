"""One Flink cluster for all tests: JobManager, Beam's job server, two TaskManagers of two slots."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.flink.cluster import Cluster, FlinkMissingError, cluster

WORKERS = 2
SECONDS = 240  # of the slowest build on a busy machine; 15 on an idle one
TEST_SECONDS = 3 * SECONDS  # the most builds that a test has


@pytest.fixture(scope="session")
def flink_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    starting = cluster(tmp_path_factory.mktemp("flink") / "cluster", WORKERS)
    try:
        started = starting.__enter__()
    except FlinkMissingError as error:
        pytest.skip(f"{error}, or make test-flink")
    try:
        yield started
    finally:
        starting.__exit__(None, None, None)


@pytest.fixture
def flink(flink_cluster: Cluster) -> Cluster:
    """The cluster with two workers alive, whatever an earlier test did to them, and no job left."""
    for job, state in flink_cluster.jobs().items():
        if state not in ("FINISHED", "FAILED", "CANCELED"):
            flink_cluster.cancel(job)
    for _ in range(WORKERS - len(flink_cluster.living)):
        flink_cluster.add_worker()
    flink_cluster.wait_for_workers(WORKERS)
    return flink_cluster
