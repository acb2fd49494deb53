"""The golden texts; `make golden` compares what operations publish, too."""

from __future__ import annotations

import pytest

from tests.golden.snapshots import difference
from tests.golden.texts import TEXTS


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name: str) -> None:
    assert difference(name, TEXTS[name]()) == ""
