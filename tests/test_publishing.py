"""Making a dataset of finished shards: what is written, in which order, and when nothing may be published."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.image_classification import image_classification
from shardwright.errors import BuildError, NotADatasetError, StorageError
from shardwright.index import INDEX_SCHEMA, ShardSummary, write_sidecar
from shardwright.manifest import Manifest, read_manifest
from shardwright.naming import ShardName
from shardwright.schema import Feature, FeatureKind
from shardwright.storage import Folder
from tests.build_helpers import stamps_of
from transforms.output_state import Clearance
from transforms.planning.packing import Layout, ShardCuts
from transforms.publishing.publication import Publication, make_manifest, publish

CLEARANCE = Clearance(
    {"label": ("cat", "dog")}, "fingerprint", {"other_file": 2, "corrupt": 1}, retry=True
)
LAYOUT = Layout({"test": ShardCuts(3, 1), "train": ShardCuts(9, 2)}, {"test": 3, "train": 9}, {})
COMPANIONS = {
    "features.json",
    "dataset_info.json",
    "stats.json",
    "schema.pbtxt",
    "report.html",
    "label.labels.txt",
}


def make_publication(root: Path, **changes: Any) -> Publication:
    fields: dict[str, Any] = {
        "root": Folder(str(root)),
        "name": "pets",
        "version": "1.0.0",
        "schema": image_classification(),
        "settings": {"seed": 0},
        "provenance": {"created": "today"},
        "max_reject_fraction": 0.5,
        **changes,
    }
    return Publication(**fields)


def make_summaries(**rejects: int) -> list[ShardSummary]:
    names = [
        ShardName("pets", "train", 1, 2),
        ShardName("pets", "test", 0, 1),
        ShardName("pets", "train", 0, 2),
    ]
    stats = {"labels": {"0": 3}, "formats": {"png": 3}}
    return [
        ShardSummary(
            name, 3, 300, 7, f"digest {name.index}", rejects if name.split == "test" else {}, stats
        )
        for name in names
    ]


def make_root(root: Path) -> Path:
    """A folder with the shards of `make_summaries`, as far as publishing looks at them."""
    for summary in make_summaries():
        write_sidecar(Folder(str(root)), summary, INDEX_SCHEMA.empty_table())
        (root / summary.name.shard).touch()
    return root


def test_the_manifest_counts_every_input_once(tmp_path: Path) -> None:
    manifest = make_manifest(
        make_publication(tmp_path), make_summaries(corrupt=1, changed=2), CLEARANCE
    )
    assert (manifest.num_records, manifest.num_bytes, manifest.num_inputs) == (9, 900, 15)
    assert manifest.rejects == {"changed": 2, "corrupt": 2, "other_file": 2}
    assert list(manifest.splits) == ["test", "train"]
    assert [shard.index for shard in manifest.splits["train"].shards] == [0, 1]
    assert manifest.splits["train"].stats == {"labels": {"0": 6}, "formats": {"png": 6}}
    assert manifest.schema.class_names == ("cat", "dog")


def test_a_published_dataset_reads_back_as_it_was_made(tmp_path: Path) -> None:
    published = publish(make_publication(make_root(tmp_path)), make_summaries(), LAYOUT, CLEARANCE)
    assert read_manifest(Folder(str(tmp_path))) == published
    assert {path.name for path in tmp_path.iterdir()} > COMPANIONS


def test_an_unlabelled_dataset_has_no_label_names(tmp_path: Path) -> None:
    manifest = publish(
        make_publication(make_root(tmp_path)),
        make_summaries(),
        LAYOUT,
        replace(CLEARANCE, vocabularies={}),
    )
    assert manifest.schema.label is None
    assert not list(tmp_path.glob("*.labels.txt"))


def test_class_names_and_words_have_files_that_go_when_they_are_no_longer_learned(
    tmp_path: Path,
) -> None:
    extras = (
        Feature("scenes", FeatureKind.MULTI_LABEL),
        Feature("caption", FeatureKind.BAG_OF_WORDS),
    )
    learned = replace(
        CLEARANCE,
        vocabularies={
            **CLEARANCE.vocabularies,
            "scenes": ("in", "out"),
            "caption": ("a", "b", "c"),
        },
    )
    publish(
        make_publication(make_root(tmp_path), schema=image_classification(extras=extras)),
        make_summaries(),
        LAYOUT,
        learned,
    )
    texts = {path.name: path.read_text() for path in tmp_path.glob("*.txt")}
    assert texts == {
        "label.labels.txt": "cat\ndog\n",
        "scenes.labels.txt": "in\nout\n",
        "caption.vocab.txt": "a\nb\nc\n",
    }

    publish(make_publication(tmp_path), make_summaries(), LAYOUT, CLEARANCE)
    assert [path.name for path in tmp_path.glob("*.txt")] == ["label.labels.txt"]


@pytest.mark.parametrize(
    "summaries",
    [make_summaries()[1:], [*make_summaries(), make_summaries()[0]], []],
    ids=["one less", "twice", "none"],
)
def test_a_shard_that_is_not_there_stops_it(tmp_path: Path, summaries: list[ShardSummary]) -> None:
    with pytest.raises(
        BuildError, match=r"shards were written where 3 are planned .*run the build again"
    ):
        publish(make_publication(tmp_path), summaries, LAYOUT, CLEARANCE)
    assert list(tmp_path.iterdir()) == []


def test_too_many_rejects_stop_it_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(
        BuildError,
        match=r"2 of 11 inputs \(18.18%\) are rejects, more than --max-reject-fraction 0.1",
    ):
        publish(
            make_publication(tmp_path, max_reject_fraction=0.1),
            make_summaries(truncated=1),
            LAYOUT,
            CLEARANCE,
        )
    assert list(tmp_path.iterdir()) == []


def test_only_what_no_build_made_stays_beside_the_dataset(tmp_path: Path) -> None:
    make_root(tmp_path)
    stale = [
        "pets-train.tfrecord-00000-of-00007",
        "index/train-00000-of-00007.parquet",
        "rejects/failed.parquet",
        ".pets.0.tmp",
    ]
    stale += ["rejects/train-00000-of-00002.parquet", "index/.train.1.tmp", "other.labels.txt"]
    kept = [
        "thesis.tex",
        "rejects/plan.parquet",
        "plan.json",
        "rejects/test-00000-of-00001.parquet",
    ]
    (tmp_path / "rejects").mkdir()
    for name in stale + kept:
        (tmp_path / name).touch()
    (tmp_path / "plan.json").write_text('{"fingerprint": "fingerprint"}')
    publish(make_publication(tmp_path), make_summaries(corrupt=1), LAYOUT, CLEARANCE)
    ours = {
        name for summary in make_summaries() for name in (summary.name.shard, summary.name.sidecar)
    }
    assert set(stamps_of(tmp_path)) == ours | COMPANIONS | set(kept) | {"manifest.json"}


def test_publishing_again_changes_nothing_and_keeps_the_time_of_making(tmp_path: Path) -> None:
    first = publish(make_publication(make_root(tmp_path)), make_summaries(), LAYOUT, CLEARANCE)
    before = stamps_of(tmp_path)
    again = publish(
        make_publication(tmp_path, provenance={"created": "tomorrow"}),
        make_summaries(),
        LAYOUT,
        CLEARANCE,
    )
    assert again == first
    assert stamps_of(tmp_path) == before


@pytest.mark.parametrize("name", sorted(COMPANIONS))
def test_a_companion_that_is_lost_is_written_as_it_was(tmp_path: Path, name: str) -> None:
    publish(make_publication(make_root(tmp_path)), make_summaries(), LAYOUT, CLEARANCE)
    whole, before = (tmp_path / name).read_bytes(), stamps_of(tmp_path)
    (tmp_path / name).unlink()
    publish(
        make_publication(tmp_path, provenance={"created": "tomorrow"}),
        make_summaries(),
        LAYOUT,
        CLEARANCE,
    )
    assert (tmp_path / name).read_bytes() == whole
    assert {path for path, stamp in stamps_of(tmp_path).items() if before[path] != stamp} == {name}


def test_other_shards_make_another_manifest(tmp_path: Path) -> None:
    publish(make_publication(make_root(tmp_path)), make_summaries(), LAYOUT, CLEARANCE)
    publish(
        make_publication(tmp_path, provenance={"created": "tomorrow"}),
        make_summaries(corrupt=1),
        LAYOUT,
        CLEARANCE,
    )
    manifest = Manifest.from_json(json.loads((tmp_path / "manifest.json").read_text()))
    assert (manifest.rejects["corrupt"], manifest.provenance) == (2, {"created": "tomorrow"})


@pytest.mark.parametrize("name", [*sorted(COMPANIONS), "manifest.json"])
def test_what_cannot_be_written_is_named_and_there_is_no_manifest(
    tmp_path: Path, name: str
) -> None:
    (make_root(tmp_path) / name).mkdir()
    (tmp_path / name / "in the way").touch()
    with pytest.raises((StorageError, NotADatasetError), match=name.replace(".", r"\.")):
        publish(make_publication(tmp_path), make_summaries(), LAYOUT, CLEARANCE)
    assert not (tmp_path / "manifest.json").is_file()


def test_a_build_that_another_overtakes_while_it_publishes_leaves_the_other_in_place(
    tmp_path: Path,
) -> None:
    """The first companion is a pipe, on which publishing waits while the other build publishes."""
    os.mkfifo(make_root(tmp_path) / "features.json")
    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(
            publish, make_publication(tmp_path), make_summaries(), LAYOUT, CLEARANCE
        )
        with open(
            tmp_path / "features.json", "wb"
        ):  # opens once it is read: there was no manifest by then
            (tmp_path / "manifest.json").write_text("the other's")
        with pytest.raises(BuildError) as caught:
            publishing.result()
    assert (
        str(caught.value)
        == f"another build has published a dataset at {tmp_path} meanwhile: run the build again to compare with it"
    )
    assert (tmp_path / "manifest.json").read_text() == "the other's"
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize(
    "there",
    [None, {"fingerprint": "fingerprint"}, {"fingerprint": "another"}],
    ids=["no plan", "own", "another's"],
)
def test_a_build_whose_output_was_taken_over_publishes_nothing(
    tmp_path: Path, there: dict[str, str] | None
) -> None:
    make_root(tmp_path)
    if there is not None:
        (tmp_path / "plan.json").write_text(json.dumps(there))
    before = stamps_of(tmp_path)
    if there != {"fingerprint": "another"}:
        publish(make_publication(tmp_path), make_summaries(), LAYOUT, CLEARANCE)
        return
    with pytest.raises(
        BuildError,
        match=f"another build has begun at OUTPUT {tmp_path} meanwhile, with another INPUT or other options",
    ):
        publish(make_publication(tmp_path), make_summaries(), LAYOUT, CLEARANCE)
    assert stamps_of(tmp_path) == before


def test_a_dataset_that_is_published_anew_replaces_the_manifest(tmp_path: Path) -> None:
    publish(make_publication(make_root(tmp_path)), make_summaries(), LAYOUT, CLEARANCE)
    publish(make_publication(tmp_path, version="1.0.1"), make_summaries(), LAYOUT, CLEARANCE)
    assert read_manifest(Folder(str(tmp_path))).version == "1.0.1"
    assert not list(tmp_path.rglob(".*"))


def test_the_etag_of_a_shard_in_a_store_is_in_the_manifest(tmp_path: Path) -> None:
    summaries = [
        replace(summary, etag='"e"') if summary.name.split == "test" else summary
        for summary in make_summaries()
    ]
    publish(make_publication(make_root(tmp_path)), summaries, LAYOUT, CLEARANCE)
    manifest = read_manifest(Folder(str(tmp_path)))
    assert [
        shard.etag for split in ("test", "train") for shard in manifest.splits[split].shards
    ] == ['"e"', None, None]
    assert (tmp_path / "manifest.json").read_text().count("etag") == 1, (
        "a disk states none, and a local manifest has no such key"
    )
