"""Appends notice what was corrected beside the images: features, masks, labels and splits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shardwright as sw
from shardwright.format.index import read_live_rows
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.versions import number_of, read_version
from shardwright.inspect.cli import main as shardwright
from shardwright.pipelines.commands.append import append_version, prepare_version
from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.job.graph import build_graph
from shardwright.pipelines.local.build import build_here
from shardwright.pipelines.options.build import parse_options
from shardwright.pipelines.runners.run import run_pipeline
from shardwright.storage.folder import Folder
from shardwright.transforms.features.rows import FeatureHashes
from tests.support.build_helpers import png_of
from tests.support.schema_tables import mask_of

Row = dict[str, Any]
Run = Callable[[BuildJob], Any]
SCHEMA = """
from shardwright.format.schema import *
K = FeatureKind
SCHEMA = ExampleSchema((
    Feature("image", K.IMAGE, Source.IMAGE), Feature("id", K.TEXT, Source.ID),
    Feature("label", K.CLASS_LABEL, Source.LABEL),
    Feature("caption", K.TEXT), Feature("weight", K.FLOAT32), Feature("tags", K.MULTI_LABEL),
    Feature("boxes", K.BOX, shape=(None, 4)), Feature("mask", K.MASK, default=""),
))
"""
FUNCTIONS = """
def two(record):
    return [record.replace(id=f"{record.id}#{side}") for side in "lr"]
