"""Rows that `shardwright erase` has taken out of the file of a shard.

The manifest of a generation lists them, so that row numbers noted before can be brought up to date:
those of a version, or of a change that is committed later.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardwright.format.contents import FileContent
from shardwright.format.json_files import Count, Crc32c


@dataclass(frozen=True, slots=True)
class ErasedRows:
    """Rows that one run has taken out of a shard.

    Attributes:
        shard: The shard's file name.
        num_bytes: The length that the file had.
        crc32c: The checksum that it had.
        rows: The rows of that file: uint32 in little-endian bytes, ascending.
    """

    shard: str
    num_bytes: Count
    crc32c: Crc32c
    rows: bytes

    def __post_init__(self) -> None:
        if len(self.rows) % 4:
            raise ValueError(f"the erased rows of {self.shard} are cut")

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "rows": b64encode(self.rows).decode()}

    @property
    def before(self) -> FileContent:
        """The content that the file had."""
        return FileContent(self.num_bytes, self.crc32c)

    @property
    def numbers(self) -> NDArray[np.uint32]:
        """The rows, uint32 [rows], ascending."""
        return np.frombuffer(self.rows, "<u4").astype(np.uint32, copy=False)


def rows_since(
    erased: Iterable[ErasedRows], shard: str, before: FileContent, rows: NDArray[np.uint32]
) -> NDArray[np.uint32]:
    """Return the present numbers of rows of a shard, without those that were erased.

    Args:
        erased: What was erased in its generation, the oldest first.
        shard: The shard's file name.
        before: The content of the file whose rows are numbered.
        rows: Row numbers, uint32, ascending.
    """
    began = False
    for each in erased:
        if each.shard == shard and (began or each.before == before):
            began = True
            left = np.setdiff1d(rows, each.numbers, assume_unique=True)
            rows = (left - np.searchsorted(each.numbers, left)).astype(np.uint32)
    return rows
