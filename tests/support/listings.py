"""Rows and rejects that a source lists, in the forms that tests compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from shardwright.transforms.inputs.columns import ROLE_COLUMNS
from shardwright.transforms.inputs.detection import detect_source
from shardwright.transforms.inputs.source import InputSource, SourceRequest
from shardwright.transforms.rejects import Reject
from tests.support.helpers import rejects_of, rows_of

NONE: Mapping[str, str | None] = dict.fromkeys(ROLE_COLUMNS)
Rows = list[dict[str, Any]]


def detect(uri: str, columns: Mapping[str, str | None] = NONE, **request: Any) -> InputSource:
    """Return INPUT in its detected format."""
    return detect_source(SourceRequest(uri, columns=columns, **request))


def list_source(source: InputSource) -> Iterator[pa.RecordBatch | Reject]:
    """Yield the references and rejects of all parts."""
    for part in source.parts():
        yield from source.list_part(part)


def listed(source: InputSource) -> tuple[Rows, dict[str, str]]:
    """Return the rows, and the reasons of the rejects by their ids, each of which is unique."""
    parts = list(list_source(source))
    rejects = rejects_of(parts)
    reasons = {reject.id: str(reject.reason) for reject in rejects}
    assert len(reasons) == len(rejects)
    return rows_of(parts), reasons


def columns_of(rows: Sequence[Mapping[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    """Return these columns of each row."""
    return [tuple(row[name] for name in names) for row in rows]
