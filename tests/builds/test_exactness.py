"""Whole builds: exact shards, and every input in exactly one shard or one reject row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.format.example import parse_example
from shardwright.format.records import scan_records
from tests.support.build_helpers import (
    build,
    ids_below,
    index_of,
    leftovers_of,
    make_images,
    manifest_of,
    png_of,
    reasons_of,
    record_ids,
    records_per_shard,
    rejects_of,
    shards_of,
    write_table,
)
from tests.support.random_tests import examples

REASONS = {
    "cat/empty.png": "empty_file",
    "cat/cut.png": "truncated",
    "cat/text.jpg": "not_an_image",
    "cat/notes.txt": "other_file",
    "cat/gone.png": "missing_file",
    "cat/loop": "other_file",
    "cat/.hidden.png": "other_file",
    "unlabelled.png": "missing_label",
}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("exact") / "in", 50)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 images, and among them everything that can be wrong with a file."""
    root = make_images(tmp_path_factory.mktemp("mixed") / "in", 40)
    (root / "cat/empty.png").touch()
    (root / "cat/cut.png").write_bytes(png_of(1)[:-20])
    (root / "cat/text.jpg").write_text("not an image")
    (root / "cat/notes.txt").write_text("no image by name either")
    (root / "cat/really_png.gif").write_bytes(png_of(2))
    (root / "cat/gone.png").symlink_to("nowhere")
    (root / "cat/loop").symlink_to(root, target_is_directory=True)
    (root / "cat/.hidden.png").write_bytes(png_of(3))
    (root / "unlabelled.png").write_bytes(png_of(4))
    return root


@pytest.fixture(scope="module")
def mixed_dataset(mixed: Path) -> Path:
    root = mixed.with_name("out")
    assert build(mixed, root, "--records-per-shard", 6, "--max-reject-fraction", "0.2") == 0
    return root


def parsed_records(root: Path) -> list[list[dict[str, Any]]]:
    """Return every record of every shard, parsed."""
    found = []
    for path in shards_of(root):
        with open(path, "rb") as file:
            found.append([parse_example(span.data) for span in scan_records(file)])
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--records-per-shard 7", [7] * 7 + [1]),
        ("--shard-count 3 --shard-count-multiple-of 4", [13, 13, 12, 12]),
    ],
)
def test_numbers_of_records_and_shards_are_exact(
    images: Path, tmp_path: Path, options: str, expected: list[int]
) -> None:
    assert build(images, tmp_path / "out", *options.split()) == 0
    assert records_per_shard(tmp_path / "out") == expected


@pytest.mark.long_but_first
@pytest.mark.parametrize(("size", "num_bytes"), [("3000", 3000), ("4.5kB", 4500)])
def test_shard_size_is_kept_to_within_one_record(
    images: Path, tmp_path: Path, size: str, num_bytes: int
) -> None:
    """No more than that, but for the estimate of a record's own bytes."""
    assert build(images, tmp_path / "out", "--shard-size", size) == 0
    shards = [table["length"].to_pylist() for table in index_of(tmp_path / "out").values()]
    largest = max(map(max, shards))
    assert (len(shards) > 2, sum(map(len, shards))) == (True, 50)
    assert max(map(sum, shards)) <= num_bytes + largest
    assert max(map(sum, shards[:-1])) - min(map(sum, shards[:-1])) <= 2 * largest


def test_every_split_is_cut_exactly_and_the_index_agrees_with_the_records(
    images: Path, tmp_path: Path
) -> None:
    root = tmp_path / "out"
    options = "--split train=0.6,validation=0.2,test=0.2 --records-per-shard 4"
    assert build(images, root, *options.split()) == 0
    manifest = manifest_of(root)
    assert sorted(manifest["splits"]) == ["test", "train", "validation"]
    for split in manifest["splits"]:
        *whole, last = records_per_shard(root, split)
        assert whole == [4] * len(whole)
        assert 1 <= last <= 4
    assert sorted(record_ids(root)) == sorted(ids_below(images))
    assert manifest["schema"]["class_names"] == ["Löwe", "bird", "cat"]
    for records, table in zip(parsed_records(root), index_of(root).values(), strict=True):
        for record, row in zip(records, table.to_pylist(), strict=True):
            assert (record["id"], record["label"]) == ([row["id"].encode()], [row["label"]])
            assert record["image"] == [(images / row["id"]).read_bytes()]


