"""Fixtures of the browser tests, which know the project by its pages only."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
READY = importlib.util.find_spec("playwright") is not None and CHROMIUM is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not READY:
        missing = pytest.mark.skip(reason="no browser is installed here: make test-browser")
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(missing)


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of pages, made in the project's environment."""
    folder = tmp_path_factory.mktemp("pages")
    python = ROOT / ".venv" / "bin" / "python"
    made = [python, "-m", "tests.browser.pages", folder]
    done = subprocess.run(made, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Yield the system's Chromium, without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()
