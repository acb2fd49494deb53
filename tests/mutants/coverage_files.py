"""Pytest plugin: coverage's files stay writable for tests that become another user for a while."""

from __future__ import annotations

from tests import ROOT

_FOLDER = ROOT / ".mutants"


def pytest_runtest_setup() -> None:
    """SQLite makes its files with mode 0644, and opens them anew in each thread."""
    _FOLDER.chmod(0o777)
    for path in _FOLDER.glob("coverage*"):
        path.chmod(0o666)
