"""What OUTPUT may hold before a build, and what a build says of it."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright import naming
from shardwright.errors import BuildError, NotADatasetError, StorageError
from shardwright.manifest import read_json, write_json
from shardwright.storage import Folder
from tests.build_helpers import stamps_of
from transforms.output_state import (
    OutputRequest,
    check_output,
    check_owner,
    check_rejects,
    clear_output,
    fingerprint_of,
    plan_json,
    remove_outputs,
)
from transforms.planning.packing import Layout, ShardCuts
from transforms.reject_files import write_rejects
from transforms.rejects import Reject, RejectReason

SETTINGS = {"seed": 0, "encode": {"encode": "keep"}}
LAYOUT = Layout({"train": ShardCuts(7, 3, 3)}, {"train": 700}, {})
REJECTS = [
    Reject("b", "/b", RejectReason.CORRUPT, "broken"),
    Reject("a", "/a", RejectReason.EMPTY_FILE, "no bytes"),
]


def ask(
    root: Path, if_exists: str = "resume", settings: Mapping[str, Any] | None = None
) -> OutputRequest:
    return OutputRequest(Folder(str(root)), settings or SETTINGS, if_exists)


def finish(root: Path, fingerprint: str = "f") -> None:
    write_json(
        Folder(str(root)), naming.MANIFEST, {"settings": SETTINGS, "fingerprint": fingerprint}
    )


@pytest.mark.parametrize("if_exists", ["resume", "overwrite", "error"])
def test_a_new_or_empty_place_is_free(tmp_path: Path, if_exists: str) -> None:
    check_output(ask(tmp_path / "new", if_exists))
    check_output(ask(tmp_path, if_exists))


@pytest.mark.parametrize("if_exists", ["resume", "overwrite", "error"])
def test_a_file_is_no_output(tmp_path: Path, if_exists: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BuildError, match=r"OUTPUT .*file is a file; give a folder"):
        check_output(ask(tmp_path / "file", if_exists))


def test_a_broken_link_is_no_output(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(BuildError, match=r"OUTPUT .*link is a file; give a folder"):
        check_output(ask(tmp_path / "link"))


@pytest.mark.parametrize("if_exists", ["resume", "error"])
def test_the_files_of_strangers_are_named_and_respected(tmp_path: Path, if_exists: str) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(
        BuildError, match=r"is not empty and holds no shardwright build \(there is 'thesis.tex'\)"
    ):
        check_output(ask(tmp_path, if_exists))
    check_output(ask(tmp_path, "overwrite"))


def test_shards_without_any_plan_are_no_strangers(tmp_path: Path) -> None:
    (tmp_path / "tiny-train.tfrecord-00000-of-00001").touch()
    (tmp_path / "rejects").mkdir()
    check_output(ask(tmp_path))


@pytest.mark.parametrize(
    ("finished", "state"), [(True, "a finished dataset"), (False, "an unfinished build")]
)
def test_other_settings_are_named_with_both_values_and_the_ways_on(
    tmp_path: Path, finished: bool, state: str
) -> None:
    write_json(
        Folder(str(tmp_path)), naming.MANIFEST if finished else naming.PLAN, {"settings": SETTINGS}
    )
    check_output(ask(tmp_path))
    with pytest.raises(BuildError) as caught:
        check_output(ask(tmp_path, settings={**SETTINGS, "seed": 1}))
    message = str(caught.value)
    assert f"holds {state} with other settings (seed is 0 there and 1 here)" in message
    assert "--if-exists overwrite" in message
    assert "another OUTPUT" in message


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"seed": 0}, "encode is {'encode': 'keep'} there and None here"),
        ({**SETTINGS, "new": [1]}, "new is None there and [1] here"),
        (
            {"seed": 3, "encode": 4},
            "encode is {'encode': 'keep'} there and 4 here; seed is 0 there and 3 here",
        ),
    ],
)
def test_settings_that_come_or_go_are_other_settings(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    write_json(Folder(str(tmp_path)), naming.PLAN, {"settings": SETTINGS})
    with pytest.raises(BuildError) as caught:
        check_output(ask(tmp_path, settings=settings))
    assert said in str(caught.value)


def test_overwrite_takes_other_settings_and_error_not_even_the_same(tmp_path: Path) -> None:
    finish(tmp_path)
    check_output(ask(tmp_path, "overwrite", {"seed": 1}))
    with pytest.raises(
        BuildError, match="already holds a dataset, and --if-exists error was given"
    ):
        check_output(ask(tmp_path, "error"))


def test_a_damaged_manifest_is_told_and_not_overrun(tmp_path: Path) -> None:
    (tmp_path / naming.MANIFEST).write_text('{"settings":')
    with pytest.raises(NotADatasetError, match=r"manifest.json is not readable JSON"):
        check_output(ask(tmp_path))


def test_clearing_a_new_place_notes_plan_and_rejects(tmp_path: Path) -> None:
    root = tmp_path / "new"
    assert clear_output(ask(root), LAYOUT, "f", REJECTS)
    assert read_json(Folder(str(root)), naming.PLAN) == plan_json(SETTINGS, LAYOUT, "f")
    assert pq.read_table(root / naming.PLAN_REJECTS)["id"].to_pylist() == ["a", "b"]


def test_the_plan_names_shards_and_records() -> None:
    split = {
        "num_shards": 3,
        "num_records": 7,
        "num_bytes": 700,
        "records_per_shard": {"min": 1, "max": 3},
    }
    assert plan_json(SETTINGS, LAYOUT, "f") == {
        "fingerprint": "f",
        "settings": SETTINGS,
        "splits": {"train": split},
    }


def test_an_unfinished_build_goes_on_with_a_new_plan(tmp_path: Path) -> None:
    clear_output(ask(tmp_path), LAYOUT, "f", REJECTS)
    assert clear_output(ask(tmp_path), LAYOUT, "g", [])
    plan = read_json(Folder(str(tmp_path)), naming.PLAN)
    assert plan is not None
    assert plan["fingerprint"] == "g"
    assert not (tmp_path / naming.PLAN_REJECTS).exists()


def test_a_finished_dataset_of_the_same_input_stays_as_it_is(tmp_path: Path) -> None:
    finish(tmp_path)
    write_rejects(Folder(str(tmp_path)), naming.PLAN_REJECTS, REJECTS)
    before = stamps_of(tmp_path)
    assert not clear_output(ask(tmp_path), LAYOUT, "f", REJECTS[::-1])
    assert stamps_of(tmp_path) == before


def test_a_finished_dataset_of_another_input_is_refused(tmp_path: Path) -> None:
    finish(tmp_path)
    with pytest.raises(
        BuildError,
        match=r"INPUT has changed since the dataset at .* was built .*--if-exists overwrite rebuilds it",
    ):
        clear_output(ask(tmp_path), LAYOUT, "g", [])
    assert sorted(stamps_of(tmp_path)) == [naming.MANIFEST]


def test_a_build_that_begins_while_another_does_is_told(tmp_path: Path) -> None:
    """A link to nowhere looks like no plan, and is in the way of one: as if the other's plan came between look and write."""
    (tmp_path / naming.PLAN).symlink_to(tmp_path / "nowhere")
    with pytest.raises(BuildError) as caught:
        clear_output(ask(tmp_path), LAYOUT, "f", REJECTS)
    assert (
        str(caught.value)
        == f"another build has begun at OUTPUT {tmp_path} meanwhile: wait for it, or give another OUTPUT"
    )
    assert [path.name for path in tmp_path.iterdir()] == [naming.PLAN], (
        "nor are its rejects put among those of the other"
    )


