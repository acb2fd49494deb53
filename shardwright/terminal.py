"""Print lines for a terminal or a log, whatever is in the ids, names and paths of a dataset.

A control character of a user's text would color or erase the terminal, or split a line of a log.
It is printed as its escape in Python.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
from collections.abc import Iterable
from typing import TextIO

# Characters that cannot be seen: controls, those that change the direction of the text after them
# (Unicode Standard Annex 9), surrogates of file names that are not UTF-8, and noncharacters.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)

_live: TextIO | None = None  # the terminal that shows a line in place


def visible(text: str) -> str:
    """Return a text with escapes for the characters that cannot be seen; keeps tabs and lines."""
    return _UNSEEN.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def visible_json(text: str) -> str:
    """Return JSON with JSON's own escapes for the characters that cannot be seen."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    """Return a text as one line, with escapes for its line breaks, too."""
    return visible(text).replace("\t", "\\x09").replace("\n", "\\x0a")


def join_lines(lines: Iterable[str]) -> str:
    """Return lines as a text that has exactly these lines."""
    return "\n".join(map(one_line, lines))


def print_safely(text: str) -> None:
    """Print text, with escapes for characters that cannot be seen or stdout's encoding lacks.

    Line breaks stay: use `join_lines` to make a text of lines.
    """
    wipe()
    encoding = sys.stdout.encoding or "utf-8"
    print(visible(text).encode(encoding, "backslashreplace").decode(encoding))


def say(line: str) -> None:
    """Print a line to stderr, because Airflow's Beam hook blocks on a child that fills stdout."""
    wipe()
    print(f"shardwright: {one_line(line)}", file=sys.stderr, flush=True)


def is_live(stream: TextIO) -> bool:
    """Return whether a stream is a terminal, whose lines can be replaced."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def show_in_place(line: str, stream: TextIO) -> None:
    """Show a line on a terminal until the next line is printed; nothing elsewhere."""
    global _live
    if is_live(stream):
        wipe()
        # A wrapped line would take two.
        shown = one_line(line)[: shutil.get_terminal_size().columns - 1]
        print(shown, end="", file=stream, flush=True)
        _live = stream


def wipe() -> None:
    """Erase the line that is shown in place, if one is."""
    global _live
    if _live is not None:
        print("\r\x1b[2K", end="", file=_live, flush=True)
    _live = None


class _LogHandler(logging.Handler):
    """Prints log lines to stderr, as `logging.basicConfig` has it, but with escapes."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
            # Logs of Beam and of other packages have traces, whose lines are their own.
            wipe()
            own = record.name.startswith("shardwright") and not record.exc_info
            print(one_line(text) if own else visible(text), file=sys.stderr, flush=True)
        except Exception:  # as logging.StreamHandler does
            self.handleError(record)


def set_up_log() -> None:
    """Log warnings of a command to stderr; keep the handlers of a program that has its own."""
    root = logging.getLogger()
    root.setLevel(logging.WARNING)
    if not root.handlers:
        handler = _LogHandler()
        handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))  # Beam's own choice
        root.addHandler(handler)
