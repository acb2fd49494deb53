"""Each guarantee of docs/guarantees.md names tests that exist."""

from __future__ import annotations

import ast
import re

import pytest

from tests import ROOT

TEXT, _, LIST = (ROOT / "docs/guarantees.md").read_text().partition("\n## Tests\n")
TESTS = {
    name: re.findall(r"`([^`]+)`", named)
    for name, named in re.findall(r"^- (.+):\n((?:  - `.+`\n)+)", LIST, flags=re.MULTILINE)
}


def test_every_guarantee_has_tests() -> None:
    guarantees = re.findall(r"^- \*\*(.+)\.\*\* ", TEXT, flags=re.MULTILINE)
    assert len(guarantees) >= 20
    assert set(guarantees) <= set(TESTS)
    assert LIST.count("::") == sum(map(len, TESTS.values()))


@pytest.mark.parametrize("name", TESTS)
def test_a_guarantee_is_held_by_tests(name: str) -> None:
    for node in TESTS[name]:
        path, _, test = node.partition("::")
        tree = ast.parse((ROOT / path).read_text())
        assert test in {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}, node
