"""Let errors speak Python: those of the command line name options, such as `--split`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import ContextDecorator
from types import TracebackType

from shardwright.errors import ShardwrightError

FLAGS = frozenset(
    {
        "grayscale",
        "keep_missing",
        "shared_filesystem",
        "signals",
        "stratify",
        "strip_metadata",
    }
)
_RENAMED = {"storage_option": "storage_options"}
_COMMAND = re.compile(r"(`[^`]*`)")  # stays as it is typed
# A value ends at a space, and before punctuation that a space follows.
_OPTION = re.compile(
    r"(?<![\w-])--(?P<name>[a-z][a-z0-9_-]*)"
    r"(?:[ =](?P<value>'[^']*'|\w+=\.{3}|(?:[^\s.,:;()'\"]|[.,:](?=\S))+))?"
)
# Of the next word: a text in quotes, a number, a path, KEY=VALUE or a placeholder such as FILE.
_VALUE = re.compile(r"'.*'|\d[\d.]*|\S*[/=]\S*|[A-Z]{2,}")
_OUTPUT = re.compile(r"(?<![\w/-])OUTPUT(?![\w/-])")
_LITERAL = re.compile(r"\d+(\.\d+)?|[A-Z]+")
_NO_CHOICES: Mapping[str, Collection[str]] = {}


class PythonErrors(ContextDecorator):
    """A block, or a function, whose errors name keyword arguments in place of options.

    Args:
        choices: The values that an option has by their words, by its name with underscores.
    """

    def __init__(self, choices: Mapping[str, Collection[str]] = _NO_CHOICES) -> None:
        self._choices = choices

    def __enter__(self) -> PythonErrors:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, ShardwrightError):
            error.args = tuple(
                in_python(each, self._choices) if isinstance(each, str) else each
                for each in error.args
            )


def in_python(message: str, choices: Mapping[str, Collection[str]] = _NO_CHOICES) -> str:
    """Return a message with `split='a=1'` in place of `--split a=1`; commands in backticks stay."""

    def argument(match: re.Match[str]) -> str:
        name, value = match["name"].replace("-", "_"), match["value"] or ""
        rest = match[0][2 + len(name) :]
        name = _RENAMED.get(name, name)
        if name in FLAGS:
            return f"{name}=True{rest}"
        if value and (_VALUE.fullmatch(value) or value in choices.get(name, ())):
            return _argument(name, value)
        is_subject = not rest and match.string[match.end() : match.end() + 1] == ":"
        return name if is_subject else f"{name}={rest.removeprefix('=')}"

    parts = _COMMAND.split(message)
    parts[::2] = [_OUTPUT.sub("output", _OPTION.sub(argument, part)) for part in parts[::2]]
    return "".join(parts)


def _argument(name: str, value: str) -> str:
    if name == "storage_options":
        key, _, value = value.partition("=")
        return f"{name}={{{key!r}: {value!r}}}"
    is_literal = value.startswith("'") or _LITERAL.fullmatch(value)
    return f"{name}={value if is_literal else repr(value)}"
