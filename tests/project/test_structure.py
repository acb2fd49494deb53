"""The shape of the source: modules in layers, and names that mean one thing."""

from __future__ import annotations

import ast
from collections import defaultdict

import pytest

from tests import ROOT, structure

Trees = dict[str, ast.Module]
# From below.
ROOMS = {
    "shardwright": [
        "storage", "format", "cache", "images", "reader", "trainers", "inspect", "report",
    ],
    "shardwright.pipelines": [
        "runners", "options", "job", "local", "repairs", "commands",
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def trees() -> Trees:
    """Return the source of each module."""
    return {
        structure.module_name(path, ROOT): ast.parse(path.read_text())
        for path in structure.python_files(ROOT)
    }


@pytest.fixture(scope="module")
def graphs(trees: Trees) -> tuple[structure.Graph, structure.Graph]:
    return structure.import_graphs(trees)


def test_no_modules_import_one_another(graphs: tuple[structure.Graph, structure.Graph]) -> None:
    """Imports in functions and for type checking count, too."""
    early, every = graphs
    assert structure.circles_of(every) == []
    assert structure.circles_of(early) == []  # packages count, which Python imports first


@pytest.mark.parametrize("house", ROOMS)
def test_a_room_imports_only_those_below_it(
    trees: Trees, graphs: tuple[structure.Graph, structure.Graph], house: str
) -> None:
    _, every = graphs
    rooms = {}
    for name in trees:
        room = name.removeprefix(f"{house}.").partition(".")[0]
        if name.startswith(f"{house}.") and room in ROOMS[house]:
            rooms[name] = ROOMS[house].index(room)
    upward = [
        (name, other)
        for name in rooms
        for other in every[name]
        if rooms.get(other, 0) > rooms[name]
    ]
    assert upward == []


def test_a_public_class_has_its_name_alone(trees: Trees) -> None:
    modules = defaultdict(list)
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(module)
    assert {name: found for name, found in modules.items() if len(found) > 1} == {}
