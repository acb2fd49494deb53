"""inspect: the manifest's facts as JSON and as text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardwright.cli import main
from shardwright.describe import describe, format_description
from shardwright.manifest import Manifest, ShardInfo, SplitInfo, read_manifest
from shardwright.schema import ExampleSchema, Feature, FeatureKind, Source
from shardwright.storage import Folder
from tests.damage import build

IMAGE = Feature("image", FeatureKind.IMAGE, Source.IMAGE, (4, 5, 3), "raw")
LABEL = Feature("label", FeatureKind.CLASS_LABEL, Source.LABEL)
TAGS = Feature("tags", FeatureKind.BYTES, shape=(None,))


def manifest_of(
    sizes: list[tuple[int, int]], *, class_names: tuple[str, ...] = ("a", "b")
) -> Manifest:
    shards = tuple(
        ShardInfo(index, records, num_bytes, 0, "")
        for index, (records, num_bytes) in enumerate(sizes)
    )
    schema = ExampleSchema((IMAGE, LABEL, TAGS) if class_names else (IMAGE, TAGS), class_names)
    split = SplitInfo("train", shards, {"formats": {"jpeg": 3}})
    return Manifest(
        "zoo",
        "1.0.0",
        schema,
        {"train": split},
        {"corrupt": 2},
        5,
        {"seed": 3},
        "f",
        {"input": None},
    )


def test_everything_is_told_as_json(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(zoo), "--json"]) == 0
    told, manifest = json.loads(capsys.readouterr().out), read_manifest(Folder(str(zoo)))
    assert told["dataset"] == str(zoo)
    assert (told["name"], told["version"], told["num_records"], told["num_inputs"]) == (
        "zoo",
        "1.0.0",
        36,
        37,
    )
    assert told["num_bytes"] == sum(path.stat().st_size for path in zoo.glob("*.tfrecord-*"))
    assert told["rejects"] == {"empty_file": 1}
    assert told["class_names"] == ["Löwe", "ape", "bee"]
    assert [feature["name"] for feature in told["features"]] == ["image", "id", "label"]
    assert set(told["splits"]) == {"train", "test"}
    train = told["splits"]["train"]
    assert train["num_shards"] == len(manifest.splits["train"].shards)
    assert (train["records_per_shard"]["max"], train["records_per_shard"]["median"]) == (10, 10)
    assert train["stats"]["formats"] == {"png": train["num_records"]}
    assert told["settings"]["split"] == {"train": 0.8, "test": 0.2}
    assert told["provenance"]["packages"]["shardwright"]


@pytest.mark.parametrize(
    ("sizes", "records", "num_bytes"),
    [
        (
            [(10, 1000), (9, 900)],
            {"min": 9, "median": 9.5, "max": 10},
            {"min": 900, "median": 950, "max": 1000},
        ),
        ([(7, 70)], {"min": 7, "median": 7, "max": 7}, {"min": 70, "median": 70, "max": 70}),
        (
            [(1, 5), (9, 6), (5, 1)],
            {"min": 1, "median": 5, "max": 9},
            {"min": 1, "median": 5, "max": 6},
        ),
        ([], {}, {}),
    ],
)
def test_shard_sizes(
    sizes: list[tuple[int, int]], records: dict[str, float], num_bytes: dict[str, float]
) -> None:
    split = describe(manifest_of(sizes), "x")["splits"]["train"]
    assert split["records_per_shard"] == records
    assert split["bytes_per_shard"] == num_bytes
    assert format_description(manifest_of(sizes), describe(manifest_of(sizes), "x"))


def test_the_text_has_every_part(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(zoo)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"zoo 1.0.0    {zoo}"
    assert lines[1].startswith("36 records in ")
    assert lines[1].endswith(", from 37 inputs")
    for title in (
        "splits",
        "images",
        "features",
        "classes (3)",
        "rejects",
        "settings",
        "provenance",
    ):
        assert title in lines
    assert "  image  image        one value" in lines
    assert lines[lines.index("rejects") + 1].split() == ["empty_file", "1"]
    assert [
        line.split()[0] for line in lines[lines.index("splits") + 2 : lines.index("images") - 1]
    ] == ["test", "train"]
    assert all(line == line.rstrip() for line in lines)


def test_shapes_lists_and_many_classes() -> None:
    names = tuple(f"c{number:02d}" for number in range(25))
    manifest = manifest_of([(3, 100)], class_names=names)
    lines = format_description(manifest, describe(manifest, "x")).splitlines()
    assert "  image  image        4x5x3, raw" in lines
    assert "  tags   bytes        a list" in lines
    assert "classes (25)" in lines
    assert any(line.endswith("9 c09 ... and 15 more") for line in lines)
    assert any("3 jpeg" in line for line in lines)


def test_a_dataset_without_labels(
    zoo_images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = build(zoo_images / "bee", tmp_path / "flat")
    assert main(["inspect", str(dataset)]) == 0
    told = capsys.readouterr().out
    assert "  none: the dataset is unlabeled" in told
    assert "rejects\n  none\n" in told


def test_an_empty_split_and_no_statistics() -> None:
    manifest = Manifest(
        "zoo",
        "1.0.0",
        ExampleSchema((IMAGE,)),
        {"train": SplitInfo("train", ())},
        {},
        0,
        {},
        "",
        {},
    )
    assert "0 records in 0 shards" in format_description(manifest, describe(manifest, "x"))
