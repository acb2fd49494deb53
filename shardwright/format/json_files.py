"""Open the JSON files of a dataset, each by a type that states what it must hold.

A stranger may have edited any of them, so their size and depth are bounded. The type, which
`msgspec` compares, is the only other check: what is opened has it, or the error names the file, the
place, mostly the value, and what was expected.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields
from threading import Lock
from typing import Annotated, Any, TypeVar

import numpy as np
from msgspec import Meta, ValidationError, convert
from msgspec.json import Decoder

from shardwright.errors import MissingError, NotADatasetError, ShardwrightError
from shardwright.storage.folder import Folder

# Parsers of several libraries recurse, so that deep JSON overflows their stack.
MAX_DEPTH = 100
MAX_BYTES = 256 << 20  # more than `MAX_SHARDS` in a manifest take
_BYTES_PER_VALUE = 16  # fewer than in any file that builds write; a parsed value takes about 100

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = np.zeros(256, np.int64)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1


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
    depths = np.cumsum(_STEPS[np.frombuffer(brackets, np.uint8)])
    # Surplus closing brackets, which are invalid, must not hide others.
    surplus = np.minimum(np.minimum.accumulate(depths), 0)
    if (depths - surplus).max(initial=0) > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")


T = TypeVar("T")

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]  # counts are added as int64
Crc32c = Annotated[int, Meta(ge=0, le=2**32 - 1)]
# Neither NaN nor infinite, which Python reads in JSON.
Number = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]

# msgspec notes what a type is when it first meets it, and another thread that then reads half of
# the note ends the process (0.22.0): so one thread at a time meets a new type.
_met: set[Any] = set()
_meeting = Lock()
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


def read_json(
    root: Folder, filename: str, kind: type[T], *, fix: str = "rebuild the dataset"
) -> T | None:
    """Return the content of a JSON file of a dataset, None if the file is missing.

    Args:
        root: The dataset's folder.
        filename: The file.
        kind: The type of its content. Fields that it does not have are left out.
        fix: The end of the message if the file is damaged.

    Raises:
        NotADatasetError: The file is not JSON, or not of this type.
        StorageError: The file cannot be read.
    """
    try:
        data = root.read_bytes(filename, max_bytes=MAX_BYTES)
    except MissingError:
        return None
    return parse_json(data, kind, root.path(filename), fix)


def parse_json(
    data: bytes,
    kind: type[T],
    path: str,
    fix: str,
    *,
    error: type[ShardwrightError] = NotADatasetError,
) -> T:
    """Return the content of a JSON file that was read from `path`; raise `error` if it is damaged.

    Other arguments as of `read_json`.
    """
    try:
        content = load_json(data)
    except ValueError as fault:
        raise error(f"{path} is not readable JSON ({fault}): {fix}") from fault
    try:
        return typed(content, kind)
    except ValueError as fault:
        raise error(f"{path} is damaged ({fault}): {fix}") from fault


def typed(content: Any, kind: type[T]) -> T:
    """Return JSON as a value of a type; raise `ValueError` if it is not of that type."""
    if kind not in _met:
        with _meeting:
            Decoder(kind)
            _met.add(kind)
    try:
        return convert(content, kind)
    except ValidationError as error:
        raise ValueError(_told(content, str(error))) from error


def check_fields(records: Iterable[Mapping[str, Any]], kind: Any) -> None:
    """Raise `ValueError` for a field that a dataclass lacks and that may change what others say."""
    known = {each.name for each in fields(kind)}
    for record in records:
        if not record.keys() <= known:
            raise ValueError(f"{min(record.keys() - known)!r:.80} is a field of a later release")


def _told(content: Any, text: str) -> str:
    """Return an error of `convert` with the value, which it leaves out, if its place is known."""
    what, _, place = text.replace("`", "").partition(" - at ")
    value, steps = content, _STEP.findall(place)
    for name, number in steps if "[...]" not in place and not place.startswith("key ") else ():
        value = value[name or int(number)]
    shown = "" if isinstance(value, dict | list) else f" is {value!r:.80}"
    return f"{place or '$'}{shown}: {what[:1].lower()}{what[1:]}"
