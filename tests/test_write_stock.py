"""The stock writer's parts: chunks, records without frames, rejects with their planned shard, and what Beam leaves behind."""

from __future__ import annotations

import io
import pickle
from dataclasses import replace
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.metrics.metric import MetricsFilter
from hypothesis import given
from hypothesis import strategies as st

from schemas.image_classification import image_classification
from shardwright.example import parse_example
from shardwright.index import ShardSummary, read_index, read_summary
from shardwright.naming import ShardName
from shardwright.records import scan_records
from shardwright.storage import Folder
from tests.image_makers import picture, saved
from transforms.images import EncodeOptions, ImageInfo
from transforms.output_state import Clearance
from transforms.planning.shard_plans import ShardPlan
from transforms.references import LABEL_INDEX
from transforms.reject_files import read_rejects
from transforms.rejects import Reject, RejectReason
from transforms.write_stock import WriteWithBeam, cut_plan, remove_leftovers, unframe
from transforms.writing.examples import ExampleEncoder
from transforms.writing.write_job import WriteJob

SCHEMA = image_classification(feature_names="tfds", image_encoding=None, image_shape=(), extras=())


def references(rows: list[dict[str, object]]) -> pa.RecordBatch:
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("uri", pa.string()),
            ("offset", pa.int64()),
            ("num_bytes", pa.int64()),
            ("etag", pa.string()),
            ("split", pa.string()),
            ("label", pa.string()),
            (LABEL_INDEX, pa.int64()),
        ]
    )
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def make_plan(folder: Path, name: ShardName, contents: dict[str, bytes]) -> ShardPlan:
    """A planned shard of files of these contents, by id."""
    rows: list[dict[str, object]] = []
    for image_id, content in contents.items():
        path = folder / image_id
        path.write_bytes(content)
        rows.append(
            {
                "id": image_id,
                "uri": str(path),
                "num_bytes": len(content),
                "split": name.split,
                "label": "b",
                LABEL_INDEX: 1,
            }
        )
    return ShardPlan(name, "digest", references(rows))


@given(st.lists(st.binary(max_size=200), max_size=10), st.integers(0, 2**40))
def test_unframed_records_are_those_that_the_planned_writer_frames(
    images: list[bytes], label: int
) -> None:
    rows = [{"id": str(number), "label": "b", LABEL_INDEX: label} for number in range(len(images))]
    encoder = ExampleEncoder(SCHEMA.with_class_names(("a", "b")))
    measured = encoder.encode_measured([ImageInfo("png", 1, 1, 3)] * len(images))
    framed = encoder.frame(encoder.encode_known(references(rows)), measured, images)
    records = list(unframe(framed))
    assert records == [span.data for span in scan_records(io.BytesIO(b"".join(framed.pieces)))]
    assert [parse_example(record)["image"] for record in records] == [[image] for image in images]


@given(st.lists(st.integers(0, 9 << 20), max_size=300))
def test_the_chunks_of_a_plan_are_all_its_rows_in_order(sizes: list[int]) -> None:
    name = ShardName("pets", "train", 2, 3)
    rows = [{"id": str(number), "num_bytes": size} for number, size in enumerate(sizes)]
    chunks = list(cut_plan(ShardPlan(name, "", references(rows))))
    assert {owner for owner, _ in chunks} <= {name}
    assert [row["id"] for _, batch in chunks for row in batch.to_pylist()] == [
        row["id"] for row in rows
    ]


