"""Jobs on Dataflow that are refused, fail, or are cancelled: exit code 1 and the reason in one line; and what is refused before.

Their jobs are not run: they stay as they are until a test ends them.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from pipelines.options import parse_options
from tests.engines.dataflow_jobs import OWN_IMAGE, SECONDS, Cloud, wait_until
from tests.engines.engine_builds import Ended, EngineBuild, start
from tests.object_stores import put_object
from tests.servers.dataflow.service import CANCELLED, Job

IMAGE = f"--sdk_container_image={OWN_IMAGE}"
WORKER_TRACE = """\
Error message from worker: generic::unknown: Traceback (most recent call last):
  File "apache_beam/runners/common.py", line 1498, in apache_beam.runners.common.DoFnRunner.process
  File "/usr/local/lib/python3.11/site-packages/transforms/writing/shard_writing.py", line 80, in write
shardwright.errors.BuildError: gs://data/out: the disk is full [while running 'WriteShards/Write-ptransform-12']
"""


def started(cloud: Cloud, source: str, output: str) -> tuple[EngineBuild, Job]:
    """A build whose job runs, and which has said so."""
    before = len(cloud.dataflow.jobs)
    build = cloud.start(source, output, IMAGE)
    wait_until(
        lambda: (
            len(cloud.dataflow.jobs) > before and f"job {cloud.dataflow.jobs[-1].id}" in build.log
        ),
        SECONDS,
    )
    return build, cloud.dataflow.jobs[-1]


def assert_told(ended: Ended, reason: str, code: int = 1) -> None:
    """The reason is on the last line, and there is no stack trace."""
    assert ended.code == code, ended.log
    assert reason in ended.log.rstrip().rpartition("\n")[2]
    assert "Traceback" not in ended.log


def test_a_job_that_is_refused(cloud: Cloud, source: str) -> None:
    cloud.dataflow.service.refuse_next(403, "tester@test-project lacks dataflow.jobs.create")
    built = cloud.build(source, "refused", IMAGE)
    assert not built.jobs
    assert_told(built.ended, "tester@test-project lacks dataflow.jobs.create")


def test_a_job_beside_a_running_one_of_the_same_output_is_refused(
    cloud: Cloud, source: str
) -> None:
    build, job = started(cloud, source, "twice")
    try:
        assert_told(cloud.build(source, "twice", IMAGE).ended, job.name)
    finally:
        build.kill()
        job.end(CANCELLED)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (WORKER_TRACE, "error: gs://data/out: the disk is full"),
        (
            "Workflow failed. Causes: The zone has no machines of this type.",
            "The zone has no machines of this type.",
        ),
    ],
    ids=["worker", "service"],
)
def test_a_job_that_fails(cloud: Cloud, source: str, message: str, reason: str) -> None:
    cloud.dataflow.service.fail_next(message)
    assert_told(cloud.build(source, "failed", IMAGE).ended, reason)


def test_a_job_that_somebody_cancels(cloud: Cloud, source: str) -> None:
    build, job = started(cloud, source, "cancelled")
    job.end(CANCELLED)
    assert_told(build.wait(SECONDS), "CANCELLED")


def test_progress_is_shown_and_a_signal_cancels_the_job(cloud: Cloud, source: str) -> None:
    """Progress is what workers have put into OUTPUT: here a plan of three shards, and two of their sidecars."""
    build, job = started(cloud, source, "stopped")
    output = f"gs://{cloud.bucket}/stopped"
    plan = {"settings": parse_options([source, output]).settings}
    plan["splits"] = {"train": {"num_shards": 3, "num_records": 60, "num_bytes": 1500}}
    put_object(cloud.gcs, f"{output}/plan.json", json.dumps(plan).encode())
    for number in range(2):
        put_object(cloud.gcs, f"{output}/index/train-0000{number}-of-00003.parquet", b"")
    wait_until(lambda: "40/60 images" in build.log, 60)
    build.process.send_signal(signal.SIGTERM)
    ended = build.wait(60)
    assert job.state == CANCELLED
    assert_told(ended, "stopped by SIGTERM", 128 + signal.SIGTERM)


def test_a_local_input_is_refused_before_anything_is_asked_for(
    cloud: Cloud, engine_images: Path
) -> None:
    before = len(cloud.dataflow.service.requests)
    ended = cloud.start(str(engine_images), "local", IMAGE).wait(SECONDS)
    assert_told(ended, str(engine_images), 2)
    assert len(cloud.dataflow.service.requests) == before


def test_a_local_output_is_refused(cloud: Cloud, source: str, tmp_path: Path) -> None:
    ended = start(cloud.settings, source, tmp_path / "out", env=cloud.dataflow.environment).wait(
        SECONDS
    )
    assert_told(ended, str(tmp_path / "out"), 2)


def test_all_that_is_missing_is_told_at_once_before_any_image_is_listed(cloud: Cloud) -> None:
    before = len(cloud.dataflow.service.requests)
    runner = ("--runner=DataflowRunner", *cloud.dataflow.arguments)
    ended = start(
        runner,
        "gs://no-such-bucket/images",
        f"gs://{cloud.bucket}/missing",
        env=cloud.dataflow.environment,
    ).wait(SECONDS)
    for option in ("--project", "--region", "--temp_location"):
        assert_told(ended, option, 2)
    assert len(cloud.dataflow.service.requests) == before
