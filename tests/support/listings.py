"""Rows and rejects that a source lists, in the forms that tests compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.helpers import rejects_of, rows_of
from transforms.inputs.detection import list_source
from transforms.inputs.source import InputSource

Rows = list[dict[str, Any]]


def listed(source: InputSource) -> tuple[Rows, dict[str, str]]:
    """Return the rows, and the reasons of the rejects by their ids, each of which is unique."""
    parts = list(list_source(source))
    rejects = rejects_of(parts)
    reasons = {reject.id: str(reject.reason) for reject in rejects}
    assert len(reasons) == len(rejects)
    return rows_of(parts), reasons


def details_of(source: InputSource) -> dict[str, tuple[str, str]]:
    """Return (reason, detail) of the rejects by their ids."""
    rejects = rejects_of(list_source(source))
    return {reject.id: (str(reject.reason), reject.detail) for reject in rejects}


def columns_of(rows: Sequence[Mapping[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    """Return these columns of each row."""
    return [tuple(row[name] for name in names) for row in rows]
