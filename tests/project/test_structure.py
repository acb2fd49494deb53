"""The shape of the source: modules in layers, and names that mean one thing."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests import ROOT, structure

TREES = {
    structure.module_name(path, ROOT): ast.parse(path.read_text())
    for path in structure.python_files(ROOT)
}


def test_no_modules_import_one_another() -> None:
    """Imports in functions and for type checking count, too."""
    early, every = structure.import_graphs(TREES)
    assert structure.circles_of(every) == []
    assert structure.circles_of(early) == []  # packages count, which Python imports first


def test_a_public_class_has_its_name_alone() -> None:
    modules = defaultdict(list)
    for module, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(module)
    assert {name: found for name, found in modules.items() if len(found) > 1} == {}
