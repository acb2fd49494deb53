"""Overwriting: the old dataset or the new one is whole at every moment, whatever step fails."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.errors import BuildError, NotADatasetError, StorageError
from shardwright.format import naming
from shardwright.format.manifest import read_manifest
from shardwright.inspect.cli import main
from shardwright.inspect.verify import verify_quickly
from shardwright.pipelines.commands import plan
from shardwright.storage.folder import Folder, StoreFolder
from shardwright.storage.options import StorageOptions
from shardwright.transforms.promotion import finish_promotion, promote, promoted
from shardwright.transforms.publish import publication
from tests.support.build_helpers import build, hashes_of, make_images, png_of, stamps_of
from tests.support.judge import judge
from tests.support.store_builds import build_between, by_store
from tests.support.store_places import Kind, Places

OLD = ("--name", "tiny", "--records-per-shard", "4")
NEW = ("--name", "tiny", "--records-per-shard", "3", "--if-exists", "overwrite")
_WRITES = ("copy", "write_bytes", "create_bytes", "remove", "remove_all")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two INPUTs, `a` and `b`, and their datasets, `old` and `new`."""
    root = tmp_path_factory.mktemp("overwrite")
    make_images(root / "a", 8)
    make_images(root / "b", 8)
    (root / "b" / "cat" / "new.png").write_bytes(png_of(99))
    assert build(root / "a", root / "old", *OLD) == 0
    assert build(root / "b", root / "new", *NEW) == 0
    return root


@pytest.fixture(scope="module")
def ready(made: Path) -> Path:
    """The old dataset and a file of the user's; in `next/` the new one, which is finished."""
    output = made / "ready"
    shutil.copytree(made / "old", output)
    (output / "thesis.tex").write_text("mine")
    before = stamps_of(output)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publication, "promote", _stop)
        assert build(made / "b", output, *NEW) == 1
    assert before.items() <= stamps_of(output).items(), "nothing of the old one was touched"
    assert hashes_of(output / naming.NEXT_DIR) == hashes_of(made / "new")
    [note] = judge(str(output)).notes
    assert str(note).startswith("next: a build that would replace this dataset: run its command")
    return output


