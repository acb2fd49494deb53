"""`shardwright build --writer beam`: the planned writer's records by Beam's own WriteToTFRecord."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardwright.format import naming
from shardwright.format.example import parse_example
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.naming import ShardName
from shardwright.format.records import scan_records
from shardwright.storage.folder import Folder
from shardwright.transforms.references import extra_name
from tests.support.build_helpers import (
    build,
    index_of,
    make_images,
    png_of,
    stamps_of,
    write_table,
)
from tests.support.judge import judge

BEAM = ("--writer", "beam")
SPLITS = ("--split", "train=0.6,validation=0.2,test=0.2", "--records-per-shard", "6")
# Decided by a shard's own records, or by when it was made; the rest of a manifest is the plan's.
PER_RUN = ("provenance", "settings", "fingerprint", "files")


def records_of(root: Path, manifest: Manifest, split: str) -> list[bytes]:
    """Return the data of every record of a split, sorted."""
    shards = [(root / name.shard).read_bytes() for name in manifest.shard_names(split)]
    return sorted(span.data for shard in shards for span in scan_records(io.BytesIO(shard)))


def check_sound(root: Path) -> Manifest:
    """`shardwright verify` finds no fault, and no file beside those that the manifest names."""
    result = judge(str(root))
    assert (result.faults, result.notes) == ((), ())
    manifest = read_manifest(Folder(str(root)))
    assert (result.num_records, result.num_bytes) == (manifest.num_records, manifest.num_bytes)
    return manifest


def shape_of(manifest: Manifest) -> dict[str, Any]:
    """Return a manifest without what the order of records or the writer's name decides."""
    content = {key: value for key, value in manifest.to_json().items() if key not in PER_RUN}
    for split in content["splits"].values():
        split["shards"] = [shard["index"] for shard in split["shards"]]
        split["stats"].pop("features", None)  # of Arrow columns, which the stock writer lacks
        split["stats"].pop("signals", None)  # of a sample, which other shards change
        channels = split["stats"].get("channels", {})
        if channels.get("basis") not in (None, "all", f"sample of {split['num_records']}"):
            split["stats"]["channels"] = sorted(channels)  # of other pictures than the plan's
    return {**content, "settings": {**manifest.settings, "writer": None}}


def assert_same_records(ours: Path, theirs: Path) -> Manifest:
    """Assert that `ours` has the records and the manifest of `theirs`; return its manifest."""
    mine, other = check_sound(ours), check_sound(theirs)
    for split in mine.splits:
        assert records_of(ours, mine, split) == records_of(theirs, other, split)
    assert shape_of(mine) == shape_of(other)
    assert mine.fingerprint == other.fingerprint
    return mine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("pets") / "in", 40)


@pytest.fixture(scope="module")
def stock(folder: Path) -> Path:
    assert build(folder, folder.with_name("stock") / "pets", *SPLITS, *BEAM) == 0
    return folder.with_name("stock") / "pets"


@pytest.fixture(scope="module")
def planned(folder: Path) -> Path:
    assert build(folder, folder.with_name("planned") / "pets", *SPLITS) == 0
    return folder.with_name("planned") / "pets"


def rows_of(root: Path) -> list[dict[str, Any]]:
    """Return the index without the places of records."""
    tables = [table.drop_columns(["offset", "image_offset"]) for table in index_of(root).values()]
    rows = [row for table in tables for row in table.to_pylist()]
    return sorted(rows, key=lambda row: str(row["id"]))


def test_records_index_and_manifest_are_the_planned_writers(stock: Path, planned: Path) -> None:
    manifest = assert_same_records(stock, planned)
    assert sorted(manifest.splits) == ["test", "train", "validation"]
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    assert {shard.digest for shard in shards} == {""}
    assert sorted(stamps_of(stock)) == sorted(stamps_of(planned))
    for companion in (naming.FEATURES, naming.STATS, naming.SCHEMA_PBTXT, "label.labels.txt"):
        assert (stock / companion).read_bytes() == (planned / companion).read_bytes()
    assert rows_of(stock) == rows_of(planned)


