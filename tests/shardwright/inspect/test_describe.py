"""inspect: the manifest's facts as JSON and as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source
from shardwright.format.splits import ShardInfo, SplitInfo
from shardwright.inspect.cli import main
from shardwright.inspect.describe import describe, format_description
from shardwright.storage.folder import Folder

IMAGE = Feature("image", FeatureKind.IMAGE, Source.IMAGE, (4, 5, 3), "raw")
LABEL = Feature("label", FeatureKind.CLASS_LABEL, Source.LABEL)
TAGS = Feature("tags", FeatureKind.BYTES, shape=(None,))


def manifest_of(sizes: list[tuple[int, int]], class_names: Any = ("a", "b")) -> Manifest:
    shards = tuple(ShardInfo(index, *size, 0, "", 0, 0) for index, size in enumerate(sizes))
    schema = ExampleSchema((IMAGE, LABEL, TAGS) if class_names else (IMAGE, TAGS), class_names)
    splits = {"train": SplitInfo("train", shards, {"formats": {"jpeg": 3}})}
    settings, provenance = {"seed": 3}, {"input": None}
    return Manifest(
        "zoo", "1.0.0", schema, splits, {"corrupt": 2}, 5, settings, "f", provenance
    )  # fmt: skip


def text_of(manifest: Manifest) -> str:
    return format_description(manifest, "x")


def test_json(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(zoo), "--json"]) == 0
    told, manifest = json.loads(capsys.readouterr().out), read_manifest(Folder(str(zoo)))
    values = {
        "dataset": str(zoo), "name": "zoo", "version": "1.0.0", "num_records": 36,
        "num_inputs": 37, "rejects": {"empty_file": 1}, "class_names": ["Löwe", "ape", "bee"],
        "num_bytes": sum(path.stat().st_size for path in zoo.glob("*.tfrecord-*")),
    }  # fmt: skip
    assert told.items() >= values.items()
    assert [feature["name"] for feature in told["features"]] == ["image", "id", "label"]
    assert set(told["splits"]) == {"train", "test"}
    train = told["splits"]["train"]
    assert train["num_shards"] == len(manifest.splits["train"].shards)
    assert (train["records_per_shard"]["max"], train["records_per_shard"]["median"]) == (10, 10)
    assert train["stats"]["formats"] == {"png": train["num_records"]}
    assert told["settings"]["split"] == {"train": 0.8, "test": 0.2}
    assert told["provenance"]["packages"]["shardwright"]


@pytest.mark.parametrize(("sizes", "records", "num_bytes"), [
    ([(10, 1000), (9, 900)], (9, 9.5, 10), (900, 950, 1000)),
    ([(7, 70)], (7, 7, 7), (70, 70, 70)),
    ([(1, 5), (9, 6), (5, 1)], (1, 5, 9), (1, 5, 6)),
    ([], (), ()),
])  # fmt: skip
def test_shard_sizes(sizes: list[tuple[int, int]], records: Any, num_bytes: Any) -> None:
    split = describe(manifest_of(sizes), "x")["splits"]["train"]
    names = ("min", "median", "max")
    assert split["records_per_shard"] == dict(zip(names, records, strict=False))
    assert split["bytes_per_shard"] == dict(zip(names, num_bytes, strict=False))
    assert text_of(manifest_of(sizes))


def test_the_text_has_every_part(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(zoo)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"zoo 1.0.0    {zoo}"
    assert lines[1].startswith("36 records in ")
    assert lines[1].endswith(", from 37 inputs")
    titles = ["splits", "features", "classes", "rejects", "settings", "provenance"]
    assert [line for line in lines if line in titles] == titles
    features = lines[lines.index("features") + 2 :]
    assert features[0].split() == ["image", "image", "one", "value", "(image)"]
    assert lines[lines.index("classes") + 2].split()[0] in ("Löwe", "ape", "bee")
    assert lines[lines.index("rejects") + 2].split() == ["empty_file", "1"]
    splits = lines[lines.index("splits") + 2 : lines.index("features") - 1]
    assert [line.split()[0] for line in splits] == ["test", "train"]
    assert all(line == line.rstrip() for line in lines)


def test_shapes_lists_and_many_classes() -> None:
    names = tuple(f"c{number:02d}" for number in range(25))
    lines = text_of(manifest_of([(3, 100)], class_names=names)).splitlines()
    image, label, tags = lines[lines.index("features") + 2 :][:3]
    assert "  4 x 5 x 3  raw  " in image
    assert label.endswith("25: c00, c01, c02, c03, c04, c05, c06, c07, c08, c09, ...")
    assert tags.split() == ["tags", "bytes", "any", "tags"]
    assert "  ... and 5 more" in lines
    assert any("jpeg 3" in line for line in lines)


def test_no_labels_no_records_and_no_statistics() -> None:
    splits = {"train": SplitInfo("train", ())}
    text = text_of(Manifest("zoo", "1.0.0", ExampleSchema((IMAGE,)), splits, {}, 0, {}, "", {}))
    assert "0 records in 0 shards" in text
    assert "\nno classes: the dataset is unlabeled" in text
    assert "rejects" not in text
