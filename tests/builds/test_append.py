"""`build --if-exists append`: a folder that changes, and the dataset that follows it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardwright as sw
from shardwright.errors import BuildError, ShardwrightError
from shardwright.format.versions import number_of, version_numbers
from shardwright.inspect.cli import main as shardwright
from shardwright.pipelines.commands.append import append_version, prepare_version
from shardwright.pipelines.commands.repair import main as repair
from shardwright.pipelines.local.build import build_here
from shardwright.pipelines.options.build import parse_options
from shardwright.storage.folder import Folder
from tests.support.build_helpers import build, png_of, stamps_of
from tests.support.growing import Grown, Source
from tests.support.random_tests import examples
from tests.transforms.versions.histories import pictures_of

OPTIONS = ("--records-per-shard", "4", "--name", "grown", "--seed", "5")
APPEND = ("--if-exists", "append")
Images = dict[str, int]
"""The seed of the picture of each file, by its path below INPUT."""

FIRST: Images = {f"{name}/{number}.png": number for number in range(5) for name in ("ant", "cat")}


def put(images: Images, folder: Path) -> None:
    """Make a folder hold just these images; what is the same is not touched."""
    for path in [
        path for path in folder.rglob("*.png") if str(path.relative_to(folder)) not in images
    ]:
        path.unlink()
    for name, seed in images.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != png_of(seed):
            path.unlink(missing_ok=True)
            path.write_bytes(png_of(seed))


def append(images: Path, out: Path, *options: str) -> int:
    return build(images, out, *OPTIONS, *APPEND, *options)


def first_build(images: Path, out: Path) -> None:
    """Build FIRST as the command does, but without Beam."""
    put(FIRST, images)
    build_here(prepare_version(parse_options([str(images), str(out), *OPTIONS, *APPEND])))


def test_append_is_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images, out = tmp_path / "in", tmp_path / "out"
    first_build(images, out)
    put(CHANGED, images)
    assert shardwright(["append", str(images), str(out), *OPTIONS]) == 0
    assert named(out) == wanted(CHANGED)
    assert shardwright(["append", str(images), str(out), "--if-exists", "overwrite"]) == 2
    assert "append is `build --if-exists append`: leave --if-exists out" in capsys.readouterr().err


def named(out: Path, **options: object) -> dict[str, tuple[bytes, str]]:
    """Return (image, class name) by id."""
    names = sw.open(str(out)).class_names
    found = pictures_of(out, **options)
    return {key: (image, names[label]) for key, (image, label) in found.items()}


def wanted(images: Images) -> dict[str, tuple[bytes, str]]:
    return {name: (png_of(seed), name.partition("/")[0]) for name, seed in images.items()}


CHANGED: Images = {
    **{name: seed for name, seed in FIRST.items() if name != "ant/1.png"},
    "cat/2.png": 40,
    "bee/0.png": 41,
    "cat/9.png": 42,
}


def test_the_dataset_follows_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images, out = tmp_path / "in", tmp_path / "out"
    first_build(images, out)
    assert named(out) == wanted(FIRST)
    before = stamps_of(out)
    assert append(images, out) == 0
    assert "nothing has changed: version 1 has 10 records" in capsys.readouterr().err
    assert stamps_of(out) == before
    put(CHANGED, images)
    assert append(images, out) == 0
    told = capsys.readouterr().err
    last = told.splitlines()[-1]
    assert f"{out}: version 2: 11 records: 2 added, 1 replaced, 1 taken away, 0:" in last
    assert named(out) == wanted(CHANGED)
    assert sw.open(str(out)).class_names == ("ant", "cat", "bee")
    assert pictures_of(out, version=1).keys() == FIRST.keys()
    del before["dataset_info.json"]  # TFDS would read version 1 silently
    assert before.items() <= stamps_of(out).items()
    assert shardwright(["verify", str(out)]) == 0
    assert append(images, out) == 0
    assert list(version_numbers(Folder(str(out)))) == [1, 2]


def test_a_killed_erase_or_gc_leaves_the_next_append_another_folder(tmp_path: Path) -> None:
    """Its note says for a day that it removes the folder, so no commit would accept it."""
    images, out = tmp_path / "in", tmp_path / "out"
    first_build(images, out)
    put(CHANGED, images)
    options = parse_options([str(images), str(out), *OPTIONS, *APPEND])
    folders = []
    for _ in range(2):
        job = prepare_version(options)
        assert job.append is not None
        folders.append(job.append.folder)
        name = folders[-1].rpartition("/")[2]
        note = out / "versions" / f".{name}.remove-1234abcd.tmp"
        note.parent.mkdir(exist_ok=True)
        note.write_text("{}")
    assert len(set(folders)) == 2
    assert append(images, out) == 0
    assert named(out) == wanted(CHANGED)


def test_missing_ones_stay_if_asked(tmp_path: Path) -> None:
    images, out = tmp_path / "in", tmp_path / "out"
    first_build(images, out)
    put(CHANGED, images)
    assert append(images, out, "--keep-missing") == 0
    assert named(out) == wanted(FIRST | CHANGED)


def test_another_image_of_the_same_id_does_not_replace_a_missing_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Folders of two days, in which ids are paths without the day."""
    days, out = [tmp_path / "1", tmp_path / "2"], tmp_path / "out"
    first_build(days[0], out)
    put({"ant/0.png": 30}, days[1])
    assert append(days[1], out, "--keep-missing") == 1
    told = capsys.readouterr().err
    assert "every file is a reject (1 duplicate_id)" in told
    assert "--keep-missing keeps it: list both in one INPUT" in told
    assert named(out) == wanted(FIRST)
    put({"ant/0.png": 30, "ant/7.png": 31}, days[1])
    assert append(days[1], out, "--keep-missing", "--max-reject-fraction", "0.5") == 0
    put(FIRST | {"cat/2.png": 32}, days[0])
    assert append(days[0], out, "--keep-missing") == 0
    assert named(out) == wanted(FIRST | {"ant/7.png": 31, "cat/2.png": 32})


