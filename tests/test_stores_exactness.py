"""Whole builds between places: exact shards, and every input in exactly one shard or one reject row, as of local folders."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from shardwright.example import parse_example
from shardwright.records import scan_records
from shardwright.verify import verify
from tests.build_helpers import (
    build,
    hashes_of,
    ids_below,
    index_of,
    make_images,
    manifest_of,
    png_of,
    reasons_of,
    record_ids,
    records_per_shard,
    rejects_of,
    shards_of,
)
from tests.store_places import PAIR_IDS, PAIRS, Kind, Place, Places

# Names that a request, a listing in XML or JSON, or an address must quote; each is one image's.
ODD_NAMES = (
    "a b.png", "a+b.png", "a%41.png", "a%2Fb.png", "#a?b=c&d.png", "x;y@z:1,2.png", "'quoted\".png", "<&amp;>.png", "back\\slash.png",
    "[a]*{b}|^`.png", "~home.png", "ü-combined.png", "u\u0308-apart.png", "日本語.png", "🐈.png", "$HOME.png", "!bang (1).png", "-dash.png",
    "no extension", "two..dots.png", "x" * 190 + ".png",
)  # fmt: skip
BAD = {
    "cat/empty.png": "empty_file",
    "cat/cut.png": "truncated",
    "cat/text.jpg": "not_an_image",
    "cat/notes.txt": "other_file",
    "cat/.hidden.png": "other_file",
    "cat/.cache/hidden.png": "other_file",
    "unlabelled.png": "missing_label",
}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 images, as many oddly named ones, and what can be wrong with a file."""
    root = make_images(tmp_path_factory.mktemp("mixed") / "in", 40)
    for number, name in enumerate(ODD_NAMES):
        path = root / "odd [1] +ü" / f"deep {number % 2}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png_of(100 + number))
    (root / "cat/empty.png").touch()
    (root / "cat/cut.png").write_bytes(png_of(1)[:-20])
    (root / "cat/text.jpg").write_text("not an image")
    (root / "cat/notes.txt").write_text("no image by name either")
    (root / "cat/really_png.gif").write_bytes(png_of(2))
    (root / "cat/.hidden.png").write_bytes(png_of(3))
    (root / "cat/.cache").mkdir()
    (root / "cat/.cache/hidden.png").write_bytes(png_of(3))
    (root / "unlabelled.png").write_bytes(png_of(4))
    return root


@pytest.fixture(scope="module")
def sources(mixed: Path, places: Places) -> dict[Kind, Place]:
    """They, in every kind of place."""
    return {kind: places.make(kind).fill(mixed) for kind in ("local", "s3", "gs")}


MIXED = (
    "--name",
    "mixed",
    "--records-per-shard",
    "6",
    "--split",
    "train=0.7,test=0.3",
    "--max-reject-fraction",
    "0.2",
)


@pytest.fixture(scope="module")
def reference(mixed: Path) -> dict[str, str]:
    assert build(mixed, mixed.parent / "reference", *MIXED) == 0
    return hashes_of(mixed.parent / "reference")


@pytest.mark.parametrize(("source_kind", "output_kind"), PAIRS, ids=PAIR_IDS)
def test_a_folder(
    sources: dict[Kind, Place], mixed: Path, reference: dict[str, str], places: Places, tmp_path: Path,
    source_kind: Kind, output_kind: Kind,
) -> None:  # fmt: skip
    source, output = sources[source_kind], places.make(output_kind)
    assert build(str(source), str(output), *source.args, *output.args, *MIXED) == 0
    root = output.download(tmp_path / "out")

    reasons = reasons_of(root)
    if (
        source_kind == "local"
    ):  # there a hidden folder is one thing, and not listed; stores have no folders
        reasons["cat/.cache/hidden.png"] = reasons.pop("cat/.cache")
    assert reasons == BAD
    assert len(rejects_of(root)) == len(BAD)
    records = record_ids(root)
    assert len(set(records)) == len(records) == 40 + len(ODD_NAMES) + 1
    assert set(records) == ids_below(mixed) - set(BAD)
    assert hashes_of(root) == reference

    manifest = manifest_of(root)
    assert manifest["num_inputs"] == len(records) + len(BAD)
    lost = 0
    for split in manifest["splits"]:
        *whole, last = records_per_shard(root, split)
        lost += sum(6 - number for number in whole)
        assert 1 <= last <= 6
    assert lost <= 2, "only what failed while it was read leaves a shard short"
    assert_index_agrees(root, source, mixed)
    assert verify(str(output), storage_options=output.storage_options).is_sound


