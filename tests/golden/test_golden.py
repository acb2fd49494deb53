"""The golden texts, and with `--long` what operations publish."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.snapshots import difference
from tests.golden.texts import TEXTS


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name: str) -> None:
    assert difference(name, TEXTS[name]()) == ""


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_published_files(tmp_path: Path) -> None:
    from tests.golden.runs import RUNS  # imports Beam

    for name, run in RUNS.items():
        assert difference(name, run(tmp_path)) == ""
