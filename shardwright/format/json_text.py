"""Parse JSON that others wrote: bounded in size and depth, with `ValueError` for every fault."""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any

# Parsers of several libraries recurse, so that deep JSON overflows their stack.
MAX_DEPTH = 100
MAX_BYTES = 256 << 20  # more than `MAX_SHARDS` in a manifest take
_BYTES_PER_VALUE = 16  # fewer than in any file that builds write; a parsed value takes about 100

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = dict.fromkeys(b"[{", 1) | dict.fromkeys(b"]}", -1)


def load_json(data: bytes, *, max_bytes: int = MAX_BYTES) -> Any:
    """Return a JSON value.

    Raises:
        ValueError: It is not JSON, longer than `max_bytes`, takes too much memory when it is
            parsed, or is nested deeper than `MAX_DEPTH`.
    """
    if len(data) > max_bytes:
        raise ValueError(f"it has {len(data):,} bytes, more than the {max_bytes:,} allowed")
    max_values = max_bytes // _BYTES_PER_VALUE
    if sum(map(data.count, (b",", b"[", b"{"))) > max_values:
        raise ValueError(f"it has more values than the {max_values:,} allowed")
    encoding = json.detect_encoding(data)
    if not encoding.startswith("utf-8"):
        data = data.decode(encoding, "surrogatepass").encode("utf-8", "surrogatepass")
    check_depth(data)
    return json.loads(data, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):  # which of the values counts depends on the parser
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r:.80} comes twice")
    return found


def check_depth(data: bytes) -> None:
    """Raise `ValueError` if JSON in UTF-8 is nested more than `MAX_DEPTH` levels deep."""
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return
    brackets = _STRING.sub(b"", data).translate(None, _NO_BRACKETS)
    steps = map(_STEPS.__getitem__, brackets)
    # Surplus closing brackets, which are invalid, must not hide others.
    if max(accumulate(steps, lambda depth, step: max(depth + step, 0)), default=0) > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
