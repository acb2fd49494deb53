"""Making a dataset of finished shards: its files, their order, and when nothing is published."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shardwright.errors import BuildError, NotADatasetError, StorageError
from shardwright.format.contents import FileContent
from shardwright.format.index import INDEX_SCHEMA, ShardSummary, write_sidecar
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.naming import ShardName
from shardwright.format.schema import Feature, FeatureKind
from shardwright.schemas.ready import image_classification
from shardwright.storage.folder import Folder
from shardwright.storage.local import FileInfo
from shardwright.transforms.output_state import Clearance
from shardwright.transforms.plan.packing import Layout, ShardCuts
from shardwright.transforms.publish.companions import TfdsFiles
from shardwright.transforms.publish.publication import Publication, make_manifest, publish
from shardwright.transforms.publish.report_file import Report
from shardwright.transforms.publish.written_shards import WrittenShards
from shardwright.transforms.reject_limits import RejectLimits
from tests.support.build_helpers import stamps_of

VOCABULARIES = {"label": ("cat", "dog")}
CLEARANCE = Clearance(
    VOCABULARIES, "fingerprint", {"other_file": 2, "corrupt": 1}, unpublished=True
)
LAYOUT = Layout({"test": ShardCuts(3, 1), "train": ShardCuts(9, 2)}, {"test": 3, "train": 9}, {})
COMPANIONS = {
    *("features.json", "dataset_info.json", "stats.json", "schema.pbtxt", "label.labels.txt"),
}


LIMITS = RejectLimits(0.5)


def make_publication(root: Path, **changes: Any) -> Publication:
    settings, provenance = {"seed": 0}, {"created": "2026-11-22"}
    made = (
        Folder(str(root)),
        "pets",
        "1.0.0",
        image_classification(),
        settings,
        provenance,
        LIMITS,
    )
    return replace(Publication(*made, companions=(Report(), TfdsFiles())), **changes)


def make_summaries(**rejects: int) -> list[ShardSummary]:
    stats = {"labels": {"0": 3}, "formats": {"png": 3}}
    summaries = (
        ShardSummary(
            ShardName("pets", split, index, count),
            *(3, 300, 7, f"digest {index}", rejects if split == "test" else {}, stats),
            reject_file=FileContent.of(b"") if rejects and split == "test" else None,
        )
        for split, index, count in (("train", 1, 2), ("test", 0, 1), ("train", 0, 2))
    )
    with tempfile.TemporaryDirectory() as folder:
        return [
            write_sidecar(Folder(folder), each, rows_without_images(each)) for each in summaries
        ]


def rows_without_images(summary: ShardSummary) -> pa.Table:
    """Return index rows for a shard's records."""
    ids = [f"{summary.name.split} {summary.name.index} {number}" for number in range(3)]
    place = {"offset": 0, "length": 0, "image_offset": 0, "image_length": 0, "crc32c": 0}
    place["record_crc32c"] = 0
    return pa.Table.from_pylist([{"id": name, **place} for name in ids], schema=INDEX_SCHEMA)


def make_root(root: Path, **rejects: int) -> Path:
    """Write the shards of `make_summaries`, as far as publishing looks at them."""
    for summary in make_summaries(**rejects):
        write_sidecar(Folder(str(root)), summary, rows_without_images(summary))
        (root / summary.name.shard).write_bytes(bytes(summary.num_bytes))
    return root


def publish_in(
    root: Path,
    summaries: Sequence[ShardSummary] | None = None,
    clearance: Clearance = CLEARANCE,
    **changes: Any,
) -> Manifest:
    """Publish the shards in `root`; `changes` are those of the publication."""
    shards = make_summaries() if summaries is None else summaries
    return publish(WrittenShards(shards), make_publication(root, **changes), LAYOUT, clearance)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_root(tmp_path)


def test_the_manifest_counts_every_input_once(tmp_path: Path) -> None:
    summaries = make_summaries(corrupt=1, changed=2)
    manifest = make_manifest(make_publication(tmp_path), WrittenShards(summaries), CLEARANCE)
    assert (manifest.num_records, manifest.num_bytes, manifest.num_inputs) == (9, 900, 15)
    assert manifest.rejects == {"changed": 2, "corrupt": 2, "other_file": 2}
    assert list(manifest.splits) == ["test", "train"]
    assert [shard.index for shard in manifest.splits["train"].shards] == [0, 1]
    assert manifest.splits["train"].stats == {"labels": {"0": 6}, "formats": {"png": 6}}
    assert manifest.schema.class_names == ("cat", "dog")


