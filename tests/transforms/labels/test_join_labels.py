"""JoinLabels in a pipeline."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from shardwright.transforms.inputs.formats.tables import open_label_table
from shardwright.transforms.inputs.source import SourceRequest
from shardwright.transforms.labels.join_labels import JoinLabels
from tests.support.build_helpers import build, make_images, manifest_of, reasons_of
from tests.support.helpers import Run, references, run_transform
from tests.support.listings import columns_of


def join(folder: Path, texts: list[str], batches: Iterable[pa.RecordBatch], key: str = "id") -> Run:
    """Join references with a table of these files."""
    for number, text in enumerate(texts):
        (folder / f"labels-{number}.csv").write_text(text)
    uri = str(folder / ("labels-*.csv" if len(texts) > 1 else "labels-0.csv"))
    request = SourceRequest(uri, "--labels")
    table = open_label_table(request, key=key, root="/in")
    return run_transform(JoinLabels(table), batches)


def details_of(run: Run) -> dict[str, str]:
    return {reject.id: reject.detail for reject in run.outputs["rejects"]}


def test_a_table_of_labels(tmp_path: Path) -> None:
    lines = [
        "image,label,split,n", "b.png,dog,test,2", "./a.png,cat,,1", "/in/c.png,,train,3",
        "unused.png,cow,train,4", "lost", ",ant,,",
    ]  # fmt: skip
    batches = [references(["a.png", "b.png"], split="train"), references(["c.png", "d.png"])]
    run = join(tmp_path, ["\n".join(lines) + "\n"], batches)
    assert sorted(columns_of(run.rows, "id", "label", "split", "x/n")) == [
        ("a.png", "cat", "train", 1), ("b.png", "dog", "test", 2), ("c.png", None, "train", 3),
    ]  # fmt: skip
    # A line without an id is rejected; a row without an image is listed, and no fault.
    assert run.rejects == [
        ("", "bad_value"), ("", "bad_value"), ("d.png", "missing_label"),
        ("unused.png", "unmatched_label"),
    ]  # fmt: skip
    details = details_of(run)
    assert details["d.png"] == "the --labels table has no row for this id"
    assert details["unused.png"] == "row 3 of the --labels table matches no image of INPUT"
    assert run.counters == {
        "rejects_missing_label": 1, "rejects_bad_value": 2, "rejects_unmatched_label": 1,
    }  # fmt: skip


def test_a_table_of_several_files(tmp_path: Path) -> None:
    texts = ["id,label\na.png,cat\n", "id,label\nb.png,dog\nc.png,ant\n"]
    run = join(tmp_path, texts, [references(["b.png", "a.png"])])
    assert columns_of(run.rows, "id", "label") == [("a.png", "cat"), ("b.png", "dog")]
    assert run.rejects == [("c.png", "unmatched_label")]
    assert [reject.uri for reject in run.outputs["rejects"]] == [str(tmp_path / "labels-1.csv")]


@pytest.mark.parametrize(("key", "text", "matched"), [
    ("id", "id,path,label\n7,p.png,cat\n", "7"),
    ("path", "id,path,label\n9,x/a.png,cat\n", "x/a.png"),
    ("stem", "id,label\ns,cat\n", "s.png"),
])  # fmt: skip
def test_each_key(tmp_path: Path, key: str, text: str, matched: str) -> None:
    """A table may have a column of ids and one of paths: the user chooses the key."""
    batches = [references(["7", "x/a.png", "s.png"], uri=["/in/7", "/in/x/a.png", "/in/s.png"])]
    run = join(tmp_path, [text], batches, key)
    assert columns_of(run.rows, "id", "label") == [(matched, "cat")]
    assert {reason for _, reason in run.rejects} == {"missing_label"}


@pytest.mark.parametrize(("row", "batches", "rejects"), [
    ("", [], []),
    ("", [references(["a.png"])], [("a.png", "missing_label")]),
    ("a.png,cat\n", [], [("a.png", "unmatched_label")]),
], ids=['nothing', 'no labels', 'no images'])  # fmt: skip
def test_no_rows_and_no_images(
    tmp_path: Path, row: str, batches: list[pa.RecordBatch], rejects: list[object]
) -> None:
    run = join(tmp_path, [f"image,label\n{row}"], batches)
    assert (run.rows, run.rejects) == ([], rejects)


def test_a_build_with_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows without an image are listed, and no fault: the build allows none."""
    images, out = make_images(tmp_path / "in", 8), tmp_path / "out"
    stems = sorted(path.stem for path in images.rglob("*.png"))
    for number, part in enumerate((stems[:4], [*stems[4:], "nobody"])):
        breeds = ["dog" if stem in stems[::2] else "cat" for stem in part]
        lines = [f"{stem},{breed},{number}\n" for stem, breed in zip(part, breeds, strict=True)]
        text = "id,breed,age\n" + "".join(lines)
        (tmp_path / f"labels-{number}.csv.gz").write_bytes(gzip.compress(text.encode()))
    labels = ("--labels", tmp_path / "labels-*.csv.gz", "--labels-key", "stem")
    options = ("--label-column", "breed", "--max-reject-fraction", "0")
    assert build(images, out, *labels, *options) == 0
    assert reasons_of(out) == {"nobody": "unmatched_label"}
    said = capsys.readouterr().err
    assert "by stem, labels from a csv table of 2 files below" in said
    assert "rejects: 1 unmatched_label; each is listed in" in said
    manifest = manifest_of(out)
    assert manifest["splits"]["train"]["stats"]["labels"] == {"0": 4, "1": 4}
    assert manifest["schema"]["features"][-1]["name"] == "age"