def test_every_input_is_in_one_shard_or_one_reject_row(mixed: Path, mixed_dataset: Path) -> None:
    records = record_ids(mixed_dataset)
    assert reasons_of(mixed_dataset) == REASONS
    assert len(rejects_of(mixed_dataset)) == len(REASONS)
    assert len(set(records)) == len(records) == 41
    assert set(records) == ids_below(mixed) - set(REASONS)
    rows = [row for table in index_of(mixed_dataset).values() for row in table.to_pylist()]
    assert [row["format"] for row in rows if row["id"] == "cat/really_png.gif"] == ["png"]
    assert leftovers_of(mixed_dataset) == []


def test_the_manifest_counts_what_the_files_hold(mixed_dataset: Path) -> None:
    """Only what failed while it was read leaves a shard short."""
    manifest, reasons = manifest_of(mixed_dataset), list(REASONS.values())
    assert manifest["rejects"] == {reason: reasons.count(reason) for reason in sorted(set(reasons))}
    assert manifest["num_inputs"] == manifest["num_records"] + len(reasons) == 49
    assert manifest["num_bytes"] == sum(path.stat().st_size for path in shards_of(mixed_dataset))
    planned, written = [6, 6, 6, 6, 6, 6, 6, 1], records_per_shard(mixed_dataset)
    missing = [whole - found for whole, found in zip(planned, written, strict=True)]
    assert (min(missing), sum(missing)) == (0, 2)


def test_a_row_given_twice_is_written_once(tmp_path: Path) -> None:
    rows = [{"path": f"{number}.png", "label": "a", "id": f"id{number % 4}"} for number in range(6)]
    for number in range(6):
        (tmp_path / f"{number}.png").write_bytes(png_of(number))
    table = write_table(tmp_path / "t.jsonl", rows)
    assert build(table, tmp_path / "out", "--max-reject-fraction", "0.5") == 0
    assert sorted(record_ids(tmp_path / "out")) == ["id0", "id1", "id2", "id3"]
    rejects = rejects_of(tmp_path / "out")
    found = [(row["id"], row["uri"][-5:], row["reason"]) for row in rejects]
    assert found == [("id0", "4.png", "duplicate_id"), ("id1", "5.png", "duplicate_id")]


CAUSES = st.sampled_from(["good", "good", "good", "empty", "broken", "missing", "twice"])


@pytest.mark.long
@examples(4)
@given(
    causes=st.lists(CAUSES, min_size=1, max_size=30),
    size=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_nothing_is_lost_whatever_is_wrong(
    tmp_path_factory: pytest.TempPathFactory, causes: list[str], size: int, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("any")
    rows = [{"path": "ok.png", "id": "ok"}]
    (folder / "ok.png").write_bytes(png_of(0))
    for number, cause in enumerate(causes):
        path = folder / f"{number}.png"
        if cause != "missing":
            path.write_bytes({"empty": b"", "broken": b"GIF89a?"}.get(cause, png_of(number)))
        rows.append({"path": path.name, "id": "ok" if cause == "twice" else f"id{number}"})
    options = ("--records-per-shard", size, "--seed", seed, "--max-reject-fraction", 1)
    assert build(write_table(folder / "t.jsonl", rows), folder / "out", *map(str, options)) == 0
    rejected = [row["id"] for row in rejects_of(folder / "out")]
    assert sorted(record_ids(folder / "out") + rejected) == sorted(row["id"] for row in rows)
    assert len(rejected) == len(causes) - causes.count("good")
