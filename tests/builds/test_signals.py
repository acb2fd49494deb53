"""`build --signals` and the sample: files, statistics, resuming, and what reads them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from PIL import Image

import shardwright as sw
from shardwright.errors import UsageError
from shardwright.images.signals import SIGNALS, measure_picture
from shardwright.inspect import cli
from shardwright.inspect.sample import choose_sample
from shardwright.report.pictures import read_pictures
from tests.support.build_helpers import (
    build_without_beam as build,
)
from tests.support.build_helpers import (
    hashes_of,
    index_of,
    manifest_of,
    png_of,
    stamps_of,
    write_table,
)

OPTIONS = ("--split", "train=0.7,test=0.3", "--records-per-shard", "9")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 photographs of two classes, some dark or gray; one that does not decode."""
    root = tmp_path_factory.mktemp("images") / "in"
    for number in range(40):
        pixels = np.random.default_rng(number).integers(0, 256, (30, 20 + number, 3), np.uint8)
        image = Image.fromarray(pixels // (5 if number % 8 == 0 else 1))
        path = root / "ab"[number % 2] / f"{number:02d}.{'jpg' if number % 3 else 'png'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        (image.convert("L") if number % 5 == 0 else image).save(path)
    damaged = (root / "a" / "02.jpg").read_bytes()
    (root / "a" / "damaged.jpg").write_bytes(damaged[:-400] + b"\xff\xda" * 199 + b"\xff\xd9")
    return root


def made(images: Path, output: Path, *options: str) -> Path:
    assert build(images, output, "--name", "photos", "--check", "none", *OPTIONS, *options) == 0
    return output


@pytest.fixture(scope="module")
def measured(images: Path) -> Path:
    return made(images, images.parent / "measured", "--signals")


@pytest.fixture(scope="module")
def plain(images: Path) -> Path:
    return made(images, images.parent / "plain")


def signals_of(root: Path) -> pa.Table:
    return pa.concat_tables(map(pq.read_table, sorted((root / "signals").glob("*.parquet"))))


@pytest.mark.long
def test_a_file_beside_each_index_file(measured: Path, plain: Path) -> None:
    index = index_of(measured)
    for name, rows in index.items():
        assert pq.read_table(measured / "signals" / name)["id"].equals(rows["id"])
    assert {f"signals/{name}" for name in index} <= manifest_of(measured)["files"].keys()
    assert hashes_of(measured) == hashes_of(plain)
    assert not (plain / "signals").exists()
    assert cli.main(["verify", str(measured)]) == 0


def test_the_values_are_those_of_the_pictures(images: Path, measured: Path) -> None:
    for row in signals_of(measured).to_pylist():
        if row["id"] == "a/damaged.jpg":
            assert row["sharpness"] is None
            continue
        image = Image.open(images / row["id"])
        pixels = np.asarray(image).reshape(image.height, image.width, -1)
        for signal, value in zip(SIGNALS, measure_picture(pixels).signals, strict=True):
            assert row[signal.name] == np.float32(value), (row["id"], signal.name)


def test_statistics_of_all(measured: Path) -> None:
    stats = json.loads((measured / "stats.json").read_text())
    rows, ids = signals_of(measured), index_of(measured)
    for split, found in stats.items():
        assert sum(map(len, ids.values())) == 41
        mine = [table for name, table in ids.items() if name.startswith(split)]
        known = pc.is_in(rows["id"], pa.concat_tables(mine)["id"].combine_chunks())
        for signal in SIGNALS:
            values = rows.filter(known)[signal.name].drop_null().to_numpy().astype(float)
            told = found["signals"][signal.name]
            assert (told["basis"], told["count"]) == ("all", len(values))
            assert told["mean"] == pytest.approx(values.mean())
            assert told["std"] == pytest.approx(values.std(), abs=1e-6)
            counts, _ = np.histogram(
                np.clip(values, signal.edges[0], signal.edges[-1]), signal.edges
            )
            assert told["histogram"] == {"edges": list(signal.edges), "counts": counts.tolist()}
    assert stats["train"]["signals"]["highlights"]["faults"] > 0


def test_a_sample_of_all_records_has_the_same_statistics(measured: Path, plain: Path) -> None:
    """Fewer than 100 records: the sample of the plain build is the whole dataset."""
    whole, sampled = (json.loads((root / "stats.json").read_text()) for root in (measured, plain))
    for split, found in sampled.items():
        count = found["signals"]["size"]["count"]
        assert found["signals"]["size"]["basis"] == f"sample of {count}"
        for signal in SIGNALS:
            mine, other = (dict(each["signals"][signal.name]) for each in (found, whole[split]))
            assert mine.pop("basis") != other.pop("basis")
            assert mine.pop("histogram") == other.pop("histogram")
            assert mine == pytest.approx(other)
        assert found["channels"] == {**whole[split]["channels"], "basis": f"sample of {count}"}


def test_the_mean_and_deviation_of_channels(images: Path, measured: Path) -> None:
    dataset = sw.open(str(measured))
    found = dataset.mean_std("test")
    ids = [row["id"] for table in index_of(measured).values() for row in table.to_pylist()]
    names = {name for name in ids if name != "a/damaged.jpg"}
    test = {
        name
        for path, table in index_of(measured).items()
        for name in table["id"].to_pylist()
        if path.startswith("test") and name in names
    }
    pixels = np.concatenate([
        np.asarray(Image.open(images / name).convert("RGB")).reshape(-1, 3) for name in test
    ])  # fmt: skip
    assert found.mean == pytest.approx(pixels.mean(0) / 255)
    assert found.std == pytest.approx(pixels.std(0) / 255)
    normalized = sw.normalizer(found, "numpy")(pixels[None])
    assert np.abs(normalized.mean((0, 1))).max() < 1e-4
    assert normalized.std((0, 1)) == pytest.approx(1, abs=1e-4)
    with pytest.raises(UsageError, match="unknown split 'x'; the splits are test, train"):
        dataset.mean_std("x")


def test_up_to_date_and_lost_files(images: Path, measured: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(measured, tmp_path / "copy"))
    before = stamps_of(root)
    made(images, root, "--signals")
    assert stamps_of(root) == before
    lost = root / "signals" / "train-00001-of-00004.parquet"
    data = lost.read_bytes()
    lost.unlink()
    made(images, root, "--signals")
    assert lost.read_bytes() == data
    rewritten = {name for name, stamp in stamps_of(root).items() if stamp != before[name]}
    assert {name for name in rewritten if ".tfrecord" in name} == {
        "photos-train.tfrecord-00001-of-00004"
    }


def test_a_damaged_file_is_a_fault(measured: Path, tmp_path: Path, capsys: Any) -> None:
    root = Path(shutil.copytree(measured, tmp_path / "copy"))
    path = root / "signals" / "test-00000-of-00002.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert cli.main(["verify", str(root)]) == 1
    assert "signals/test-00000-of-00002.parquet: the file's crc32c" in capsys.readouterr().out


def test_an_overwriting_build_without_signals_removes_them(
    images: Path, measured: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(measured, tmp_path / "copy"))
    made(images, root, "--if-exists", "overwrite")
    assert not list(root.glob("signals/*"))
    assert "sample" in manifest_of(root)["splits"]["train"]["stats"]["signals"]["size"]["basis"]


def test_readers_filter_by_signals(measured: Path, plain: Path) -> None:
    where = (pc.field("highlights") >= 0.32) & (pc.field("width") > 30)
    batch = sw.Reader(
        str(measured), "train", global_batch_size=64, where=where, remainder="keep", epochs=1
    )
    ids = {name for each in batch for name in each["id"].tolist()}
    rows = {row["id"]: row for row in signals_of(measured).to_pylist()}
    assert ids
    assert all(rows[name]["highlights"] >= np.float32(0.32) for name in ids)
    with pytest.raises(
        UsageError,
        match=r"for those of signals, build the dataset with signals=True\): No match.*highlights",
    ):
        sw.Reader(str(plain), "train", global_batch_size=4, where=where)


def output_of(*argv: str) -> str:
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()) as told:
        assert cli.main(argv) == 0
    return told.getvalue()


