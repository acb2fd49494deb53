"""Datasets written from Python: the plan, the bytes and the rejects of `shardwright build`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shardwright as sw
from shardwright.errors import BuildError, ShardwrightError, UsageError
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source
from shardwright.transforms.plan.packing import ShardPlan
from shardwright.transforms.write import shard_writing
from shardwright.transforms.write.shard_writing import write_records
from shardwright.transforms.write.write_job import WriteJob
from tests.support.build_helpers import (
    bare_index_of,
    build,
    hashes_of,
    index_of,
    leftovers_of,
    make_images,
    manifest_of,
    png_of,
    records_per_shard,
    rejects_of,
    stamps_of,
)

NUMBER = 24
OPTIONS: dict[str, Any] = {"records_per_shard": 5, "name": "python", "seed": 3}
SPLIT = {"train": 0.75, "test": 0.25}


def pixels_of(row: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(row).integers(0, 256, (6, 5 + row % 3, 3), np.uint8)


def record_of(row: int) -> dict[str, Any]:
    return {
        "image": pixels_of(row),
        "label": ("cat", "dog")[row % 2],
        "id": f"r{row}",
        "score": row / 4,
        "count": np.int32(row),
        "tags": ["a", "b"][: row % 3],
        "matrix": np.full((2, 3), row, np.int16),
    }


def records() -> Iterator[dict[str, Any]]:
    return map(record_of, range(NUMBER))


def make_shard(number: int) -> list[dict[str, Any]]:
    return [record_of(row) for row in range(number * 8, number * 8 + 8)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("written") / "out"
    sw.write(records(), str(root), split=SPLIT, **OPTIONS)
    return root


def rows_of(root: Path, split: str) -> dict[str, dict[str, Any]]:
    """Return every row that the reader gives, by id."""
    reader = sw.Reader(str(root), split, global_batch_size=1, epochs=1)
    rows = [{name: column[0] for name, column in batch.items()} for batch in reader]
    return {row["id"].decode() if isinstance(row["id"], bytes) else row["id"]: row for row in rows}


def test_every_value_is_read_back(written: Path) -> None:
    import cv2

    rows = {**rows_of(written, "train"), **rows_of(written, "test")}

    assert set(rows) == {f"r{row}" for row in range(NUMBER)}
    for row in range(NUMBER):
        found, record = rows[f"r{row}"], record_of(row)
        image = cv2.imdecode(np.frombuffer(found["image"], np.uint8), cv2.IMREAD_COLOR_RGB)
        np.testing.assert_array_equal(image, record["image"])
        assert found["label"] == row % 2
        assert (found["score"], found["count"]) == (record["score"], row)
        assert [text.decode() for text in found["tags"]] == record["tags"]
        np.testing.assert_array_equal(found["matrix"], record["matrix"])
        assert found["matrix"].dtype == np.int16


def test_the_spool_is_gone_and_every_file_is_right(written: Path) -> None:
    from shardwright.inspect.cli import main

    assert leftovers_of(written) == []
    assert not (written / "spool").exists()
    assert main(["verify", str(written)]) == 0
    assert records_per_shard(written)[:-1] == [5] * (len(records_per_shard(written)) - 1)
    assert manifest_of(written)["provenance"]["input"] == "Python records"


def test_a_writer_writes_the_same_bytes(written: Path, tmp_path: Path) -> None:
    buffer = np.empty((6, 7, 3), np.uint8)
    with sw.Writer(str(tmp_path / "out"), split=SPLIT, **OPTIONS) as writer:
        for record in records():
            pixels = record["image"]
            view = buffer[:, : pixels.shape[1]]
            view[:] = pixels
            writer.write({**record, "image": view})
            view[:] = 0  # the loop's own buffer

    assert hashes_of(tmp_path / "out") == hashes_of(written)


@pytest.mark.long
def test_shards_of_a_function_hold_the_same_records(written: Path, tmp_path: Path) -> None:
    offset = 8  # of a closure, which only cloudpickle takes along
    out = str(tmp_path / "out")

    sw.write(lambda number: make_shard(number * offset // 8), out, shards=3, split=SPLIT, **OPTIONS)

    assert hashes_of(tmp_path / "out") == hashes_of(written)


@pytest.mark.long
def test_shards_are_made_again_for_another_build(tmp_path: Path) -> None:
    """Nothing tells if a function has changed, but what it returns."""
    out = str(tmp_path / "out")
    sw.write(lambda number: make_shard(number), out, shards=2, **OPTIONS)

    with pytest.raises(BuildError, match="INPUT has changed"):
        sw.write(lambda number: make_shard(number + 1), out, shards=2, **OPTIONS)


def test_a_function_whose_records_have_no_id_numbers_them_by_shard(tmp_path: Path) -> None:
    dataset = sw.write(
        lambda number: [{"image": png_of(number)}] * 2, str(tmp_path / "out"), shards=2
    )

    assert dataset.num_records == 4
    ids = [one for table in index_of(tmp_path / "out").values() for one in table["id"].to_pylist()]
    assert sorted(ids) == ["0/0", "0/1", "1/0", "1/1"]


def shard_stamps(root: Path) -> dict[str, tuple[int, int]]:
    return {name: stamp for name, stamp in stamps_of(root).items() if ".tfrecord-" in name}


def test_the_same_records_again_change_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    sw.write(records(), out, split=SPLIT, **OPTIONS)
    before = shard_stamps(tmp_path / "out")

    sw.write(list(records()), out, split=SPLIT, **OPTIONS)

    assert "up to date: all" in capsys.readouterr().err
    assert shard_stamps(tmp_path / "out") == before
    with pytest.raises(BuildError, match="INPUT has changed"):
        sw.write(list(records())[1:], out, split=SPLIT, **OPTIONS)
    assert not (tmp_path / "out" / "spool").exists()


def test_an_unfinished_build_writes_only_what_it_lacks(tmp_path: Path) -> None:
    """A changed image of the same length is seen, by its bytes."""
    rows = [{"id": str(row), "image": png_of(row * 5)} for row in range(12)]
    out = tmp_path / "out"
    sw.write(rows, str(out), **OPTIONS)
    before = shard_stamps(out)
    (out / "manifest.json").unlink()  # never published
    rows[4]["image"] = png_of(500)

    sw.write(rows, str(out), **OPTIONS)

    after = shard_stamps(out)
    changed = {name for name, stamp in after.items() if stamp != before[name]}
    assert len(before) == 3
    assert len(changed) == 1
    assert {str(len(row["image"])) for row in rows} == {str(len(png_of(0)))}


def test_an_interrupt_leaves_whole_shards_which_stay(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, begun = tmp_path / "out", []

    def interrupted(plan: ShardPlan, job: WriteJob) -> Any:
        begun.append(plan)
        if len(begun) == 3:
            raise KeyboardInterrupt
        return write_records(plan, job)

    monkeypatch.setattr(shard_writing, "write_records", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sw.write(records(), str(out), split=SPLIT, **OPTIONS)
    monkeypatch.undo()
    before = shard_stamps(out)
    assert len(before) == 2
    assert leftovers_of(out) == []
    assert not (out / "manifest.json").exists()

    sw.write(records(), str(out), split=SPLIT, **OPTIONS)

    assert before.items() <= shard_stamps(out).items()
    assert hashes_of(out) == hashes_of(written)


def test_files_are_references_in_place_with_the_bytes_of_a_build(tmp_path: Path) -> None:
    images = make_images(tmp_path / "in", 9)
    assert build(images, tmp_path / "built", "--name", "same") == 0
    paths = sorted(images.rglob("*.png"))
    rows = [
        {"image": path, "label": path.parent.name, "id": str(path.relative_to(images))}
        for path in paths
    ]

    sw.write(rows, str(tmp_path / "out"), name="same")

    assert hashes_of(tmp_path / "out") == hashes_of(tmp_path / "built")
    assert bare_index_of(tmp_path / "out") == bare_index_of(tmp_path / "built")
    uris = {
        uri for table in index_of(tmp_path / "out").values() for uri in table["uri"].to_pylist()
    }
    assert uris == set(map(str, paths))


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("fold", {"a": 2, "b": 2}),
        ("holdout", {"holdout": 4}),
        ({"test": 1, "train": "rest"}, {"test": 1, "train": 3}),
        ("test=0.5,train=0.5", None),
    ],
)
def test_splits(tmp_path: Path, split: Any, expected: dict[str, int] | None) -> None:
    rows = [{"image": png_of(row), "fold": "ab"[row % 2]} for row in range(4)]

    dataset = sw.write(pa.Table.from_pylist(rows), str(tmp_path / "out"), split=split)

    found = {name: one.num_records for name, one in dataset.splits.items()}
    assert sum(found.values()) == 4
    assert expected in (None, found)


def test_a_schema_is_an_object_a_file_or_a_name(tmp_path: Path) -> None:
    schema = ExampleSchema(
        (
            Feature("picture", FeatureKind.IMAGE, Source.IMAGE),
            Feature("points", FeatureKind.FLOAT32, shape=(2, 2), column="box"),
        )
    )
    rows = [{"image": png_of(row), "box": np.eye(2), "other": 1} for row in range(3)]

    first = sw.write(rows, str(tmp_path / "out"), schema=schema)
    again = sw.write(rows, str(tmp_path / "out"), schema=schema)

    assert [feature.name for feature in first.schema.features] == ["picture", "points"]
    assert again.fingerprint == first.fingerprint
    with pytest.raises(ShardwrightError, match="settings"):
        sw.write(rows, str(tmp_path / "out"))


def test_boxes_are_arrays_or_lists(tmp_path: Path) -> None:
    boxes = [[[0.125, 0.25, 0.5, 0.75]] * (row % 3) for row in range(6)]
    stored = []
    for name in ("arrays", "lists"):
        rows = (
            {
                "id": f"r{row}",
                "image": pixels_of(row),
                "objects/bbox": np.array(given).reshape(-1, 4) if name == "arrays" else given,
                "objects/label": ["cat"] * len(given),
            }
            for row, given in enumerate(boxes)
        )
        sw.write(rows, str(tmp_path / name), schema="detection", name="same")
        stored.append(hashes_of(tmp_path / name))
    (batch,) = sw.Reader(tmp_path / "arrays", "all", global_batch_size=6, epochs=1)
    found = dict(zip(batch["id"], batch["objects/bbox"], strict=True))
    assert [found[f"r{row}"].tolist() for row in range(6)] == boxes
    assert stored[0] == stored[1]


def test_records_that_cannot_be_written_are_rejects(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"image": png_of(row), "x": row, "id": row} for row in range(70)]
    rows[2]["image"] = tmp_path / "missing.png"
    rows[3]["image"] = b"no image"
    rows[4]["id"] = 5
    rows[68]["x"] = "one"

    dataset = sw.write(rows, str(tmp_path / "out"), max_reject_fraction=1)

    found = {row["id"]: row["reason"] for row in rejects_of(tmp_path / "out")}
    assert found == {
        "2": "missing_file",
        "3": "not_an_image",
        "5": "duplicate_id",
        "68": "bad_value",
    }
    assert dataset.num_records == 70 - len(found)
    with pytest.raises(BuildError, match="reject"):
        sw.write(rows, str(tmp_path / "strict"), max_reject_fraction=0)
    assert not (tmp_path / "strict" / "manifest.json").exists()


def feed(out: Path, number: int, record: dict[str, Any], error: Exception | None = None) -> None:
    """Write a record `number` times, and then raise the error."""
    with sw.Writer(str(out)) as writer:
        for _ in range(number):
            writer.write(record)
        if error is not None:
            raise error


@pytest.mark.parametrize("number", [0, 1, 1000])
def test_a_writer_whose_block_fails_leaves_nothing(tmp_path: Path, number: int) -> None:
    with pytest.raises(KeyError, match="mine"):
        feed(tmp_path / "out", number, {"image": png_of(0)}, KeyError("mine"))

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_threads_write_at_the_same_time(tmp_path: Path) -> None:
    class Slow:
        """An array that is read when it is converted, as those of h5py are."""

        def __init__(self, number: int) -> None:
            self.number = number

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
            time.sleep(0.0005 * (self.number % 10))
            return np.array([self.number, self.number])

    with sw.Writer(str(tmp_path / "out"), **OPTIONS) as writer, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda row: writer.write({"id": str(row), "x": Slow(row)}), range(300)))
    assert sw.open(str(tmp_path / "out")).num_records == 300


@pytest.mark.long
def test_a_script_that_never_leaves_the_block_ends(tmp_path: Path) -> None:
    script = "import shardwright as sw; w = sw.Writer('out').__enter__(); w.write({'x': 1})"
    ended = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, timeout=240, check=False)
    assert ended.returncode == 0
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_function_whose_first_shards_are_empty(tmp_path: Path) -> None:
    sw.write(lambda shard: [{"x": shard}] * shard, str(tmp_path / "out"), shards=3)
    assert sw.open(str(tmp_path / "out")).num_records == 3


def test_a_writer_starts_anew_after_a_block_that_failed(tmp_path: Path) -> None:
    writer = sw.Writer(str(tmp_path / "out"))
    with suppress(KeyError), writer:
        writer.write({"image": png_of(0)})
        raise KeyError
    with writer:
        writer.write({"image": png_of(1)})

    assert manifest_of(tmp_path / "out")["num_inputs"] == 1


def test_a_writer_raises_what_is_wrong_with_its_records(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="key 'image': an image must be a uint8 or uint16 array"):
        feed(tmp_path / "out", 10_000, {"image": 1.5})
    with pytest.raises(UsageError, match="there are no records"):
        feed(tmp_path / "out", 0, {})
    with pytest.raises(UsageError, match="the writer is not open"):
        sw.Writer(str(tmp_path / "out")).write({"image": png_of(0)})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shard_sise": 5}, r"did you mean shard_size=\?"),
        ({"shard_size": "big"}, "shard_size='?big"),
        ({"seed": "x"}, "argument seed: invalid int value: 'x'"),
        ({"if_exists": "maybe"}, "argument if_exists: invalid choice"),
        ({"split": {"train": 0.5}}, "split='train=0.5'"),
        ({"schema": "nope"}, "schema='nope' is neither"),
        ({"schema": ExampleSchema(())}, "schema= ExampleSchema has no features"),
        ({"shards": 2}, "shards=2 needs a function of a shard's number"),
        ({"shards": 2.0}, r"shards=2\.0 needs a function of a shard's number and a whole number"),
        ({"label_column": "species"}, "label_column='species' is not in the records"),
    ],
)
def test_options_are_checked_before_anything_is_written(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        sw.write([{"image": png_of(0)}], str(tmp_path / "out"), **options)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_only_functions_with_shards_and_options_of_beam_need_beam(tmp_path: Path) -> None:
    """Its import and graph take longer than writing thousands of records."""
    script = f"""
import sys
import time
import shardwright as sw
rows = [{{"id": str(row), "x": row}} for row in range(9)]
sw.write(rows, {str(tmp_path / "a")!r}, name="n", records_per_shard=2)
with sw.Writer({str(tmp_path / "b")!r}, name="n", records_per_shard=2) as writer:
    for row in rows:
        writer.write(row)
assert "apache_beam" not in sys.modules
sw.write(rows, {str(tmp_path / "c")!r}, name="n", records_per_shard=2, runner="FnApiRunner")
assert "apache_beam" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=240)

    assert hashes_of(tmp_path / "a") == hashes_of(tmp_path / "b") == hashes_of(tmp_path / "c")


def test_without_beam_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apache_beam", None)

    with pytest.raises(UsageError, match=r"pip install 'shardwright\[build\]'"):
        _ = sw.write
