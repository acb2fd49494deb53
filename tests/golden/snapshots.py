"""Texts that are committed in `expected/`: compare them, or write them anew."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

_EXPECTED = Path(__file__).with_name("expected")


def difference(name: str, lines: Iterable[str]) -> str:
    """Return a unified diff of a committed text and these lines, "" if they are equal."""
    path = _EXPECTED / f"{name}.txt"
    before = path.read_text("utf-8").splitlines() if path.exists() else []
    now = "\n".join(lines).splitlines()
    return "\n".join(difflib.unified_diff(before, now, f"expected {name}", "now", "", "", 1, ""))


def write(name: str, lines: Iterable[str]) -> None:
    """Make these lines the text to commit."""
    _EXPECTED.mkdir(exist_ok=True)
    (_EXPECTED / f"{name}.txt").write_text("\n".join(lines).rstrip("\n") + "\n", "utf-8")
