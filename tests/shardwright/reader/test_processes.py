"""`sw.Reader(processes=N)`: the batches of threads, and nothing left however the processes end."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import shardwright as sw
from shardwright.errors import ChangedError, LostProcessError, UsageError
from shardwright.reader import processes
from tests.support.bad_records import copy_with_bad_record
from tests.support.build_helpers import wait_for as wait_until
from tests.support.readers import check_equal, take
from tests.support.trainer_datasets import pictures_fixture, read  # noqa: F401

TRAIN: dict[str, Any] = {"shuffle": True, "image": sw.TrainImage(8), "processes": 2}
ONE: dict[str, Any] = {"processes": 1, "epochs": 1}
CASES: list[dict[str, Any]] = [
    # Two hosts, padding, a damaged record, and more batches kept than there are slots.
    {**TRAIN, "epochs": 2, "remainder": "pad", "max_bad_records": 1, "host_count": 2},
    {
        **ONE,
        "features": {"tags": None, "boxes": sw.Dense(3), "caption": None, "id": None},
        "image": None,
        "where": pc.field("label") > 0,
    },
    {
        **ONE,
        "features": ["image", "ratio", "boxes"],
        "image": sw.DecodedImage(),
        "remainder": "carry",
        "sampling": sw.ClassBalanced(),
    },
    {**ONE, "image": sw.EvalImage(9, dtype="bfloat16"), "split": "train[5:40]"},
]


class TwoPartError(Exception):
    """An error that pickles, and cannot be made again of its message."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


class RaisingImage(sw.EvalImage):
    def apply(self, *_: Any) -> Any:
        raise TwoPartError("one", "two")


@pytest.mark.long
def test_an_error_that_cannot_be_sent_is_told(pictures: str) -> None:
    with (
        read(pictures, **{**ONE, "image": RaisingImage(8)}) as reader,
        pytest.raises(RuntimeError, match=r"^TwoPartError: one and two") as caught,
    ):
        next(iter(reader))
    assert "in apply" in caught.value.__notes__[0]


def children() -> set[Any]:
    return set(multiprocessing.active_children())


@pytest.mark.long_but_first
@pytest.mark.parametrize("options", CASES, ids=lambda options: type(options["image"]).__name__)
def test_batches_are_those_of_threads(
    pictures: str, tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if "max_bad_records" in options:
        monkeypatch.setattr(processes, "_SLOTS_PER_PROCESS", 2)
        pictures, _ = copy_with_bad_record(pictures, tmp_path)
    before, threads = children(), read(pictures, **{**options, "processes": None})
    with read(pictures, **options) as reader:
        assert reader.element_spec == threads.element_spec
        found = list(reader)
        assert len(children() - before) == options["processes"]
        check_equal(found, list(threads))  # only now: batches that are kept stay as they are
        assert reader.bad_records == threads.bad_records
        reader.go_to(0)
        threads.go_to(0)
        for count in (2, 1):
            check_equal(take(reader, count), take(threads, count))
            assert reader.state() == threads.state() == reader.state_after(count)
        check_equal([reader.batch_at(8)], [threads.batch_at(8)])
    assert children() <= before


@pytest.mark.long
def test_a_lost_process_is_an_error_and_the_next_batch_starts_others(pictures: str) -> None:
    before, reader = children(), read(pictures, **{**TRAIN, "processes": 1})
    fingerprint, reader.engine.fingerprint = reader.engine.fingerprint, "of other records"
    for _ in range(2):  # the process that finds it goes on
        with pytest.raises(ChangedError, match="has changed since the reader was opened"):
            next(iter(reader))
    (process,) = children() - before
    process.kill()
    with pytest.raises(LostProcessError, match=r"was killed by SIGKILL: .* fewer processes"):
        next(iter(reader))
    reader.engine.fingerprint = fingerprint
    reader.go_to(0)
    expected = read(pictures, **{**TRAIN, "processes": None})
    check_equal(take(reader, 2), take(expected, 2))
    del reader
    gc.collect()
    wait_until(lambda: children() <= before)


def test_what_cannot_be_sent_or_started(pictures: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class LocalImage(sw.EvalImage):
        """A class that no other process can import."""

    with pytest.raises(UsageError, match="processes=0 must be a whole number, at least 1"):
        read(pictures, processes=0)
    with pytest.raises(UsageError, match=r"processes=2: .* cannot be sent .* without lambda"):
        next(iter(read(pictures, processes=2, image=LocalImage(8))))
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore
    with pytest.raises(UsageError, match=r"in a worker of DataLoader .*, leave processes= out"):
        next(iter(read(pictures, processes=2)))


SCRIPT = """
import sys, multiprocessing, signal, time
import shardwright as sw

def main():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background
    reader = sw.Reader(sys.argv[1], batch_size=8, image=sw.TrainImage(8), processes=2)
    for number, batch in enumerate(reader):
        if number < 3:
            continue  # once both processes have made a batch, both have ended their imports
        print(*(child.pid for child in multiprocessing.active_children()), flush=True)
        for _ in range(2500 * (sys.argv[2] == "sleep")):
            time.sleep(0.1)  # a signal just before a sleep does not end it
        if sys.argv[2] == "raise":
            raise OSError("of the loop")
"""
GUARD = "if __name__ == '__main__':\n    main()\n"


@pytest.mark.long
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT, None], ids=str)
def test_a_script_that_ends_leaves_nothing(
    pictures: str, tmp_path: Path, end: signal.Signals | None
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + GUARD)
    words = [sys.executable, str(script), pictures, "raise" if end is None else "sleep"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        ids = [int(word) for word in process.stdout.readline().split()]
        if end is not None:  # not of one that may have ended
            maps = [Path(f"/proc/{number}/maps").read_text() for number in (process.pid, *ids)]
            assert "/dev/shm/" not in "".join(maps), "which a killed process would leave"
        if end == signal.SIGINT:
            os.killpg(process.pid, end)  # as a terminal does
        elif end is not None:
            process.kill()
        _, errors = process.communicate(timeout=250)
    assert len(ids) == 2
    wait_until(lambda: not any(Path(f"/proc/{number}").exists() for number in ids))
    told = {signal.SIGINT: "KeyboardInterrupt\n", None: "OSError: of the loop\n"}
    assert errors.count("Traceback") == (end in told)
    assert errors.endswith(told.get(end, ""))


@pytest.mark.long
def test_a_script_without_a_guard(pictures: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"{SCRIPT}\nmain()\n")
    words = [sys.executable, str(script), pictures, "raise"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=250, check=False)
    fix = "put what the script runs under `if __name__ == '__main__':`"
    assert done.returncode == 1
    assert f"UsageError: processes=2: this process cannot start others: {fix}" in done.stderr
    assert "LostProcessError: process " in done.stderr
    assert done.stderr.count(fix) >= 2, "of the reader, and of a process: the other may be ended"
