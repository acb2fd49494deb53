"""Decode text that other programs wrote: UTF-8 with or without its byte order mark, or UTF-16 with.

Any other encoding is an error, because a guess gives wrong class names without a word.
"""

from __future__ import annotations

import codecs
import io
from typing import IO

_FAULT = "not UTF-8: save it as UTF-8"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def decode_text(data: bytes) -> str:
    """Return a text without its byte order mark.

    Raises:
        UnicodeError: It is in another encoding: "not UTF-8", and the fix.
    """
    try:
        text = data.decode(_codec_of(data))
    except UnicodeDecodeError as error:
        raise UnicodeError(f"{_FAULT} ({error})") from error
    return _checked(text)


def utf8_of(data: bytes) -> bytes:
    """Return a text as UTF-8 without its byte order mark, for parsers that check UTF-8 themselves.

    Raises:
        UnicodeError: It is invalid UTF-16.
    """
    if data.startswith(_UTF16):
        return decode_text(data).encode()
    return data.removeprefix(codecs.BOM_UTF8)


def peek_text(start: bytes) -> str:
    """Return the first bytes of a file as text, to detect its format; nothing is an error."""
    return start.decode(_codec_of(start), "replace")


def _codec_of(start: bytes) -> str:
    return "utf-16" if start.startswith(_UTF16) else "utf-8-sig"


def _checked(text: str) -> str:
    """Return the start of a text; raise UnicodeError if it is UTF-16 or UTF-32 without a mark."""
    if "\0" in text[:4]:
        raise UnicodeError(f"{_FAULT} (it begins with NUL characters)")
    return text


class Utf8Stream(io.RawIOBase):
    """A text as UTF-8 without its byte order mark, for parsers that read in blocks.

    Every byte is checked: Arrow prints a traceback for a bad line that is not UTF-8.

    Args:
        file: The text, from its start.
    """

    def __init__(self, file: IO[bytes]) -> None:
        start = file.read(len(codecs.BOM_UTF8))
        self._file, self._start = file, start.removeprefix(codecs.BOM_UTF8)
        self._is_utf8 = not start.startswith(_UTF16)
        self._decoder = codecs.getincrementaldecoder("utf-8" if self._is_utf8 else "utf-16")()
        self._held, self._ended = b"", False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes; b"" at the end.

        Raises:
            UnicodeError: As `decode_text`.
        """
        while not self._ended and (size < 0 or len(self._held) < size):
            start, data = self._start, self._start + self._file.read(size)
            self._start, self._ended = b"", not data
            try:
                # A character may lie across two reads.
                text = self._decoder.decode(data, final=self._ended)
            except UnicodeDecodeError as error:
                raise UnicodeError(f"{_FAULT} ({error})") from error
            if start:
                _checked(text)
            self._held += data if self._is_utf8 else text.encode()
        size = len(self._held) if size < 0 else size
        data, self._held = self._held[:size], self._held[size:]
        return data