"""


def by_graph(job: BuildJob) -> None:
    run_pipeline(build_graph, job)


WAYS = pytest.mark.parametrize("run", [append_version, by_graph], ids=["here", "graph"])


class Growing:
    """A dataset that grows, and its INPUT.

    Args:
        folder: A folder for both.
        source: The name of INPUT.
        options: Of each build.
        out: The name of OUTPUT.
    """

    def __init__(self, folder: Path, source: str, *options: str, out: str = "out") -> None:
        self.out = Folder(str(folder / out))
        common = ["--records-per-shard", "3", "--name", "grown", "--if-exists", "append"]
        self._argv = [str(folder / source), self.out.uri, *common, *options]

    def build(self, run: Run = append_version) -> Manifest:
        """Build or append, and return the newest version."""
        job = prepare_version(parse_options(self._argv))
        run(job) if job.known is not None else build_here(job)
        return read_version(self.out)

    def written(self, run: Run) -> set[str]:
        """Append, and return the ids of the records that were written."""
        before = number_of(read_version(self.out))
        version = self.build(run)
        assert shardwright(["verify", self.out.uri]) == 0
        if number_of(version) == before:
            return set()
        newest = max(name.folder for name, _ in version.named_shards())
        return {one for name, one in self._ids() if name.folder == newest}

    def splits(self) -> dict[str, str]:
        return {one: name.split for name, one in self._ids()}

    def values(self, feature: str) -> dict[str, Any]:
        """Return the values of a feature by id."""
        return {
            str(batch["id"][0]): batch[feature][0]
            for split in set(self.splits().values())
            for batch in sw.Reader(self.out.uri, split, global_batch_size=1, epochs=1)
        }

    def _ids(self) -> Iterator[tuple[ShardName, str]]:
        for name, info in read_version(self.out).named_shards():
            for one in read_live_rows(self.out, name, info, ["id"])["id"].to_pylist():
                yield name, one


def write_rows(root: Path, changes: Row | None = None) -> None:
    """Write a table of six images, with changed values of image 3."""
    rows = [
        {"id": str(n), "image": f"{n}.png", "label": "cat", "caption": f"of {n}", "weight": n / 4,
         "tags": ["a", "b"][: n % 3], "boxes": [[0.0, 0.1, 0.2, 0.3]] * (n % 2), "mask": "m.png",
         "split": "train"}
        for n in range(6)
    ]  # fmt: skip
    rows[3] |= changes or {}
    pq.write_table(pa.Table.from_pylist(rows), root / "t.parquet")


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    """A dataset of six records with many features."""
    (tmp_path / "s.py").write_text(SCHEMA)
    for n in range(6):
        (tmp_path / f"{n}.png").write_bytes(png_of(5 * n))  # as large as the masks
    for number, name in enumerate(["m.png", "n.png"]):
        (tmp_path / name).write_bytes(mask_of(number))
    write_rows(tmp_path)
    grown = Growing(tmp_path, "t.parquet", "--schema", str(tmp_path / "s.py"))
    grown.build()
    return grown


CHANGES: list[Row] = [
    {"caption": "corrected"},
    {"weight": 9.0},
    {"tags": ["b"]},
    {"boxes": [[0.0, 0.1, 0.2, 0.4]]},
    {"boxes": []},
    {"mask": "n.png"},
    {"mask": None},
    {"label": "dog"},  # a new class
    {"split": "test"},
]


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    ("change", "run"),
    [*((one, append_version) for one in CHANGES), *((one, by_graph) for one in CHANGES[-3:])],
    ids=lambda value: getattr(value, "__name__", None) or str(value),
)
def test_a_correction_rewrites_its_record_alone(
    growing: Growing, tmp_path: Path, change: Row, run: Run
) -> None:
    write_rows(tmp_path, change)
    assert growing.written(run) == {"3"}
    ((name, value),) = change.items()
    if name == "split":
        assert growing.splits() == {str(n): "test" if n == 3 else "train" for n in range(6)}
    elif name in ("caption", "weight"):
        assert growing.values(name)["3"] == value
    assert growing.written(append_version) == set()


@pytest.mark.long
def test_a_mask_whose_file_has_changed(growing: Growing, tmp_path: Path) -> None:
    (tmp_path / "m.png").write_bytes(mask_of(123))
    assert growing.written(append_version) == {str(n) for n in range(6)}
    assert growing.written(by_graph) == set()


@pytest.mark.long_but_first
@WAYS
def test_a_corrected_group_moves_its_records(tmp_path: Path, run: Run) -> None:
    """One record moves to a new group, the rest of a group gets another name."""

    def write(groups: list[str]) -> None:
        rows = "".join(f"{n}.png,{group}\n" for n, group in enumerate(groups))
        (tmp_path / "t.csv").write_text(f"image,patient\n{rows}")

    for n in range(12):
        (tmp_path / f"{n}.png").write_bytes(png_of(n))
    groups = [*"abcdef" * 2]
    write(groups)
    split = ("--split", "train=0.5,test=0.5", "--group-column", "patient")
    growing, fresh = (Growing(tmp_path, "t.csv", *split, out=name) for name in ("out", "fresh"))
    growing.build()
    assert growing.written(run) == set()
    before = growing.splits()
    corrected = [*"bhhdefabkdef"]
    write(corrected)
    written = growing.written(run)
    fresh.build()
    assert growing.splits() == fresh.splits()
    assert written == {name for name, one in fresh.splits().items() if one != before[name]}
    assert written
    assert growing.written(append_version) == set()


@pytest.mark.long
@WAYS
def test_a_changed_list_of_a_split_moves_its_records(tmp_path: Path, run: Run) -> None:
    (tmp_path / "in").mkdir()
    for n in range(6):
        (tmp_path / "in" / f"{n}.png").write_bytes(png_of(n))
    (listed := tmp_path / "test.txt").write_text("0.png\n1.png\n")
    rest = "train=0.5,validation=0.5"
    growing = Growing(tmp_path, "in", "--split-ids", f"test={listed}", "--split", rest)
    growing.build()
    before = growing.splits()
    listed.write_text("1.png\n2.png\n")  # 0.png is not listed any more: it stays where it is
    assert growing.written(run) == {"2.png"}
    assert growing.splits() == before | {"2.png": "test"}


@pytest.mark.long
@WAYS
def test_an_image_in_another_split_s_folder_moves(tmp_path: Path, run: Run) -> None:
    """Its id and its address change with the folder."""
    for n in range(6):
        path = tmp_path / "in" / ("test" if n < 2 else "train") / "cat" / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png_of(n))
    growing = Growing(tmp_path, "in")
    growing.build()
    (tmp_path / "in/test/cat/0.png").rename(tmp_path / "in/train/cat/0.png")
    assert len(growing.written(run)) == 1
    assert sorted(growing.splits().values()) == ["test"] + ["train"] * 5


@pytest.mark.long
@WAYS
def test_records_of_a_function_follow_their_inputs(tmp_path: Path, run: Run) -> None:
    (tmp_path / "f.py").write_text(FUNCTIONS)
    for n in range(6):
        (tmp_path / f"{n}.png").write_bytes(png_of(n))
    table = tmp_path / "t.csv"

    def write(*rows: tuple[str, str, int]) -> None:
        lines = (f"{name}.png,{label},{weight}\n" for name, label, weight in rows)
        table.write_text("image,label,weight\n" + "".join(lines))

    first = [(str(n), "cat", n) for n in range(5)]
    write(*first, ("5", "dog", 5))
    growing = Growing(tmp_path, "t.csv", "--transform", f"{tmp_path / 'f.py'}:two")
    growing.build()
    assert growing.written(run) == set()
    # 0 stays, 1 has another image, 2 another label, 3 another column, 4 is gone, 5 stays.
    (tmp_path / "1.png").write_bytes(png_of(11))
    write(first[0], first[1], ("2", "dog", 2), ("3", "cat", 33), ("5", "dog", 5))
    changed = {f"{n}.png#{side}" for n in (1, 2, 3) for side in "lr"}
    assert growing.written(run) == changed
    assert growing.splits().keys() == changed | {f"{n}.png#{side}" for n in (0, 5) for side in "lr"}
    assert growing.values("weight")["3.png#l"] == 33
    assert growing.written(append_version) == set()
    assert shardwright(["compact", growing.out.uri]) == 0
    assert growing.written(run) == set()


@pytest.mark.long
def test_records_without_hashes_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def write(*captions: str) -> None:
        rows = [{"id": str(n), "image": f"{n}.png", "caption": text, "kinds": [text[:1], "x"]}
                for n, text in enumerate(captions)]  # fmt: skip
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")

    for n in range(5):
        (tmp_path / f"{n}.png").write_bytes(png_of(n))
    write("a", "b", "c")
    growing = Growing(tmp_path, "t.parquet")
    with monkeypatch.context() as patch:
        patch.setattr(FeatureHashes, "_hashed", lambda _, settled: settled)
        growing.build()
    write("a", "B", "c", "d")
    assert growing.written(append_version) == {"3"}
    assert "of 3 records, which an older version" in caplog.text
    write("a", "b", "c", "D")
    assert growing.written(append_version) == {"3"}  # it has a hash already


@pytest.mark.long
def test_a_copy_of_a_dataset_follows_its_corrections(tmp_path: Path) -> None:
    def write(caption: str, split: str = "train") -> None:
        rows = [{"id": str(n), "image": f"{n}.png", "caption": caption if n == 3 else "a",
                 "split": split if n == 3 else "train"} for n in range(6)]  # fmt: skip
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")

    for n in range(6):
        (tmp_path / f"{n}.png").write_bytes(png_of(n))
    growing, copy = Growing(tmp_path, "t.parquet"), Growing(tmp_path, "out", out="copy")
    write("a")
    growing.build()
    copy.build()
    assert copy.written(append_version) == set()
    write("b")  # as many bytes
    growing.build()
    assert copy.written(append_version) == {"3"}
    write("b", "test")
    growing.build()
    assert copy.written(by_graph) == {"3"}
    assert copy.splits() == growing.splits()


def test_rows_without_images_are_known_by_their_values(tmp_path: Path) -> None:
    """They have no etag: every append wrote all of them again."""

    def write(*weights: int) -> None:
        rows = [{"id": str(n), "weight": weight} for n, weight in enumerate(weights)]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")

    write(1, 2, 3, 4)
    growing = Growing(tmp_path, "t.parquet", "--schema", "records")
    growing.build()
    assert growing.written(append_version) == set()
    write(1, 2, 30, 4, 5)
    assert growing.written(append_version) == {"2", "4"}
