"""The fake of Dataflow as a process of its own, as tests of other environments use it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.engines.engine_builds import ROOT

JOBS = "/v1b3/projects/test-project/locations/europe-west4/jobs"


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What it says when it starts."""
    command = [
        sys.executable,
        "-m",
        "tests.servers.dataflow",
        "--gcs",
        "http://127.0.0.1:9",
        "--folder",
        str(tmp_path_factory.mktemp("fake")),
    ]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def ask(
    fake: dict[str, Any],
    path: str,
    body: dict[str, Any] | None = None,
    method: str | None = None,
    **query: str,
) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    url = f"{fake['endpoint']}{path}?{urllib.parse.urlencode(query)}"
    request = urllib.request.Request(url, data, {"Authorization": "Bearer any"}, method=method)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        request, timeout=30
    ) as answer:
        return dict(json.load(answer))


def test_it_is_controlled_over_http(fake: dict[str, Any]) -> None:
    ask(fake, "/fake/refuse_next", status="403", message="not today")
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(fake, JOBS, {"name": "first"})
    assert (refused.value.code, json.load(refused.value)["error"]["message"]) == (403, "not today")
    job = ask(fake, JOBS, {"name": "first"})
    assert [
        (known["name"], known["currentState"]) for known in ask(fake, "/fake/jobs")["jobs"]
    ] == [("first", "JOB_STATE_RUNNING")]
    assert (
        ask(fake, f"{JOBS}/{job['id']}", {"requestedState": "JOB_STATE_CANCELLED"}, "PUT")[
            "currentState"
        ]
        == "JOB_STATE_CANCELLED"
    )
    assert ask(fake, JOBS)["jobs"][0]["currentState"] == "JOB_STATE_CANCELLED"


def test_a_request_without_credentials_is_refused(fake: dict[str, Any]) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            fake["endpoint"] + JOBS, timeout=30
        )
    assert refused.value.code == 401


def test_nothing_else_can_be_reached_through_it(fake: dict[str, Any]) -> None:
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({"https": fake["environment"]["HTTPS_PROXY"]})
    )
    with pytest.raises(OSError, match="403"):
        opener.open("https://example.com/", timeout=30)
