"""Builds between places have the exact shards and rejects of local builds, and repeat nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import shardwright as sw
from shardwright.format.example import parse_example
from shardwright.format.records import scan_records
from shardwright.inspect import cli
from tests.support import build_helpers as builds
from tests.support import store_builds as stores
from tests.support.build_helpers import (
    bare_index_of,
    build,
    hashes_of,
    ids_below,
    png_of,
    record_ids,
)
from tests.support.judge import judge
from tests.support.store_builds import Pair, Sources, build_between, by_pair
from tests.support.store_places import KINDS, STORES, Kind, Place, Places

# Names that a request, a listing in XML or JSON, or an address must quote; each is one image's.
ODD_NAMES = (
    "a b.png", "a+b.png", "a%41.png", "a%2Fb.png", "#a?b=c&d.png", "x;y@z:1,2.png", "'quoted\".png",
    "<&amp;>.png", "back\\slash.png", "[a]*{b}|^`.png", "~home.png", "ü-combined.png",
    "u\u0308-apart.png", "日本語.png", "🐈.png", "$HOME.png", "!bang (1).png", "-dash.png",
    "no extension .png", "two..dots.png", "x" * 190 + ".png",
)  # fmt: skip
BAD = {
    "cat/empty.png": ("empty_file", b""),
    "cat/cut.png": ("truncated", png_of(1)[:-20]),
    "cat/text.jpg": ("not_an_image", b"not an image"),
    "cat/notes.txt": ("other_file", b"no image by name either"),
    "cat/.hidden.png": ("other_file", png_of(3)),
    "cat/.cache/hidden.png": ("other_file", png_of(3)),
    "unlabelled.png": ("missing_label", png_of(4)),
    "images.csv": ("other_file", b""),  # tables of the images
    "images.parquet": ("other_file", b""),
}
FRACTIONS = ("--split", "train=0.7,test=0.3", "--max-reject-fraction", "0.2")
MIXED = ("--name", "mixed", "--records-per-shard", "6", *FRACTIONS)
TABLE = ("--name", "t", "--shard-count", "5", "--max-reject-fraction", "0.1")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 images, as many oddly named ones, and every reject; with a dataset built from them."""
    root = builds.make_images(tmp_path_factory.mktemp("mixed") / "in", 40)
    odd = {f"odd [1] +ü/deep {row % 2}/{name}": row + 100 for row, name in enumerate(ODD_NAMES)}
    files = {name: png_of(number) for name, number in odd.items()}
    files |= {name: data for name, (_, data) in BAD.items()} | {"cat/really_png.gif": png_of(2)}
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    pacsv.write_csv(table_of(root), root / "images.csv")
    pq.write_table(table_of(root), root / "images.parquet")
    return stores.make_reference(root, *MIXED)


@pytest.fixture(scope="module")
def sources(mixed: Path, places: Places) -> Sources:
    return stores.fill_places(places, mixed)


@pytest.mark.long
@by_pair
def test_a_folder(
    sources: Sources,
    mixed: Path,
    places: Places,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    pair: Pair,
) -> None:
    source, outputs = sources[pair[0]], [places.make(pair[1]) for _ in range(2)]
    for output, threads in zip(outputs, ("1", "64"), strict=True):
        assert build_between(source, output, *MIXED, "--threads", threads) == 0
    root, other = (output.download(tmp_path / str(n)) for n, output in enumerate(outputs))
    reference = mixed.parent / "reference"
    assert hashes_of(root) == hashes_of(other) == hashes_of(reference)
    assert bare_index_of(root) == bare_index_of(reference)
    for path in sorted((root / "index").iterdir()):
        assert (other / "index" / path.name).read_bytes() == path.read_bytes()
    assert outputs[0].names() == sorted(builds.stamps_of(reference)), "the same files, and no other"
    assert_each_input_is_a_record_or_a_reject(root, mixed, pair[0])
    assert_index_agrees(root, source, mixed)
    assert judge(str(output), storage_options=output.storage_options).is_sound
    capfd.readouterr()
    assert_a_second_build_writes_nothing(source, output, places)
    assert "shardwright: up to date: all 12 shards were already" in capfd.readouterr().err


def assert_each_input_is_a_record_or_a_reject(root: Path, images: Path, source_kind: Kind) -> None:
    expected = {name: reason for name, (reason, _) in BAD.items()}
    if source_kind == "local":  # there a hidden folder is one input; stores have no folders
        expected["cat/.cache"] = expected.pop("cat/.cache/hidden.png")
    rejects = sorted((row["id"], row["reason"]) for row in builds.rejects_of(root))
    assert rejects == sorted(expected.items())
    records = record_ids(root)
    assert sorted(records) == sorted(ids_below(images) - set(BAD))
    manifest = builds.manifest_of(root)
    assert manifest["num_inputs"] == len(records) + len(BAD)
    shards = [builds.records_per_shard(root, split) for split in manifest["splits"]]
    assert all(1 <= last <= 6 for *_, last in shards)
    missing = sum(6 - number for *whole, _ in shards for number in whole)
    assert missing <= 2, "only images that failed while they were read leave a shard short"


