"""The benchmarks as modules."""

from __future__ import annotations

import importlib
import json
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import ROOT

BENCHMARKS = ROOT / "benchmarks"


@cache
def load(name: str) -> ModuleType:
    """Import a script, which finds its neighbors as it does when it is run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module(name)


def peers_here(folder: Path) -> dict[str, str]:
    """Make the peers' environments, all of them this one; return the variable that leads there."""
    for path in (BENCHMARKS / "peers").glob("*.txt"):
        python = folder / path.stem / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
    return {"SHARDWRIGHT_PEERS": str(folder)}


def through_json(report: ModuleType, results: Any) -> Any:
    """Return the results as they are read back from their JSON."""
    return report.unpack(json.loads(json.dumps(report.packed(results))))
