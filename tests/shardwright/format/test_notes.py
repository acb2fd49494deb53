"""Notes of what commands do with versions and generations."""

from __future__ import annotations

from pathlib import Path

from shardwright.format.notes import Note, first_free, noted
from shardwright.storage.folder import Folder


def test_a_build_begins_where_nothing_is_removed(tmp_path: Path) -> None:
    root = Folder(str(tmp_path))
    with noted(root, Note.REMOVE, ["first"]), noted(root, Note.COMMIT, ["second"]):
        assert first_free(root, iter(["first", "second", "third"])) == "second"
    assert root.names("versions") == []
