"""Templates: a job written instead of submitted, and a Flex Template, whose launcher submits it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.engines.dataflow_jobs import OWN_IMAGE, PROJECT, REGION, SECONDS, Cloud, wait_until
from tests.servers.dataflow.service import FAILED, RUNNING, Job
from tests.support.object_stores import get_object, put_object

# By https://dataflow.googleapis.com, through the proxy that the environment names.
LAUNCH = """
import json, sys, google.auth
from google.auth.transport.requests import AuthorizedSession
scopes = ["https://www.googleapis.com/auth/cloud-platform"]
session = AuthorizedSession(google.auth.default(scopes)[0])
place = "projects/%s/locations/%s" % tuple(sys.argv[1:3])
url = f"https://dataflow.googleapis.com/v1b3/{place}/flexTemplates:launch"
answer = session.post(url, json={"launchParameter": json.loads(sys.argv[3])})
print(answer.text)
answer.raise_for_status()
"""
IMAGE = f"--sdk_container_image={OWN_IMAGE}"


@pytest.fixture(scope="module")
def template(cloud: Cloud) -> str:
    """The specification that deploy/dataflow makes, in the store."""
    from deploy.dataflow.make_template import container_spec

    place = f"gs://{cloud.bucket}/template.json"
    put_object(cloud.gcs, place, json.dumps(container_spec(OWN_IMAGE)).encode())
    return place


def post_launch(
    cloud: Cloud, template: str, parameters: dict[str, str], **environment: Any
) -> subprocess.CompletedProcess[str]:
    """Launch as gcloud does, by the service's own address."""
    places = {f"{name}Location": f"gs://{cloud.bucket}/{name}" for name in ("temp", "staging")}
    body = {
        "jobName": "flex",
        "containerSpecGcsPath": template,
        "parameters": parameters,
        "environment": {**places, **environment},
    }
    variables = {**os.environ, **cloud.dataflow.environment}
    command = [sys.executable, "-c", LAUNCH, PROJECT, REGION, json.dumps(body)]
    return subprocess.run(
        command, env=variables, capture_output=True, text=True, timeout=120, check=False
    )


def launched(cloud: Cloud, template: str, parameters: dict[str, str], **environment: Any) -> Job:
    """Return the job of a launch, when its launcher has ended."""
    answer = post_launch(cloud, template, parameters, **environment)
    assert answer.returncode == 0, answer.stderr
    job = cloud.dataflow.service.jobs[json.loads(answer.stdout)["job"]["id"]]
    wait_until(lambda: job.state in (RUNNING, FAILED), SECONDS)
    return job


def test_a_template_is_written_and_no_job_made(cloud: Cloud, source: str) -> None:
    place = f"gs://{cloud.bucket}/templates/build"
    options = ("--records-per-shard", "9", IMAGE, f"--template_location={place}")
    built = cloud.build(source, "templated", *options)
    assert built.ended.code == 0, built.ended.log
    assert not built.jobs
    assert place in built.last_line
    assert "Traceback" not in built.ended.log
    written = json.loads(get_object(cloud.gcs, place))
    assert written["name"].startswith("shardwright-templated-")
    assert written["environment"]["workerPools"][0]["workerHarnessContainerImage"] == OWN_IMAGE


def test_a_flex_template_starts_the_build_with_its_parameters(
    cloud: Cloud, source: str, template: str
) -> None:
    parameters = {"input": source, "output": f"gs://{cloud.bucket}/flex", "records_per_shard": "9"}
    workers = {"maxWorkers": 5, "machineType": "n2-standard-8"}
    labels = {"additionalUserLabels": {"team": "vision"}}
    job = launched(cloud, template, parameters, **workers, **labels)
    assert job.state == RUNNING, job.messages
    command = cloud.dataflow.launcher.commands[-1]
    assert {f"--input={source}", "--records_per_shard=9", "--runner=DataflowRunner"} <= set(command)
    assert job.request["name"] == "flex"
    assert job.request["labels"].items() >= {"team": "vision", "dataset": "flex"}.items()
    pool = job.request["environment"]["workerPools"][0]
    made = (pool["workerHarnessContainerImage"], pool["machineType"])
    assert made == (OWN_IMAGE, "n2-standard-8")
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 5


def test_a_launch_that_the_build_refuses_fails_with_its_reason(
    cloud: Cloud, source: str, template: str
) -> None:
    parameters = {"input": source, "output": f"gs://{cloud.bucket}/flex", "split": "train=2,test=3"}
    job = launched(cloud, template, parameters)
    assert job.state == FAILED
    assert "--split" in job.messages[-1]["messageText"]


def test_parameters_that_the_template_does_not_have_are_refused_at_once(
    cloud: Cloud, template: str
) -> None:
    before = len(cloud.dataflow.jobs)
    answer = post_launch(cloud, template, {"output": "here", "shard_sise": "1MB"})
    assert "missing: input; unrecognized: shard_sise; of a wrong form: output" in answer.stdout
    assert len(cloud.dataflow.jobs) == before
