"""Stores of a Dataflow job: credentials that workers would not have."""

from __future__ import annotations

import pytest

from shardwright.errors import UsageError
from shardwright.pipelines.options.build import parse_options
from shardwright.storage.options import SECRET_KEYS

CANARY = "CANARYsecret42"
DATAFLOW = (
    "--runner=DataflowRunner", "--project=p", "--region=r", "--temp_location=gs://b/tmp",
)  # fmt: skip
IMAGE = "--sdk_container_image=gcr.io/p/i:1"
ROLE = "--storage-option=role_arn=arn:aws:iam::1:role/r"


@pytest.mark.parametrize("key", sorted(SECRET_KEYS))
def test_secrets_are_not_staged(key: str) -> None:
    option = f"--storage-option=gs://b:{key}={CANARY}"
    with pytest.raises(UsageError, match=f"^--storage-option {key}: .* role_arn=ARN") as caught:
        parse_options(["gs://b/in", "gs://b/out", *DATAFLOW, IMAGE, option])
    assert CANARY not in str(caught.value)
    parse_options(["gs://b/in", "gs://b/out", option])  # on this machine


@pytest.mark.parametrize("key", ["application_credentials", "service_account", "profile"])
def test_files_and_profiles_are_those_of_an_image(key: str) -> None:
    args = ["gs://b/in", "gs://b/out", *DATAFLOW, f"--storage-option={key}=mine"]
    with pytest.raises(UsageError, match=f"^--storage-option {key} names .* this machine"):
        parse_options(args)
    parse_options([*args, IMAGE])


@pytest.mark.parametrize("place", ["INPUT", "OUTPUT", "--labels", "--image-root"])
def test_workers_need_a_role_for_s3(place: str) -> None:
    places = {"INPUT": "gs://b/in", "OUTPUT": "gs://b/out", place: "s3://raw/x"}
    args = [places.pop("INPUT"), places.pop("OUTPUT"), *DATAFLOW, IMAGE]
    args += [f"{name}={value}" for name, value in places.items()]
    with pytest.raises(UsageError, match=f"^{place} s3://raw/x: .* role_arn=ARN .* anonymous"):
        parse_options([*args, "--storage-option=s3://another:anonymous=true"])
    for enough in (ROLE, "--storage-option=s3://raw:anonymous=true", "--storage-option=profile=p"):
        parse_options([*args, enough])
