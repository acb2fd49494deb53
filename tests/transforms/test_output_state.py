"""The state of OUTPUT before a build, and the messages about it."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import BuildError, NotADatasetError, StorageError
from shardwright.format import naming
from shardwright.format.json_files import read_json
from shardwright.format.manifest import json_bytes
from shardwright.storage.folder import Folder
from shardwright.transforms import output_state as state
from shardwright.transforms.output_state import BuildPlace
from shardwright.transforms.plan.packing import Layout, ShardCuts, SizeEstimate
from shardwright.transforms.promotion import remove_outputs
from tests.support.build_helpers import stamps_of

SETTINGS = {"seed": 0, "encode": {"encode": "keep"}}
ENCODED = {"seed": 0, "encode": {"encode": "jpeg"}}
LAYOUT = Layout({"train": ShardCuts(7, 3, 3)}, {"train": 700}, {})
SHARD = "tiny-train.tfrecord-00000-of-00001"
HERE = BuildPlace("", is_finished=False)


def ask(
    root: Path, if_exists: str = "resume", settings: Mapping[str, Any] = SETTINGS
) -> state.OutputRequest:
    return state.OutputRequest(Folder(str(root)), settings, if_exists)


def finish(root: Path) -> None:
    manifest = {"settings": SETTINGS, "fingerprint": "f"}
    Folder(str(root)).write_bytes(naming.MANIFEST, json_bytes(manifest))


def plan_of(root: Path) -> Any:
    return read_json(Folder(str(root)), naming.PLAN, dict[str, Any])


def refusal(step: Callable[..., object], *arguments: Any) -> str:
    """Return the message of the BuildError that a step ends with."""
    with pytest.raises(BuildError) as caught:
        step(*arguments)
    return str(caught.value)


@pytest.mark.parametrize("if_exists", ["resume", "overwrite", "error"])
def test_output_may_be_new_or_empty_and_no_file(tmp_path: Path, if_exists: str) -> None:
    state.check_output(ask(tmp_path / "new", if_exists))
    state.check_output(ask(tmp_path, if_exists))
    (tmp_path / "file").touch()
    (tmp_path / "broken_link").symlink_to(tmp_path / "nowhere")
    for path in (tmp_path / "file", tmp_path / "broken_link"):
        said = refusal(state.check_output, ask(path, if_exists))
        assert said == f"OUTPUT {path} is a file; give a folder"


@pytest.mark.parametrize("if_exists", ["resume", "error"])
def test_foreign_files_need_overwrite(tmp_path: Path, if_exists: str) -> None:
    (tmp_path / "thesis.tex").touch()
    said = refusal(state.check_output, ask(tmp_path, if_exists))
    assert "is not empty and holds no shardwright build (found 'thesis.tex')" in said
    state.check_output(ask(tmp_path, "overwrite"))


@pytest.mark.parametrize("if_exists", ["resume", "error"])
def test_what_a_build_leaves_before_its_plan_is_not_foreign(tmp_path: Path, if_exists: str) -> None:
    hash_of_part = "0f" * 16
    beams = f"beam-temp-tiny-train.tfrecord-{hash_of_part}/part"
    spooled = (f"spool/{hash_of_part}.bin", f"spool/.{hash_of_part}.parquet.0123abcd.tmp")
    left = (*spooled, ".plan.json.0123abcd.tmp", "rejects/failed.parquet", beams, "index/")
    for name in left:
        make_file(tmp_path / name)
    state.check_output(ask(tmp_path, if_exists))


def make_file(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.mkdir() if str(path).endswith("/") else path.write_text("mine")


OWN_FILES = ("stats.json", "report.html", "my.labels.txt", "index/my.parquet",
             "rejects/my.parquet", SHARD, "features.json")  # fmt: skip


@pytest.mark.parametrize("name", OWN_FILES)
def test_files_of_others_with_names_of_a_build_are_never_overwritten(
    tmp_path: Path, name: str
) -> None:
    make_file(tmp_path / name)
    said = refusal(state.check_output, ask(tmp_path))
    assert f"is not empty and holds no shardwright build (found {name!r})" in said
    said = refusal(state.clear_output, ask(tmp_path, "overwrite"), LAYOUT, "f")
    assert f"holds {name!r}, which a build would replace" in said
    assert "move the file away" in said
    assert sorted(stamps_of(tmp_path)) == [name]


ENCODE = "encode is {'encode': 'keep'}"


@pytest.mark.parametrize(
    ("filename", "kind"),
    [(naming.MANIFEST, "a finished dataset"), (naming.PLAN, "an unfinished build")],
)
@pytest.mark.parametrize(("settings", "said"), [
    ({**SETTINGS, "seed": 1}, "seed is 0 there and 1 here"),
    ({"seed": 0}, f"{ENCODE} there and None here"),
    ({**SETTINGS, "new": [1]}, "new is None there and [1] here"),
    ({"seed": 3, "encode": 4}, f"{ENCODE} there and 4 here; seed is 0 there and 3 here"),
])  # fmt: skip
def test_other_settings_are_named_with_both_values_and_the_fixes(
    tmp_path: Path, filename: str, kind: str, settings: dict[str, Any], said: str
) -> None:
    Folder(str(tmp_path)).write_bytes(filename, json_bytes({"settings": SETTINGS}))
    state.check_output(ask(tmp_path))
    message = refusal(state.check_output, ask(tmp_path, settings=settings))
    assert f"holds {kind} with other settings ({said})" in message
    assert "--if-exists overwrite" in message
    assert "another OUTPUT" in message


def test_overwrite_takes_other_settings_and_error_not_even_the_same(tmp_path: Path) -> None:
    finish(tmp_path)
    state.check_output(ask(tmp_path, "overwrite", {"seed": 1}))
    said = refusal(state.check_output, ask(tmp_path, "error"))
    assert "already holds a dataset, and --if-exists error was given" in said


def test_a_damaged_manifest_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / naming.MANIFEST).write_text('{"settings":')
    with pytest.raises(NotADatasetError, match=r"manifest.json is not readable JSON"):
        state.check_output(ask(tmp_path))


def plan_with(fingerprint: str, settings: Mapping[str, Any] = SETTINGS) -> dict[str, Any]:
    counts = {"num_shards": 3, "num_records": 7, "num_bytes": 700}
    splits = {"train": {**counts, "records_per_shard": {"min": 1, "max": 3}}}
    return {"fingerprint": fingerprint, "settings": settings, "splits": splits}


def test_clearing_writes_the_plan_again_after_a_stop(tmp_path: Path) -> None:
    root = tmp_path / "new"
    assert state.clear_output(ask(root), LAYOUT, "f") == HERE
    assert plan_of(root) == plan_with("f")
    assert state.clear_output(ask(root), LAYOUT, "g") == HERE
    assert plan_of(root) == plan_with("g")


def test_a_finished_dataset_of_the_same_input_stays_unchanged(tmp_path: Path) -> None:
    finish(tmp_path)
    before = stamps_of(tmp_path)
    place = state.clear_output(ask(tmp_path), LAYOUT, "f"[::-1])
    assert place == BuildPlace("", is_finished=True)
    assert stamps_of(tmp_path) == before


def test_a_finished_dataset_of_another_input_is_refused(tmp_path: Path) -> None:
    finish(tmp_path)
    said = refusal(state.clear_output, ask(tmp_path), LAYOUT, "g")
    assert f"INPUT has changed since the dataset at {tmp_path} was built" in said
    assert "use --if-exists overwrite to rebuild it" in said
    root = Folder(str(tmp_path))
    provenance = {"provenance": {"input": "/old/photos"}}
    root.write_bytes(
        naming.MANIFEST,
        json_bytes((read_json(root, naming.MANIFEST, dict[str, Any]) or {}) | provenance),
    )
    asked = replace(ask(tmp_path), input="/new/photos")
    said = refusal(state.clear_output, asked, LAYOUT, "g")
    assert "(it was /old/photos, and is /new/photos: the index has the images' addresses)" in said
    asked = replace(ask(tmp_path), input="/old/photos")
    assert "(files added" in refusal(state.clear_output, asked, LAYOUT, "g")
    assert sorted(stamps_of(tmp_path)) == [naming.MANIFEST]


def test_of_two_builds_that_start_together_the_second_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def link_after_another(*args: Any, **options: Any) -> None:
        (tmp_path / naming.PLAN).touch()
        link(*args, **options)

    monkeypatch.setattr(os, "link", link_after_another)
    assert refusal(state.clear_output, ask(tmp_path), LAYOUT, "f") == (
        f"another build has started in OUTPUT {tmp_path}: "
        "wait until it finishes, or use another OUTPUT"
    )
    assert [path.name for path in tmp_path.iterdir()] == [naming.PLAN]


@pytest.mark.parametrize("attempt", range(10))
def test_of_many_builds_that_start_together_one_owns_the_output(
    tmp_path: Path, attempt: int
) -> None:
    root, start = tmp_path / "new", threading.Barrier(6)

    def begin(seed: int) -> str:
        start.wait()
        request = ask(root, settings={"seed": seed})
        try:
            return str(state.clear_output(request, LAYOUT, f"{attempt} {seed}") == HERE)
        except BuildError as error:
            return str(error)

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(begin, range(6)))
    refused = "has started in OUTPUT .*: wait|holds an unfinished build with other settings"
    assert all(re.search(f"^True$|{refused}", result) for result in results)
    owner = plan_of(root)["settings"]["seed"]
    assert results[owner] == "True"
    assert plan_of(root) == plan_with(f"{attempt} {owner}", {"seed": owner})
    state.check_owner(Folder(str(root)), f"{attempt} {owner}")


@pytest.mark.parametrize(
    ("plan", "fingerprint", "fits"),
    [(None, "f", True), ({"fingerprint": "f"}, "f", True), ({"fingerprint": "g"}, "f", False),
     ({}, "f", False), ({}, None, True)],
)  # fmt: skip
def test_a_build_continues_while_the_plan_is_its_own(
    tmp_path: Path, plan: dict[str, Any] | None, fingerprint: str | None, fits: bool
) -> None:
    root = Folder(str(tmp_path))
    if plan is not None:
        root.write_bytes(naming.PLAN, json_bytes(plan))
    if fits:
        state.check_owner(root, fingerprint)
        return
    assert refusal(state.check_owner, root, fingerprint).startswith(
        "another build with a different INPUT or other options "
        f"has started in OUTPUT {tmp_path}: this one stops"
    )


def test_overwrite_removes_an_unfinished_build_and_nothing_else(tmp_path: Path) -> None:
    Folder(str(tmp_path)).write_bytes(naming.PLAN, json_bytes(plan_with("g")))
    sidecar = "index/train-00000-of-00001.parquet"
    ours = (SHARD, sidecar, ".plan.json.0123.tmp", "stats.json", "label.labels.txt")
    odd_shards = ("tiny-train.tfrecord-00003-of-00001", "tiny.tfrecord")
    theirs = ("thesis.tex", "index/thesis.bib", "notes/plan.json", *odd_shards)
    for name in ours + theirs:
        make_file(tmp_path / name)
    assert state.clear_output(ask(tmp_path, "overwrite"), LAYOUT, "f") == HERE
    assert sorted(stamps_of(tmp_path)) == sorted([*theirs, naming.PLAN])


def test_overwrite_builds_beside_a_finished_dataset(tmp_path: Path) -> None:
    finish(tmp_path)
    make_file(tmp_path / SHARD)
    before = stamps_of(tmp_path)
    written = tmp_path / "next" / SHARD
    for fingerprint, stays in (("f", False), ("f", True), ("g", False)):
        place = state.clear_output(ask(tmp_path, "overwrite"), LAYOUT, fingerprint)
        assert place == BuildPlace(naming.NEXT_DIR, is_finished=False)
        assert plan_of(written.parent) == plan_with(fingerprint)
        assert written.exists() is stays
        written.touch()
    assert before.items() <= stamps_of(tmp_path).items()


@pytest.mark.parametrize(
    ("fingerprint", "resumable", "stays"),
    [("f", True, True), ("g", True, False), ("f", False, False)],
)
def test_overwrite_resumes_an_earlier_attempt_at_the_same_build(
    tmp_path: Path, fingerprint: str, resumable: bool, stays: bool
) -> None:
    request = replace(ask(tmp_path, "overwrite"), resumable=resumable)
    state.clear_output(request, LAYOUT, "f")
    (tmp_path / SHARD).touch()
    assert state.clear_output(request, LAYOUT, fingerprint) == HERE
    assert (tmp_path / SHARD).exists() is stays


@pytest.mark.parametrize(("settings", "estimate"), [
    (ENCODED, None),
    ({**SETTINGS, "transforms": [{"function": "f"}]}, None),
    (SETTINGS, None),
    (ENCODED, SizeEstimate.of(np.ones(1), np.ones(1), sample="")),
])  # fmt: skip
def test_shards_that_do_not_fit_on_the_disk_are_refused_before_an_image_is_read(
    tmp_path: Path, settings: Mapping[str, Any], estimate: SizeEstimate | None
) -> None:
    layout = replace(LAYOUT, num_bytes={"train": 1 << 60}, estimate=estimate)
    request = ask(tmp_path / "new", settings=settings)
    if settings != SETTINGS and estimate is None:  # the sizes are not known
        assert state.clear_output(request, layout, "f") == HERE
        return
    said = refusal(state.clear_output, request, layout, "f")
    assert re.search(rf"the shards need .* \({1 << 60:,} bytes\), but .* bytes\) free: free", said)
    assert not (tmp_path / "new").exists()


def test_the_manifest_is_removed_first_and_the_plan_last(tmp_path: Path) -> None:
    finish(tmp_path)
    make_file(tmp_path / naming.PLAN)
    (tmp_path / "features.json").mkdir()  # cannot be removed as a file
    with pytest.raises(StorageError, match=r"cannot remove .*features\.json: Is a directory"):
        remove_outputs(Folder(str(tmp_path)))
    assert not (tmp_path / naming.MANIFEST).exists()
    assert (tmp_path / naming.PLAN).exists()


@given(st.dictionaries(st.text(max_size=3), st.text(max_size=3), min_size=2))
def test_the_fingerprint_is_of_the_set_of_shards(digests: dict[str, str]) -> None:
    pairs = list(digests.items())
    (name, digest), *others = pairs
    assert state.fingerprint_of(pairs) == state.fingerprint_of(pairs[::-1])
    assert state.fingerprint_of(pairs) != state.fingerprint_of(others)
    assert state.fingerprint_of(pairs) != state.fingerprint_of([(name, digest + "x"), *others])