def test_an_unlabelled_dataset_has_no_label_names(root: Path) -> None:
    manifest = publish_in(root, clearance=replace(CLEARANCE, vocabularies={}))
    assert manifest.schema.label is None
    assert not list(root.glob("*.labels.txt"))


def test_files_of_names_and_words_go_when_they_are_no_longer_learned(root: Path) -> None:
    extras = (
        Feature("scenes", FeatureKind.MULTI_LABEL),
        Feature("caption", FeatureKind.BAG_OF_WORDS),
    )
    words = {**VOCABULARIES, "scenes": ("in", "out"), "caption": ("a", "b", "c")}
    learned = replace(CLEARANCE, vocabularies=words)
    publish_in(root, clearance=learned, schema=image_classification(extras=extras))
    assert {path.name: path.read_text() for path in root.glob("*.txt")} == {
        "label.labels.txt": "cat\ndog\n",
        "scenes.labels.txt": "in\nout\n",
        "caption.vocab.txt": "a\nb\nc\n",
    }
    publish_in(root)
    assert [path.name for path in root.glob("*.txt")] == ["label.labels.txt"]


@pytest.mark.parametrize(
    "summaries",
    [make_summaries()[1:], [*make_summaries(), make_summaries()[0]], []],
    ids=["one less", "twice", "none"],
)
def test_a_missing_shard_stops_it(tmp_path: Path, summaries: list[ShardSummary]) -> None:
    message = r"shards were written, but 3 are planned .*run the build again"
    with pytest.raises(BuildError, match=message):
        publish_in(tmp_path, summaries)
    assert list(tmp_path.iterdir()) == []


def test_too_many_rejects_stop_it_before_anything_is_written(tmp_path: Path) -> None:
    message = r"2 of 11 inputs \(18.18%\) are rejects, more than --max-reject-fraction 0.1"
    with pytest.raises(BuildError, match=message):
        publish_in(tmp_path, make_summaries(truncated=1), limits=RejectLimits(0.1))
    assert list(tmp_path.iterdir()) == []


def test_files_of_other_builds_are_removed(root: Path) -> None:
    stale = [
        *("pets-train.tfrecord-00000-of-00007", "index/train-00000-of-00007.parquet"),
        *("rejects/failed.parquet", ".pets.0.tmp", "rejects/train-00000-of-00002.parquet"),
        *("index/.train.1.tmp", "other.labels.txt"),
    ]
    kept = {
        *("thesis.tex", "rejects/plan.parquet", "plan.json"),
        "rejects/test-00000-of-00001.parquet",
    }
    (root / "rejects").mkdir()
    for name in [*stale, *kept]:
        (root / name).touch()
    (root / "plan.json").write_text('{"fingerprint": "fingerprint"}')
    listed = {"rejects/plan.parquet": FileContent.of(b"")}
    make_root(root, corrupt=1)
    publish_in(root, make_summaries(corrupt=1), replace(CLEARANCE, reject_files=listed))
    names = [summary.name for summary in make_summaries()]
    ours = {file for name in names for file in (name.shard, name.sidecar)}
    assert set(stamps_of(root)) == ours | COMPANIONS | kept | {"manifest.json", "report.html"}


def test_a_published_dataset_reads_back_and_publishing_again_keeps_it(root: Path) -> None:
    """The time of making stays the first one."""
    first, before = publish_in(root), stamps_of(root)
    assert read_manifest(Folder(str(root))) == first
    assert before.keys() > COMPANIONS
    assert publish_in(root, provenance={"created": "2026-11-23"}) == first
    assert stamps_of(root) == before


@pytest.mark.parametrize("name", sorted(COMPANIONS))
def test_a_lost_companion_is_written_as_it_was(root: Path, name: str) -> None:
    publish_in(root)
    whole, before = (root / name).read_bytes(), stamps_of(root)
    (root / name).unlink()
    publish_in(root, provenance={"created": "2026-11-23"})
    assert (root / name).read_bytes() == whole
    assert {path for path, stamp in stamps_of(root).items() if before[path] != stamp} == {name}


