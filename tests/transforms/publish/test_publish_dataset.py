"""PublishDataset and ClearOutput: one clearance before a byte is written, one manifest at last."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from shardwright.errors import BuildError
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.manifest import read_manifest
from shardwright.format.naming import ShardName
from shardwright.storage.folder import Folder
from shardwright.transforms.output_state import Clearance, OutputRequest, fingerprint_of
from shardwright.transforms.plan.packing import Layout, ShardPlan
from shardwright.transforms.publish.publish_dataset import PublishDataset
from shardwright.transforms.reject_files import first_faults, pack_rejects
from shardwright.transforms.reject_limits import RejectLimits
from shardwright.transforms.rejects import Reject, RejectReason, rejects_to_table
from shardwright.transforms.write.clear_output import ClearOutput
from tests.support.build_helpers import reasons_of, stamps_of
from tests.support.helpers import references, run_transform
from tests.transforms.publish.test_publication import (
    CLEARANCE,
    LAYOUT,
    make_publication,
    make_root,
    make_summaries,
)

PLANS = [
    ShardPlan.make(
        ShardName("pets", "train", index, 2), references([str(index)], labelled=True), b"s"
    )
    for index in (1, 0)
]
BAD = [
    Reject("b", "/b", RejectReason.CORRUPT, "broken"),
    Reject("n", "/n", RejectReason.OTHER_FILE, "notes"),
]


class _Publish(beam.PTransform):
    def __init__(self, root: Path) -> None:
        super().__init__()
        self._publication = make_publication(root)

    def expand(self, summaries: beam.PCollection) -> beam.PCollection:
        layout = summaries.pipeline | "Layout" >> beam.Create([LAYOUT])
        clearance = summaries.pipeline | "Clearance" >> beam.Create([CLEARANCE])
        return summaries | PublishDataset(self._publication, layout=layout, clearance=clearance)


class _Clear(beam.PTransform):
    def __init__(
        self, root: Path, rejects: Sequence[Reject], limit: float, batch_rows: int = 2
    ) -> None:
        super().__init__()
        self._root, self._limit = root, limit
        self._batches = [
            pack_rejects(rejects_to_table(rejects[start : start + batch_rows]))
            for start in range(0, len(rejects), batch_rows)
        ]

    def expand(self, plans: beam.PCollection) -> beam.PCollection:
        def create(label: str, *values: object) -> beam.PCollection:
            return plans.pipeline | label >> beam.Create(list(values))

        return plans | ClearOutput(
            OutputRequest(Folder(str(self._root)), {"seed": 0}, "resume"),
            layout=create("Layout", Layout(LAYOUT.cuts, LAYOUT.num_bytes, {})),
            vocabularies=create("Vocabularies", {"label": ("cat", "dog")}),
            rejects=create("Rejects", *self._batches),
            limits=RejectLimits(self._limit),
        )


def test_one_manifest_is_written_and_given(tmp_path: Path) -> None:
    (manifest,) = run_transform(_Publish(make_root(tmp_path)), make_summaries()).outputs["main"]
    assert read_manifest(Folder(str(tmp_path))) == manifest
    assert manifest.num_records == 9


@pytest.mark.parametrize("summaries", [make_summaries()[:2], []], ids=["one less", "none"])
def test_missing_shards_are_no_dataset(tmp_path: Path, summaries: list[Any]) -> None:
    with pytest.raises(BuildError, match="shards were written, but 3 are planned"):
        run_transform(_Publish(tmp_path), summaries)
    assert list(tmp_path.iterdir()) == []


def test_one_clearance_whatever_the_order_of_plans(tmp_path: Path) -> None:
    fingerprint = fingerprint_of((plan.name.shard, plan.digest) for plan in PLANS)
    for name, plans in (("a", PLANS), ("b", PLANS[::-1])):
        (clearance,) = run_transform(_Clear(tmp_path / name, BAD, 0.5), plans).outputs["main"]
        written = tmp_path / name / naming.PLAN_REJECTS
        assert clearance == Clearance(
            {"label": ("cat", "dog")},
            fingerprint,
            {"corrupt": 1, "other_file": 1},
            unpublished=True,
            reject_files={naming.PLAN_REJECTS: FileContent.of(written.read_bytes())},
        )
        assert sorted(stamps_of(tmp_path / name)) == ["plan.json", "rejects/plan.parquet"]


def test_too_many_rejects_are_listed_and_nothing_is_cleared(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="1 of 13 inputs"):
        run_transform(_Clear(tmp_path, BAD, 0.01), PLANS)
    assert sorted(stamps_of(tmp_path)) == ["rejects/failed.parquet"]
    assert reasons_of(tmp_path) == {"b": "corrupt", "n": "other_file"}


@pytest.mark.parametrize(("limit", "kind"), [(0.9, "plan"), (0.01, "failed")])
def test_many_rejects_are_in_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: float, kind: str
) -> None:
    monkeypatch.setattr("shardwright.transforms.write.clearance._ROWS_PER_FILE", 5)
    rejects = [Reject(f"{row}", "/r", RejectReason.CORRUPT, "broken") for row in range(40)]
    clear = _Clear(tmp_path, rejects, limit, batch_rows=1)
    if kind == "failed":
        with pytest.raises(BuildError, match="40 of 52 inputs"):
            run_transform(clear, PLANS)
    else:
        (given,) = run_transform(clear, PLANS).outputs["main"]
        assert given.reject_files == {
            name: FileContent.of((tmp_path / name).read_bytes())
            for name in stamps_of(tmp_path)
            if name != naming.PLAN
        }
    files = {path.name for path in (tmp_path / naming.REJECTS_DIR).iterdir()}
    assert len(files) > 1
    assert files <= {f"{kind}.{number:05d}-of-00008.parquet" for number in range(8)}
    assert all(map(naming.is_build_output, (f"{naming.REJECTS_DIR}/{name}" for name in files)))
    assert sorted(reasons_of(tmp_path), key=int) == [str(row) for row in range(40)]
    assert len(first_faults(Folder(str(tmp_path)), 99)) == 40
