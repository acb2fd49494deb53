"""File names: made and parsed as TFDS does."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from shardwright.format import naming
from shardwright.format.naming import ShardName
from shardwright.storage.addresses import is_temporary, temporary_name
from shardwright.storage.folder import Folder

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True)
SPLITS = st.from_regex(r"[A-Za-z0-9_]{1,12}", fullmatch=True)


@st.composite
def shard_names(draw: st.DrawFn) -> ShardName:
    count = draw(st.integers(1, 10**7))
    return ShardName(draw(NAMES), draw(SPLITS), draw(st.integers(0, count - 1)), count)


@given(shard_names())
def test_a_shards_name_is_taken_apart_as_it_was_made(name: ShardName) -> None:
    assert ShardName.parse(name.shard) == name
    for path in (name.shard, name.sidecar, name.rejects):
        assert naming.is_build_output(path)


@given(
    st.one_of(
        st.text(max_size=40),
        st.from_regex(r"[a-z]\w{0,3}-\w{1,3}\.tfrecord-\d{4,7}-of-\d{4,7}", fullmatch=True),
    )
)
def test_a_name_that_is_taken_for_a_shards_is_exactly_one(filename: str) -> None:
    name = ShardName.parse(filename)
    if name is not None:
        assert name.shard == filename
        assert 0 <= name.index < name.count


def test_other_names_are_no_shards() -> None:
    others = [
        "flowers-train.tfrecord-00000-of-00000",
        "flowers-train.tfrecord-00003-of-00003",
        "flowers-train.tfrecord-000001-of-00003",
        "flowers-train.tfrecord-0001-of-0003",
        "flowers-train.tfrecord-\u0660\u0660\u0660\u0660\u0661-of-00003",
        "flowers-train.tfrecord-00001-of-00003.gz",
        "Flowers-train.tfrecord-00001-of-00003",
        "flowers-train-x.tfrecord-00001-of-00003",
        "flowers-train.array_record-00001-of-00003",
        ".flowers-train.tfrecord-00001-of-00003.abc.tmp",
        "x/flowers-train.tfrecord-00001-of-00003",
        "flowers-train.tfrecord-00001-of-00003\n",
    ]
    assert [name for name in others if ShardName.parse(name) is not None] == []


def test_names_in_full() -> None:
    name = ShardName("flowers", "train", 3, 12)
    assert name.shard == "flowers-train.tfrecord-00003-of-00012"
    assert name.sidecar == "index/train-00003-of-00012.parquet"
    assert name.rejects == "rejects/train-00003-of-00012.parquet"
    many = ShardName("flowers", "train", 123456, 1234567)
    assert many.shard == "flowers-train.tfrecord-123456-of-1234567"
    assert naming.labels_file("label") == "label.labels.txt"
    assert naming.labels_file("image/class/label") == "image-class-label.labels.txt"
    assert naming.vocabulary_file("image/caption") == "image-caption.vocab.txt"


def test_shards_sort_by_split_and_index() -> None:
    places = [(split, index) for split in ("test", "train") for index in (0, 9, 10, 100_000)]
    names = [ShardName("a", split, index, 100_001) for split, index in places]
    assert sorted([names[place] for place in (5, 0, 7, 2, 1, 6, 3, 4)]) == names


def test_a_dataset_is_named_after_its_folder() -> None:
    names = {
        "/data/flowers": "flowers",
        "/data/My Flowers/": "my_flowers",
        "out.v2": "out_v2",
        "/data/2024": "dataset_2024",
        "/data/_x_": "x",
        "/data/花": "dataset",
        "/": "dataset",
    }
    assert {output: naming.dataset_name_for(output) for output in names} == names


@given(st.text())
def test_any_folder_gives_a_name(output: str) -> None:
    assert naming.is_dataset_name(naming.dataset_name_for(output))


def test_names_of_datasets_and_splits() -> None:
    names = ("a", "a_1", "", "1a", "A", "a-b", "a\n")
    assert [name for name in names if naming.is_dataset_name(name)] == ["a", "a_1"]
    splits = ("train", "Val_2", "", "a-b", "a/b", "é")
    assert [split for split in splits if naming.is_split_name(split)] == ["train", "Val_2"]


def test_a_rebuild_removes_what_a_build_makes_and_nothing_else() -> None:
    ours = [
        "manifest.json", "plan.json", "features.json", "dataset_info.json", "schema.pbtxt",
        "stats.json", "report.html", "image-class-label.labels.txt", "image-caption.vocab.txt",
        "index/train-00000-of-00001.parquet", "index/.train-00000-of-00001.parquet.12ab.tmp",
        "rejects/plan.parquet", ".manifest.json.0a1b2c3d.tmp", "spool/0.bin", "spool/0.parquet",
        "stats.pb",
    ]  # fmt: skip
    others = [
        "README.md", "notes.json", "photos/manifest.json", "index/notes.txt", "x.tmp",
        "index/0.bin", "flowers-train.tfrecord-00000-of-00001.gz", "spool/notes.txt",
    ]  # fmt: skip
    assert [path for path in [*ours, *others] if naming.is_build_output(path)] == ours


def test_outputs_are_found_in_their_folders_alone(tmp_path: Path) -> None:
    ours = ["index/x-00000-of-00001.parquet", "manifest.json", "rejects/plan.parquet"]
    for name in [*ours, "README.md", ".hidden", "index/notes.txt", "other/manifest.json"]:
        Folder(str(tmp_path)).write_bytes(name, b"")
    assert naming.build_outputs(Folder(str(tmp_path))) == ours
    assert naming.build_outputs(Folder(str(tmp_path / "nowhere"))) == []


def test_temporary_names_are_hidden_and_told_from_others() -> None:
    temporary = temporary_name("manifest.json", "12ab")
    assert temporary == ".manifest.json.12ab.tmp"
    assert is_temporary(temporary)
    assert not is_temporary("manifest.json")