@pytest.mark.parametrize("attempt", range(10))
def test_of_builds_that_begin_at_once_one_owns_the_output(tmp_path: Path, attempt: int) -> None:
    start = threading.Barrier(6)

    def begin(seed: int) -> str:
        start.wait()
        try:
            return str(
                clear_output(
                    ask(tmp_path / "new", settings={"seed": seed}),
                    LAYOUT,
                    f"{attempt} {seed}",
                    REJECTS,
                )
            )
        except BuildError as error:
            return str(error)

    def owns(seed: int) -> bool:
        try:
            check_owner(Folder(str(tmp_path / "new")), f"{attempt} {seed}")
        except BuildError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        told = list(pool.map(begin, range(6)))
    assert all(
        re.search(
            "^True$|has begun at OUTPUT .* meanwhile|holds an unfinished build with other settings",
            text,
        )
        for text in told
    )
    owners = [seed for seed in range(6) if owns(seed)]
    assert len(owners) == 1
    assert told[owners[0]] == "True"
    assert read_json(Folder(str(tmp_path / "new")), naming.PLAN) == plan_json(
        {"seed": owners[0]}, LAYOUT, f"{attempt} {owners[0]}"
    )


@pytest.mark.parametrize(
    ("plan", "fingerprint", "fits"),
    [
        (None, "f", True),
        ({"fingerprint": "f"}, "f", True),
        ({"fingerprint": "g"}, "f", False),
        ({}, "f", False),
        ({}, None, True),
    ],
)
def test_a_build_goes_on_as_long_as_the_plan_is_its_own(
    tmp_path: Path, plan: dict[str, Any] | None, fingerprint: str | None, fits: bool
) -> None:
    if plan is not None:
        write_json(Folder(str(tmp_path)), naming.PLAN, plan)
    if fits:
        check_owner(Folder(str(tmp_path)), fingerprint)
        return
    with pytest.raises(
        BuildError,
        match=f"^another build has begun at OUTPUT {tmp_path} meanwhile, with another INPUT or other options",
    ):
        check_owner(Folder(str(tmp_path)), fingerprint)


