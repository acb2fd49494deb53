"""Jobs on Dataflow that are refused, fail or are cancelled, and commands refused before.

Their jobs are not run: they stay as they are until a test ends them.
"""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from shardwright.pipelines.options.build import parse_options
from tests.engines.dataflow_jobs import OWN_IMAGE, SECONDS, Cloud, wait_until
from tests.engines.engine_builds import Ended, EngineBuild, start
from tests.servers.dataflow.service import CANCELLED, Job
from tests.support.object_stores import put_object

IMAGE = f"--sdk_container_image={OWN_IMAGE}"
WORKER_TRACE = """\
Error message from worker: generic::unknown: Traceback (most recent call last):
  File "apache_beam/runners/common.py", line 1498, in DoFnRunner.process
  File "/usr/local/lib/python3.11/site-packages/transforms/writing.py", line 80, in write
shardwright.errors.BuildError: gs://data/out: the disk is full \
[while running 'WriteShards/Write-ptransform-12']
"""


def started(cloud: Cloud, source: str, output: str) -> tuple[EngineBuild, Job]:
    """Start a build, and wait until its job runs and it has said so."""
    before = len(cloud.dataflow.jobs)
    build = cloud.start(source, output, IMAGE)

    def is_told() -> bool:
        new = cloud.dataflow.jobs[before:]
        return bool(new) and f"job {new[-1].id}" in build.log

    wait_until(is_told, SECONDS)
    return build, cloud.dataflow.jobs[-1]


def assert_told(ended: Ended, reason: str, code: int = 1) -> None:
    """Find the reason on the last line, and no stack trace."""
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
    """Progress counts what is in OUTPUT: here a plan of three shards, and two of their sidecars."""
    build, job = started(cloud, source, "stopped")
    output = f"gs://{cloud.bucket}/stopped"
    plan = {"settings": parse_options([source, output]).settings}
    plan["splits"] = {"train": {"num_shards": 3, "num_records": 60, "num_bytes": 1500}}
    put_object(cloud.gcs, f"{output}/plan.json", json.dumps(plan).encode())
    for number in range(2):
        put_object(cloud.gcs, f"{output}/index/train-0000{number}-of-00003.parquet", b"")
    wait_until(lambda: "40 of 60 images" in build.log, 60)
    build.process.send_signal(signal.SIGTERM)
    ended = build.wait(60)
    assert job.state == CANCELLED
    assert_told(ended, "stopped by SIGTERM", 128 + signal.SIGTERM)


def test_local_places_are_refused_before_any_request(
    cloud: Cloud, source: str, engine_images: Path, tmp_path: Path
) -> None:
    before, env = len(cloud.dataflow.service.requests), cloud.dataflow.environment
    ended = cloud.start(str(engine_images), "local", IMAGE).wait(SECONDS)
    assert_told(ended, str(engine_images), 2)
    ended = start(cloud.settings, source, tmp_path / "out", env=env).wait(SECONDS)
    assert_told(ended, str(tmp_path / "out"), 2)
    assert len(cloud.dataflow.service.requests) == before


def test_all_missing_options_are_told_at_once_before_any_image_is_listed(cloud: Cloud) -> None:
    before, env = len(cloud.dataflow.service.requests), cloud.dataflow.environment
    runner = ("--runner=DataflowRunner", *cloud.dataflow.arguments)
    places = ("gs://no-such-bucket/images", f"gs://{cloud.bucket}/missing")
    ended = start(runner, *places, env=env).wait(SECONDS)
    for option in ("--project", "--region", "--temp_location"):
        assert_told(ended, option, 2)
    assert len(cloud.dataflow.service.requests) == before


def test_what_workers_would_lack_is_told_within_seconds(cloud: Cloud, source: str) -> None:
    before = len(cloud.dataflow.service.requests)
    for options, reason in (
        (("--no_use_public_ips",), "--no_use_public_ips"),
        ((IMAGE, "--labels=s3://tables/labels.csv"), "role_arn=ARN"),
        ((IMAGE, "--storage-option=bearer_token=CANARY"), "bearer_token"),
    ):
        ended = cloud.start(source, "lacking", *options).wait(SECONDS)
        assert_told(ended, reason, 2)
        assert "CANARY" not in ended.log
    assert len(cloud.dataflow.service.requests) == before


def opener(**proxies: str) -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(urllib.request.ProxyHandler(proxies))


def test_the_fake_asks_for_credentials_and_lets_nothing_out(cloud: Cloud) -> None:
    jobs = f"{cloud.dataflow.endpoint}/v1b3/projects/test-project/locations/europe-west4/jobs"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        opener().open(jobs, timeout=30)
    proxy = cloud.dataflow.environment["HTTPS_PROXY"]
    with pytest.raises(OSError, match="403"):
        opener(https=proxy).open("https://example.com/", timeout=30)
