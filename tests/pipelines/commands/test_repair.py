"""The command `shardwright repair`: where it finds INPUT, and what it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.errors import UsageError
from shardwright.format.manifest import Manifest, read_manifest, seal
from shardwright.pipelines.commands import repair as repair_command
from shardwright.pipelines.job.build import prepare_job
from shardwright.pipelines.local.build import build_here
from shardwright.pipelines.options.build import parse_options
from shardwright.pipelines.repairs.recorded_job import recorded_job
from shardwright.storage.folder import Folder
from tests.support.build_helpers import build, make_images, manifest_of, rejects_of
from tests.support.judge import judge


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("command")
    words = [str(make_images(root / "photos", 8)), str(root / "data"), "--seed", "7"]
    build_here(prepare_job(parse_options([*words, "--shard-count", "2"])))
    return root / "data"


@pytest.fixture
def dataset(built: Path, tmp_path: Path) -> Path:
    """Return a copy, with another name of its folder."""
    return Path(shutil.copytree(built, tmp_path / "copy"))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def shards_of(dataset: Path) -> list[Path]:
    return sorted(dataset.glob("data-*"))


def repair(dataset: Path, *options: str) -> int:
    return repair_command.main([str(dataset), *options])


def set_provenance(dataset: Path, provenance: Mapping[str, Any]) -> Manifest:
    """Change the origin that the manifest records; return the manifest."""
    root = Folder(str(dataset))
    manifest = replace(read_manifest(root), provenance=provenance)
    (dataset / "manifest.json").write_bytes(seal(manifest.to_json()))
    return manifest


def given(dataset: Path, command: str, **parts: Any) -> Any:
    """Return the options of the job that a recorded command gives."""
    manifest = set_provenance(dataset, {"command": command, "input": "photos"})
    return recorded_job(manifest, Folder(str(dataset)), **parts).options


def test_the_recorded_command_is_run_on_this_machine(built: Path, dataset: Path) -> None:
    photos = built.parent / "photos"
    start = f"shardwright build {photos} gs://elsewhere/data --seed 7 --shard-count 2"
    beam = "--runner DataflowRunner --project p --region r --temp_location gs://b/tmp --labels a=b"
    options = given(dataset, f"{start} {beam} --if-exists overwrite --fail-on 'drift>0.1'")
    assert (options.input, options.output, options.seed) == (str(photos), str(dataset), 7)
    assert (options.name, options.if_exists, options.beam_args) == ("data", "resume", ())
    assert options.labels is None


def test_storage_options_of_the_manifest_are_not_used(built: Path, dataset: Path) -> None:
    """They may lead credentials to the endpoint of a stranger."""
    photos = built.parent / "photos"
    start = f"shardwright build {photos} out --seed 7 --shard-count 2"
    recorded = "--storage-option token='***' --storage-option=endpoint=http://stranger"
    options = given(dataset, f"{start} {recorded}", storage=("token=t",))
    assert options.storage.for_store("s3://any") == {"token": "t"}


@pytest.mark.parametrize("option", ["--transform /tmp/evil.py:f", "--schema /tmp/evil.py"])
def test_code_of_the_manifest_is_not_run(built: Path, dataset: Path, option: str) -> None:
    command = f"shardwright build {built.parent / 'photos'} out --seed 7 --shard-count 2 {option}"
    with pytest.raises(UsageError, match=f"to allow it, add `-- {option}`"):
        given(dataset, command)


@pytest.mark.parametrize(
    ("command", "parts", "told"),
    [
        ("shardwright build 'https://h/t.csv?***' out", {}, "hides a secret in input: give"),
        ("shardwright build {photos} out", {}, "(seed is 7 there and 0 here; shards is"),
        ("shardwright build {photos} out --seed seven", {}, "invalid int value: 'seven'"),
        ("shardwright build /none out --seed 7 --shard-count 2", {}, "/none"),
    ],
)  # fmt: skip
def test_a_command_that_is_of_no_use(
    built: Path, dataset: Path, command: str, parts: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError) as error:
        given(dataset, command.format(photos=built.parent / "photos"), **parts)
    assert told in str(error.value)


def test_a_dataset_without_a_command_needs_the_options(
    built: Path, dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_provenance(dataset, {"input": str(built.parent / "photos")})
    flip(shards_of(dataset)[0])
    assert repair(dataset) == 1
    assert (
        "the options are not those of the build (seed is 7 there and 0 here"
        in capsys.readouterr().out
    )
    assert repair(dataset, "--", "--seed", "7", "--shard-count", "2") == 0
    assert judge(str(dataset)).is_sound


def test_the_other_records_of_a_dataset_of_python_records_can_be_copied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = tmp_path / "data"
    sw.write([{"x": [float(number)] * 9} for number in range(9)], str(dataset), schema="records")
    flip(shards_of(dataset)[0])
    assert repair(dataset, "--json") == 1
    [why] = json.loads(capsys.readouterr().out)["failed"].values()
    assert "a Python program wrote this dataset, so there is no INPUT to read again" in why
    assert "copy all other records with `shardwright build DATASET COPY --max-rejects N`" in why
    copy = tmp_path / "copy"
    assert build(dataset, copy, "--max-rejects", "1") == 0
    assert (manifest_of(copy)["num_records"], len(rejects_of(copy))) == (8, 1)


def test_a_damaged_manifest_is_not_a_dataset(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(dataset / "manifest.json")
    assert repair(dataset) == 2
    assert "manifest.json is" in capsys.readouterr().err


def test_a_dataset_that_is_being_replaced_waits(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = replace(read_manifest(Folder(str(dataset))), folder="next")
    (dataset / "manifest.json").write_bytes(manifest.to_bytes())
    assert repair(dataset) == 1
    assert "a build is replacing the dataset" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["data", "--unknown"], ["data", "more"]])
def test_wrong_usage(words: list[str]) -> None:
    with pytest.raises(SystemExit) as error:
        repair_command.main(words)
    assert error.value.code == 2