def test_only_what_beam_left_is_removed(tmp_path: Path) -> None:
    kept = [
        "pets-train.tfrecord-00000-of-00001",
        "beam-temp-mine",
        "manifest.json",
        f"my-beam-temp-pets-train.tfrecord-{'0' * 32}",
    ]
    for filename in kept:
        (tmp_path / filename).write_text("kept")
    leftover = tmp_path / f"beam-temp-pets-train.tfrecord-{'0a' * 16}"
    leftover.mkdir()
    (leftover / "part").write_text("gone")
    remove_leftovers(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_no_output_has_no_leftovers(tmp_path: Path) -> None:
    remove_leftovers(str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


Written = tuple[list[ShardSummary], list[Reject], dict[str, int]]


def write_with_beam(root: Path, plans: list[ShardPlan], shards: dict[str, int]) -> Written:
    """Run the transform once: its summaries, its rejects and its counters."""
    pipeline = beam.Pipeline("FnApiRunner")
    clearance = pipeline | "Clearance" >> beam.Create(
        [Clearance({"label": ("a", "b")}, "f", {}, True)]
    )
    job = WriteJob(Folder(str(root)), SCHEMA, "header", EncodeOptions(), 2)
    write = WriteWithBeam(job, name="pets", shards=shards, clearance=clearance)
    written = pipeline | "Plans" >> beam.Create(plans) | write
    files = [root.with_name(f"{root.name}-{output}.pickle") for output in written._fields]
    for file, output in zip(files, written, strict=True):
        _ = (
            output
            | f"List {file}" >> beam.combiners.ToList()
            | f"Save {file}" >> beam.Map(_save, file)
        )
    result = pipeline.run()
    result.wait_until_finish()
    found = result.metrics().query(MetricsFilter().with_namespace("shardwright"))["counters"]
    counters = {counter.key.metric.name: counter.committed for counter in found}
    summaries, rejects = (pickle.loads(file.read_bytes()) for file in files)
    return sorted(summaries, key=lambda one: one.name), rejects, counters


def _save(elements: list[object], file: Path) -> None:
    file.write_bytes(pickle.dumps(elements))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inputs")


def test_every_split_is_written_and_indexed(tmp_path: Path, inputs: Path) -> None:
    train = {f"{number}.png": saved(picture(size=(9, 5 + number)), "png") for number in range(7)}
    test = {"t.png": train["0.png"], "zero.png": b"", "text.png": b"no image"}
    first, second = ShardName("pets", "train", 0, 2), ShardName("pets", "test", 0, 1)
    plans = [make_plan(inputs, first, train), make_plan(inputs, second, test)]
    summaries, rejects, counters = write_with_beam(tmp_path, plans, {"train": 2, "test": 1})

    assert [summary.name for summary in summaries] == [
        second,
        first,
        ShardName("pets", "train", 1, 2),
    ]
    images: dict[str, bytes] = {}
    for summary in summaries:
        rows = read_index(Folder(str(tmp_path)), summary.name).to_pylist()
        content = (tmp_path / summary.name.shard).read_bytes()
        assert read_summary(Folder(str(tmp_path)), summary.name) == replace(summary, reused=True)
        assert (len(rows), len(content)) == (summary.num_records, summary.num_bytes)
        images |= {row["id"]: content[row["image_offset"] :][: row["image_length"]] for row in rows}
        assert {(row["label"], row["format"], row["width"]) for row in rows} <= {(1, "png", 9)}
        assert {row["uri"] for row in rows} <= {str(inputs / row["id"]) for row in rows}
    assert images == {**train, "t.png": test["t.png"]}
    assert sum(summary.num_records for summary in summaries[1:]) == 7

    assert sorted(reject.reason for reject in rejects) == [
        RejectReason.EMPTY_FILE,
        RejectReason.NOT_AN_IMAGE,
    ]
    assert summaries[0].rejects == {"empty_file": 1, "not_an_image": 1}
    assert sorted(read_rejects(Folder(str(tmp_path)), second.rejects), key=str) == sorted(
        rejects, key=str
    )
    assert not (tmp_path / first.rejects).exists()
    wanted = {
        "images_in": 10,
        "records_out": 8,
        "shards_written": 3,
        "rejects_empty_file": 1,
        "rejects_not_an_image": 1,
    }
    assert wanted.items() <= counters.items()
    assert counters["bytes_out"] == sum(summary.num_bytes for summary in summaries)


def test_more_shards_than_records_leaves_empty_shards(tmp_path: Path, inputs: Path) -> None:
    name = ShardName("pets", "train", 0, 3)
    plans = [make_plan(inputs, name, {"one.png": saved(picture(), "png"), "zero.png": b""})]
    summaries, _, _ = write_with_beam(tmp_path, plans, {"train": 3})
    assert sorted(summary.num_records for summary in summaries) == [0, 0, 1]
    assert sorted(path.name for path in tmp_path.glob("pets-*")) == [
        ShardName("pets", "train", n, 3).shard for n in range(3)
    ]
    assert all(
        read_index(Folder(str(tmp_path)), summary.name).num_rows == summary.num_records
        for summary in summaries
    )


def test_a_split_that_lost_every_image_has_empty_shards(tmp_path: Path, inputs: Path) -> None:
    plans = [make_plan(inputs, ShardName("pets", "train", 0, 1), {"zero.png": b""})]
    summaries, rejects, _ = write_with_beam(tmp_path, plans, {"train": 1})
    assert [(summary.num_records, summary.num_bytes) for summary in summaries] == [(0, 0)]
    assert [reject.id for reject in rejects] == ["zero.png"]
