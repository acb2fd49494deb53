"""Tables of image paths as input, and tables of labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.format.schema import Feature
from transforms.inputs.input_files import has_wildcard
from transforms.inputs.source import InputSource, SourceFormat, SourceRequest
from transforms.inputs.tables.table_layout import TableLayout
from transforms.inputs.tables.table_look import is_table, open_table
from transforms.inputs.tables.table_references import list_table
from transforms.rejects import Reject


@dataclass(frozen=True, slots=True)
class TableSource(InputSource):
    """A table to read.

    Attributes:
        layout: Its files, and the roles of its columns.
    """

    layout: TableLayout

    @classmethod
    def of(cls, layout: TableLayout) -> TableSource:
        return cls(layout.facts, layout)

    def parts(self) -> Iterator[str]:
        yield from self.layout.files or ("",)

    def list_part(self, part: str) -> Iterator[pa.RecordBatch | Reject]:
        return list_table(self.layout, part)

    def for_features(self, features: Sequence[Feature]) -> TableSource:
        return TableSource.of(self.layout.for_features(features))


class TableFormat(SourceFormat):
    """A table: one file, several that a wildcard matches, or a folder of nothing else."""

    name: ClassVar[str] = "table"
    summary: ClassVar[str] = (
        "a .csv, .tsv, .jsonl or .parquet with image paths, a wildcard such as part-*.csv.gz, "
        "or a folder of them"
    )
    rank: ClassVar[int] = 30

    def open(self, request: SourceRequest, *, forced: bool) -> TableSource | None:
        if not forced and not is_table(request):
            return None
        return TableSource.of(open_table(request, needs_image=True))


def open_label_table(request: SourceRequest, *, key: str, root: str | None) -> TableSource:
    """Open a `--labels` table. Without a column of image paths, it is joined by its ids.

    Args:
        request: The request for the table.
        key: One of `LABEL_KEYS`.
        root: The folder of the other input's paths; None for the table's own.

    Raises:
        UsageError: It is not a table, or lacks a column.
        BuildError: It cannot be read.
    """
    if not is_table(request) and not has_wildcard(request.uri) and not request.is_file:
        raise UsageError(
            f"{request.argument} {request.uri} is a folder; "
            "give a .csv, .tsv, .jsonl or .parquet table"
        )
    return TableSource.of(open_table(request, needs_image=False).of_labels(key, root))
