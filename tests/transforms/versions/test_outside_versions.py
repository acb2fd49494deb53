"""TFDS and globs on a dataset that has grown: an error with the cause, never an older version."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.errors import StorageError
from shardwright.format.versions import read_version
from shardwright.inspect.verify import verify_quickly
from shardwright.pipelines.commands.erase import main as erase
from shardwright.storage.folder import Folder
from shardwright.transforms.versions.collect import collect, plan_collection
from tests.support.build_helpers import build_without_beam as build
from tests.support.judge import judge
from tests.support.repairs import repair
from tests.transforms.versions.histories import append, append_change, write

FIRST = {f"r{number}": number for number in range(9)}
CAUSE = "This folder has grown: these files are those of its first version"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(FIRST, tmp_path / "out")
    append(tmp_path / "out", {"r3": 20, "new": 21}, ["r1"])
    return tmp_path / "out"


def by_tfds(folder: Path) -> int:
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(str(folder))
    return sum(info.num_examples for info in builder.info.splits.values())


def by_glob(pattern: Path, *, is_batched: bool) -> int:
    import tensorflow as tf

    features = {"id": tf.io.FixedLenFeature([], tf.string)}
    records: Any = tf.data.TFRecordDataset(sorted(glob.glob(str(pattern))))
    if is_batched:
        records = records.batch(4).map(lambda some: tf.io.parse_example(some, features))
        return sum(len(some["id"]) for some in records)
    return sum(1 for _ in records.map(lambda one: tf.io.parse_single_example(one, features)))


def assert_blocked(root: Path) -> None:
    import tensorflow as tf

    with pytest.raises(Exception, match=CAUSE):
        by_tfds(root)
    for pattern in ("*.tfrecord-*", "grown-train*", "*-?????-of-?????"):
        for is_batched in (True, False):
            with pytest.raises(tf.errors.InvalidArgumentError, match=CAUSE):
                by_glob(root / pattern, is_batched=is_batched)


@pytest.mark.long
def test_tfds_and_globs_fail_once_a_dataset_has_grown(root: Path, tmp_path: Path) -> None:
    assert_blocked(root)
    assert sw.open(str(root)).num_records == 9
    assert sw.open(str(root), version=1).num_records == 9
    [folder] = read_version(Folder(str(root))).folders[1:]
    assert by_tfds(root / folder) == 2
    assert build(root, tmp_path / "copy", "--name", "copy") == 0
    assert by_tfds(tmp_path / "copy") == 9
    assert by_glob(tmp_path / "copy" / "*.tfrecord-*", is_batched=True) == 9


def test_a_dataset_that_has_not_grown_stays_open(tmp_path: Path) -> None:
    write(FIRST, tmp_path / "out")
    assert by_tfds(tmp_path / "out") == by_glob(tmp_path / "out" / "*-of-*", is_batched=False) == 9


@pytest.mark.parametrize("pattern", ["", "*.tfrecord-*"])
def test_an_input_of_its_tfrecord_files_is_refused(
    root: Path, tmp_path: Path, pattern: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as by an option that changes records."""
    assert build(root / pattern, tmp_path / "copy", "--encode", "jpeg") == 2
    assert "holds a dataset that has grown" in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()


@pytest.mark.long
def test_the_block_is_no_fault_and_is_kept(root: Path, tmp_path: Path) -> None:
    def check() -> None:
        assert judge(str(root)).is_sound
        assert not judge(str(root)).notes
        assert verify_quickly(Folder(str(root))).is_sound
        assert_blocked(root)

    check()
    info = root / "dataset_info.json"
    info.write_bytes(info.read_bytes().replace(b"tfrecord", b"riegeli"))
    assert not judge(str(root)).is_sound
    assert repair(root) == 0
    check()
    (tmp_path / "ids").write_text("r0\n")
    receipt = str(tmp_path / "receipt")
    assert erase([str(root), "--ids", str(tmp_path / "ids"), "--receipt", receipt, "--yes"]) == 0
    assert not (root / "manifest.json").exists()  # the first version went with the others
    for _ in range(2):
        assert judge(str(root)).is_sound
        with pytest.raises(Exception, match="Could not read dataset info"):
            by_tfds(root)
        append(root, {"other": 30})


def test_no_stop_leaves_an_old_version_that_is_read_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shardwright.transforms.versions.commit import commit

    root = tmp_path / "out"
    write(FIRST, root)
    change = append_change(root, {"new": 21}, [], "x")

    def fail(*_: object) -> None:
        raise StorageError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "create_bytes", fail)
        with pytest.raises(StorageError, match="no room"):
            commit(Folder(str(root)), change)
    assert_blocked(root)
    assert judge(str(root)).is_sound
    assert commit(Folder(str(root)), change).num_records == 10


def test_an_older_version_that_is_gone(root: Path) -> None:
    folder = Folder(str(root))
    version = read_version(folder)
    everything = {f"s{number}": number for number in range(4)}
    append(root, everything, [*FIRST, "new"])
    assert "" in version.folders
    collect(folder, plan_collection(folder, 1))
    assert not (root / "manifest.json").exists()
    left = [path.name for path in root.glob("*.tfrecord-*")]
    assert left == ["grown-train.tfrecord-00000-of-00000"]
    with pytest.raises(Exception, match="Could not read dataset info"):
        by_tfds(root)
    append(root, {"t": 1})
    assert judge(str(root)).is_sound
