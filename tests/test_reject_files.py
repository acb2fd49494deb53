"""reject_files: rows written, read back, and some of them to show."""

from __future__ import annotations

from pathlib import Path

from shardwright import naming
from shardwright.storage import Folder
from transforms.reject_files import first_faults, read_rejects, write_rejects
from transforms.rejects import Reject, RejectReason

FAULTS = [
    Reject(f"{number}.jpg", f"/in/{number}.jpg", RejectReason.TRUNCATED, "the file ends early")
    for number in range(4)
]
OTHER = Reject("notes.txt", "/in/notes.txt", RejectReason.OTHER_FILE, "no image")


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    write_rejects(Folder(str(tmp_path)), naming.PLAN_REJECTS, [*FAULTS, OTHER])
    assert read_rejects(Folder(str(tmp_path)), naming.PLAN_REJECTS) == [*FAULTS, OTHER]


def test_no_rejects_are_no_file(tmp_path: Path) -> None:
    write_rejects(Folder(str(tmp_path)), naming.PLAN_REJECTS, FAULTS)
    write_rejects(Folder(str(tmp_path)), naming.PLAN_REJECTS, [])
    assert not (tmp_path / naming.PLAN_REJECTS).exists()
    assert read_rejects(Folder(str(tmp_path)), naming.PLAN_REJECTS) == []


def test_faults_of_all_files_are_shown_and_other_files_are_not(tmp_path: Path) -> None:
    assert first_faults(Folder(str(tmp_path)), 5) == []
    write_rejects(Folder(str(tmp_path)), naming.PLAN_REJECTS, [OTHER, FAULTS[0]])
    write_rejects(
        Folder(str(tmp_path)), f"{naming.REJECTS_DIR}/train-00000-of-00001.parquet", FAULTS[1:]
    )
    assert first_faults(Folder(str(tmp_path)), 9) == FAULTS
    assert first_faults(Folder(str(tmp_path)), 2) == FAULTS[:2]