def test_the_command_stats(measured: Path, plain: Path) -> None:
    text = output_of("stats", str(measured))
    assert "\nquality signals\n" in text
    assert " dark (< 0.32)\n" in text
    assert "  sample of " in output_of("stats", str(plain))
    assert json.loads(output_of("stats", str(measured), "--json"))["test"]["num_records"] > 0


def test_the_sample_has_every_class_and_skips_what_does_not_decode(measured: Path) -> None:
    dataset = sw.open(str(measured))
    few = choose_sample(dataset.root, dataset, 8)
    assert few == choose_sample(dataset.root, dataset, 8)
    assert {(place.shard.split, place.row["label"]) for place in few} == {
        (split, label) for split in ("test", "train") for label in (0, 1)
    }
    everything = choose_sample(dataset.root, dataset, 1000)
    assert len(everything) == 41
    pictures = read_pictures(dataset.root, dataset, everything)
    assert [picture.id for picture in pictures] == [place.row["id"] for place in everything]
    [damaged] = [picture for picture in pictures if picture.thumbnail is None]
    assert (damaged.id, damaged.measured) == ("a/damaged.jpg", None)


def test_the_stock_writer_has_no_signals(images: Path, tmp_path: Path, capsys: Any) -> None:
    assert build(images, tmp_path / "out", "--writer", "beam", "--signals") == 2
    assert "--signals needs --writer planned" in capsys.readouterr().err


def test_features_are_summarized_the_same_on_beam_and_locally(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": f"r{number}", "age": number % 7, "ratio": number / 8, "note": "ä" * (number % 3),
         "tags": list(range(number % 4))}
        for number in range(30)
    ]  # fmt: skip
    for number in range(30):
        (tmp_path / f"{number}.png").write_bytes(png_of(number))
    write_table(
        tmp_path / "table.jsonl",
        [{**row, "image": f"{number}.png"} for number, row in enumerate(rows)],
    )
    options = ("--name", "rows", "--records-per-shard", "8")
    assert build(tmp_path / "table.jsonl", tmp_path / "beam", *options) == 0
    found = json.loads((tmp_path / "beam" / "stats.json").read_text())["train"]["features"]
    for name, of, values in (
        ("age", "values", [row["age"] for row in rows]),
        ("ratio", "values", [row["ratio"] for row in rows]),
        ("note", "bytes", [len(row["note"].encode()) for row in rows]),
        ("tags", "items", [len(row["tags"]) for row in rows]),
    ):
        told = found[name]
        assert (told["of"], told["count"], told["zeros"]) == (of, 30, values.count(0))
        assert (told["min"], told["max"]) == (min(values), max(values))
        assert told["mean"] == pytest.approx(np.mean(values))
        assert told["std"] == pytest.approx(np.std(values))
    sw.write(rows, str(tmp_path / "local"), name="rows", records_per_shard=8)
    local = json.loads((tmp_path / "local" / "stats.json").read_text())["train"]["features"]
    assert local["age"] == found["age"]
    assert local["tags"] == found["tags"]
    assert "  tags     items  " in output_of("stats", str(tmp_path / "beam"))
    with pytest.raises(
        UsageError, match="have no mean and deviation of channels: it has no images, or"
    ):
        sw.open(str(tmp_path / "local")).mean_std()
