"""An append that would take away much of a dataset fails first, and lists what."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwright.errors import BuildError, UsageError
from shardwright.fail_on import Limit, parse_most
from shardwright.format.versions import version_numbers
from shardwright.pipelines.commands import build
from shardwright.pipelines.commands.append import append_version, prepare_version
from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.job.graph import build_graph
from shardwright.pipelines.local.build import build_here
from shardwright.pipelines.options.build import parse_options
from shardwright.pipelines.runners.run import run_pipeline
from shardwright.storage.folder import Folder
from shardwright.transforms.reject_files import read_rejects
from shardwright.transforms.versions.additions import _USUAL, _exceeds
from tests.builds.test_append import APPEND, FIRST, OPTIONS, put
from tests.support.build_helpers import stamps_of

CLASSES = ("ant", "cat", "dog")
IMAGES = {f"{name}/{name}{number:02d}.png": number for name in CLASSES for number in range(14)}
HALF = {name: seed for name, seed in IMAGES.items() if name < "cat/cat05"}


def prepared(source: Path, root: Path, *options: str) -> BuildJob:
    """Return the job of an append, or of the first build."""
    argv = [str(source), str(root / "out"), *OPTIONS[2:], *APPEND, *options]
    return prepare_version(parse_options(argv))


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    """Return a folder with 42 images, `in`, and their dataset, `out`."""
    put(IMAGES, tmp_path / "in")
    build_here(prepared(tmp_path / "in", tmp_path))
    return tmp_path


def write_table(path: Path, names: list[str]) -> Path:
    path.write_text("path,label\n" + "".join(f"{one},{one.partition('/')[0]}\n" for one in names))
    return path


@pytest.mark.parametrize(
    ("number", "whole", "fails"),
    [
        (20, 30, False), (21, 30, True), (21, 210, False), (22, 210, True), (0, 0, False),
        (1_000, 10_000, False), (1_001, 10_000, True),
    ],
)  # fmt: skip
def test_the_usual_limit_is_ten_percent_and_twenty(number: int, whole: int, fails: bool) -> None:
    assert _exceeds(_USUAL, number, whole) is fails


@pytest.mark.parametrize(
    ("text", "limit"),
    [("500", Limit("gone", 500, False)), (" 2.5 %", Limit("gone", 2.5, True))],
)
def test_max_gone_is_a_number_or_a_percentage(text: str, limit: Limit) -> None:
    assert parse_most(text, "--max-gone", "gone") == limit


@pytest.mark.parametrize("text", ["", "-1", "half", "gone>5", "5%%"])
def test_another_max_gone_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--max-gone must be a number of records or a percentage"):
        parse_most(text, "--max-gone", "gone")


def test_a_share_that_is_half_mounted(grown: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(HALF, grown / "in")
    before = stamps_of(grown / "out")
    argv = [str(grown / "in"), str(grown / "out"), *OPTIONS[2:], *APPEND]
    assert build.main(argv) == 1
    told = capsys.readouterr().err
    assert "lacks 23 of the 42 records of" in told
    assert "(55%), such as '" in told
    assert "more than 10% and more than 20 records, the default of --max-gone" in told
    assert "Check that INPUT is whole and its disks are mounted" in told
    assert "if they are to go, add --max-gone 23" in told
    assert "No shard was written; generations/00002-" in told
    [listed] = [name for name in stamps_of(grown / "out").keys() - before if "/spool/" not in name]
    assert listed.endswith("x0/rejects/failed.gone.parquet")
    rejects = read_rejects(Folder(str(grown / "out")), listed)
    assert {one.id for one in rejects} == IMAGES.keys() - HALF.keys()
    assert {str(one.reason) for one in rejects} == {"gone"}
    assert all(one.uri.endswith(one.id) for one in rejects)
    assert build.main([*argv, "--max-gone", "22"]) == 1
    assert "more than --max-gone 22. No shard was written" in capsys.readouterr().err
    assert build.main([*argv, "--max-gone", "55%"]) == 0
    assert "version 2: 19 records: 23 taken away" in capsys.readouterr().err


def test_a_failed_append_leaves_a_list_until_one_succeeds(grown: Path) -> None:
    for name in ("dog", "cat"):
        (grown / "in" / name).rename(grown / name)
    with pytest.raises(BuildError, match="lacks 28 of the 42 records"):
        append_version(prepared(grown / "in", grown))
    assert list(grown.glob("out/generations/*/rejects/*"))
    for name in ("dog", "cat"):
        (grown / name).rename(grown / "in" / name)
    append_version(prepared(grown / "in", grown))
    assert list(version_numbers(Folder(str(grown / "out")))) == [1]
    assert not list(grown.glob("out/generations/*/rejects/*"))


@pytest.mark.parametrize("images", [HALF, {**HALF, "cat/new.png": 99}], ids=["none", "one"])
def test_nothing_is_written(grown: Path, images: dict[str, int]) -> None:
    """Without additions, and with one."""
    put(images, grown / "in")
    with pytest.raises(BuildError, match="lacks 23 of the 42 records"):
        append_version(prepared(grown / "in", grown))
    assert not list(grown.glob("out/generations/**/*.tfrecord*"))
    assert not list(grown.glob("out/generations/**/*.json"))
    append_version(prepared(grown / "in", grown, "--keep-missing"))
    assert (
        list(version_numbers(Folder(str(grown / "out")))) == [1, 2][: 1 + len(images) - len(HALF)]
    )


def test_an_input_that_moved_takes_nothing_away(grown: Path) -> None:
    (grown / "in").rename(grown / "there")
    version = append_version(prepared(grown / "there", grown))
    assert (version.num_records, version.history["replaced"]) == (42, 42)


def test_a_table_of_one_day(tmp_path: Path) -> None:
    put(IMAGES, tmp_path)
    days = [sorted(IMAGES)[:28], sorted(IMAGES)[28:]]
    tables = [write_table(tmp_path / f"{n}.csv", names) for n, names in enumerate(days)]
    build_here(prepared(tables[0], tmp_path))
    with pytest.raises(BuildError, match=r"lacks 28 of the 28 .* --keep-missing keeps the records"):
        append_version(prepared(tables[1], tmp_path))
    version = append_version(prepared(tables[1], tmp_path, "--keep-missing"))
    assert version.num_records == 42


@pytest.mark.long
def test_the_graph_fails_before_it_writes(tmp_path: Path) -> None:
    put(FIRST, tmp_path / "in")
    build_here(prepared(tmp_path / "in", tmp_path))
    put({**{name: FIRST[name] for name in FIRST if "cat" in name}, "cat/9.png": 9}, tmp_path / "in")
    before = stamps_of(tmp_path / "out")
    told = r"lacks 5 of the 10 .* more than --max-gone 4\. .* lists the records"
    with pytest.raises(BuildError, match=told):
        run_pipeline(build_graph, prepared(tmp_path / "in", tmp_path, "--max-gone", "4"))
    after = stamps_of(tmp_path / "out")
    new = [name for name in after if name not in before]
    [listed] = [name for name in new if "spool" not in name]
    assert listed.endswith("/rejects/failed.gone.parquet")
    run_pipeline(build_graph, prepared(tmp_path / "in", tmp_path, "--max-gone", "50%"))
    assert list(version_numbers(Folder(str(tmp_path / "out")))) == [1, 2]
    assert not list(tmp_path.glob("out/generations/*/rejects/*"))


def test_max_gone_needs_append(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(FIRST, tmp_path / "in")
    argv = [str(tmp_path / "in"), str(tmp_path / "out"), "--max-gone", "3"]
    assert build.main(argv) == 2
    assert "--max-gone needs --if-exists append, not resume" in capsys.readouterr().err
