"""Images that end or stop the process that decodes them."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from shardwright.format.naming import ShardName
from shardwright.schemas.ready import image_classification
from shardwright.storage.folder import Folder
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.plan.packing import ShardPlan
from shardwright.transforms.references import set_column
from shardwright.transforms.rejects import RejectReason
from shardwright.transforms.user_code import UserTransform
from shardwright.transforms.write import watchdog
from shardwright.transforms.write.shard_chunks import has_died, noted_attempt
from shardwright.transforms.write.shard_writing import write_shard
from shardwright.transforms.write.stored_records import StoredRecords
from shardwright.transforms.write.transformed_records import TransformedRecords
from shardwright.transforms.write.watchdog import EXIT_STUCK
from shardwright.transforms.write.write_job import WriteJob
from tests.support import user_transforms
from tests.support.build_helpers import files_below, png_of
from tests.support.helpers import file_references

NAME = ShardName("tiny", "train", 0, 1)
NUM_IMAGES = 9


def make_job(root: Path, *functions: Callable[..., object], seconds: float = 250) -> WriteJob:
    names = [f"{function.__module__}:{function.__qualname__}" for function in functions]
    return WriteJob(
        Folder(str(root)),
        image_classification().with_class_names(("a",)),
        TransformedRecords("decode", EncodeOptions(), tuple(map(UserTransform.find, names))),
        image_seconds=seconds,
    )


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> ShardPlan:
    folder = tmp_path_factory.mktemp("images")
    paths = [folder / f"{number:03d}.png" for number in range(NUM_IMAGES)]
    for number, path in enumerate(paths):
        path.write_bytes(png_of(number))
    ids = [path.name for path in paths]
    references = file_references(paths, ids, labelled=True)
    labels = pa.array(["a"] * NUM_IMAGES)
    return ShardPlan.make(NAME, set_column(references, "label", labels), b"s")


def attempt_at(plan: ShardPlan, job: WriteJob) -> tuple[Folder, str, str]:
    return job.root, plan.name.attempt, plan.digest


def note_a_death(job: WriteJob, plan: ShardPlan) -> None:
    job.root.write_bytes(plan.name.attempt, plan.digest.encode())


def contents_of(root: Path) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in files_below(root).items()}


def without(plan: ShardPlan, *numbers: int) -> ShardPlan:
    kept = [number for number in range(NUM_IMAGES) if number not in numbers]
    return replace(plan, references=plan.references.take(kept))


def test_after_a_death_images_alone_make_the_same_bytes(plan: ShardPlan, tmp_path: Path) -> None:
    usual, alone = make_job(tmp_path / "usual"), make_job(tmp_path / "alone")
    note_a_death(alone, plan)
    summary, rejects = write_shard(plan, alone)
    assert (write_shard(plan, usual)[0], rejects) == (summary, [])
    assert contents_of(tmp_path / "alone") == contents_of(tmp_path / "usual")


@pytest.mark.long
def test_images_that_crash_alone_are_rejected(plan: ShardPlan, tmp_path: Path) -> None:
    # Enough for the first image, with which a busy machine imports what decodes.
    job = make_job(tmp_path / "out", user_transforms.die, seconds=6)
    note_a_death(job, plan)
    summary, rejects = write_shard(plan, job)
    said = {
        3: "ends its process: SIGSEGV",
        5: "ends its process: exit code 3",
        7: "takes more than 6 seconds (SIGALRM)",
    }
    assert [(reject.id, reject.reason) for reject in rejects] == [
        (f"{number:03d}.png", RejectReason.CRASHED) for number in said
    ]
    for reject, end in zip(rejects, said.values(), strict=True):
        assert reject.detail.endswith(end)
    assert summary.rejects == {"crashed": 3}
    write_shard(without(plan, *said), make_job(tmp_path / "good"))
    assert (tmp_path / "out" / NAME.shard).read_bytes() == (
        tmp_path / "good" / NAME.shard
    ).read_bytes()


def write_both(plan: ShardPlan, good: WriteJob, job: WriteJob) -> None:
    write_shard(plan, good)
    while watchdog._watchdog(os.getpid())._armed:  # for the seconds of the first
        time.sleep(0.05)
    write_shard(plan, job)


@pytest.mark.long
def test_a_stuck_process_ends_itself_and_leaves_its_note(
    plan: ShardPlan, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also one whose native code holds the GIL."""
    started = []
    for function in (user_transforms.sleep, user_transforms.hang):
        # The first shard imports what decodes: a busy machine may need more than the seconds.
        good = make_job(tmp_path / f"good {function.__name__}")
        job = make_job(tmp_path / function.__name__, function, seconds=4)
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=write_both, args=(plan, good, job))
        process.start()
        started.append((process, job))
    for process, _ in started:
        process.join(250)
    assert [process.exitcode for process, _ in started] == [EXIT_STUCK, 1]
    said = capfd.readouterr().err
    assert "003.png" in said
    assert "in hang" in said
    for _, job in started:
        assert has_died(*attempt_at(plan, job))


def test_only_a_death_leaves_a_note(plan: ShardPlan, tmp_path: Path) -> None:
    attempt = attempt_at(plan, make_job(tmp_path))
    with pytest.raises(KeyboardInterrupt), noted_attempt(*attempt):  # noqa: PT012
        assert has_died(*attempt)
        assert not has_died(*attempt[:2], "another")
        raise KeyboardInterrupt
    assert not has_died(*attempt)
    assert files_below(tmp_path) == {}


def test_nothing_is_noted_where_nothing_is_decoded(plan: ShardPlan, tmp_path: Path) -> None:
    for check, is_noted in (("decode", True), ("none", False)):
        job = replace(make_job(tmp_path), maker=StoredRecords(check, EncodeOptions()))
        note_a_death(job, plan)
        write_shard(plan, job)
        assert has_died(*attempt_at(plan, job)) is not is_noted
    assert StoredRecords("none", EncodeOptions("png")).may_crash
