"""The shape of the source: modules in layers, and names that mean one thing."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests import ROOT, structure

# Modules that still import one another, to be untied; nothing may be added.
KNOWN_CIRCLES = [
    [f"transforms.inputs.annotations.{name}", f"transforms.inputs.annotations.{name}_listing"]
    for name in ("coco", "voc", "yolo")
] + [
    [f"transforms.inputs.tables.{name}" for name in ("table", "table_pictures", "table_references")]
]
# Names that two classes still share, to be renamed; nothing may be added.
KNOWN_NAMESAKES = {"ImageFault", "Look"}

TREES = {
    structure.module_name(path, ROOT): ast.parse(path.read_text())
    for path in structure.python_files(ROOT)
}


def test_no_modules_import_one_another() -> None:
    """Imports in functions and for type checking count, too."""
    _, every = structure.import_graphs(TREES)
    circles = structure.circles_of(every)
    assert [circle for circle in circles if circle not in KNOWN_CIRCLES] == []


def test_a_public_class_has_its_name_alone() -> None:
    modules = defaultdict(list)
    for module, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(module)
    shared = {name: found for name, found in modules.items() if len(found) > 1}
    assert {name: shared[name] for name in shared.keys() - KNOWN_NAMESAKES} == {}
