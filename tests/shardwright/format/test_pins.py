"""Pins of versions: their names, days and files, and the notes of a collection at the same time."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.errors import ShardwrightError, StorageError, UsageError
from shardwright.format.notes import Note, is_noted, noted, remove_dead_notes, time_at
from shardwright.format.pins import Pin, add_pin, read_pins, remove_pin
from shardwright.inspect.cli import main
from shardwright.storage.folder import Folder
from tests.support.judge import judge
from tests.transforms.versions.histories import append, write

# The tests may go on after midnight, and a pin's last day may not be over.
TOMORROW = datetime.now(UTC).date() + timedelta(days=1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of two versions."""
    root = tmp_path_factory.mktemp("made") / "out"
    write({f"r{number}": number for number in range(3)}, root)
    append(root, {"r1": 9})
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Folder:
    """Return a copy of that dataset."""
    return Folder(str(shutil.copytree(made, tmp_path / "out")))


def told(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> Any:
    assert main([*map(str, words), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_the_command(root: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    made = told(capsys, "pin", root, "resnet-7", "--version", 1, "--until", TOMORROW)
    assert (made["name"], made["version"], made["until"]) == ("resnet-7", 1, str(TOMORROW))
    told(capsys, "pin", root, "another_1")
    assert [one["version"] for one in told(capsys, "pin", root)["pins"]] == [2, 1]
    versions = told(capsys, "log", root)["versions"]
    assert [one["pins"] for one in versions] == [["another_1"], ["resnet-7"]]
    assert not judge(root.uri).faults
    assert main(["log", root.uri]) == main(["pin", root.uri]) == 0
    shown = capsys.readouterr().out
    assert "bytes  pins\n" in shown
    assert f"{made['created']}  {TOMORROW}\n" in shown
    assert told(capsys, "pin", root, "resnet-7", "--remove") == {"removed": "resnet-7"}
    assert [pin.name for pin in read_pins(root)] == ["another_1"]


def test_in_python(root: Folder) -> None:
    made = sw.pin(Path(root.uri), "mine", version=1, until=str(TOMORROW))
    assert [made] == read_pins(root)
    sw.unpin(Path(root.uri), "mine")
    assert read_pins(root) == []


def test_a_pin_is_renewed(root: Folder) -> None:
    add_pin(root, "one", 1, until=str(TOMORROW))
    assert add_pin(root, "one", 1).until is None
    with pytest.raises(UsageError, match=r"pin 'one' of .* keeps version 1: pin version 2 under"):
        add_pin(root, "one", 2)
    over = Pin("one", 1, "2026-01-01T00:00:00+00:00", TOMORROW - timedelta(days=9))
    root.write_bytes("versions/pins/one.json", over.to_bytes())
    assert add_pin(root, "one").version == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a b"], "the name of a pin must have 1 to 100 letters, digits, - or _, got 'a b'"),
        (["../x"], "the name of a pin must have"),
        (["x" * 101], "the name of a pin must have"),
        (["x", "--until", "soon"], "until must be a day such as 2026-12-31, got 'soon'"),
        (["x", "--until", "2020-01-01"], "until must be today or later, in UTC, got 2020-01-01"),
        (["x", "--version", "3"], "has no version 3, but versions 1 to 2"),
        (["x", "--remove"], "has no pin 'x': its pins are none"),
    ],
)
def test_wrong_use(
    root: Folder, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pin", root.uri, *words]) == 2
    assert message in capsys.readouterr().err
    assert read_pins(root) == []


@pytest.mark.parametrize("words", [["--until", "2030-01-01"], ["--remove"], ["--version", "1"]])
def test_changes_need_a_name(root: Folder, words: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["pin", root.uri, *words])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'"text"',
        b"{}",
        b'{"version": 0, "created": "", "until": null}',
        b'{"version": true, "created": "", "until": null}',
        b'{"version": 1, "created": null, "until": null}',
        b'{"version": 1, "created": "", "until": "soon"}',
        b'{"version": 1, "created": "", "until": 3}',
        b'{"version": 1, "created": "' + b"x" * 5000 + b'", "until": null}',
    ],
)
def test_a_damaged_pin_is_an_error(root: Folder, content: bytes) -> None:
    root.write_bytes("versions/pins/mine.json", content)
    with pytest.raises(StorageError, match=r"versions/pins/mine\.json"):
        read_pins(root)
    assert main(["log", root.uri]) == 1
    remove_pin(root, "mine")
    assert read_pins(root) == []


def test_a_pin_with_a_wrong_name_is_an_error(root: Folder) -> None:
    root.write_bytes("versions/pins/a b.json", Pin("a", 1, "").to_bytes())
    with pytest.raises(StorageError, match=r"in its name only: remove the file, and pin"):
        read_pins(root)


@pytest.mark.parametrize(("day", "holds"), [(None, True), (0, True), (-1, False), (1, True)])
def test_a_pin_holds_until_its_day_has_ended(day: int | None, holds: bool) -> None:
    pin = Pin("one", 1, "", None if day is None else TOMORROW + timedelta(days=day))
    assert (
        pin.holds(datetime(TOMORROW.year, TOMORROW.month, TOMORROW.day, 23, 59, tzinfo=UTC))
        == holds
    )


@pytest.mark.parametrize("renewed", [False, True])
def test_a_version_that_is_being_removed_is_not_pinned(root: Folder, renewed: bool) -> None:
    if renewed:
        add_pin(root, "one", 1, until=str(TOMORROW))
    before = read_pins(root)
    with (
        noted(root, Note.REMOVE, [1]),
        pytest.raises(UsageError, match=r"version 1 of .* is removing it"),
    ):
        add_pin(root, "one", 1)
    assert read_pins(root) == before
    assert add_pin(root, "one", 1).until is None


def test_a_version_that_goes_before_its_pin_is_seen_is_not_pinned(
    root: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Folder.create_bytes
    assert main(["compact", root.uri]) == 0

    def create_after_gc(folder: Folder, name: str, data: bytes) -> None:
        monkeypatch.setattr(Folder, "create_bytes", create)
        assert main(["gc", root.uri, "--keep", "1", "--yes"]) == 0
        create(folder, name, data)

    monkeypatch.setattr(Folder, "create_bytes", create_after_gc)
    with pytest.raises(UsageError, match=r"version 2 of .* is not pinned"):
        add_pin(root, "one", 2)
    assert read_pins(root) == []


@pytest.mark.parametrize(("note", "hours"), [(Note.COMMIT, 1), (Note.REMOVE, 24)])
def test_a_note_of_a_killed_process_ends(root: Folder, note: Note, hours: float) -> None:
    with noted(root, note, ["generations/00002-x", 3]):
        assert is_noted(root, note, "generations/00002-x")
        assert is_noted(root, note, None)
        assert not any(is_noted(root, other, None) for other in Note if other != note)
        for path in Path(root.uri, "versions").glob(".*"):
            os.utime(path, (0, path.stat().st_mtime - (hours + 0.1) * 3600))
        now = time_at(root)
        assert not is_noted(root, note, 3, now=now)
        with noted(root, note, [4]):  # by the same clock
            assert not is_noted(root, note, 3)
            remove_dead_notes(root)
            assert len(list(Path(root.uri, "versions").glob(".*"))) == (1 if hours > 23 else 3)
    assert list(Path(root.uri, "versions").glob(".*")) == []


def test_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(ShardwrightError, match="is not a shardwright dataset"):
        add_pin(Folder(str(tmp_path)), "one")
    assert main(["pin", str(tmp_path)]) == 2
    assert list(tmp_path.iterdir()) == []
