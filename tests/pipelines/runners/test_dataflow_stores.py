"""Stores of a Dataflow job: credentials that workers would not have, and kinds of buckets."""

from __future__ import annotations

import json
import logging

import pytest

from shardwright.errors import UsageError
from shardwright.pipelines.options.build import parse_options
from shardwright.pipelines.runners.dataflow import check_buckets
from shardwright.storage.options import SECRET_KEYS, StorageOptions
from tests.support.buckets import Answer, Request, answering

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


def facts_of(*, zone: bool = False, days: int | None = None, status: int = 200) -> Answer:
    row = {"locationType": "zone" if zone else "region"}
    policy = {} if days is None else {"retentionDurationSeconds": str(days * 86_400)}
    return status, {}, json.dumps({**row, "softDeletePolicy": policy}).encode()


def check(answer: Answer, *places: str) -> list[str]:
    """Return the buckets that are asked, by a server that answers all alike."""
    asked = []

    def note(request: Request) -> Answer:
        asked.append(request.path.partition("?")[0])
        return answer

    with answering(note) as endpoint:
        options = StorageOptions.of({"base_url": endpoint, "anonymous": "true"})
        check_buckets(places, places[-1], options)
    return asked


def test_a_rapid_bucket() -> None:
    with pytest.raises(UsageError, match="gs://fast is a Rapid bucket"):
        check(facts_of(zone=True), "gs://fast/in", "s3://b/out")


def test_each_bucket_is_asked_once(caplog: pytest.LogCaptureFixture) -> None:
    asked = check(facts_of(), "/local", "gs://a/in", "s3://c", "gs://a/labels", "gs://b/out")
    assert asked == ["/storage/v1/b/a", "/storage/v1/b/b"]
    assert not caplog.records


@pytest.mark.parametrize("days", [0, 7])
def test_a_bucket_that_keeps_what_is_deleted(caplog: pytest.LogCaptureFixture, days: int) -> None:
    check(facts_of(days=days), "gs://in/x", "gs://out/y")
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [("gs://out keeps" in text, "for 7 days" in text) for text in told] == (
        [(True, True)] if days else []
    )


@pytest.mark.parametrize("status", [403, 404])
def test_metadata_that_may_not_be_read(status: int) -> None:
    assert check(facts_of(status=status), "gs://in/x", "gs://out/y")
