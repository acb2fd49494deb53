"""A build of additions: what it finds new, changed and gone, and what it refuses."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import BuildError, UsageError
from shardwright.pipelines.local.build import build_here
from shardwright.transforms.changes.seen_records import outdated_rows
from shardwright.transforms.features.rows import FeatureHashes
from shardwright.transforms.versions.additions import Additions
from tests.support.appended import (
    GENERATION,
    HALVES,
    ROUGH,
    add_images,
    added_by,
    append_job,
    job_of,
    manifest_of,
    splits_of,
)
from tests.support.archive_files import pack_tar
from tests.support.build_helpers import (
    CLASSES,
    index_of,
    make_images,
    png_of,
    reasons_of,
    record_ids,
    stamps_of,
)
from tests.support.random_tests import examples


def gone_of(root: Path, added: Additions, **options: bool) -> set[str]:
    """Return the ids that a version with these additions no longer has from the dataset."""
    index = index_of(root)
    return {
        index[Path(name.sidecar).name]["id"][int(row)].as_py()
        for name, rows in outdated_rows(manifest_of(root), added.seen, **options).items()
        for row in rows
    }


def test_additions(tmp_path: Path) -> None:
    images, output = make_images(tmp_path / "in", 30), tmp_path / "pets"
    (images / "notes.txt").write_text("no image")
    options = f"{HALVES} --max-reject-fraction 0.05"
    build_here(job_of(images, output, options))
    before = splits_of(output)
    (images / "bird" / "0003.png").write_bytes(png_of(77))
    (images / "cat" / "0001.png").unlink()
    for name in ("ant/1.png", "zebra/2.png", "cat/3.png"):
        (images / name).parent.mkdir(exist_ok=True)
        (images / name).write_bytes(png_of(len(name)))
    (images / "cat" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    added = added_by(append_job(images, output, options))
    assert added.manifest is not None
    root = output / GENERATION
    assert set(record_ids(root)) == {"bird/0003.png", "ant/1.png", "zebra/2.png", "cat/3.png"}
    assert splits_of(root)["bird/0003.png"] == before["bird/0003.png"]
    assert added.manifest.schema.class_names == ("Löwe", "bird", "cat", "ant", "zebra")
    assert reasons_of(root) == {"notes.txt": "other_file", "cat/broken.png": "truncated"}
    assert (added.seen.num_unchanged, added.seen.num_changed) == (28, 1)
    assert gone_of(output, added) == {"bird/0003.png", "cat/0001.png"}
    assert gone_of(output, added, keep_missing=True) == {"bird/0003.png"}
    assert not list((root / "spool").glob("*.known"))
    assert not added.is_partial


def test_nothing_new_leaves_nothing(tmp_path: Path) -> None:
    images, output = make_images(tmp_path / "in", 5), tmp_path / "pets"
    build_here(job_of(images, output))
    (images / "bird" / "0000.png").unlink()
    added = added_by(append_job(images, output))
    assert added.manifest is None
    assert added.seen.num_unchanged == 4
    assert gone_of(output, added) == {"bird/0000.png"}
    assert not list((output / GENERATION).glob("*.json"))


def test_an_incomplete_input_needs_permission(tmp_path: Path) -> None:
    """Records are not taken for removed because a file cannot be read to its end."""
    images, output = tmp_path / "in", tmp_path / "pets"
    for name in ("a", "b"):
        pack_tar(images / f"{name}.tar", {f"cat/{name}{n}.png": png_of(n) for n in range(3)})
    (tmp_path / "names.txt").write_text("cat")
    names = f"--class-names {tmp_path / 'names.txt'}"
    build_here(job_of(images, output, names))
    os.truncate(images / "b.tar", 700)
    with pytest.raises(BuildError, match="INPUT cannot be read to its end"):
        added_by(append_job(images, output, names))
    accept = f"{names} --accept-partial {images / 'b.tar'} {ROUGH}"
    added = added_by(append_job(images, output, accept))
    assert added.is_partial
    assert added.manifest is None
    assert added.seen.num_unchanged == 3


def test_too_many_rejects_of_all_inputs_fail(tmp_path: Path) -> None:
    images, output = make_images(tmp_path / "in", 5), tmp_path / "pets"
    build_here(job_of(images, output))
    for number in range(3):
        (images / "cat" / f"empty{number}.png").write_bytes(b"")
    with pytest.raises(BuildError, match=r"3 of 8 inputs \(37.50%\) are rejects"):
        added_by(append_job(images, output, "--max-rejects 2"))


@pytest.mark.parametrize(
    ("built", "options", "message"),
    [
        (
            "--seed 1",
            "--seed 2",
            r"other settings \(seed is 1 there and 2 here\): add .* or build into another",
        ),
        ("", "--records-per-shard 3", r"shards is \{'num_bytes': 150000000, 'multiple_of': 1\} th"),
        ("", "--writer beam", "--if-exists append needs --writer planned"),
        (
            "",
            "--split test=3,train=rest --group-column part",
            "cannot keep groups in one split with --stratify or exact numbers",
        ),
        (
            "",
            "--near-duplicates report --fail-on near-leaks>0 --keep-missing",
            "--fail-on near-leaks cannot be judged with --keep-missing, because images of",
        ),
        (
            "--class-names {root}/two.txt",
            "--class-names {root}/other.txt",
            "class 1 is 'bird' in the dataset, but 'ant' here: keep its names first",
        ),
        (
            "--class-names {root}/two.txt",
            "--class-names {root}/one.txt",
            "class 1 is 'bird' in the dataset, but 'missing' here",
        ),
    ],
)
def test_other_options_are_refused(tmp_path: Path, built: str, options: str, message: str) -> None:
    images, output = make_images(tmp_path / "in", 6), tmp_path / "pets"
    for name, text in (("one", "cat"), ("two", "cat\nbird"), ("other", "cat\nant\nbird")):
        (tmp_path / f"{name}.txt").write_text(text)
    build_here(job_of(images, output, f"{built.format(root=tmp_path)} {ROUGH}"))
    with pytest.raises((BuildError, UsageError), match=message):
        append_job(images, output, f"{options.format(root=tmp_path)} {ROUGH}")
    assert not (output / GENERATION / "plan.json").exists()


@pytest.mark.parametrize("is_older", [True, False])
def test_features_of_an_older_dataset_are_not_compared(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    is_older: bool,
) -> None:
    images, output = make_images(tmp_path / "in", 6), tmp_path / "pets"
    table = images / "t.csv"
    names = sorted(str(path.relative_to(images)) for path in images.glob("*/*.png"))
    table.write_text("path,label,weight\n" + "".join(f"{name},a,1\n" for name in names))
    with monkeypatch.context() as patch:
        if is_older:
            patch.setattr(FeatureHashes, "_hashed", lambda _, settled: settled)
        build_here(job_of(table, output))
    table.write_text("path,label,weight\n" + "".join(f"{name},a,2\n" for name in names))
    added = added_by(append_job(table, output))
    assert added.seen.num_changed == (0 if is_older else 6)
    told = "changes of 'weight' are not noticed yet for unchanged images of 6 records, which an"
    assert [message[: len(told)] for message in caplog.messages] == [told] * is_older


def test_another_schema_is_refused(tmp_path: Path) -> None:
    images, output = make_images(tmp_path / "in", 6), tmp_path / "pets"
    table = images / "t.csv"
    names = sorted(str(path.relative_to(images)) for path in images.glob("*/*.png"))
    table.write_text("path,label,weight\n" + "".join(f"{name},a,1\n" for name in names))
    build_here(job_of(table, output))
    table.write_text("path,label,weight,age\n" + "".join(f"{name},a,1.5,2\n" for name in names))
    with pytest.raises(BuildError, match=r"other features \(") as raised:
        append_job(table, output)
    assert "kind of 'weight' is 'int64' there and 'float32' here" in str(raised.value)
    assert "feature 'age' is missing there" in str(raised.value)


def test_labels_of_an_unlabeled_dataset_are_refused(tmp_path: Path) -> None:
    images, output = tmp_path / "in", tmp_path / "pets"
    images.mkdir()
    (images / "a.png").write_bytes(png_of(1))
    build_here(job_of(images, output))
    make_images(images, 3)
    with pytest.raises(BuildError, match=r"INPUT has labels, such as '.*', but the dataset has no"):
        added_by(append_job(images, output, ROUGH))


def test_a_finished_folder_is_never_written_again(
    tmp_path: Path,
) -> None:
    images, output = make_images(tmp_path / "in", 5), tmp_path / "pets"
    build_here(job_of(images, output))
    add_images(images, 5, 6, 7)
    first = added_by(append_job(images, output))
    (output / GENERATION / "manifest.json").unlink()
    second = added_by(append_job(images, output)).manifest
    assert first.manifest is not None
    assert second is not None
    assert (first.manifest.num_records, second.fingerprint) == (3, first.manifest.fingerprint)
    before = {
        name: at for name, at in stamps_of(output / GENERATION).items() if "spool" not in name
    }
    add_images(images, 8)
    with pytest.raises(BuildError, match="INPUT has changed"):
        added_by(append_job(images, output))
    after = stamps_of(output / GENERATION)
    assert {name: after.get(name) for name in before} == before


_FILES = st.dictionaries(
    st.builds("{}/{}.png".format, st.sampled_from(CLASSES), st.integers(0, 9)),
    st.integers(1, 2),
    min_size=2,
    max_size=12,
)


@pytest.mark.long
@examples(5)
@given(_FILES, _FILES, st.sampled_from([HALVES, "", f"{HALVES} --seed 3"]))
def test_records_and_splits_are_those_of_a_fresh_build(
    tmp_path_factory: pytest.TempPathFactory,
    old: dict[str, int],
    new: dict[str, int],
    options: str,
) -> None:
    """A file's number is its modification time and its picture."""
    root = tmp_path_factory.mktemp("grow")
    images, output = root / "in", root / "pets"
    write_files(images, old)
    build_here(job_of(images, output, options))
    shutil.rmtree(images)
    write_files(images, new)
    added = added_by(append_job(images, output, options))
    gone = gone_of(output, added)
    kept = {one: split for one, split in splits_of(output).items() if one not in gone}
    extra = splits_of(output / GENERATION) if added.manifest else {}
    assert not kept.keys() & extra.keys()
    build_here(job_of(images, root / "fresh", options))
    assert kept | extra == splits_of(root / "fresh")
    assert extra.keys() == {one for one, number in new.items() if old.get(one) != number}
    names = manifest_of(output).schema.class_names
    others = sorted({one.partition("/")[0] for one in extra} - set(names))
    if added.manifest:
        assert added.manifest.schema.class_names == (*names, *others)


