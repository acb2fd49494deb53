"""verify: sound datasets of every kind pass, strays are notes, and the command prints faults."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardwright.errors import NotADatasetError
from shardwright.format.listed_files import DatasetFault
from shardwright.format.manifest import read_manifest
from shardwright.inspect import faults
from shardwright.inspect.cli import main
from shardwright.inspect.faults import Verification
from shardwright.inspect.verify import verify
from shardwright.storage.folder import Folder
from tests.support.damage import (
    build,
    edit_bytes,
    first_shard,
    row_offsets,
)


def test_a_built_dataset_is_sound(zoo: Path) -> None:
    result = verify(str(zoo))
    manifest = read_manifest(Folder(str(zoo)))
    assert manifest.rejects == {"empty_file": 1}
    assert_sound(result, 36)
    num_shards = len(list(zoo.glob("*.tfrecord-*")))
    assert (result.num_bytes, result.num_shards) == (manifest.num_bytes, num_shards)


def assert_sound(result: Verification, num_records: int) -> None:
    assert (result.faults, result.notes, result.num_records) == ((), (), num_records)


@pytest.mark.long_but_first
@pytest.mark.parametrize(("folder", "output", "num_records", "options"), [
    (".", "out", 36, "--encode jpeg --resize 9x5 --feature-names model-garden"),
    (".", "out", 36, "--writer beam --shard-count 2 --feature-names model-garden"),
    ("bee", "label=3/id=x", 12, "--encode raw --resize 9x5"),  # named like a partition
])  # fmt: skip
def test_every_kind_of_dataset_is_sound(
    folder: str, output: str, num_records: int, options: str, zoo_images: Path, tmp_path: Path
) -> None:
    more = ("--max-reject-fraction", "0.5", *options.split())
    assert_sound(verify(str(build(zoo_images / folder, tmp_path / output, *more))), num_records)


def test_extra_features_of_every_kind_are_sound(zoo_images: Path, tmp_path: Path) -> None:
    rows = [
        {"path": str(path), "label": path.parent.name, "n": number, "f": number / 2,
         "s": f"é{number}", "ns": [number] * (number % 3), "fs": [0.5] * (number % 2),
         "ss": ["a", "b"][: number % 3]}
        for number, path in enumerate(sorted(zoo_images.glob("*/*[0-9].png")))
    ]  # fmt: skip
    table = tmp_path / "table.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    output = build(table, tmp_path / "out", "--allow-outside", str(zoo_images))
    assert_sound(verify(str(output)), 36)


def test_stray_files_are_notes_and_no_faults(dataset: Path) -> None:
    name = first_shard(dataset)
    strays = [
        "zoo-train.tfrecord-00000-of-00009",
        ".zoo-train.tfrecord-00000-of-00003.1a2b3c4d.tmp",
        "index/old-00000-of-00001.parquet",
    ]
    for stray in strays:
        shutil.copy(dataset / name.shard, dataset / stray)
    (dataset / "README.md").write_text("a file of the user's own is none of ours")
    result = verify(str(dataset))
    assert result.is_sound
    assert {note.file for note in result.notes} == set(strays)


def test_faults_above_the_limit_are_only_counted() -> None:
    def many() -> Iterator[DatasetFault]:
        for number in range(faults.MAX_FAULTS_PER_FILE + 7):
            yield DatasetFault("a", number, 0, "x")

    kept = list(faults.limit_faults(many()))
    assert len(kept) == faults.MAX_FAULTS_PER_FILE + 1
    assert str(kept[-1]) == "a: 7 more faults in this file are not listed"


def test_the_command(dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(dataset)]) == 0
    assert f"{dataset}: sound (" in capsys.readouterr().out
    name = first_shard(dataset)
    offsets = row_offsets(dataset, name)

    def flip(data: bytearray) -> None:
        data[offsets[3]] ^= 1

    edit_bytes(dataset / name.shard, flip)
    assert main(["verify", str(dataset)]) == 1
    lines = capsys.readouterr().out.splitlines()
    what = "the checksum of the record's length is wrong"
    assert lines[1] == f"{name.shard}: record 3 at byte {offsets[3]}: {what}"
    assert f"{dataset}: 2 faults found (" in lines[-1]
    assert main(["verify", str(dataset), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["sound"]
    fault = {"file": name.shard, "record": 3, "offset": offsets[3], "what": what}
    assert told["faults"][1] == fault
    assert main(["verify", str(tmp_path)]) == 2
    assert "is not a shardwright dataset" in capsys.readouterr().err
    with pytest.raises(NotADatasetError):
        verify(str(tmp_path / "nowhere"))
