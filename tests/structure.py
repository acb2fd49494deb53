"""Measure the structure of the source: `python -m tests.structure [TREE ...]`, a column per tree.

Each TREE is a checkout (default: this one), so that two commits can be compared:

    git worktree add /tmp/before COMMIT && python -m tests.structure /tmp/before .
"""

from __future__ import annotations

import ast
import io
import statistics
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests import ROOT

APPLICATION = ("schemas", "transforms", "pipelines")  # imported as shardwright.schemas and so on
PACKAGES = ("shardwright", *APPLICATION)
QUESTIONS = {"What", "Whether", "How", "Which", "Where", "Who", "Why", "When", "All"}
PASSAGE_LINES = 6
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
LAYOUT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}
Function = ast.FunctionDef | ast.AsyncFunctionDef
Graph = dict[str, set[str]]


def python_files(root: Path, folders: Sequence[str] = PACKAGES) -> list[Path]:
    return sorted(path for folder in folders for path in (root / folder).rglob("*.py"))


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    if parts[0] in APPLICATION:
        parts = ("shardwright", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def functions_of(trees: Sequence[ast.Module]) -> list[Function]:
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, Function)]


def num_lines(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def num_parameters(node: Function) -> int:
    given = node.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def first_words(trees: Sequence[ast.Module]) -> Counter[str]:
    """Return how many docstrings begin with each word."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, kinds))
    texts = (ast.get_docstring(node) for node in nodes)
    return Counter(text.split()[0].strip(",.:;") for text in texts if text)


def num_comments(source: str) -> int:
    """Return the number of lines with a comment, those of tools left out."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    found = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return sum(not text.startswith(("# noqa", "# type:", "# fmt:", "#!")) for text in found)


def num_tokens(source: str) -> int:
    """Return the number of tokens without comments, docstrings and line breaks."""
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, DOCUMENTED))
    firsts = (node.body[0] for node in nodes if ast.get_docstring(node, clean=False) is not None)
    texts = {line for first in firsts for line in range(first.lineno, (first.end_lineno or 0) + 1)}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(token.type not in LAYOUT and token.start[0] not in texts for token in tokens)


def imports_of(tree: ast.Module, modules: set[str]) -> Iterator[tuple[str, bool]]:
    """Yield (module of ours, True if imported when this one is)."""
    late = {
        id(node)
        for outer in ast.walk(tree)
        if isinstance(outer, Function)
        or (isinstance(outer, ast.If) and ast.unparse(outer.test) == "TYPE_CHECKING")
        for node in ast.walk(outer)
    }
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else node.module for name in names]
        for name in names:
            if name in modules:
                yield name, id(node) not in late


def import_graphs(modules: Mapping[str, ast.Module]) -> tuple[Graph, Graph]:
    """Return the imports at once of each module, and all of them: late ones, too."""
    early: Graph = {name: set() for name in modules}
    every: Graph = {name: set() for name in modules}
    for name, tree in modules.items():
        for other, is_early in imports_of(tree, set(modules)):
            every[name].add(other)
            if is_early:
                early[name].add(other)
        # Python imports the package of a module before it, and locks the module first. So a package
        # that imports its modules fails in some processes whose threads import both at once
        # (https://github.com/python/cpython/issues/83065).
        package = name.rpartition(".")[0]
        if package in modules:
            early[name].add(package)
    return early, every


def circles_of(graph: Graph) -> list[list[str]]:
    """Return the groups of modules that import one another (Tarjan's components above one)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def repeated_passages(sources: Sequence[str]) -> int:
    """Return how many runs of six code lines occur at more than one place."""
    places: dict[tuple[str, ...], int] = defaultdict(int)
    for source in sources:
        lines = [line.strip() for line in source.splitlines()]
        code = [
            line
            for line in lines
            if len(line) > 3 and not line.startswith(("#", "from ", "import "))
        ]
        for start in range(len(code) - PASSAGE_LINES + 1):
            places[tuple(code[start : start + PASSAGE_LINES])] += 1
    return sum(count > 1 for count in places.values())


def measure(root: Path) -> dict[str, str]:
    """Return name -> figure of a checkout."""
    paths = python_files(root)
    sources = [path.read_text() for path in paths]
    trees = [ast.parse(source) for source in sources]
    early, every = import_graphs(
        {module_name(path, root): tree for path, tree in zip(paths, trees, strict=True)}
    )
    lengths = [len(source.splitlines()) for source in sources]
    functions = functions_of(trees)
    sizes = [num_lines(node) for node in functions]
    words = first_words(trees)
    comments = sum(map(num_comments, sources))
    tests = [path.read_text() for path in python_files(root, ["tests"])]
    return {
        "lines of source": f"{sum(lengths):,}",
        "files of source": str(len(paths)),
        "longest file": str(max(lengths)),
        "files above 300 lines": str(sum(length > 300 for length in lengths)),
        "longest function": str(max(sizes)),
        "functions above 30 lines": str(sum(size > 30 for size in sizes)),
        "median function": f"{statistics.median(sizes):.0f}",
        "functions with more than 6 parameters": str(
            sum(num_parameters(node) > 6 for node in functions)
        ),
        "docstrings": f"{words.total():,}",
        "docstrings that begin with a question word": str(sum(words[word] for word in QUESTIONS)),
        "comments, share of lines": f"{comments / sum(lengths):.1%}",
        "circles of imports": str(len(circles_of(early))),
        "circles, late imports counted": str(len(circles_of(every))),
        "repeated passages of 6 lines": str(repeated_passages(sources)),
        "lines of tests": f"{sum(len(source.splitlines()) for source in tests):,}",
    }


def main(argv: Sequence[str]) -> int:
    """Print the table of some checkouts."""
    roots = [Path(arg).resolve() for arg in argv] or [ROOT]
    found = [measure(root) for root in roots]
    print("| |", " | ".join(str(number + 1) for number in range(len(roots))), "|")
    print("|---|" + "---:|" * len(roots))
    for name in found[0]:
        print(f"| {name} |", " | ".join(figures[name] for figures in found), "|")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
