"""Texts that users and their programs see: help, the Python API, names, exit codes."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import shardwright as sw
from shardwright import errors
from shardwright.inspect import cli
from shardwright.transforms.rejects import RETRYABLE, RejectReason
from tests import structure

# An object's address; before Python 3.13, argparse repeats the metavar after a short option.
_ADDRESS, _REPEATED = re.compile(r" at 0x[0-9a-f]+"), re.compile(r"(-\w) [A-Z]+, (?=--)")
# Their modules import TensorFlow or Beam, for seconds.
_SLOW = {
    "load": "shardwright.trainers.tf_data",
    "WriteRecords": "shardwright.pipelines.commands.write_transform",
}
_COUNTS = ("count", "timed", "COUNTERS.add")
_BUILDS = ("build", "plan")  # commands
_MISSING = "no/such"


def _help() -> Iterator[str]:
    yield _run(["--help"])
    for name in cli._find_commands():
        for word in ("--help", "--help-all") if name in _BUILDS else ("--help",):
            yield _REPEATED.sub(r"\1, ", _run([name, word]))


def _exit_codes() -> Iterator[str]:
    """Yield the answers to wrong usage, and to a folder that is not there."""
    yield _run([])
    yield _run(["no-such-command"])
    for name in cli._find_commands():
        usual = [_MISSING, "out"] if name in (*_BUILDS, "diff") else [_MISSING]
        usual += ["--once"] if name == "watch" else []
        yield _run([name])
        yield _run([name, *usual])
        if name not in _BUILDS:  # they ask Beam, which takes seconds
            yield _run([name, *usual, "--no-such-option"])


def _run(words: Sequence[str]) -> str:
    """Return a command line, its exit code and what it prints, as in a wide terminal."""
    printed = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, COLUMNS="100", LINES="50"),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        try:
            code: object = cli.main(words)
        except SystemExit as end:
            code = end.code
        text = printed.getvalue().replace(f"{os.getcwd()}/", "")
    return f"$ shardwright {' '.join(words)}\n{text}exit code {code}\n"


def _api() -> Iterator[str]:
    """Yield the signatures of `sw.__all__` and of their public members, and the errors."""
    for name in sw.__all__:
        if name in _SLOW:
            yield from _in_source(name)
            continue
        value = getattr(sw, name)
        yield f"{name}{_signature(value)}"
        members: dict[str, Any] = {}
        for base in reversed(inspect.getmro(value)) if inspect.isclass(value) else ():
            if base.__module__.startswith("shardwright"):
                members |= vars(base)
        for member in sorted(each for each in members if not each.startswith("_")):
            yield f"  .{member}{_signature(getattr(value, member))}"
    for name, value in sorted(vars(errors).items()):
        if inspect.isclass(value) and value.__module__ == errors.__name__:
            yield f"errors.{name}({', '.join(base.__name__ for base in value.__bases__)})"


def _signature(value: object) -> str:
    return _ADDRESS.sub("", str(inspect.signature(value))) if callable(value) else ""


def _in_source(name: str) -> Iterator[str]:
    """Yield the signature of a function, or those of a class's own methods, without an import."""
    for path in structure.python_files(structure.ROOT):
        if structure.module_name(path, structure.ROOT) == _SLOW[name]:
            body = ast.parse(path.read_text()).body
            found = next(node for node in body if getattr(node, "name", None) == name)
            for node in ast.walk(found):
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                    yield f"{name}: {node.name}({ast.unparse(node.args)})"
                elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
                    yield f"{name}({ast.unparse(node.args)})"


def _names() -> Iterator[str]:
    """Yield reject reasons, and names of Beam's counters and distributions and of storage's."""
    for reason in RejectReason:
        yield f"reject {reason}{' (retried)' if reason in RETRYABLE else ''}"
    found = set()
    for path in structure.python_files(structure.ROOT):
        text = path.read_text()
        tree = ast.parse(text if any(f"{each}(" in text for each in _COUNTS) else "")
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in _COUNTS:
                name = ast.unparse(node.args[0])
                if name[:1] in "'\"f":
                    found.add(f"{ast.unparse(node.func)} {re.sub('{.*?}', '{}', name)}")
    yield from sorted(found)


TEXTS: Mapping[str, Callable[[], Iterable[str]]] = {
    "help": _help,
    "api": _api,
    "names": _names,
    "exit_codes": _exit_codes,
}
