"""Places in the source that can be mutated, and the mutated text of a file."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("shardwright", "transforms", "pipelines", "schemas")
_COMPARED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
_COMPUTED: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*", ast.Div: "*", ast.Mod: "+",
    ast.BitAnd: "|", ast.BitOr: "&", ast.LShift: ">>", ast.RShift: "<<",
}  # fmt: skip
# Keywords whose other value changes nothing that a caller sees.
_SPEED_ONLY = frozenset({"slots", "frozen", "strict", "check", "zero_copy_only", "use_threads"})


class Site(NamedTuple):
    """One mutant.

    Attributes:
        path: File, relative to the root.
        scope: Function or class that it is in, dotted; "" for a module's own level.
        before: The expression or statement as it is, normalized.
        after: As it becomes.
        number: Of several with the same path, scope, before and after: which one, from 0.
        line: Its line now; not part of its identity.
    """

    path: str
    scope: str
    before: str
    after: str
    number: int
    line: int

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """Identity: stays when lines move."""
        return self[:5]


def find_sites(root: Path) -> Iterator[Site]:
    """Yield every mutant of the source below `root`, in order."""
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            for site, _, _ in _sites_of(path.read_text(), str(path.relative_to(root))):
                yield site


def mutate(root: Path, site: Site) -> str:
    """Return the text of the site's file with the mutant in it.

    Raises:
        LookupError: The source has no such place.
    """
    text = (root / site.path).read_text()
    for found, start, end in _sites_of(text, site.path):
        if found.key == site.key:
            data = text.encode()
            return (data[:start] + site.after.encode() + data[end:]).decode()
    raise LookupError(f"{site.path} has no {site.before!r} in {site.scope or 'the module'}")


def line_of(root: Path, site: Site) -> int:
    """Return the line of a site in this version of the source. Raises LookupError."""
    found = {each.key: each for each, _, _ in _sites_of((root / site.path).read_text(), site.path)}
    return found[site.key].line


def _sites_of(text: str, path: str) -> Iterator[tuple[Site, int, int]]:
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    seen: Counter[tuple[str, str, str]] = Counter()
    for node, scope in _walk(ast.parse(text), ""):
        before = ast.unparse(node)
        for after in _mutations(node):
            number = seen[scope, before, after]
            seen[scope, before, after] += 1
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            yield Site(path, scope, before, after, number, node.lineno), start, end


def _walk(node: ast.AST, scope: str) -> Iterator[tuple[ast.AST, str]]:
    """Yield expressions and statements with their scope, but no annotations or docstrings."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _is_left_out(child):
                continue
            inner = scope
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{scope}.{child.name}".lstrip(".")
            if isinstance(child, ast.expr | ast.stmt):
                yield child, scope
            yield from _walk(child, inner)


def _is_left_out(node: ast.AST) -> bool:
    if isinstance(node, ast.If):  # what only a type checker runs
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    if isinstance(node, ast.keyword):
        return node.arg in _SPEED_ONLY
    if isinstance(node, ast.JoinedStr):
        return True  # a place inside an f-string has no column of its own in Python 3.11
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _mutations(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
        yield f"({left} {_COMPARED[type(node.ops[0])]} {right})"
    elif isinstance(node, ast.BoolOp):
        word = " or " if isinstance(node.op, ast.And) else " and "
        yield "(" + word.join(f"({ast.unparse(value)})" for value in node.values) + ")"
    elif isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
        yield f"({ast.unparse(node.left)} {_COMPUTED[type(node.op)]} {ast.unparse(node.right)})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"bool({ast.unparse(node.operand)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield str(node.value + 1)
    elif (
        isinstance(node, ast.Return)
        and node.value is not None
        and ast.unparse(node.value) != "None"
    ):
        yield "return None"
    elif isinstance(node, ast.Raise) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield "pass"
    elif isinstance(node, ast.IfExp):
        body, test, other = map(ast.unparse, (node.body, node.test, node.orelse))
        yield f"(({body}) if not ({test}) else ({other}))"