def write_files(root: Path, files: dict[str, int]) -> None:
    for name, number in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png_of(number))
        os.utime(path, (number, number))


@pytest.mark.parametrize("policy", ["report", "drop"])
def test_near_duplicates_of_known_records(tmp_path: Path, policy: str) -> None:
    """All images are compared; the additions' list has groups with one of theirs."""
    images, output = make_images(tmp_path / "in", 6), tmp_path / "pets"
    options = f"{ROUGH} --near-duplicates {policy}"
    build_here(job_of(images, output, options))
    shutil.copy(images / "cat" / "0001.png", images / "cat" / "z.png")
    add_images(images, 20)
    added = added_by(append_job(images, output, options))
    assert added.manifest is not None
    found = set(record_ids(output / GENERATION))
    assert found == ({"cat/0020.png", "cat/z.png"} if policy == "report" else {"cat/0020.png"})
    assert added.seen.num_unchanged == 6


def test_near_duplicates_of_known_records_in_another_split_are_leaks(tmp_path: Path) -> None:
    images, output = tmp_path / "in", tmp_path / "pets"
    for split, numbers in (("train", range(6)), ("test", range(6, 9))):
        make_images(images / split, 0)
        for number in numbers:
            path = images / split / "cat" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png_of(number))
    options = f"{ROUGH} --near-duplicates report"
    build_here(job_of(images, output, options))
    shutil.copy(images / "train/cat/1.png", images / "test/cat/z.png")
    shutil.copy(images / "test/cat/7.png", images / "test/cat/y.png")
    with pytest.raises(BuildError, match=r"near-leaks>0: 1\)"):
        added_by(append_job(images, output, f"{options} --fail-on near-leaks>0"))
    added = added_by(append_job(images, output, options))
    assert added.manifest is not None
    assert added.manifest.splits.keys() == {"test"}
    stats = added.manifest.splits["test"].stats
    assert stats["near_duplicates"] == {
        "train": {"records": 1, "unchecked": 0, "examples": [["test/cat/z.png", "train/cat/1.png"]]}
    }
    listed = pq.read_table(output / GENERATION / "near_duplicates.parquet")
    splits = dict(zip(listed["id"].to_pylist(), listed["split"].to_pylist(), strict=True))
    assert splits == {name: name.partition("/")[0] for name in splits}
    assert len(splits) == 4
