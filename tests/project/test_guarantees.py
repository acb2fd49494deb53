"""Each promise of docs/guarantees.md names tests that exist."""

from __future__ import annotations

import ast
import re

import pytest

from tests import ROOT

PAGE = (ROOT / "docs/guarantees.md").read_text()
ROWS = [line for line in PAGE.splitlines() if re.match(r"\| [A-Z]", line)][1:]


def test_the_table_is_found() -> None:
    assert len(ROWS) >= 11


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_a_promise_is_held_by_tests(row: str) -> None:
    _, _, _, held_by, _ = row.split("|")
    named = re.findall(r"`([^`]+)`", held_by)
    assert named
    for node in named:
        path, _, name = node.partition("::")
        tree = ast.parse((ROOT / path).read_text())
        assert name in {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}, node