@pytest.mark.long
def test_a_plan_counts_the_shards_that_an_earlier_try_left(
    made: Path, output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def planned(*options: str) -> dict[str, Any]:
        assert plan.main([str(made / "b"), str(output), *options, "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert found["state"] == "overwrite"
        return found

    num_shards = len(hashes_of(made / "new"))
    before = stamps_of(output)
    assert (planned(*NEW)["shards_done"], num_shards) == (num_shards, 3)
    assert planned(*NEW, "--seed", "9")["shards_done"] == 0
    assert stamps_of(output) == before
    next(iter((output / naming.NEXT_DIR).glob("tiny-*"))).unlink()
    assert planned(*NEW)["shards_to_write"] == 1


def _stop(*_: object) -> None:
    raise StorageError("stopped")


@pytest.fixture
def output(ready: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(ready, tmp_path / "out"))


@contextmanager
def stopping_at(step: int, files: type[Any] = Folder) -> Iterator[Callable[[], bool]]:
    """Make the change number `step` of the storage fail, and all after it, as if killed there.

    Yields a function that returns whether it was reached.
    """
    done = 0

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal done
            done += 1
            if done >= step:
                raise StorageError(f"stopped at {step}")
            return change(*args, **kwargs)

        return run

    with pytest.MonkeyPatch.context() as patch:
        for name in _WRITES:
            patch.setattr(files, name, counted(getattr(files, name)))
        yield lambda: done >= step


def ids_of(root: Path) -> list[str]:
    """Read all records, and return their ids."""
    return sorted(map(str, sw.open(str(root)).to_numpy("train")["id"]))


def check_one_of(output: Path, made: Path) -> str:
    """Check that OUTPUT is the old or the new dataset, whole, and return which."""
    ids = ids_of(output)
    [which] = [name for name in ("old", "new") if ids == ids_of(made / name)]
    found = judge(str(output))
    assert not found.faults, (which, found.faults)
    return which


def check_new(output: Path, made: Path) -> None:
    assert sorted(stamps_of(output)) == sorted([*stamps_of(made / "new"), "thesis.tex"])
    assert hashes_of(output) == hashes_of(made / "new")
    assert not (output / naming.NEXT_DIR).exists()
    assert judge(str(output)).is_sound


def promote_in(output: Path) -> None:
    """Do what a build does with a finished `next/`."""
    root = Folder(str(output))
    fingerprint = read_manifest(root.below(naming.NEXT_DIR)).fingerprint
    if not finish_promotion(root):
        promote(root, fingerprint)


@pytest.mark.long
def test_a_stop_at_any_change_leaves_one_whole_dataset_and_the_next_build_goes_on(
    ready: Path, made: Path, tmp_path: Path
) -> None:
    seen: list[str] = []
    while True:
        work = Path(shutil.copytree(ready, tmp_path / str(len(seen)) / "out"))
        with stopping_at(len(seen) + 1) as is_reached:
            with suppress(StorageError):
                promote_in(work)
            if not is_reached():
                break
        seen.append(check_one_of(work, made))
        with suppress(NotADatasetError, BuildError):  # what is left of `next/` is never used
            promote_in(work)
            check_new(work, made)
        assert check_one_of(work, made) in {"new", seen[-1]}
    check_new(work, made)
    assert seen[0] == "old"
    assert set(seen[1:]) == {"new"}
    assert len(seen) > 10


@pytest.mark.long_but_first
@pytest.mark.parametrize("step", [1, 2, 7, -4, -2])
def test_the_same_command_ends_a_stopped_replacement(
    output: Path, made: Path, step: int, capfd: pytest.CaptureFixture[str]
) -> None:
    num_files = len(read_manifest(Folder(str(output / naming.NEXT_DIR))).file_names())
    with stopping_at(step % (num_files + 6)), pytest.raises(StorageError):
        promote_in(output)
    capfd.readouterr()
    assert build(made / "b", output, *NEW) == 0
    assert "up to date: all" in capfd.readouterr().err, "no image is read again"
    check_new(output, made)


def test_any_build_ends_a_stopped_replacement(output: Path, made: Path) -> None:
    with stopping_at(5), pytest.raises(StorageError):
        promote_in(output)
    assert check_one_of(output, made) == "new"
    assert sw.open(str(output)).num_records == 9
    loaded = sw.load(str(output), "train", decode=False)
    assert len([*loaded.as_numpy_iterator()]) == 9
    for command in (["verify", str(output)], ["show", str(output), "0"], ["inspect", str(output)]):
        assert main(command) == 0
    assert build(made / "b", output, *NEW[:-2]) == 0
    check_new(output, made)


@pytest.mark.long
def test_a_replacement_that_lost_a_file_is_built_again(
    output: Path,
    made: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two overwriting builds and a stop can do that: else no command went on from there."""
    with stopping_at(2), pytest.raises(StorageError):
        promote_in(output)
    for shard in (output / naming.NEXT_DIR).glob("tiny-*"):
        shard.unlink()
    told = f"an earlier build stopped while it replaced {output}, and lost a file: "
    assert build(made / "b", output, *NEW[:-2]) == 1
    assert told in (found := capfd.readouterr().err)
    assert "build it again with --if-exists overwrite" in found
    assert build(made / "b", output, *NEW) == 0
    assert told in caplog.text
    check_new(output, made)


def test_another_plan_starts_over_and_the_old_dataset_stays(output: Path, made: Path) -> None:
    assert build(made / "a", output, *OLD, "--if-exists", "overwrite") == 0
    assert ids_of(output) == ids_of(made / "old")
    assert not (output / naming.NEXT_DIR).exists()


def test_a_build_that_lost_output_removes_nothing_of_the_one_that_took_it_over(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Another build begins and ends just before the first one lists what to remove."""
    output, list_outputs = tmp_path / "out", naming.build_outputs

    def listed(*args: Any) -> list[str]:
        monkeypatch.setattr(naming, "build_outputs", list_outputs)
        assert build(made / "b", output, *NEW) == 0
        return list_outputs(*args)

    monkeypatch.setattr(naming, "build_outputs", listed)
    assert build(made / "a", output, *OLD) == 1
    assert "another build" in capfd.readouterr().err
    assert hashes_of(output) == hashes_of(made / "new")


def test_a_second_call_of_publishing_changes_nothing(output: Path, made: Path) -> None:
    fingerprint = read_manifest(Folder(str(made / "new"))).fingerprint
    promote_in(output)
    before = stamps_of(output)
    assert promoted(Folder(str(output)), fingerprint).num_records == 9
    assert stamps_of(output) == before
    with pytest.raises(BuildError, match="another build has replaced the dataset at"):
        promoted(Folder(str(output)), "another")


def test_a_late_end_of_a_replacement_leaves_the_next_one(
    output: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another build has replaced the dataset once more, as this one removes its plan."""
    other, remove = (made / "old" / naming.MANIFEST).read_bytes(), Folder.remove

    def remove_late(folder: Folder, name: str) -> None:
        is_plan = (folder.uri, name) == (f"{output}/{naming.NEXT_DIR}", naming.PLAN)
        if is_plan and folder.num_bytes_of(name) is not None:  # the first time
            (output / naming.MANIFEST).write_bytes(other)
        remove(folder, name)

    monkeypatch.setattr(Folder, "remove", remove_late)
    with pytest.raises(BuildError, match="another build has replaced the dataset at"):
        promote_in(output)
    assert (output / naming.MANIFEST).read_bytes() == other


def test_a_manifest_names_no_other_folder(output: Path) -> None:
    root = Folder(str(output))
    strange = replace(read_manifest(root), folder="../next")
    root.write_bytes(naming.MANIFEST, strange.to_bytes())
    with pytest.raises(NotADatasetError, match=r"folder is '../next', expected 'next'"):
        read_manifest(root)


@pytest.mark.parametrize("form", ["folder", "wildcard", "folder of links", "a link deep inside"])
def test_links_into_the_dataset_are_refused(
    output: Path, made: Path, tmp_path: Path, form: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Links to other places are fine, and so are rings of them."""
    source = tmp_path / "in"
    source.mkdir()
    (source / "b").symlink_to(made / "b")
    (source / "b ring").symlink_to(source)
    shards = sorted(output.glob("tiny-*"))
    if form in ("folder", "wildcard"):
        (source / "own").symlink_to(output / "index", target_is_directory=True)
    else:
        below = source / ("deep/er" if form.startswith("a link") else "")
        below.mkdir(parents=True, exist_ok=True)
        for shard in shards:
            (below / f"{shard.name}.png").symlink_to(shard)
    before = stamps_of(output)
    given = source / "*/*.parquet" if form == "wildcard" else source
    assert build(given, output, *NEW) == 2
    told = capfd.readouterr().err
    assert f"which is in OUTPUT {output} and would be overwritten ({source}" in told
    assert stamps_of(output) == before


@pytest.mark.long
@by_store
def test_a_stopped_replacement_in_a_store(
    made: Path, places: Places, tmp_path: Path, kind: Kind
) -> None:
    output = places.make(kind)
    assert build_between(made / "a", output, *OLD) == 0
    copies, copy_object = itertools.count(1), StoreFolder.copy

    def copy(folder: StoreFolder, name: str, to: Folder) -> None:
        if next(copies) > 5:
            raise StorageError("stopped")
        copy_object(folder, name, to)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoreFolder, "copy", copy)
        assert build_between(made / "b", output, *NEW) == 1
    found = sw.open(output.uri, output.storage_options)
    assert (found.num_records, found.folder) == (9, naming.NEXT_DIR)
    cache = str(tmp_path / "cache")
    reader = sw.Reader(
        output.uri,
        "train",
        global_batch_size=9,
        cache=cache,
        storage_options=output.storage_options,
    )
    with reader:
        assert sorted(map(str, next(iter(reader))["id"])) == ids_of(made / "new")
    assert judge(output.uri, storage_options=output.storage_options).is_sound

    assert build_between(made / "b", output, *NEW) == 0
    before = output.stamps()
    assert build_between(made / "b", output, *NEW[:-2]) == 0
    assert output.stamps() == before, "the etags of the copies are those in the manifest"
    assert output.names() == sorted(stamps_of(made / "new"))
    assert hashes_of(output.download(tmp_path / "copy")) == hashes_of(made / "new")
    root = Folder.at(output.uri, StorageOptions.of(output.storage_options))
    assert verify_quickly(root).is_sound
