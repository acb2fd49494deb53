"""verify: a sound dataset of every kind passes, and index rows and companions that disagree are named."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardwright import faults, shard_walk
from shardwright.cli import main
from shardwright.errors import NotADatasetError
from shardwright.faults import Fault
from shardwright.manifest import read_manifest
from shardwright.storage import Folder
from shardwright.verify import verify
from tests.damage import (
    assert_fault,
    build,
    edit_bytes,
    edit_json,
    edit_rows,
    first_shard,
    row_offsets,
)


def test_a_built_dataset_is_sound(zoo: Path) -> None:
    result = verify(str(zoo))
    manifest = read_manifest(Folder(str(zoo)))
    assert manifest.rejects == {"empty_file": 1}
    assert (result.faults, result.notes) == ((), ())
    assert (result.num_records, result.num_bytes, result.num_shards) == (
        36,
        manifest.num_bytes,
        len(list(zoo.glob("*.tfrecord-*"))),
    )


@pytest.mark.parametrize(
    "options",
    [
        ("--feature-names", "model-garden"),
        ("--encode", "raw", "--resize", "9x5"),
        ("--encode", "jpeg", "--resize", "9x5", "--feature-names", "model-garden"),
        ("--writer", "beam", "--shard-count", "2"),
        ("--writer", "beam", "--feature-names", "model-garden"),
    ],
    ids=" ".join,
)
def test_every_kind_of_dataset_is_sound(
    options: tuple[str, ...], zoo_images: Path, tmp_path: Path
) -> None:
    dataset = build(zoo_images, tmp_path / "out", "--max-reject-fraction", "0.5", *options)
    result = verify(str(dataset))
    assert (result.faults, result.notes, result.num_records) == ((), (), 36)


def test_extra_features_of_every_kind_are_sound(zoo_images: Path, tmp_path: Path) -> None:
    rows = [
        {"path": str(path), "label": path.parent.name, "n": number, "f": number / 2, "s": f"é{number}",
         "ns": [number] * (number % 3), "fs": [0.5] * (number % 2), "ss": ["a", "b"][: number % 3]}
        for number, path in enumerate(sorted(zoo_images.glob("*/*[0-9].png")))
    ]  # fmt: skip
    table = tmp_path / "table.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = verify(str(build(table, tmp_path / "out")))
    assert (result.faults, result.notes, result.num_records) == ((), (), 36)


def test_an_unlabeled_dataset_is_sound_below_a_folder_that_looks_like_a_partition(
    zoo_images: Path, tmp_path: Path
) -> None:
    result = verify(str(build(zoo_images / "bee", tmp_path / "label=3" / "id=x")))
    assert (result.faults, result.notes, result.num_records) == ((), (), 12)


# Index rows that a record does not bear out.
@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        ("id", "somebody/else.png", "the row's id is 'somebody/else.png', the record's"),
        ("label", 77, "the row's label is 77, the record's"),
        ("label", None, "the row's label is None, the record's"),
        ("offset", 1, "bytes at byte 1, the record has"),
        ("length", 17, "the row says 17 bytes at byte"),
        ("image_offset", 5, "at byte 5, the record's image has"),
        ("image_offset", 10**12, "and is not there"),
        ("image_length", 3, "the image is 3 bytes at byte"),
        ("crc32c", 1, "the row's crc32c of the image is 0x00000001, the image's is 0x"),
    ],
)
def test_wrong_index_rows(column: str, value: Any, what: str, dataset: Path) -> None:
    name = first_shard(dataset)
    offset = row_offsets(dataset, name)[2]
    edit_rows(dataset, name, lambda rows: rows[2].update({column: value}))
    assert_fault(dataset, Fault(name.sidecar, 2, offset, what))
    assert len(verify(str(dataset)).faults) == 1


def test_rows_too_few(dataset: Path) -> None:
    name = first_shard(dataset)
    edit_rows(dataset, name, lambda rows: rows.pop())
    assert_fault(dataset, Fault(name.sidecar, None, None, "it has 9 rows for 10 records"))


@pytest.mark.parametrize(
    ("file", "edit", "what"),
    [
        ("manifest.json", lambda m: m.update(num_records=5), "its num_records are not the sums over its shards"),
        ("manifest.json", lambda m: m["splits"]["train"]["shards"][1].update(index=0), "split 'train' has the shards [0, 0, 2]"),
        ("manifest.json", lambda m: m.update(num_inputs=50), "num_inputs is 50, but there are 36 records and 1 rejects"),
        ("dataset_info.json", lambda m: m["splits"][1]["shardLengths"].reverse(), "shardLengths of split 'train' is ['"),
        ("dataset_info.json", lambda m: m["splits"].pop(), "shardLengths of split 'train' is None"),
        ("dataset_info.json", lambda m: m.update(name="x"), "name is 'x', the manifest says 'zoo'"),
        ("dataset_info.json", lambda m: m.update(splits=None), "it has no list of splits"),
        ("features.json", lambda m: m["featuresDict"]["features"].pop("id"), "feature 'id' is missing, the schema says text"),
        ("features.json", lambda m: m["featuresDict"]["features"]["label"]["classLabel"].update(numClasses="4"),
         "feature 'label' is class_label of 4, the schema says class_label of 3"),
    ],
)  # fmt: skip
def test_files_that_disagree(
    file: str, edit: Callable[[dict[str, Any]], Any], what: str, dataset: Path
) -> None:
    edit_json(dataset / file, edit)
    assert_fault(dataset, Fault(file, None, None, what))


def test_strays_are_notes_and_no_faults(dataset: Path) -> None:
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


def test_faults_without_end_are_counted_and_not_kept() -> None:
    def many() -> Iterator[Fault]:
        for number in range(faults.MAX_FAULTS_PER_FILE + 7):
            yield Fault("a", number, 0, "x")
        yield Fault("b", 0, 0, "y")

    kept = list(faults.limit_faults(many()))
    assert len(kept) == faults.MAX_FAULTS_PER_FILE + 2
    assert str(kept[-1]) == "a: 7 more faults in this file are not listed"


def test_memory_is_bounded_by_records_and_not_by_the_shard(tmp_path: Path) -> None:
    path = tmp_path / "shard"
    path.write_bytes(bytes(48 << 20))
    tracemalloc.start()
    with open(path, "rb", buffering=shard_walk.BLOCK_BYTES) as file:
        shard_walk.file_crc32c(file)
        file.seek(0)
        assert len(list(shard_walk.walk_records(file, np.zeros(0, np.int64)))) == 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 << 20


def test_the_command(dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(dataset)]) == 0
    assert f"{dataset}: sound (" in capsys.readouterr().out
    name = first_shard(dataset)
    offsets = row_offsets(dataset, name)
    edit_bytes(
        dataset / name.shard, lambda data: data.__setitem__(offsets[3], data[offsets[3]] ^ 1)
    )
    assert main(["verify", str(dataset)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[1]
        == f"{name.shard}: record 3 at byte {offsets[3]}: the checksum of the record's length is wrong"
    )
    assert f"{dataset}: 2 faults found (" in lines[-1]
    assert main(["verify", str(dataset), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["sound"]
    assert told["faults"][1] == {
        "file": name.shard, "record": 3, "offset": offsets[3], "what": "the checksum of the record's length is wrong",
    }  # fmt: skip
    assert main(["verify", str(tmp_path)]) == 2
    assert "is not a shardwright dataset" in capsys.readouterr().err
    with pytest.raises(NotADatasetError):
        verify(str(tmp_path / "nowhere"))
