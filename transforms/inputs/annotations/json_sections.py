"""A large JSON object read section by section, item by item: in the memory of its largest item, not of the file."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from shardwright.errors import BuildError
from shardwright.storage import StorageOptions, files_of

_READ_BYTES = 4 << 20
_BLANK = re.compile(r"[ \t\n\r]*")
_ENDS = frozenset(" \t\n\r,:]}")
_decode = json.JSONDecoder().raw_decode


def read_sections(uri: str, storage: StorageOptions) -> Iterator[tuple[str, Any]]:
    """(key, item) of each item of the arrays in an object, and (key, value) of what is no array, in the file's order.

    Raises:
        BuildError: The file is no JSON object; the message says where it stops being one.
        StorageError: It cannot be read.
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
                text.fail(f"{key!r} is no key, or stands there twice")
            seen.add(key)
            text.expect(":", "a colon")
            yield from ((key, item) for item in text.items())
            if not text.skip(","):
                break
        text.expect("}", "a comma or }")
        text.expect_end()


class _Text:
    """A file's text from where reading is; what lies behind is forgotten."""

    def __init__(self, file: Any, uri: str) -> None:
        self._file, self._uri = file, uri
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text, self._at, self._forgotten, self._ended = "", 0, 0, False

    def items(self) -> Iterator[Any]:
        """The items of the array that begins here, or the one value."""
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
        """The value that begins here."""
        wanted = _READ_BYTES
        while True:
            self._peek()
            try:
                value, end = _decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._ended:
                    self._at = error.pos
                    self.fail(error.msg)
            except (
                RecursionError,
                ValueError,
            ) as error:  # nested too deeply; a number of too many digits
                self.fail(str(error))
            else:
                if (
                    self._ended or self._text[end : end + 1] in _ENDS
                ):  # else it may go on: 12 of 123, or of 12.5e3
                    self._at = end
                    return value
            self._read_more(wanted)
            wanted *= 2

    def skip(self, char: str) -> bool:
        """Whether `char` comes next; then it is behind."""
        found = self._peek() == char
        self._at += found
        return found

    def expect(self, char: str, what: str) -> None:
        if not self.skip(char):
            self.fail(f"there should be {what}")

    def expect_end(self) -> None:
        if self._peek():
            self.fail("there is more behind the object")

    def fail(self, why: str) -> NoReturn:
        place = self._forgotten + self._at
        raise BuildError(
            f"{self._uri} is no JSON object, or is cut short: {why}, at character {place:,}. Fetch or export it again"
        )

    def _peek(self) -> str:
        """The next character that is no white space; "" at the end."""
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
                f"{self._uri} is not UTF-8 ({error.reason}), which JSON must be: save it again"
            ) from error
        self._forgotten += self._at
        self._text, self._at = self._text[self._at :] + more, 0
