"""JoinLabels in a pipeline: tables of labels held in memory and joined by key, which give the same."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from pipelines.arguments import ROLES
from tests.build_helpers import build, make_images, manifest_of, reasons_of
from tests.helpers import Run, references, run_transform
from transforms.inputs.detection import make_request
from transforms.inputs.tables.table_source import TableSource, open_label_table
from transforms.join_labels import BROADCAST_BYTES, JoinLabels

EITHER = pytest.mark.parametrize(
    "broadcast_bytes", [BROADCAST_BYTES, 0], ids=["in memory", "by key"]
)


def table_of(folder: Path, *texts: str, key: str = "id") -> TableSource:
    for number, text in enumerate(texts):
        (folder / f"labels-{number}.csv").write_text(text)
    uri = str(folder / ("labels-*.csv" if len(texts) > 1 else "labels-0.csv"))
    return open_label_table(
        make_request(uri, dict.fromkeys(ROLES), argument="--labels"), key=key, root="/in"
    )


def details_of(run: Run) -> dict[str, str]:
    return {reject.id: reject.detail for reject in run.outputs["rejects"]}


@EITHER
def test_a_table_of_labels(tmp_path: Path, broadcast_bytes: int) -> None:
    text = "image,label,split,n\nb.png,dog,test,2\n./a.png,cat,,1\n/in/c.png,,train,3\nunused.png,cow,train,4\nlost\n,ant,,\n"
    batches = [references(["a.png", "b.png"], split="train"), references(["c.png", "d.png"])]
    run = run_transform(
        JoinLabels(table_of(tmp_path, text), broadcast_bytes=broadcast_bytes), batches
    )
    found = [(row["id"], row["label"], row["split"], row["x/n"]) for row in run.rows]
    assert sorted(found) == [
        ("a.png", "cat", "train", 1),
        ("b.png", "dog", "test", 2),
        ("c.png", None, "train", 3),
    ]
    # A line that no image can be told of is a reject of its own; a row that no image has is listed, and no fault.
    assert run.rejects == [
        ("", "bad_value"),
        ("", "bad_value"),
        ("d.png", "missing_label"),
        ("unused.png", "unmatched_label"),
    ]
    assert details_of(run)["d.png"] == "the --labels table has no row for this id"
    assert (
        details_of(run)["unused.png"] == "row 3 of this --labels table: INPUT has no image for it"
    )
    assert run.counters == {
        "rejects_missing_label": 1,
        "rejects_bad_value": 2,
        "rejects_unmatched_label": 1,
    }


@EITHER
def test_a_table_of_several_files(tmp_path: Path, broadcast_bytes: int) -> None:
    table = table_of(tmp_path, "id,label\na.png,cat\n", "id,label\nb.png,dog\nc.png,ant\n")
    run = run_transform(
        JoinLabels(table, broadcast_bytes=broadcast_bytes), [references(["b.png", "a.png"])]
    )
    assert [(row["id"], row["label"]) for row in run.rows] == [("a.png", "cat"), ("b.png", "dog")]
    assert run.rejects == [("c.png", "unmatched_label")]
    assert [reject.uri for reject in run.outputs["rejects"]] == [str(tmp_path / "labels-1.csv")]


@EITHER
@pytest.mark.parametrize(("key", "matched"), [("id", "7"), ("path", "x/a.png"), ("stem", "s.png")])
def test_each_key(tmp_path: Path, broadcast_bytes: int, key: str, matched: str) -> None:
    """A table with a column of ids and one of paths: which of the two decides is the user's choice."""
    batches = [references(["7", "x/a.png", "s.png"], uri=["/in/7", "/in/x/a.png", "/in/s.png"])]
    text = {
        "id": "id,path,label\n7,p.png,cat\n",
        "path": "id,path,label\n9,x/a.png,cat\n",
        "stem": "id,label\ns,cat\n",
    }[key]
    run = run_transform(
        JoinLabels(table_of(tmp_path, text, key=key), broadcast_bytes=broadcast_bytes), batches
    )
    assert [(row["id"], row["label"]) for row in run.rows] == [(matched, "cat")]
    assert {reason for _, reason in run.rejects} == {"missing_label"}


