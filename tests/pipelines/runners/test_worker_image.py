"""The image of workers on other machines, compared by its name."""

from __future__ import annotations

import sys
from importlib import metadata

import pytest

from shardwright.errors import UsageError
from shardwright.pipelines.commands.build import main
from shardwright.pipelines.runners.dataflow import check_image

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
BEAM = metadata.version("apache-beam")


@pytest.mark.parametrize("start", ["", "docker.io/", "gcr.io/cloud-dataflow/v1beta3/"])
@pytest.mark.parametrize("end", ["", f":{BEAM}", f"_distroless:{BEAM}", ":latest"])
def test_beams_own_image_of_this_python_and_beam(start: str, end: str) -> None:
    folder = "" if start.startswith("gcr") else "apache/"
    assert check_image(f"{start}{folder}beam_python{PYTHON}_sdk{end}")


def test_other_images_have_names_without_versions() -> None:
    assert not check_image("gcr.io/p/shardwright:3.9")


@pytest.mark.parametrize(("image", "there"), [
    (f"apache/beam_python3.9_sdk:{BEAM}", f"Python 3.9 and Beam {BEAM}"),
    ("apache/beam_python3.9_sdk", "Python 3.9"),
    ("docker.io/apache/beam_python3.9_sdk_distroless:2.50.0", "Python 3.9 and Beam 2.50.0"),
    ("gcr.io/cloud-dataflow/v1beta3/beam_python3.9_sdk:2.5.0", "Python 3.9 and Beam 2.5.0"),
    (f"apache/beam_python{PYTHON}_sdk:2.1.0", f"Python {PYTHON} and Beam 2.1.0"),
])  # fmt: skip
def test_beams_own_image_of_another_python_or_beam(image: str, there: str) -> None:
    message = f"{image} has {there}, this machine Python {PYTHON} and Beam {BEAM}, and both must"
    with pytest.raises(UsageError, match=message):
        check_image(image)


@pytest.mark.parametrize("runner", [
    "--runner=DataflowRunner --project=p --region=r --temp_location=gs://b/t "
    "--sdk_container_image=",
    "--runner=PortableRunner --job_endpoint=localhost:1 --sdk_container_image=",
    "--runner=FlinkRunner --environment_type=DOCKER --environment_config=",
])  # fmt: skip
def test_the_command_ends_with_2_before_anything_is_listed(
    capsys: pytest.CaptureFixture[str], runner: str
) -> None:
    places = ["gs://no-such-bucket/in", "gs://no-such-bucket/out"]
    fix = f"(deploy/Dockerfile, --build-arg PYTHON_VERSION={PYTHON})"
    name = f"apache/beam_python3.9_sdk:{BEAM}"
    assert main([*places, *f"{runner}{name}".split()]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert f"the workers' image {name} has Python 3.9" in said
    assert f"both must agree: build the image again {fix}" in said
