"""Notes of what commands do with versions and generations."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwright.format.notes import Note, free_generation, noted
from shardwright.storage.folder import Folder


@pytest.mark.parametrize(("may_be_finished", "wanted"), [(True, "ax1"), (False, "ax2")])
def test_a_build_begins_where_nothing_is_removed(
    tmp_path: Path, may_be_finished: bool, wanted: str
) -> None:
    root, start = Folder(str(tmp_path)), "generations/00002-"
    root.write_bytes(f"{start}ax1/manifest.json", b"{}")
    with noted(root, Note.REMOVE, [f"{start}a"]), noted(root, Note.COMMIT, [f"{start}ax2"]):
        found = free_generation(root, 2, "a", may_be_finished=may_be_finished)
    assert found == start + wanted
    assert root.names("versions") == []