def assert_index_agrees(root: Path, source: Place, images: Path) -> None:
    tables = list(index_of(root).values())
    for shard, table in zip(shards_of(root), tables, strict=True):
        with open(shard, "rb") as file:
            found = [parse_example(span.data) for span in scan_records(file)]
        for record, row in zip(found, table.to_pylist(), strict=True):
            assert record["id"] == [row["id"].encode()]
            assert record["image"] == [(images / row["id"]).read_bytes()]
            assert row["uri"] == source.at(row["id"])


def table_of(images: Path, kind: str) -> bytes:
    """The good images of `mixed` by paths relative to the table, and two rows that lead nowhere."""
    ids = sorted(
        image_id
        for image_id in ids_below(images)
        if image_id.startswith("odd") or image_id[-8:-4].isdigit()
    )
    paths = [
        *(f"pictures/{image_id}" for image_id in ids),
        "pictures/gone.png",
        "./pictures/cat/../cat/0001.png",
    ]
    labels = [*(image_id.partition("/")[0] for image_id in ids), "cat", "cat"]
    table = pa.table(
        {"path": paths, "label": labels, "weight": [row / 4 for row in range(len(paths))]}
    )
    buffer = io.BytesIO()
    if kind == "csv":
        pacsv.write_csv(table, buffer)
    else:
        pq.write_table(table, buffer)
    return buffer.getvalue()


TABLE = ("--name", "t", "--shard-count", "5", "--max-reject-fraction", "0.1")


@pytest.mark.parametrize(("source_kind", "output_kind"), PAIRS, ids=PAIR_IDS)
def test_a_table_of_relative_paths(
    places: Places, tables: dict[Kind, Place], tmp_path: Path, source_kind: Kind, output_kind: Kind
) -> None:
    source, output = tables[source_kind], places.make(output_kind)
    kind = "csv" if source_kind == output_kind else "parquet"
    assert build(source.at(f"images.{kind}"), str(output), *source.args, *output.args, *TABLE) == 0
    root = output.download(tmp_path / "out")
    reference = Path(tables["local"].uri).parent / "reference"
    assert hashes_of(root) == hashes_of(reference)
    assert reasons_of(root) == {
        "pictures/gone.png": "missing_file",
        "pictures/cat/0001.png": "duplicate_id",
    }
    records = record_ids(root)
    assert len(set(records)) == len(records) == 40 + len(ODD_NAMES)
    sizes = records_per_shard(root)
    assert len(sizes) == 5
    assert max(sizes) - min(sizes) <= 1
    assert verify(str(output), storage_options=output.storage_options).is_sound


@pytest.fixture(scope="module")
def tables(
    mixed: Path, places: Places, tmp_path_factory: pytest.TempPathFactory
) -> dict[Kind, Place]:
    """The images and tables of them, in every kind of place, and beside the local one the dataset built from it."""
    folder = tmp_path_factory.mktemp("tables") / "in"
    (folder / "pictures").parent.mkdir()
    for kind in ("csv", "parquet"):
        (folder / f"images.{kind}").write_bytes(table_of(mixed, kind))
    (folder / "pictures").symlink_to(mixed)
    assert build(folder / "images.csv", folder.parent / "reference", *TABLE) == 0
    found: dict[Kind, Place] = {"local": Place(str(folder))}
    for kind in ("s3", "gs"):
        place = found[kind] = places.make(kind)
        for name in ("images.csv", "images.parquet"):
            place.put(name, (folder / name).read_bytes())
        Place(place.at("pictures"), place.server).fill(mixed)
    return found
