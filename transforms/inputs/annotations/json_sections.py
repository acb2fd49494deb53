"""Read a large JSON object item by item, in the memory of its largest item instead of the file."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from shardwright.errors import BuildError
from shardwright.storage.folder import files_of
from shardwright.storage.options import StorageOptions

_READ_BYTES = 4 << 20
_BLANK = re.compile(r"[ \t\n\r]*")
_ENDS = frozenset(" \t\n\r,:]}")
_decode = json.JSONDecoder().raw_decode


def read_sections(uri: str, storage: StorageOptions) -> Iterator[tuple[str, Any]]:
    """Yield (key, item) for the items of an object's arrays, (key, value) for other values.

    Raises:
        BuildError: The file is not a JSON object; the message has the position of the error.
        StorageError: The file cannot be read.
    """
    with files_of(uri, storage).open_input(uri) as file:
        text = _Text(file, uri)
        text.expect("{", "an object, which begins with {")
        if text.skip("}"):
            text.expect_end()
            return
        seen: set[str] = set()
        while True:
            key = text.value()
            if not isinstance(key, str) or key in seen:
                text.fail(f"{key!r} is not a key, or occurs twice")
            seen.add(key)
            text.expect(":", "a colon")
            yield from ((key, item) for item in text.items())
            if not text.skip(","):
                break
        text.expect("}", "a comma or }")
        text.expect_end()


class _Text:
    """A file's text from the current position on; text before it is discarded."""

    def __init__(self, file: Any, uri: str) -> None:
        self._file, self._uri = file, uri
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text, self._at, self._forgotten, self._ended = "", 0, 0, False

    def items(self) -> Iterator[Any]:
        """Yield the items of the array that begins here, or the single value."""
        if not self.skip("["):
            yield self.value()
            return
        if self.skip("]"):
            return
        while True:
            yield self.value()
            if not self.skip(","):
                break
        self.expect("]", "a comma or ]")

    def value(self) -> Any:
        """Return the value that begins here."""
        wanted = _READ_BYTES
        while True:
            self._peek()
            try:
                value, end = _decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._ended:
                    self._at = error.pos
                    self.fail(error.msg)
            except (RecursionError, ValueError) as error:  # nested too deeply; too many digits
                self.fail(str(error))
            else:
                # Without an end character the value may continue: 12 of 123, or of 12.5e3.
                if self._ended or self._text[end : end + 1] in _ENDS:
                    self._at = end
                    return value
            self._read_more(wanted)
            wanted *= 2  # every try parses from the value's start: doubling bounds the total work

    def skip(self, char: str) -> bool:
        """Skip `char` if it comes next, and return whether it did."""
        found = self._peek() == char
        self._at += found
        return found

    def expect(self, char: str, what: str) -> None:
        if not self.skip(char):
            self.fail(f"expected {what}")

    def expect_end(self) -> None:
        if self._peek():
            self.fail("unexpected text after the object")

    def fail(self, why: str) -> NoReturn:
        place = self._forgotten + self._at
        raise BuildError(
            f"{self._uri} is not a JSON object, or is cut short: {why} at character {place:,}. "
            "Fetch or export it again"
        )

    def _peek(self) -> str:
        """Return the next character that is not white space; "" at the end."""
        while True:
            match = _BLANK.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._read_more(_READ_BYTES)

    def _read_more(self, num_bytes: int) -> None:
        data = self._file.read(num_bytes)
        self._ended = not data
        try:
            more = self._decoder.decode(data, final=self._ended)
        except UnicodeDecodeError as error:
            raise BuildError(
                f"{self._uri} is not UTF-8 ({error.reason}), as JSON must be: save it as UTF-8"
            ) from error
        self._forgotten += self._at
        self._text, self._at = self._text[self._at :] + more, 0