def test_stems_of_images_in_different_batches(tmp_path: Path) -> None:
    batches = [references(["a/1.png"]), references(["b/1.png", "b/2.png"])]
    run = run_transform(
        JoinLabels(table_of(tmp_path, "id,label\n1,cat\n2,dog\n", key="stem")), batches
    )
    assert [(row["id"], row["label"]) for row in run.rows] == [("b/2.png", "dog")]
    assert run.rejects == [("a/1.png", "ambiguous_label"), ("b/1.png", "ambiguous_label")]
    assert details_of(run)["a/1.png"].endswith("other images have the same stem, so that no row of the --labels table is this one's: use "
                                               "--labels-key path")  # fmt: skip


@EITHER
@pytest.mark.parametrize("batches", [[], [references(["a.png"])]])
def test_a_table_without_rows(tmp_path: Path, broadcast_bytes: int, batches: list[object]) -> None:
    run = run_transform(
        JoinLabels(table_of(tmp_path, "image,label\n"), broadcast_bytes=broadcast_bytes), batches
    )
    assert (run.rows, run.rejects) == ([], [("a.png", "missing_label")] * len(batches))


@EITHER
def test_no_images(tmp_path: Path, broadcast_bytes: int) -> None:
    run = run_transform(
        JoinLabels(table_of(tmp_path, "image,label\na.png,cat\n"), broadcast_bytes=broadcast_bytes),
        [],
    )
    assert (run.rows, run.rejects) == ([], [("a.png", "unmatched_label")])


@EITHER
def test_two_rows_for_one_image(tmp_path: Path, broadcast_bytes: int) -> None:
    table = table_of(tmp_path, "image,label\na.png,cat\n", "image,label\n./a.png,dog\n")
    with pytest.raises(
        Exception,
        match=r"the --labels table has more than one row for 'a\.png': keep one row an image",
    ):
        run_transform(JoinLabels(table, broadcast_bytes=broadcast_bytes), [references(["a.png"])])


@pytest.mark.parametrize("seed", [1, 2])
def test_both_joins_give_the_same(tmp_path: Path, seed: int) -> None:
    """2,000 images and 2,000 rows, of which 1,500 have a partner, in batches and files of uneven size."""
    import numpy as np

    rng = np.random.default_rng(seed)
    images, rows = rng.permutation(2000), 500 + rng.permutation(2000)
    texts = [
        "image,label,split,n\n" + "".join(f"{n}.png,class {n % 7},,{n}\n" for n in part)
        for part in np.array_split(rows, 3)
    ]
    batches = [
        references([f"{n}.png" for n in part], split="train") for part in np.array_split(images, 5)
    ]
    table = table_of(tmp_path, *texts)
    whole, by_key = (
        run_transform(JoinLabels(table, broadcast_bytes=limit), batches)
        for limit in (BROADCAST_BYTES, 0)
    )
    assert len(whole.rows) == 1500
    assert whole.rows == by_key.rows
    assert whole.rejects == by_key.rejects
    assert details_of(whole) == details_of(by_key)
    assert (
        whole.counters
        == by_key.counters
        == {"rejects_missing_label": 500, "rejects_unmatched_label": 500}
    )


def test_a_build_with_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Packed files of labels by stem, for a folder: what has no partner is listed on both sides, and only images are faults."""
    make_images(tmp_path / "in", 8)
    stems = sorted(path.stem for path in (tmp_path / "in").rglob("*.png"))
    for number, part in enumerate((stems[:4], [*stems[4:], "nobody"])):
        text = "id,breed,age\n" + "".join(
            f"{stem},{'dog' if stem in stems[::2] else 'cat'},{number}\n" for stem in part
        )
        (tmp_path / f"labels-{number}.csv.gz").write_bytes(gzip.compress(text.encode()))
    options = (
        "--labels",
        tmp_path / "labels-*.csv.gz",
        "--labels-key",
        "stem",
        "--label-column",
        "breed",
        "--max-reject-fraction",
        "0",
    )
    assert build(tmp_path / "in", tmp_path / "out", *options) == 0
    assert reasons_of(tmp_path / "out") == {"nobody": "unmatched_label"}
    said = capsys.readouterr().err
    assert "by stem, labels from a csv table of 2 files below" in said
    assert "rejects: 1 unmatched_label; each is listed in" in said
    manifest = manifest_of(tmp_path / "out")
    assert manifest["splits"]["train"]["stats"]["labels"] == {"0": 4, "1": 4}
    assert [feature["name"] for feature in manifest["schema"]["features"]][-1] == "age"
