"""`shardwright build --writer beam`: the planned writer's records and manifest through Beam's own WriteToTFRecord."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pipelines import build_dataset
from shardwright import naming
from shardwright.example import parse_example
from shardwright.index import read_index
from shardwright.manifest import Manifest, read_manifest
from shardwright.naming import ShardName
from shardwright.records import scan_records
from shardwright.storage import Folder
from shardwright.verify import verify
from transforms.references import extra_name

BEAM = ("--writer", "beam")
SPLITS = ("--split", "train=0.6,validation=0.2,test=0.2", "--records-per-shard", "6")
# What a shard's own records decide, and when it was made; everything else of a manifest is the plan's.
PER_RUN = ("provenance", "settings", "fingerprint")


def write_png(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8 + number % 5, 6 + number % 3), (number, 90, 255 - number)).save(path, "png")


def write_folder(root: Path, num_images: int = 40) -> Path:
    for number in range(num_images):
        write_png(root / f"class{number % 3}" / f"{number}.png", number)
    return root


def build(source: Path, output: Path, *options: str) -> int:
    return build_dataset.main([str(source), str(output), *options])


def records_of(root: Path, manifest: Manifest, split: str) -> list[bytes]:
    """The data of every record of a split, sorted."""
    records = []
    for name in manifest.shard_names(split):
        with open(root / name.shard, "rb") as file:
            records += [span.data for span in scan_records(file)]
    return sorted(records)


def check_sound(root: Path) -> Manifest:
    """What `shardwright verify` says: no fault, and no file beside those that the manifest names."""
    result = verify(str(root))
    assert (result.faults, result.notes) == ((), ())
    manifest = read_manifest(Folder(str(root)))
    assert (result.num_records, result.num_bytes) == (manifest.num_records, manifest.num_bytes)
    return manifest


def shape_of(manifest: Manifest) -> dict[str, Any]:
    """A manifest without what depends on the order of records, or on the writer's name in the settings."""
    content = {key: value for key, value in manifest.to_json().items() if key not in PER_RUN}
    for split in content["splits"].values():
        split["shards"] = [shard["index"] for shard in split["shards"]]
    return {**content, "settings": {**manifest.settings, "writer": None}}


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("in"))


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    output = tmp_path_factory.mktemp("stock") / "pets"
    assert build(folder, output, *SPLITS, *BEAM) == 0
    return output


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    output = tmp_path_factory.mktemp("planned") / "pets"
    assert build(folder, output, *SPLITS) == 0
    return output


def test_records_and_manifest_are_the_planned_writers(stock: Path, planned: Path) -> None:
    ours, theirs = check_sound(stock), check_sound(planned)
    assert sorted(ours.splits) == ["test", "train", "validation"]
    for split in ours.splits:
        assert records_of(stock, ours, split) == records_of(planned, theirs, split)
    assert shape_of(ours) == shape_of(theirs)
    assert ours.fingerprint == theirs.fingerprint
    assert {shard.digest for split in ours.splits.values() for shard in split.shards} == {""}
    assert sorted(tree(stock)) == sorted(tree(planned))
    for companion in (naming.FEATURES, naming.STATS, naming.SCHEMA_PBTXT, "label.labels.txt"):
        assert (stock / companion).read_bytes() == (planned / companion).read_bytes()


def test_index_rows_are_the_planned_writers_but_for_their_place(stock: Path, planned: Path) -> None:
    def rows(root: Path) -> list[dict[str, Any]]:
        manifest = read_manifest(Folder(str(root)))
        names = [name for split in manifest.splits for name in manifest.shard_names(split)]
        found = [
            row
            for name in names
            for row in read_index(Folder(str(root)), name)
            .drop_columns(["offset", "image_offset"])
            .to_pylist()
        ]
        return sorted(found, key=lambda row: str(row["id"]))

    assert rows(stock) == rows(planned)


def test_tfds_reads_it(stock: Path, folder: Path) -> None:
    import tensorflow_datasets as tfds  # 5 s, for this test only

    builder = tfds.builder_from_directory(str(stock))
    found: dict[str, Any] = {}
    for split, info in builder.info.splits.items():
        examples = list(builder.as_dataset(split=split).as_numpy_iterator())
        assert len(examples) == info.num_examples
        found |= {example["id"].decode(): example for example in examples}
    assert len(found) == 40
    for image_id, example in found.items():
        pixels = Image.open(folder / image_id)
        assert example["image"].shape == (pixels.height, pixels.width, 3)
        assert tuple(example["image"][0, 0]) == pixels.getpixel((0, 0))
        assert builder.info.features["label"].int2str(example["label"]) == image_id.split("/")[0]