def test_overwrite_removes_what_builds_made_and_nothing_else(tmp_path: Path) -> None:
    finish(tmp_path)
    shard = "tiny-train.tfrecord-00000-of-00001"
    ours = (
        shard,
        "index/train-00000-of-00001.parquet",
        ".plan.json.0123.tmp",
        "stats.json",
        "label.labels.txt",
    )
    theirs = (
        "thesis.tex",
        "index/thesis.bib",
        "notes/plan.json",
        "tiny-train.tfrecord-00003-of-00001",
        "tiny.tfrecord",
    )
    for name in ours + theirs:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert clear_output(ask(tmp_path, "overwrite"), LAYOUT, "f", [])
    assert sorted(stamps_of(tmp_path)) == sorted([*theirs, naming.PLAN])


@pytest.mark.parametrize(
    ("fingerprint", "resumable", "stays"),
    [("f", True, True), ("g", True, False), ("f", False, False)],
)
def test_overwrite_goes_on_with_an_earlier_try_of_the_same_build(
    tmp_path: Path, fingerprint: str, resumable: bool, stays: bool
) -> None:
    shard = tmp_path / "tiny-train.tfrecord-00000-of-00001"
    request = replace(ask(tmp_path, "overwrite"), resumable=resumable)
    clear_output(request, LAYOUT, "f", [])
    shard.touch()
    assert clear_output(request, LAYOUT, fingerprint, [])
    assert shard.exists() is stays


def test_the_manifest_is_removed_before_anything_else(tmp_path: Path) -> None:
    finish(tmp_path)
    (tmp_path / "features.json").mkdir()  # cannot be removed as a file
    with pytest.raises(StorageError, match=r"cannot remove .*features\.json: Is a directory"):
        remove_outputs(Folder(str(tmp_path)))
    assert not (tmp_path / naming.MANIFEST).exists()


@given(
    pairs=st.lists(
        st.tuples(st.text(max_size=3), st.text(max_size=3)),
        unique_by=lambda pair: pair[0],
        min_size=2,
    )
)
def test_the_fingerprint_is_of_the_set_of_shards(pairs: list[tuple[str, str]]) -> None:
    assert fingerprint_of(pairs) == fingerprint_of(pairs[::-1])
    assert fingerprint_of(pairs) != fingerprint_of(pairs[1:])
    (name, digest), *others = pairs
    assert fingerprint_of(pairs) != fingerprint_of([(name, digest + "x"), *others])


@pytest.mark.parametrize(
    ("rejects", "num_records", "limit"),
    [
        ({}, 1, 0.0),
        ({"corrupt": 1}, 99, 0.01),
        ({"other_file": 50}, 1, 0.0),
        ({"corrupt": 1}, 1, 0.5),
        ({"corrupt": 99}, 1, 1.0),
    ],
)
def test_up_to_the_limit_rejects_are_fine(
    rejects: dict[str, int], num_records: int, limit: float
) -> None:
    check_rejects(rejects, num_records, limit)


@pytest.mark.parametrize(
    ("rejects", "num_records", "limit", "said"),
    [
        ({}, 0, 1.0, "INPUT has no images; the folder or table is empty"),
        (
            {"other_file": 2, "corrupt": 3},
            0,
            1.0,
            r"INPUT has no images: every file is a reject \(3 corrupt, 2 other_file\)",
        ),
        (
            {"corrupt": 1},
            98,
            0.01,
            r"1 of 99 inputs \(1.01%\) are rejects, more than --max-reject-fraction 0.01 allows \(1 corrupt\)",
        ),
        (
            {"corrupt": 1, "other_file": 900},
            98,
            0.01,
            r"1 of 99 inputs .*\(900 other_file, 1 corrupt\); each is listed in rejects/",
        ),
        ({"empty_file": 1}, 10**6, 0.0, "1 of 1000001 inputs"),
    ],
)
def test_more_than_the_limit_stops_the_build(
    rejects: dict[str, int], num_records: int, limit: float, said: str
) -> None:
    with pytest.raises(BuildError, match=said):
        check_rejects(rejects, num_records, limit)
