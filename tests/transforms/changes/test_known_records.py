"""Listings are compared with indexes: each record is new, changed, unchanged or missing."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import BuildError, StorageError
from shardwright.format.manifest import Manifest
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source
from shardwright.pipelines.local.references import LocalChanges
from shardwright.schemas.ready import image_classification
from shardwright.storage.folder import Folder
from shardwright.transforms.changes.find_changes import FindChanges
from shardwright.transforms.changes.known_files import KnownFile, write_known
from shardwright.transforms.changes.known_records import KnownRecords, read_known
from shardwright.transforms.changes.seen_records import outdated_rows
from shardwright.transforms.features.rows import FeatureHashes
from shardwright.transforms.record_states import places_of
from shardwright.transforms.references import ORIGIN, ORIGIN_TYPE, set_column
from tests.support.helpers import references, rejects_of, run_transform
from tests.support.indexed_records import Indexed, write_index

CLASSES = ("cat", "dog")
PLAIN = FeatureHashes(image_classification())
WEIGHT = Feature("weight", FeatureKind.FLOAT32, Source.COLUMN)
_HASH = "0123456789abcdef01234567"


def known_of(root: Path, record: Indexed, **manifest: Any) -> KnownRecords:
    folder = Folder(str(root))
    others = [Indexed("other"), Indexed("another", label=1)]
    shards = {"test": [others], "train": [[], [Indexed("third"), record]]}
    return read_known(folder, write_index(folder, shards, CLASSES, **manifest))


@pytest.mark.parametrize(
    ("before", "after", "is_changed"),
    [
        ({}, {}, False),
        ({}, {"etag": "f"}, True),
        ({}, {"etag": None}, True),
        ({}, {"uri": "/in/b"}, True),
        ({}, {"label": "dog"}, True),
        ({}, {"label": None}, True),
        ({"label": None}, {"label": None}, False),
        # Not looked up: the address decides, unless there is no image.
        ({"etag": None}, {"etag": None}, False),
        ({"etag": None}, {"etag": "e"}, True),
        ({"etag": None}, {"etag": None, "num_bytes": 0}, True),
        ({}, {"num_bytes": 0}, False),
        # In the spool of another build.
        ({"etag": "spool:x", "uri": "/o/spool/1.bin"}, {"uri": "/g/spool/1.bin"}, False),
        ({"etag": "spool:x", "uri": "/o/spool/1.bin"}, {"uri": "/o/spool/2.bin"}, True),
        ({"etag": f"spool:{_HASH}"}, {"uri": "/g/spool/2.bin"}, False),
        ({"etag": f"spool:{_HASH}"}, {"etag": f"spool:{_HASH[::-1]}"}, True),
    ],
)
def test_changes_of_one_record(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any], is_changed: bool
) -> None:
    record = Indexed("one")._replace(**before)
    known = known_of(tmp_path, record)
    label = None if record.label is None else CLASSES[record.label]
    listed = {"uri": record.uri, "etag": record.etag, "label": label} | after
    found = known.compare(references(["one", "new"], **listed), PLAIN)
    assert found.new.column("id").to_pylist() == ["new"]
    rows = [found.unchanged_rows.tolist(), found.changed_rows.tolist()]
    assert rows == ([[], [3]] if is_changed else [[3], []])
    assert found.changed.column("split").to_pylist() == ["train"] * is_changed


WEIGHED = FeatureHashes(ExampleSchema((*image_classification().features, WEIGHT)))


@pytest.mark.parametrize(
    ("hashed", "weight", "is_changed"),
    [
        (1.5, 1.5, False),
        (1.5, 2.5, True),
        (1.5, "heavy", True),  # it will be a reject
        (None, 2.5, False),  # of an older dataset: not known
    ],
)
@pytest.mark.parametrize("is_empty", [True, False])
def test_changes_of_features(
    tmp_path: Path, hashed: float | None, weight: object, *, is_changed: bool, is_empty: bool
) -> None:
    """A record without image and etag is known by its features, too."""
    image = {"num_bytes": 0, "etag": None} if is_empty else {"num_bytes": 5, "etag": "e"}
    listed = references(["other", "one"], uri="/in/a", label="cat", **image)

    def weighed(*values: object) -> pa.RecordBatch:
        return set_column(listed, "x/weight", pa.array(map(str, values)))

    stored = None if hashed is None else WEIGHED.of(weighed(0, hashed))[1].as_py()
    record = Indexed("one", etag=image["etag"], features=stored)
    found = known_of(tmp_path, record).compare(weighed(0, weight).slice(1), WEIGHED)
    is_changed = is_changed or (is_empty and hashed is None)
    assert (len(found.unchanged_rows), found.changed.num_rows) == (not is_changed, is_changed)


@pytest.mark.parametrize(
    ("split", "wanted"), [(None, []), ("train", []), ("test", ["test"]), ("new", ["new"])]
)
def test_changes_of_a_stated_split(tmp_path: Path, split: str | None, wanted: list[str]) -> None:
    known = known_of(tmp_path, Indexed("one"))
    found = known.compare(references(["one"], uri="/in/a", label="cat", split=split), PLAIN)
    assert found.changed.column("split").to_pylist() == wanted
    changed = known.compare(references(["one"], uri="/in/b", label="cat", split=split), PLAIN)
    assert changed.changed.column("split").to_pylist() == [split or "train"]


def test_records_of_a_function_are_known_by_their_input(tmp_path: Path) -> None:
    made = {"settings": {"transforms": [{"function": "a:b", "source": "c"}]}}
    rows = [Indexed("a#1#l", suffix=2), Indexed("b", suffix=0), Indexed("a#1#r", suffix=2),
            Indexed("ä#left", suffix=5), Indexed("older#l")]  # fmt: skip
    root = Folder(str(tmp_path))
    manifest = write_index(root, {"train": [rows[:2], rows[2:]]}, **made)
    known = write_known(root.below("spool"), read_known(root, manifest)).open()
    listed = references(["a#1", "b", "ä", "older", "a#1#l"], uri="/in/a")
    found = known.compare(listed, PLAIN)
    assert found.new.column("id").to_pylist() == ["older", "a#1#l"]
    assert sorted(found.unchanged_rows.tolist()) == [0, 1, 2, 3]
    found = known.compare(references(["ä", "a#1", "b"], uri="/in/a", etag=["e", "f", "e"]), PLAIN)
    assert found.changed.column("id").to_pylist() == ["a#1"]
    assert sorted(found.changed_rows.tolist()) == [0, 2]
    assert sorted(found.unchanged_rows.tolist()) == [1, 3]
    empty = read_known(root, write_index(root, {"train": [[]]}, **made))
    assert write_known(root.below("spool"), empty).open().compare(listed, PLAIN).new == listed


@pytest.mark.parametrize(
    "manifest", [{"settings": {"transforms": [{"function": "a:b", "source": "c"}]}}, {}]
)
def test_labels_that_a_function_stores_are_not_compared(
    tmp_path: Path, manifest: dict[str, Any]
) -> None:
    known = known_of(tmp_path, Indexed("one"), **manifest)
    found = known.compare(references(["one"], uri="/in/a", label="dog"), PLAIN)
    assert found.changed.num_rows == (0 if manifest else 1)


def test_colliding_halves_are_neighbors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hash128(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        numbers = [len(text or "") for text in texts.to_pylist()]
        return np.array([7] * len(texts), np.uint64), np.array(numbers, np.uint64)

    monkeypatch.setattr("shardwright.transforms.changes.known_records.hash128", hash128)
    folder = Folder(str(tmp_path))
    records = [Indexed("x" * length) for length in (3, 1, 4, 2)]
    known = read_known(folder, write_index(folder, {"train": [records]}))
    ids = [record.id for record in records]
    assert known.longest_run == 4
    assert known.rows[known.find(pa.array([*ids]))].tolist() == [0, 1, 2, 3]
    assert known.find(pa.array(["x" * 5])).tolist() == [-1]
    with pytest.raises(BuildError, match=r"has 1 records with the id of another one, such as num"):
        read_known(folder, write_index(folder, {"train": [[*records, Indexed("yyyy")]]}))


def test_addresses_are_told_apart_by_64_bits(tmp_path: Path) -> None:
    """A record keeps its place even if as many others as a day brings have its id."""
    folder = Folder(str(tmp_path))
    records = [Indexed("one", uri="/in/1"), Indexed("two", uri="/in/2")]
    known = read_known(folder, write_index(folder, {"train": [records]}), keeps_places=True)
    changed = references(["one", "two"], uri="/in/1", etag="new")
    assert known.are_elsewhere(changed).tolist() == [False, True]
    read = write_known(Folder(f"{folder.uri}/spool"), known).open()
    assert read.are_elsewhere(changed).tolist() == [False, True]
    uris = pa.array([f"/in/{number}" for number in range(300_000)])
    assert len(np.unique(places_of(uris, pa.nulls(len(uris), pa.string())))) == len(uris)


def test_a_damaged_index_fails(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    manifest = write_index(folder, {"train": [[Indexed("a")]]})
    (path,) = (tmp_path / "index").iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StorageError, match="is damaged, or of another build"):
        read_known(folder, manifest)
    path.unlink()
    with pytest.raises(StorageError, match="is missing: the index of zoo-train"):
        read_known(folder, manifest)


def test_files_hold_the_records(tmp_path: Path) -> None:
    known, spool = known_of(tmp_path, Indexed("one")), Folder(str(tmp_path / "spool"))
    file = write_known(spool, known)
    found = file.open()
    for name in ("keys", "more", "states", "rows", "splits"):
        assert getattr(found, name).tolist() == getattr(known, name).tolist()
        assert getattr(found, name).dtype == getattr(known, name).dtype
    facts = ("split_names", "num_rows", "longest_run", "with_labels", "by_content", "places")
    assert [getattr(found, name) for name in facts] == [getattr(known, name) for name in facts]
    assert write_known(spool, known) == file
    (broken := tmp_path / "spool" / f"{file.name}.known").write_bytes(b"ARROW1")
    with pytest.raises(StorageError, match=r"cannot be read .* run the build again"):
        KnownFile(Folder(f"{spool.uri}/../spool"), file.name, 4).open()
    broken.unlink()


def listing(states: list[tuple[str, str, str]], size: int) -> list[pa.RecordBatch]:
    """Return references with these (id, etag, label) in batches."""
    return [
        references(
            [state[0] for state in part],
            uri="/in/a",
            etag=[state[1] for state in part],
            label=[state[2] for state in part],
            row=list(range(start, start + len(part))),
        )
        for start in range(0, len(states), size)
        if (part := states[start : start + size])
    ]


_IDS = st.sampled_from("abcdefghijkl")
_STATES = st.tuples(_IDS, st.sampled_from("ef"), st.sampled_from(CLASSES))
_OLD = st.tuples(st.sampled_from(["train", "test", "val"]), _STATES, st.booleans())


def dataset(
    root: Folder, old: list[tuple[str, tuple[str, str, str], bool]]
) -> tuple[Manifest, dict[str, tuple[str, tuple[str, str, str]]]]:
    """Return a manifest with removed rows, and id -> (split, state) of the live records."""
    shards: dict[str, list[Indexed]] = defaultdict(list)
    removed: dict[str, list[int]] = defaultdict(list)
    live = {}
    for split, (one, etag, label), is_removed in old:
        if is_removed:
            removed[split].append(len(shards[split]))
        else:
            live[one] = (split, (one, etag, label))
        shards[split].append(Indexed(one, etag=etag, label=CLASSES.index(label)))
    manifest = write_index(root, {split: [rows] for split, rows in shards.items()}, CLASSES)
    splits = {}
    for name, info in manifest.splits.items():
        rows = np.array(removed[name], "<u4").tobytes()
        splits[name] = replace(info, shards=(replace(info.shards[0], removed=rows),))
    return replace(manifest, splits=splits), live


@given(st.lists(_OLD, unique_by=lambda one: one[1][0]), st.lists(_STATES), st.integers(1, 5))
def test_every_record_is_new_changed_unchanged_or_missing(
    tmp_path_factory: pytest.TempPathFactory, old: Any, states: Any, size: int
) -> None:
    root = Folder(str(tmp_path_factory.mktemp("known")))
    manifest, live = dataset(root, old)
    file = write_known(root.below("spool"), read_known(root, manifest))
    changes = LocalChanges(file, PLAIN)
    new = [row for batch in changes.new_of(listing(states, size)) for row in batch.to_pylist()]
    results = list(changes.changed())
    changed = [
        row for part in results if isinstance(part, pa.RecordBatch) for row in part.to_pylist()
    ]
    listed, whole = {state[0] for state in states}, set(states)
    same = {one for one, (_, state) in live.items() if state in whole}
    assert {row["id"] for row in new} == listed - live.keys()
    assert len(new) == sum(state[0] not in live for state in states)
    assert {row["id"] for row in changed} == (listed & live.keys()) - same
    assert all(row["split"] == live[row["id"]][0] for row in changed)
    assert [reject.id for reject in rejects_of(results)] == [
        one for one, *_ in states if one in same and (one, *_) != live[one][1]
    ]
    changed_ids = {row["id"] for row in changed}
    assert changes.seen.num_unchanged == len(same)
    assert changes.seen.num_changed == len(changed_ids)
    for keep_missing, gone in ((True, changed_ids), (False, live.keys() - same)):
        outdated = outdated_rows(manifest, changes.seen, keep_missing=keep_missing)
        ids = {
            [one for split, (one, *_), _ in old if split == name.split][row]
            for name, rows in outdated.items()
            for row in rows.tolist()
        }
        assert ids == gone
        assert all(len(rows) for rows in outdated.values())


def test_the_graph_finds_the_same(tmp_path: Path) -> None:
    root = Folder(str(tmp_path))
    old = [("train", (one, "e", "cat"), False) for one in "abcdef"]
    manifest, _ = dataset(root, [*old, ("test", ("z", "e", "cat"), False)])
    file = write_known(root.below("spool"), read_known(root, manifest))
    states = [("a", "e", "cat"), ("b", "f", "cat"), ("a", "f", "cat"), ("x", "e", "cat"),
              ("z", "e", "dog"), ("c", "e", "cat")]  # fmt: skip
    changes = LocalChanges(file, PLAIN)
    new = [row for batch in changes.new_of(listing(states, 2)) for row in batch.to_pylist()]
    results = list(changes.changed())
    run = run_transform(FindChanges(file, PLAIN), listing(states, 2))
    (seen,) = run.outputs["seen"]
    assert (seen.unchanged == changes.seen.unchanged).all()
    assert (seen.changed == changes.seen.changed).all()
    assert [row for batch in run.outputs["new"] for row in batch.to_pylist()] == new
    assert new[0]["id"] == "x"
    found = [row for batch in run.outputs["changed"] for row in batch.to_pylist()]
    assert {(row["id"], row["split"]) for row in found} == {("b", "train"), ("z", "test")}
    assert run.rejects == [("a", "duplicate_id")]
    assert [reject.detail for reject in rejects_of(results)] == [
        "row 2: another input has the id 'a', and the dataset has that one"
    ]


def test_the_graph_of_an_empty_listing(tmp_path: Path) -> None:
    root = Folder(str(tmp_path))
    manifest, _ = dataset(root, [("train", ("a", "e", "cat"), False)])
    file = write_known(root.below("spool"), read_known(root, manifest))
    (seen,) = run_transform(FindChanges(file, PLAIN), []).outputs["seen"]
    assert (seen.num_unchanged, seen.num_changed) == (0, 0)


@pytest.mark.parametrize(
    ("other", "is_changed"),
    [
        ({}, False),
        ({"uri": "/in/b"}, True),
        ({"etag": "f"}, True),
        ({"length": 2}, True),
        ({"crc32c": 2}, True),
        ({"num_bytes": 2}, True),
        ({"num_bytes": 0}, True),
    ],
)
def test_records_of_a_dataset_are_compared_by_their_bytes(
    tmp_path: Path, other: dict[str, Any], is_changed: bool
) -> None:
    """Neither the address nor the etag of the dataset's shard counts."""
    folder = Folder(str(tmp_path))
    known = read_known(folder, write_index(folder, {"train": [[Indexed("one")]]}), by_content=True)
    shard = {"uri": "/data/shard", "etag": "of the shard", "num_bytes": other.pop("num_bytes", 1)}
    origin = dict.fromkeys(ORIGIN_TYPE.names) | {"length": 1, "crc32c": 1}
    origin |= {"uri": "/in/a", "etag": "e"} | other
    listed = references(["one", "new"], **shard, label=None)
    listed = set_column(listed, ORIGIN, pa.array([origin, origin], ORIGIN_TYPE))
    found = known.compare(listed, PLAIN)
    assert found.new.schema == found.changed.schema == listed.schema
    assert found.changed.num_rows == is_changed
