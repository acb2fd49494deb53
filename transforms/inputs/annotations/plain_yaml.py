"""Parse the subset of YAML in small settings files: a map of texts, and lists and maps of texts.

    names: [cat, 'dog']        names:            names:
                               - cat               0: cat
                               - dog               1: dog

Lists and maps in brackets may span lines. Deeper nesting is ignored, and numbers stay texts.
YAML 1.2.2, https://yaml.org/spec/1.2.2/, chapters 7.3, 7.4 and 8.2.
"""

from __future__ import annotations

import json
import re

_OPEN = ("[", "{")
PlainYaml = dict[str, str | list[str] | dict[str, str]]

_QUOTED = r"'(?:[^']|'')*'|\"(?:[^\"\\]|\\.)*\""
_KEY = re.compile(rf"(?P<key>{_QUOTED}|[^\s:#\[\]{{}},\-][^:]*?|-?\d+)\s*:(?:\s+(?P<rest>.*))?")
_ITEM = re.compile(r"-(?:\s+(?P<rest>.*))?")
_FLOW_ITEM = re.compile(rf"\s*(?P<value>{_QUOTED}|[^,]*?)\s*(?:,|$)")
_FLOW_PAIR = re.compile(
    rf"\s*(?P<key>{_QUOTED}|[^,:]*?)\s*:\s*(?P<value>{_QUOTED}|[^,]*?)\s*(?:,|$)"
)
_COMMENT = re.compile(rf"((?:(?<![^\s\[{{,]){_QUOTED}|(?!\s#).)*?)(?:\s#.*)?")


def read_plain_yaml(text: str) -> PlainYaml:
    """Return key -> value of the outermost map; other lines are ignored."""
    lines = [
        line
        for line in map(_without_comment, text.removeprefix("\ufeff").splitlines())
        if line.strip()
    ]
    values: PlainYaml = {}
    place = 0
    while place < len(lines):
        match = _KEY.fullmatch(lines[place].rstrip())
        place += 1
        if match is None:
            continue
        written = (match["rest"] or "").strip()
        below: list[str] = []
        while place < len(lines) and _goes_on(lines[place], [written, *below]):
            below.append(lines[place].strip())
            place += 1
        values[_scalar(match["key"])] = (
            _flow(" ".join([written, *below])) if written[:1] in _OPEN else _block(written, below)
        )
    return values


def _goes_on(line: str, written: list[str]) -> bool:
    """Return whether a line continues the value above it.

    In an open bracket every line does, elsewhere an indented line or a list item.
    """
    if written[0][:1] in _OPEN:
        return not written[-1].endswith(("]", "}"))
    return line[0].isspace() or (_ITEM.fullmatch(line) is not None and not written[0])


def _block(written: str, below: list[str]) -> str | list[str] | dict[str, str]:
    if written or not below:
        return _scalar(" ".join([written, *below]))
    items = [match for match in map(_ITEM.fullmatch, below) if match]
    if items:
        return [_scalar(match["rest"] or "") for match in items]
    pairs = [match for match in map(_KEY.fullmatch, below) if match]
    return {_scalar(match["key"]): _scalar(match["rest"] or "") for match in pairs}


def _flow(text: str) -> list[str] | dict[str, str]:
    """Parse a list or a map in brackets."""
    body = text.strip()[1:].rstrip("]} \t")
    if text.lstrip().startswith("{"):
        return {
            _scalar(match["key"]): _scalar(match["value"]) for match in _FLOW_PAIR.finditer(body)
        }
    return [_scalar(match["value"]) for match in _FLOW_ITEM.finditer(body) if match["value"]]


def _scalar(written: str) -> str:
    written = written.strip()
    if len(written) > 1 and written[0] == written[-1] == "'":
        return written[1:-1].replace("''", "'")
    if len(written) > 1 and written[0] == written[-1] == '"':
        try:
            # Of YAML's escapes, those that JSON lacks do not occur in class names.
            return str(json.loads(written))
        except ValueError:
            return written[1:-1]
    return written


def _without_comment(line: str) -> str:
    """Return the line up to a # at its start, or after a space and outside quotes."""
    if line.lstrip().startswith("#"):
        return ""
    match = _COMMENT.fullmatch(line)
    return match[1] if match else line