def test_other_shards_or_another_version_make_another_manifest(root: Path) -> None:
    publish_in(root)
    rejecting = make_summaries(corrupt=1)
    make_root(root, corrupt=1)
    for name in (summary.name.rejects for summary in rejecting if summary.rejects):
        Folder(str(root)).write_bytes(name, b"")
    publish_in(root, rejecting, provenance={"created": "2026-11-23"})
    manifest = read_manifest(Folder(str(root)))
    assert (manifest.rejects["corrupt"], manifest.provenance) == (2, {"created": "2026-11-23"})
    publish_in(make_root(root), version="1.0.1")
    assert read_manifest(Folder(str(root))).version == "1.0.1"
    assert not list(root.rglob(".*"))


@pytest.mark.parametrize("name", [*sorted(COMPANIONS), "manifest.json"])
def test_a_file_that_cannot_be_written_is_named_and_there_is_no_manifest(
    root: Path, name: str
) -> None:
    (root / name).mkdir()
    (root / name / "in the way").touch()
    with pytest.raises((StorageError, NotADatasetError), match=name.replace(".", r"\.")):
        publish_in(root)
    assert not (root / "manifest.json").is_file()


def test_a_build_that_another_overtakes_while_it_publishes_leaves_the_other_in_place(
    root: Path,
) -> None:
    """The other build publishes while this one writes its first companion."""

    class Overtaken(Folder):
        def write_if_new(self, name: str, data: bytes) -> None:
            if name == "features.json":
                (root / "manifest.json").write_text("the other's")
            super().write_if_new(name, data)

    publication = replace(make_publication(root), root=Overtaken(str(root)))
    with pytest.raises(BuildError) as caught:
        publish(WrittenShards(make_summaries()), publication, LAYOUT, CLEARANCE)
    told = f"another build has published a dataset at {root}"
    assert str(caught.value) == f"{told}: run this build again to compare with it"
    assert (root / "manifest.json").read_text() == "the other's"
    assert not list(root.rglob(".*"))


def test_a_build_that_another_plan_overtakes_while_it_publishes_stops(root: Path) -> None:
    """Else the other build, which has found no dataset, would write into a published one."""

    class Overtaken(Folder):
        def files(self, below: str = "", **options: Any) -> dict[str, FileInfo]:
            found = super().files(below, **options)
            (root / "plan.json").write_text('{"fingerprint": "another"}')
            return found

    (root / "plan.json").write_text('{"fingerprint": "fingerprint"}')
    publication = replace(make_publication(root), root=Overtaken(str(root)))
    with pytest.raises(BuildError, match="another build with a different INPUT or other options"):
        publish(WrittenShards(make_summaries()), publication, LAYOUT, CLEARANCE)
    assert not (root / "manifest.json").exists()


def test_of_two_builds_of_one_plan_the_first_to_publish_has_its_files(root: Path) -> None:
    """The other one publishes while this one, which began later, ends."""

    class Overtaken(Folder):
        def create_bytes(self, name: str, data: bytes) -> None:
            if not (root / "manifest.json").exists():
                publish_in(root)
            super().create_bytes(name, data)

    later = {"created": "2026-11-23"}
    publication = make_publication(root, provenance=later)
    publication = replace(publication, root=Overtaken(str(root)))
    publish(WrittenShards(make_summaries()), publication, LAYOUT, CLEARANCE)
    manifest = read_manifest(Folder(str(root)))
    assert manifest.provenance["created"] == "2026-11-22"
    assert "2026-11-22" in (root / "report.html").read_text()
    assert manifest.files.keys() == COMPANIONS


def test_a_build_publishes_beside_its_own_plan_and_never_beside_anothers(root: Path) -> None:
    (root / "plan.json").write_text('{"fingerprint": "another"}')
    before = stamps_of(root)
    message = "another build with a different INPUT or other options has started"
    with pytest.raises(BuildError, match=f"{message} in OUTPUT {root}"):
        publish_in(root)
    assert stamps_of(root) == before
    (root / "plan.json").write_text('{"fingerprint": "fingerprint"}')
    publish_in(root)


def test_the_etag_of_a_shard_in_a_store_is_in_the_manifest(root: Path) -> None:
    """A disk states none, and a local manifest has no such key."""
    train, test, *others = make_summaries()
    publish_in(root, [train, replace(test, etag='"e"'), *others])
    splits = read_manifest(Folder(str(root))).splits.values()
    assert [shard.etag for split in splits for shard in split.shards] == ['"e"', None, None]
    assert (root / "manifest.json").read_text().count("etag") == 1
