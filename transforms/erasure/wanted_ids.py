"""Ids to look for: those of a user's list, or their salted hashes in a receipt."""

from __future__ import annotations

import ast
import hashlib
import re
import secrets
from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shardwright.errors import UsageError
from shardwright.format.json_files import load_json
from shardwright.transforms.rejects import Reject

_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_FIELDS = re.compile(r"[,;|\t]")
_AROUND = " '\"[](){}<>:;,."


class WantedIds:
    """Ids that a column or a text may hold.

    Args:
        ids: The ids.
    """

    def __init__(self, ids: Collection[str]) -> None:
        self._ids = frozenset(ids)
        self._column = pa.array(sorted(ids), pa.string())

    def __contains__(self, name: str) -> bool:
        return name in self._ids

    def among(self, column: pa.ChunkedArray) -> NDArray[np.bool_]:
        """Return which rows of a column are one of the ids, bool [rows]."""
        found: NDArray[np.bool_] = pc.is_in(column, value_set=self._column).to_numpy()
        return found

    def match(self, name: str, uri: str) -> tuple[str, ...]:
        """Return the ids for which a record of a build with `--transform` goes.

        Args:
            name: The record's id.
            uri: Where its image, or its row, was read.
        """
        return tuple(each for each in {name, *_input_ids(name, uri)} if each in self)


class HashedIds(WantedIds):
    """Ids of which only the hashes are known.

    Args:
        salt: As of `hash_of`.
        hashes: The hashes.
    """

    def __init__(self, salt: str, hashes: Collection[str]) -> None:
        super().__init__(())
        self._salt, self._hashes = salt, frozenset(hashes)

    def __contains__(self, name: str) -> bool:
        # A hash for each name of a dataset: some seconds for a million, and the receipt needs no
        # ids.
        return hash_of(self._salt, name) in self._hashes

    def among(self, column: pa.ChunkedArray) -> NDArray[np.bool_]:
        return np.fromiter((name in self for name in column.to_pylist()), np.bool_, len(column))


def new_salt() -> str:
    """Return a random salt, hexadecimal."""
    return secrets.token_hex(16)


def hash_of(salt: str, name: str) -> str:
    """Return the SHA-256 of a salt and an id, hexadecimal."""
    return hashlib.sha256(f"{salt}{name}".encode("utf-8", "surrogatepass")).hexdigest()


def parse_ids(data: bytes, path: str) -> frozenset[str]:
    """Return the ids in a file: a JSON list if its name ends in `.json`, else one on each line.

    Empty lines do not count.

    Raises:
        UsageError: There is none, or the file is not UTF-8, or not such a list.
    """
    found = _listed(data, path) if path.endswith(".json") else _on_lines(data, path)
    if not found:
        raise UsageError(f"--ids {path} has no ids: write one on each line, or a list into a .json")
    return found


def _on_lines(data: bytes, path: str) -> frozenset[str]:
    try:
        # Not `splitlines`, which also splits at characters that an id may have.
        lines = data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"--ids {path} is not UTF-8 text: {error}") from error
    return frozenset(line.removesuffix("\r") for line in lines) - {""}


def _listed(data: bytes, path: str) -> frozenset[str]:
    try:
        found = load_json(data)
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise ValueError("it holds something else")
        for each in found:
            # Half of a surrogate pair is JSON, but no id that could be stored.
            each.encode()
    except ValueError as error:
        raise UsageError(
            f'--ids {path} must be a JSON list of ids, such as ["a.png", "b.png"]: {error}'
        ) from error
    return frozenset(found) - {""}


def _input_ids(name: str, uri: str) -> Iterator[str]:
    """Yield the ids of INPUT of which `--transform` may have made a record.

    Its id begins with that of INPUT (`shardwright.transforms.user_code`). That one ends before a
    `#`, or with the name of the file.
    """
    yield from (name[: match.start()] for match in re.finditer("#", name))
    file = uri.rpartition("/")[2]
    # A function may have put something behind the name of the file; a table's ids need not have it
    # at all.
    whole = name[: name.find(file) + len(file)]
    if file and whole.endswith(file) and f"/{uri}".endswith(f"/{whole}"):
        yield whole


def named_by(reject: Reject, ids: WantedIds, *, is_made: bool) -> dict[str, tuple[str, ...]]:
    """Return the ids that a reject has or names, such as the image that it repeats.

    Args:
        reject: The reject.
        ids: The ids to look for.
        is_made: The reject is of a build with `--transform`.

    Returns:
        The id found -> those for which it goes.
    """
    names = dict.fromkeys(names_in(reject.detail), "")
    names[reject.id] = reject.uri
    if not is_made:
        return {name: (name,) for name in names if name in ids}
    return {name: asked for name, uri in names.items() if (asked := ids.match(name, uri))}


def names_in(text: str) -> Iterator[str]:
    """Yield what may be an id in a message, which may quote a line of a table, or an item of JSON.

    These are texts in quotes, fields of a line, and words that are no plain words.
    """
    for quoted in map(_unquoted, _QUOTED.findall(text)):
        yield quoted
        yield from names_in(quoted) if quoted != text else ()
    yield from (field.strip(_AROUND) for field in _FIELDS.split(text))
    yield from (word.strip(_AROUND) for word in text.split() if not word.isalpha())


def _unquoted(quoted: str) -> str:
    try:
        return str(ast.literal_eval(quoted))
    except (ValueError, SyntaxError):  # quotes of other texts
        return quoted[1:-1]
