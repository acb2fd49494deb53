"""Errors where a library is not installed: they name it and its extra."""

from __future__ import annotations

import re
import sys
import tomllib

import pytest

from shardwright import extras
from shardwright.errors import UsageError
from shardwright.extras import import_part
from tests import ROOT


@pytest.mark.parametrize(
    ("part", "library", "install"),
    [
        ("shardwright.trainers.jax", "jax", "'shardwright[jax]'"),
        ("shardwright.trainers.torch", "torch", "'shardwright[torch]'"),
        ("shardwright.trainers.keras", "keras", "keras"),
        ("shardwright.trainers.tf_data", "tensorflow", "'shardwright[tensorflow]'"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, part: str, library: str, install: str
) -> None:
    for name in list(sys.modules):
        if name.startswith("shardwright.trainers."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)

    told = f"^this needs {library}, which is not installed: pip install {re.escape(install)}$"
    with pytest.raises(UsageError, match=told):
        import_part(part)


def test_other_faults_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shardwright.reader.examples", None)
    monkeypatch.delitem(sys.modules, "shardwright.trainers.grain", raising=False)

    with pytest.raises(ModuleNotFoundError, match=r"shardwright\.reader\.examples"):
        import_part("shardwright.trainers.grain")


def test_the_extras_are_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = project["optional-dependencies"]
    named = re.findall(r"shardwright\[(\w+)\]", " ".join(extras._INSTALLS.values()))

    assert sorted(named) == ["grain", "jax", "tensorflow", "torch"]
    for name in named:
        assert "shardwright[reader]" in declared[name]
        assert any(requirement.startswith(name) for requirement in declared[name])
