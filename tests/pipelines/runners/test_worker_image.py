"""The image of Dataflow's workers, compared by what a registry says about it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import Any

import pytest

from shardwright.errors import UsageError
from shardwright.pipelines.commands.build import main
from shardwright.pipelines.runners.dataflow import check_image
from tests.support.buckets import Answer, Request, answering

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
BEAM = metadata.version("apache-beam")


@contextmanager
def registry(
    *, python: str | None = PYTHON, beam: str | None = BEAM, is_index: bool = True
) -> Iterator[str]:
    """Yield the name of an image in a registry, as a build of deploy/Dockerfile makes it."""
    base = f"docker.io/apache/beam_python{python}_sdk:{beam}"
    config: dict[str, Any] = {
        "Env": ["PATH=/usr/bin", *([f"PYTHON_VERSION={python}.9"] if python else [])],
        "Labels": {"org.opencontainers.image.base.name": base} if beam else None,
    }
    manifest = {"config": {"digest": "sha256:c"}}
    platforms = [("arm64", "sha256:a"), ("amd64", "sha256:m")]
    index = {
        "manifests": [
            {"digest": digest, "platform": {"os": "linux", "architecture": name}}
            for name, digest in platforms
        ]
    }
    documents = {
        "manifests/1": index if is_index else manifest,
        "manifests/sha256:m": manifest,
        "blobs/sha256:c": {"config": config},
    }

    def answer(request: Request) -> Answer:
        assert "application/vnd.oci.image.index.v1+json" in request.headers["Accept"]
        found = documents.get(request.path.removeprefix("/v2/team/shardwright/"))
        return (404, {}, b"{}") if found is None else (200, {}, json.dumps(found).encode())

    with answering(answer) as endpoint:
        yield f"{endpoint.removeprefix('http://')}/team/shardwright"


@pytest.mark.parametrize("is_index", [True, False])
def test_an_image_of_this_python_and_beam(is_index: bool) -> None:
    with registry(is_index=is_index) as image:
        check_image(f"{image}:1")
        check_image(f"{image}@sha256:m")


@pytest.mark.parametrize(
    ("python", "beam", "found"),
    [
        ("3.9", BEAM, f"Python 3.9 and Beam {BEAM}"),
        (PYTHON, "2.50.0", f"Python {PYTHON} and Beam 2.50.0"),
        ("3.9", None, "Python 3.9"),
    ],
)
def test_an_image_of_another_python_or_beam(python: str, beam: str | None, found: str) -> None:
    message = f"/team/shardwright:1 has {found}, this machine .* must agree"
    with registry(python=python, beam=beam) as image, pytest.raises(UsageError, match=message):
        check_image(f"{image}:1")


def test_an_image_that_does_not_exist() -> None:
    with registry() as image, pytest.raises(UsageError, match=f"{image}:2 does not exist: build"):
        check_image(f"{image}:2")


@pytest.mark.parametrize("status", [401, 403, 500, 200])
def test_registries_that_do_not_tell(status: int) -> None:
    with answering(lambda _: (status, {}, b"<html>")) as endpoint:
        check_image(f"{endpoint.removeprefix('http://')}/team/image")
    for image in ("127.0.0.1:9/team/image:1", "name-without-a-registry"):
        check_image(image)


@pytest.mark.parametrize(
    "runner",
    [
        "--runner=DataflowRunner --project=p --region=r --temp_location=gs://b/t "
        "--sdk_container_image=",
        "--runner=PortableRunner --job_endpoint=localhost:1 --sdk_container_image=",
        "--runner=FlinkRunner --environment_type=DOCKER --environment_config=",
    ],
)
def test_the_command_ends_with_2_before_anything_is_listed(
    capsys: pytest.CaptureFixture[str], runner: str
) -> None:
    places = ["gs://no-such-bucket/in", "gs://no-such-bucket/out"]
    fix = f"(deploy/Dockerfile, --build-arg PYTHON_VERSION={PYTHON})"
    with registry(python="3.9") as image:
        for name in (f"{image}:1", f"apache/beam_python3.9_sdk:{BEAM}"):
            assert main([*places, *f"{runner}{name}".split()]) == 2
            said = capsys.readouterr().err.splitlines()[-1]
            assert f"the workers' image {name} has Python 3.9" in said
            assert f"both must agree: build the image again {fix}" in said
