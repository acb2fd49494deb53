"""Docstrings begin as Google's style asks: functions with a verb, never with a question word.

ruff's `D` rules check their form. These checks are of their first words.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests import ROOT

FOLDERS = [
    "shardwright",
    "transforms",
    "pipelines",
    "schemas",
    "deploy",
    "benchmarks",
    "examples",
    "tests",
]
QUESTIONS = {"What", "Whether", "How", "Which", "Where", "Who", "Why", "When"}
# No verbs: a function's docstring says what it does, a property's what it is.
NO_VERBS = QUESTIONS | {"The", "A", "An", "One", "Every", "Each", "Of", "All", "This", "It"}
FREE = {"property", "cached_property", "fixture"}  # decorators of what has a noun as its name


Docstrings = list[tuple[str, ast.AST, str]]  # place, node, text


@pytest.fixture(scope="module")
def docstrings() -> Docstrings:
    """Return every docstring of the project."""
    found: Docstrings = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in statements_in(ast.parse(path.read_text())):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                    text = ast.get_docstring(node)
                    if text:
                        line = getattr(node, "lineno", 1)
                        found.append((f"{path.relative_to(ROOT)}:{line}", node, text))
    return found


def statements_in(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a module and its statements, without their expressions, which are most of it."""
    yield tree
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from statements_in(node)


def first_word(text: str) -> str:
    return text.split()[0].strip(",.:;")


def decorators(node: ast.FunctionDef) -> set[str]:
    """Return the last names of its decorators: `pytest.fixture(...)` is "fixture"."""
    calls = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
    return {ast.unparse(one).rpartition(".")[2] for one in calls}


@pytest.mark.long
def test_no_docstring_begins_with_a_question_word(docstrings: Docstrings) -> None:
    found = [f"{place}: {text[:60]}" for place, _, text in docstrings
             if first_word(text) in QUESTIONS]  # fmt: skip
    assert found == []


@pytest.mark.long
def test_functions_begin_with_a_verb(docstrings: Docstrings) -> None:
    """Tests are named by what must hold, and their docstrings say why."""
    found = [
        f"{place}: {text[:60]}"
        for place, node, text in docstrings
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("test_")
        and not decorators(node) & FREE
        and first_word(text) in NO_VERBS
    ]
    assert found == []