def assert_index_agrees(root: Path, source: Place, images: Path) -> None:
    for shard, table in zip(builds.shards_of(root), builds.index_of(root).values(), strict=True):
        with open(shard, "rb") as file:
            found = [parse_example(span.data) for span in scan_records(file)]
        for record, row in zip(found, table.to_pylist(), strict=True):
            assert record["id"] == [row["id"].encode()]
            assert record["image"] == [(images / row["id"]).read_bytes()]
            assert row["uri"] == source.at(row["id"])


def assert_a_second_build_writes_nothing(source: Place, output: Place, places: Places) -> None:
    before = output.stamps()
    if output.server is None:
        assert build_between(source, output, *MIXED) == 0
    else:
        with places.proxy(output) as (proxy, through):
            assert build_between(source, through, *MIXED) == 0
            assert {method for method, _ in proxy.requests} == {"GET", "HEAD"}
    assert output.stamps() == before


@pytest.mark.long_but_first
@stores.by_store
def test_commands_read_a_dataset_in_a_store(
    sources: Sources, places: Places, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: Kind
) -> None:
    source, output, image = sources["local"], places.make(kind), "bird/0003.png"
    assert cli.main(["build", source.uri, output.uri, *output.args, *MIXED]) == 0
    for command in ("verify", "inspect"):
        assert cli.main([command, output.uri, *output.args]) == 0
        assert "62 records" in capsys.readouterr().out
    saved = tmp_path / "saved.png"
    assert cli.main(["show", output.uri, image, *output.args, "--save", str(saved)]) == 0
    assert saved.read_bytes() == source.get(image)


def table_of(images: Path) -> pa.Table:
    """Return a table of the good images of `mixed`, and of two rows that lead nowhere."""
    good = ids_below(images) - set(BAD) - {"cat/really_png.gif"}
    paths = [*sorted(good), "gone.png", "./cat/../cat/0001.png"]
    labels = [*(image_id.partition("/")[0] for image_id in sorted(good)), "cat", "cat"]
    weights = [row / 4 for row in range(len(paths))]
    return pa.table({"path": paths, "label": labels, "weight": weights})


@pytest.mark.long
@by_pair
def test_a_table_of_paths(places: Places, sources: Sources, tmp_path: Path, pair: Pair) -> None:
    source, output = sources[pair[0]], places.make(pair[1])
    given = source.at("images.csv" if pair[1] == "s3" else "images.parquet")
    assert build(given, output.uri, *source.args, *output.args, *TABLE) == 0
    assert build(sources["local"].at("images.csv"), tmp_path / "local", *TABLE) == 0
    root = output.download(tmp_path / "out")
    assert hashes_of(root) == hashes_of(tmp_path / "local")
    rejects = sorted((row["id"], row["reason"]) for row in builds.rejects_of(root))
    assert rejects == [("cat/0001.png", "duplicate_id"), ("gone.png", "missing_file")]
    records, sizes = record_ids(root), builds.records_per_shard(root)
    assert len(set(records)) == len(records) == 40 + len(ODD_NAMES)
    assert (len(sizes), max(sizes) - min(sizes)) == (5, 1)
    assert judge(str(output), storage_options=output.storage_options).is_sound


@pytest.mark.long
def test_a_table_of_images_in_three_places(mixed: Path, sources: Sources, tmp_path: Path) -> None:
    """The options of each bucket hold for that bucket alone."""
    ids = sorted(image_id for image_id in ids_below(mixed) if image_id[-8:-4].isdigit())
    far = [sources[KINDS[row % 3]].at(image_id) for row, image_id in enumerate(ids)]
    near = [str(mixed / image_id) for image_id in ids]
    args = [arg for source in sources.values() for arg in source.args]
    args += ["--allow-outside", sources["local"].uri, "--allow-outside", str(mixed)]
    for name, paths in (("far", far), ("near", near)):
        rows = [{"id": image_id, "path": path} for image_id, path in zip(ids, paths, strict=True)]
        table = builds.write_table(tmp_path / f"{name}.jsonl", rows)
        assert build(table, tmp_path / name, *args, "--name", "t", "--records-per-shard", "9") == 0
    assert hashes_of(tmp_path / "far") == hashes_of(tmp_path / "near")


@pytest.mark.long_but_first
@pytest.mark.parametrize("kind", STORES)
def test_records_of_python(places: Places, tmp_path: Path, kind: Kind) -> None:
    records = [{"id": str(row), "image": png_of(row), "label": row % 3} for row in range(30)]
    output, local = places.make(kind), tmp_path / "local"
    for to, storage in ((str(local), {}), (output.uri, output.storage_options)):
        options = {"name": "t", "records_per_shard": 8, "storage_options": storage}
        assert sw.write(records, to, **options).num_records == 30
    root = output.download(tmp_path / "out")
    assert hashes_of(root) == hashes_of(local)
    assert not [name for name in output.names() if name.endswith(".spool")]
    assert output.pending_uploads() == []
    stamps = output.stamps()
    sw.write(records, output.uri, **options)
    assert {name: stamp for name, stamp in output.stamps().items() if "tfrecord" in name} == {
        name: stamp for name, stamp in stamps.items() if "tfrecord" in name
    }