def test_a_finished_build_is_up_to_date(
    stock: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = stamps_of(stock)
    assert build(folder, stock, *SPLITS, *BEAM) == 0
    shards = len(list(stock.glob("pets-*")))
    assert f"up to date: all {shards} shards were already written" in capsys.readouterr().err
    assert stamps_of(stock) == before


@pytest.mark.parametrize(
    ("there", "options", "said"),
    [
        ("stock", (), "writer is 'beam' there and 'planned' here"),
        ("planned", BEAM, "writer is 'planned' there and 'beam' here"),
    ],
)
def test_writers_do_not_mix(
    there: str,
    options: tuple[str, ...],
    said: str,
    folder: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output: Path = request.getfixturevalue(there)
    before = stamps_of(output)
    assert build(folder, output, *SPLITS, *options) == 1
    assert said in capsys.readouterr().err
    assert stamps_of(output) == before


THREE = (*BEAM, "--records-per-shard", "3")


@pytest.fixture(scope="module")
def small_built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """9 images, and the 3 shards made of them; Beam takes the odd characters in the path."""
    folder = tmp_path_factory.mktemp("small")
    source, output = make_images(folder / "in", 9), folder / "a b{c}\\ü" / "small"
    assert build(source, output, *THREE) == 0
    return source, output


@pytest.fixture
def small(small_built: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """The same, in a copy of the output to change."""
    source, output = small_built
    return source, Path(shutil.copytree(output, tmp_path / output.name))


@pytest.mark.long
def test_changed_input_is_refused_and_overwrite_replaces(
    small: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = small
    new = source / "cat" / "new.png"
    new.write_bytes(png_of(200))
    before = stamps_of(output)
    assert build(source, output, *THREE) == 1
    assert "INPUT has changed since the dataset at" in capsys.readouterr().err
    assert stamps_of(output) == before
    assert build(source, output, *THREE, "--if-exists", "overwrite") == 0
    new.unlink()
    assert check_sound(output).num_records == 10
    assert len(list(output.glob("small-*"))) == 4
    assert build(source, output, *THREE, "--if-exists", "error") == 1
    assert "already holds a dataset" in capsys.readouterr().err


def leave_temporary(output: Path) -> Path:
    """Make a temporary folder as Beam's, and return the path of a part in it."""
    leftover = output / f"beam-temp-small-train.tfrecord-{'0f' * 16}"
    leftover.mkdir(parents=True)
    return leftover / "part"


def stopped_early(output: Path) -> None:
    """Killed in the first moment: only Beam's temporary folder is there."""
    shutil.rmtree(output)
    leave_temporary(output).write_bytes(b"half")


def stopped_late(output: Path) -> None:
    """Killed near the end: no manifest, one shard indexed, one in place, one to be renamed."""
    (output / naming.MANIFEST).unlink()
    for index in (1, 2):
        (output / ShardName("small", "train", index, 3).sidecar).unlink()
    (output / ShardName("small", "train", 2, 3).shard).rename(leave_temporary(output))


def cut_shard(output: Path) -> None:
    os.truncate(output / ShardName("small", "train", 0, 3).shard, 40)


STARTS_OVER = "Beam's WriteToTFRecord cannot resume an unfinished build: starting over"


@pytest.mark.long
@pytest.mark.parametrize(
    ("damage", "said"), [(stopped_early, ""), (stopped_late, STARTS_OVER), (cut_shard, STARTS_OVER)]
)
def test_an_unfinished_dataset_is_built_anew(
    damage: Callable[[Path], None],
    said: str,
    small: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, output = small
    whole = sorted(stamps_of(output))
    damage(output)
    assert build(source, output, *THREE) == 0
    assert said in capsys.readouterr().err
    assert check_sound(output).num_records == 9
    assert sorted(stamps_of(output)) == whole
    assert not list(output.glob("beam-temp-*"))


@pytest.mark.long
def test_a_table_with_splits_features_and_new_bytes(tmp_path: Path) -> None:
    rows = []
    for number in range(10):
        (tmp_path / f"{number}.png").write_bytes(png_of(number))
        split = ["train", "test"][number % 5 == 0]
        row = {"path": f"{number}.png", "label": "ab"[number % 2], "split": split}
        rows.append({**row, "tags": ["x"] * (number % 3), "count": number, "ratio": number / 4})
    table = write_table(tmp_path / "table.jsonl", rows)
    encode = ("--encode", "jpeg", "--resize", "7x5", "--check", "decode")
    options = (*encode, "--feature-names", "model-garden", "--shard-count", "2")
    theirs, ours = (tmp_path / name / "small" for name in ("planned", "stock"))
    assert build(table, theirs, *options) == 0
    assert build(table, ours, *options, *BEAM) == 0
    manifest = assert_same_records(ours, theirs)
    numbers = {split: info.num_records for split, info in manifest.splits.items()}
    assert numbers == {"test": 2, "train": 8}
    example = parse_example(records_of(ours, manifest, "test")[0])
    assert {"image/height", "image/class/text", "tags", "count", "ratio"} <= example.keys()
    assert extra_name("tags") not in example


@pytest.mark.long
def test_records_of_a_function(folder: Path, tmp_path: Path) -> None:
    """Their labels, and how much longer their ids are than those of their inputs."""
    own = tmp_path / "own.py"
    own.write_text("def twice(record):\n    return [record, record]\n")
    options = ("--transform", f"{own}:twice", "--shard-count", "1")
    theirs, ours = (tmp_path / name / "pets" for name in ("planned", "stock"))
    assert build(folder, theirs, *options) == 0
    assert build(folder, ours, *options, *BEAM) == 0
    assert_same_records(ours, theirs)
    assert rows_of(ours) == rows_of(theirs)
    assert {row["suffix"] for row in rows_of(ours)} == {2}
    assert len({row["label"] for row in rows_of(ours)}) == 3
