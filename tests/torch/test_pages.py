"""The blocks of README.md and docs/ for PyTorch run as printed, in the environment with torch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import ROOT

BLOCK = re.compile(r"<!-- environment: torch -->\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("page", "side"), [("README.md", 224), ("docs/reading.md", 64)])
def test_its_block_runs(
    page: str, side: int, digits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = BLOCK.findall((ROOT / page).read_text())
    (tmp_path / "dataset").symlink_to(digits)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(block, page, "exec"), names)
    assert names["images"].shape == (len(names["labels"]), 3, side, side)
    assert names["images"].dtype == torch.uint8
    assert names["labels"].dtype == torch.int64
