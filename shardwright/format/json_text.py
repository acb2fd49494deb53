"""Parse JSON that others wrote: bounded in size and depth, with `ValueError` for every fault."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

# Parsers of several libraries recurse, so that deep JSON overflows their stack.
MAX_DEPTH = 100
# About 600,000 shards in a manifest, which take 2 GB of memory to parse.
MAX_BYTES = 256 << 20

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = np.zeros(256, np.int32)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1


def load_json(data: bytes) -> Any:
    """Return a JSON value.

    Raises:
        ValueError: It is not JSON, longer than `MAX_BYTES`, or nested deeper than `MAX_DEPTH`.
    """
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has {len(data):,} bytes, more than the {MAX_BYTES:,} allowed")
    check_depth(data)
    try:
        return json.loads(data)
    except RecursionError as error:  # text in UTF-16 or UTF-32
        raise ValueError(_too_deep()) from error


def check_depth(data: bytes) -> None:
    """Raise `ValueError` if JSON in an encoding that contains ASCII is nested too deeply."""
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return
    brackets = _STRING.sub(b"", data).translate(None, _NO_BRACKETS)
    depths = np.cumsum(_STEPS[np.frombuffer(brackets, np.uint8)], dtype=np.int64)
    if depths.max(initial=0) > MAX_DEPTH:
        raise ValueError(_too_deep())


def _too_deep() -> str:
    return f"it is nested more than {MAX_DEPTH} levels deep"
