"""The stock writer's parts: chunks, unframed records, rejects by shard, Beam's leftovers."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import apache_beam as beam
import pytest
from google_crc32c import value
from hypothesis import given
from hypothesis import strategies as st

from shardwright.format.example import parse_example
from shardwright.format.index import ShardSummary, read_index, read_summary
from shardwright.format.naming import ShardName
from shardwright.format.records import scan_records
from shardwright.images.kinds import ImageInfo
from shardwright.schemas.ready import image_classification
from shardwright.storage.folder import Folder
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.images.policy import PolicyFault
from shardwright.transforms.output_state import Clearance
from shardwright.transforms.plan.packing import ShardPlan
from shardwright.transforms.references import LABEL_INDEX
from shardwright.transforms.reject_files import read_rejects
from shardwright.transforms.rejects import Reject
from shardwright.transforms.routing import Routed
from shardwright.transforms.write.examples import ExampleEncoder
from shardwright.transforms.write.stored_records import StoredRecords
from shardwright.transforms.write.write_job import WriteJob
from shardwright.transforms.write.write_stock import (
    WriteWithBeam,
    cut_plan,
    remove_leftovers,
    unframe,
)
from tests.support.helpers import references, rows_of, run_transform
from tests.support.image_makers import picture, saved
from tests.support.policy_images import policy_of

KEEP = EncodeOptions()
SCHEMA = image_classification()


def make_plan(folder: Path, name: ShardName, contents: dict[str, bytes]) -> ShardPlan:
    """Return a planned shard of files of these contents, by id."""
    folder.mkdir(exist_ok=True)
    for image_id, content in contents.items():
        (folder / image_id).write_bytes(content)
    columns = {
        "uri": [str(folder / image_id) for image_id in contents],
        "num_bytes": [len(content) for content in contents.values()],
        "etag": None,
        "split": name.split,
        "label": "b",
    }
    labels = {LABEL_INDEX: [1] * len(contents)}
    return ShardPlan(name, "digest", references(list(contents), extras=labels, **columns))


@given(st.lists(st.binary(max_size=200), max_size=10), st.integers(0, 2**40))
def test_unframed_records_are_those_that_the_planned_writer_frames(
    images: list[bytes], label: int
) -> None:
    ids = [str(number) for number in range(len(images))]
    rows = references(ids, extras={LABEL_INDEX: [label] * len(ids)})
    encoder = ExampleEncoder(SCHEMA.with_class_names(("a", "b")))
    measured = encoder.encode_measured([ImageInfo("png", 1, 1, 3)] * len(images))
    framed = encoder.frame(encoder.encode_known(rows), measured, images, [*map(value, images)])
    records = list(unframe(framed))
    assert records == [span.data for span in scan_records(io.BytesIO(b"".join(framed.pieces)))]
    assert [parse_example(record)["image"] for record in records] == [[image] for image in images]


@given(st.lists(st.integers(0, 9 << 20), max_size=300))
def test_the_chunks_of_a_plan_are_all_its_rows_in_order(sizes: list[int]) -> None:
    name = ShardName("pets", "train", 2, 3)
    ids = [str(number) for number in range(len(sizes))]
    chunks = list(cut_plan(ShardPlan(name, "", references(ids, num_bytes=sizes))))
    assert {owner for owner, _ in chunks} <= {name}
    assert [row["id"] for row in rows_of(batch for _, batch in chunks)] == ids


def test_leftovers_of_beam_are_removed(tmp_path: Path) -> None:
    kept = [
        *("beam-temp-mine", "manifest.json", "pets-train.tfrecord-00000-of-00001"),
        f"my-beam-temp-pets-train.tfrecord-{'0' * 32}",
    ]
    for filename in kept:
        (tmp_path / filename).write_text("kept")
    leftover = tmp_path / f"beam-temp-pets-train.tfrecord-{'0a' * 16}"
    leftover.mkdir()
    (leftover / "part").write_text("gone")
    remove_leftovers(str(tmp_path))
    remove_leftovers(str(tmp_path / "none"))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


class _Write(beam.PTransform):
    """WriteWithBeam, with the clearance that its pipeline makes."""

    def __init__(self, root: Path, shards: dict[str, int], encode: EncodeOptions) -> None:
        super().__init__()
        self._root, self._shards, self._encode = root, shards, encode

    def expand(self, plans: beam.PCollection) -> Routed:
        made = Clearance({"label": ("a", "b")}, "f", {}, True)
        clearance = plans.pipeline | "Clearance" >> beam.Create([made])
        job = WriteJob(Folder(str(self._root)), SCHEMA, StoredRecords("header", self._encode), 2)
        write = WriteWithBeam(job, name="pets", shards=self._shards, clearance=clearance)
        return plans | write


def write_with_beam(
    root: Path,
    plans: list[ShardPlan],
    shards: dict[str, int],
    encode: EncodeOptions = KEEP,
) -> tuple[list[ShardSummary], list[Reject], Mapping[str, int]]:
    """Run the transform once: its summaries, its rejects and its counters."""
    run = run_transform(_Write(root, shards, encode), plans)
    summaries = sorted(run.outputs["main"], key=lambda summary: summary.name)
    return summaries, run.outputs["rejects"], run.counters


@pytest.mark.long
def test_every_split_is_written_and_indexed(tmp_path: Path) -> None:
    train = {f"{number}.png": saved(picture(size=(9, 5 + number)), "png") for number in range(7)}
    test = {"t.png": train["0.png"], "zero.png": b"", "text.png": b"no image"}
    first, second = ShardName("pets", "train", 0, 2), ShardName("pets", "test", 0, 1)
    plans = [make_plan(tmp_path / "in", first, train), make_plan(tmp_path / "in", second, test)]
    summaries, rejects, counters = write_with_beam(tmp_path, plans, {"train": 2, "test": 1})

    assert [summary.name for summary in summaries] == [second, first, replace(first, index=1)]
    images: dict[str, bytes] = {}
    for summary in summaries:
        rows = read_index(Folder(str(tmp_path)), summary.name).to_pylist()
        content = (tmp_path / summary.name.shard).read_bytes()
        stored = replace(summary, reject_file=None)
        assert read_summary(Folder(str(tmp_path)), summary.name) == stored
        assert (len(rows), len(content)) == (summary.num_records, summary.num_bytes)
        images |= {row["id"]: content[row["image_offset"] :][: row["image_length"]] for row in rows}
        assert {(row["label"], row["format"], row["width"]) for row in rows} <= {(1, "png", 9)}
        assert {row["uri"] for row in rows} <= {str(tmp_path / "in" / row["id"]) for row in rows}
    assert images == {**train, "t.png": test["t.png"]}
    assert sum(summary.num_records for summary in summaries[1:]) == 7

    reasons = sorted(str(reject.reason) for reject in rejects)
    assert reasons == ["empty_file", "not_an_image"]
    assert summaries[0].rejects == {"empty_file": 1, "not_an_image": 1}
    listed = read_rejects(Folder(str(tmp_path)), second.rejects)
    assert sorted(listed, key=str) == sorted(rejects, key=str)
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


def test_fixes_are_counted(tmp_path: Path) -> None:
    name = ShardName("pets", "train", 0, 1)
    images = {mode: saved(picture(mode), "png") for mode in ("RGB", "RGBA", "LA")}
    plans = [make_plan(tmp_path / "in", name, images)]
    encode = EncodeOptions(policy=policy_of("fix", PolicyFault.ALPHA))
    _, rejects, counters = write_with_beam(tmp_path, plans, {"train": 1}, encode)
    assert not rejects
    assert counters["fixed_alpha"] == 2


@pytest.mark.long
def test_shards_without_records_are_empty(tmp_path: Path) -> None:
    """More shards than records, and a split that lost every image."""
    train, test = ShardName("pets", "train", 0, 3), ShardName("pets", "test", 0, 1)
    images = {"one.png": saved(picture(), "png"), "zero.png": b""}
    plans = [
        make_plan(tmp_path / "in", train, images),
        make_plan(tmp_path / "in", test, {"none.png": b""}),
    ]
    summaries, rejects, _ = write_with_beam(tmp_path, plans, {"train": 3, "test": 1})
    names = [test, *(replace(train, index=index) for index in range(3))]
    assert [summary.name for summary in summaries] == names
    assert (summaries[0].num_records, summaries[0].num_bytes) == (0, 0)
    assert sorted(summary.num_records for summary in summaries[1:]) == [0, 0, 1]
    for summary in summaries:
        rows = read_index(Folder(str(tmp_path)), summary.name)
        assert rows.num_rows == summary.num_records
    shards = sorted(path.name for path in tmp_path.glob("pets-*"))
    assert shards == [name.shard for name in names]
    assert sorted(reject.id for reject in rejects) == ["none.png", "zero.png"]
