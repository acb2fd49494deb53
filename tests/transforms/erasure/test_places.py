"""Contents of files, as a search for erased records reads them."""

from __future__ import annotations

from pathlib import Path

from shardwright.storage.folder import Folder
from shardwright.transforms.erasure.places import _BLOCK_BYTES, parts_of


def test_a_file_larger_than_a_block(tmp_path: Path) -> None:
    """A word across two blocks, or at the end of the file, is whole in one part."""
    content = bytes(_BLOCK_BYTES - 3) + b"across" + bytes(_BLOCK_BYTES) + b"end"
    (tmp_path / "other.bin").write_bytes(content)
    parts = [part for part, _ in parts_of(Folder(str(tmp_path)), "other.bin", overlap=8)]
    assert [sum(word in part for part in parts) for word in (b"across", b"end\n")] == [1, 1]
    assert parts[0].startswith(b"\n")