def test_a_finished_build_is_up_to_date(
    stock: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, times = tree(stock), {path: os.stat(path).st_mtime_ns for path in stock.rglob("*")}
    assert build(folder, stock, *SPLITS, *BEAM) == 0
    assert (
        f"up to date: all {len(list(stock.glob('pets-*')))} shards were already written"
        in capsys.readouterr().err
    )
    assert tree(stock) == before
    assert {path: os.stat(path).st_mtime_ns for path in stock.rglob("*")} == times


@pytest.mark.parametrize(("there", "options"), [("stock", ()), ("planned", BEAM)])
def test_writers_do_not_mix(
    there: str,
    options: tuple[str, ...],
    folder: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output: Path = request.getfixturevalue(there)
    before = tree(output)
    assert build(folder, output, *SPLITS, *options) == 1
    names = ("'beam' there and 'planned' here", "'planned' there and 'beam' here")
    assert f"writer is {names[there == 'planned']}" in capsys.readouterr().err
    assert tree(output) == before


@pytest.fixture(scope="module")
def small_built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder of 9 images, and the 3 shards made of it; Beam takes the odd characters in the path as they are."""
    folder = tmp_path_factory.mktemp("small")
    source, output = write_folder(folder / "in", 9), folder / "a b{c}\\ü" / "small"
    assert build(source, output, *BEAM, "--records-per-shard", "3") == 0
    return source, output


@pytest.fixture
def small(small_built: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """The same, in a copy of the output to change."""
    source, output = small_built
    return source, Path(shutil.copytree(output, tmp_path / output.name))


def test_changed_input_is_refused_and_overwrite_replaces(
    small: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = small
    new = source / "class1" / "new.png"
    write_png(new, 200)
    before = tree(output)
    assert build(source, output, *BEAM, "--records-per-shard", "3") == 1
    assert "INPUT has changed since the dataset at" in capsys.readouterr().err
    assert tree(output) == before
    assert build(source, output, *BEAM, "--records-per-shard", "3", "--if-exists", "overwrite") == 0
    new.unlink()
    assert check_sound(output).num_records == 10
    assert len(list(output.glob("small-*"))) == 4
    assert build(source, output, *BEAM, "--records-per-shard", "3", "--if-exists", "error") == 1
    assert "already holds a dataset" in capsys.readouterr().err


def stopped_early(output: Path) -> None:
    """Killed in the first moment: Beam has made its temporary folder, and nothing else is there."""
    shutil.rmtree(output)
    leftover = output / f"beam-temp-small-train.tfrecord-{'0f' * 16}"
    leftover.mkdir(parents=True)
    (leftover / "part").write_bytes(b"half")


def stopped_late(output: Path) -> None:
    """Killed near the end: no manifest, one shard indexed, one only in place, one still to be renamed."""
    (output / naming.MANIFEST).unlink()
    (output / ShardName("small", "train", 1, 3).sidecar).unlink()
    (output / ShardName("small", "train", 2, 3).sidecar).unlink()
    leftover = output / f"beam-temp-small-train.tfrecord-{'0f' * 16}"
    leftover.mkdir()
    (output / ShardName("small", "train", 2, 3).shard).rename(leftover / "part")


def cut_shard(output: Path) -> None:
    os.truncate(output / ShardName("small", "train", 0, 3).shard, 40)


STARTS_OVER = "Beam's WriteToTFRecord cannot go on with an unfinished build: starting over"


@pytest.mark.parametrize(
    ("damage", "said"), [(stopped_early, ""), (stopped_late, STARTS_OVER), (cut_shard, STARTS_OVER)]
)
def test_what_is_not_whole_is_built_anew(
    damage: Callable[[Path], None],
    said: str,
    small: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, output = small
    whole = sorted(tree(output))
    damage(output)
    assert build(source, output, *BEAM, "--records-per-shard", "3") == 0
    assert said in capsys.readouterr().err
    assert check_sound(output).num_records == 9
    assert sorted(tree(output)) == whole
    assert not list(output.glob("beam-temp-*"))


def test_a_table_with_splits_features_and_new_bytes(tmp_path: Path) -> None:
    source = tmp_path / "in"
    lines = []
    for number in range(10):
        write_png(source / f"{number}.png", number)
        row = {
            "path": f"{number}.png",
            "label": "ab"[number % 2],
            "split": ["train", "test"][number % 5 == 0],
            "tags": ["x"] * (number % 3),
        }
        lines.append(json.dumps({**row, "count": number, "ratio": number / 4}))
    (source / "table.jsonl").write_text("\n".join(lines))
    options = (
        "--encode",
        "jpeg",
        "--resize",
        "7x5",
        "--feature-names",
        "model-garden",
        "--shard-count",
        "2",
        "--check",
        "decode",
    )
    outputs = [tmp_path / name / "small" for name in ("planned", "stock")]
    assert build(source / "table.jsonl", outputs[0], *options) == 0
    assert build(source / "table.jsonl", outputs[1], *options, *BEAM) == 0
    theirs, ours = (read_manifest(Folder(str(output))) for output in outputs)
    assert {split: info.num_records for split, info in ours.splits.items()} == {
        "test": 2,
        "train": 8,
    }
    for split in ours.splits:
        assert records_of(outputs[1], ours, split) == records_of(outputs[0], theirs, split)
    assert shape_of(ours) == shape_of(theirs)
    example = parse_example(records_of(outputs[1], ours, "test")[0])
    assert {"image/height", "image/class/text", "tags", "count", "ratio"} <= example.keys()
    assert extra_name("tags") not in example