def test_two_appends_at_once_do_not_replace_each_other_s_images(tmp_path: Path) -> None:
    grown = Grown(Folder(str(tmp_path / "out")), OPTIONS)
    sources = [Source(tmp_path / name) for name in ("first", "one", "other")]
    for number, source in enumerate(sources):
        source.change({"cat/0.png": 0} if number == 0 else {"cat/1.png": number})
    grown.append(sources[0])
    jobs = [grown.prepare(source, "--keep-missing") for source in sources[1:]]
    append_version(jobs[0])
    with pytest.raises(BuildError, match=r"1 image.*'cat/1.png': run this command"):
        append_version(jobs[1])
    assert grown.records()["cat/1.png"].image == png_of(1)
    with pytest.raises(ShardwrightError, match="1 duplicate_id"):
        grown.append(sources[2], "--keep-missing")


def test_stated_ids_may_move(tmp_path: Path) -> None:
    table, out = tmp_path / "t.csv", tmp_path / "out"
    put({"a/0.png": 1, "b/0.png": 2}, tmp_path)
    for folder in ("a", "b"):
        table.write_text(f"image,label,id\n{folder}/0.png,ant,one\n")
        assert append(table, out, *(["--keep-missing"] if folder == "b" else [])) == 0
    assert named(out) == {"one": (png_of(2), "ant")}


def test_appends_of_one_folder_at_the_same_time(tmp_path: Path) -> None:
    """Both add the same images; the second one has also seen that some are gone."""
    images, out = tmp_path / "in", tmp_path / "out"
    first_build(images, out)
    put(FIRST | CHANGED, images)
    options = parse_options([str(images), str(out), *OPTIONS, *APPEND])
    one, other = prepare_version(options), prepare_version(options)
    append_version(one)
    put(CHANGED, images)
    assert append_version(other).history["removed"] == 1
    assert named(out) == wanted(CHANGED)
    assert number_of(append_version(prepare_version(options))) == 3


def test_what_gc_has_left_of_a_running_append_is_replaced(tmp_path: Path) -> None:
    """It has removed the plan, and the append went on to write a shard until it was stopped."""
    images, out = tmp_path / "in", tmp_path / "out"
    first_build(images, out)
    put(FIRST | CHANGED, images)
    options = parse_options([str(images), str(out), *OPTIONS, *APPEND])
    job = prepare_version(options)
    assert job.known is not None
    generation = out / job.known.append.folder
    shutil.copytree(out / "index", generation / "index")
    append_version(prepare_version(options))
    assert named(out) == wanted(FIRST | CHANGED)
    assert shardwright(["verify", str(out)]) == 0


def test_an_image_that_breaks_is_taken_away(tmp_path: Path) -> None:
    images, out = tmp_path / "in", tmp_path / "out"
    first_build(images, out)
    (images / "ant/1.png").write_bytes(b"no image")
    assert append(images, out, "--max-reject-fraction", "0.5") == 0
    assert named(out) == wanted({key: s for key, s in FIRST.items() if key != "ant/1.png"})


def test_other_options_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images, out = tmp_path / "in", tmp_path / "out"
    first_build(images, out)
    before = stamps_of(out)
    assert append(images, out, "--encode", "jpeg") == 1
    assert "encode" in capsys.readouterr().err
    assert build(images, out, *OPTIONS, "--keep-missing") == 2
    assert stamps_of(out) == before


NAMES = st.sampled_from([f"{name}/{number}.png" for name in "abc" for number in range(4)])
STATES = st.lists(st.dictionaries(NAMES, st.integers(0, 30), min_size=1), min_size=2, max_size=3)


@examples(3)
@given(states=STATES)
def test_any_history_ends_as_a_fresh_build(
    states: list[Images], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("history")
    first_build(root / "in", root / "out")
    for images in states:
        put(images, root / "in")
        assert append(root / "in", root / "out") == 0
        assert named(root / "out") == wanted(images)
    assert shardwright(["verify", str(root / "out")]) == 0


def test_a_broken_generation_is_repaired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images, out = tmp_path / "in", tmp_path / "out"
    first_build(images, out)
    put(CHANGED, images)
    assert append(images, out) == 0
    [shard] = out.glob("generations/*/grown-train*")
    for path in (shard, out / "stats.json"):
        data = path.read_bytes()
        path.write_bytes(data[:50] + bytes([data[50] ^ 1]) + data[51:])
    assert shardwright(["verify", str(out)]) == 1
    assert repair([str(out), "--input", str(tmp_path / "none")]) == 1
    assert "copy all other records with" in capsys.readouterr().out
    (out / "stats.json").write_bytes(b"{}")
    assert repair([str(out), "--json"]) == 0
    broken = ["stats.json", str(shard.relative_to(out))]
    told = {"repaired": dict.fromkeys(broken, "repaired"), "failed": {}}
    assert json.loads(capsys.readouterr().out) == told
    assert shardwright(["verify", str(out)]) == 0
    assert named(out) == wanted(CHANGED)
