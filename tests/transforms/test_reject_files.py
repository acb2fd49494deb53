"""reject_files: rows written and read back, and the first faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwright.format import naming
from shardwright.storage.folder import Folder
from shardwright.transforms.reject_files import first_faults, read_rejects, write_rejects
from shardwright.transforms.rejects import Reject, RejectReason

FAULTS = [
    Reject(f"{number}.jpg", f"/in/{number}.jpg", RejectReason.TRUNCATED, "the file ends early")
    for number in range(4)
]
OTHER = Reject("notes.txt", "/in/notes.txt", RejectReason.OTHER_FILE, "no image")


@pytest.fixture
def root(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path))


def test_rows_come_back_and_no_rows_remove_the_file(root: Folder, tmp_path: Path) -> None:
    write_rejects(root, naming.PLAN_REJECTS, [*FAULTS, OTHER])
    assert read_rejects(root, naming.PLAN_REJECTS) == [*FAULTS, OTHER]
    write_rejects(root, naming.PLAN_REJECTS, [])
    assert not (tmp_path / naming.PLAN_REJECTS).exists()
    assert read_rejects(root, naming.PLAN_REJECTS) == []


def test_the_first_faults_of_all_files_leave_other_files_out(root: Folder) -> None:
    assert first_faults(root, 5) == []
    write_rejects(root, naming.PLAN_REJECTS, [OTHER, FAULTS[0]])
    write_rejects(root, f"{naming.REJECTS_DIR}/train-00000-of-00001.parquet", FAULTS[1:])
    assert first_faults(root, 9) == FAULTS
    assert first_faults(root, 2) == FAULTS[:2]
