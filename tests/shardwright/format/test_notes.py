"""Notes of what commands do with versions and generations."""

from __future__ import annotations

from pathlib import Path

from shardwright.format.notes import Note, begin_build, end_build, is_noted, noted
from shardwright.storage.folder import Folder


def test_a_build_begins_where_nothing_is_removed_and_leaves_no_other_note(tmp_path: Path) -> None:
    root = Folder(str(tmp_path))
    with noted(root, Note.REMOVE, ["first"]):
        folder, path = begin_build(root, iter(["first", "second", "third"]))
        assert folder == "second"
        assert root.num_bytes_of(path)
        builds = [each for each in ("first", "second", "third") if is_noted(root, Note.BUILD, each)]
        assert builds == ["second"]
    end_build(root, folder)
    assert root.names("versions") == []
