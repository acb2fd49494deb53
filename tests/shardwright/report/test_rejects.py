"""Pictures of rejects: of every reason in turn, and never more work than a build can wait for."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest
from PIL import Image

from shardwright.report import rejects as reading
from shardwright.report.rejects import RejectedInput
from shardwright.transforms.rejects import RejectReason


@pytest.fixture
def rejects(tmp_path: Path) -> list[RejectedInput]:
    """Return 5 inputs of each of two reasons, sorted by reason; the images are BMPs."""
    found = []
    for reason in ("corrupt", "truncated"):
        for number in range(5):
            path = tmp_path / f"{reason}{number}.bmp"
            Image.new("RGB", (10, 10), (number + 1, 0, 0)).save(path)
            found.append(RejectedInput(path.name, str(path), reason, ""))
    return found


def shown(rejects: list[RejectedInput]) -> list[str]:
    groups = groupby(rejects, key=lambda reject: reject.reason)
    return [reject.id for reject in reading._thumbnails([list(some) for _, some in groups])]


def test_each_reason_has_its_turn(
    rejects: list[RejectedInput], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_THUMBNAILS", 3)
    assert shown(rejects) == ["corrupt0.bmp", "truncated0.bmp", "corrupt1.bmp"]


@pytest.mark.parametrize(("name", "most", "number"), [
    ("_MAX_TRIED", 4, 4), ("_MAX_FILE_BYTES", 300, 0),
    ("_MAX_SECONDS", -1.0, 0), ("_MAX_SECONDS", 60.0, 10),
])  # fmt: skip
def test_the_work_is_bounded(
    rejects: list[RejectedInput], monkeypatch: pytest.MonkeyPatch, name: str, most: int, number: int
) -> None:
    """A picture has 354 bytes."""
    monkeypatch.setattr(reading, name, most)
    assert len(shown(rejects)) == number


@pytest.mark.parametrize(("change", "value"), [
    ("uri", ""), ("uri", "s3://bucket/a.bmp"), ("uri", "/dev/zero"), ("uri", "/nowhere"),
    ("uri", "/"), ("reason", "outside_input"), ("reason", "crashed"),
])  # fmt: skip
def test_what_is_not_opened(rejects: list[RejectedInput], change: str, value: str) -> None:
    assert shown([rejects[0]._replace(**{change: value})]) == []


def test_the_documentation_explains_every_reason() -> None:
    explained = (Path(__file__).parents[3] / "docs" / "builds.md").read_text("utf-8")
    assert [reason for reason in RejectReason if f"`{reason}`" not in explained] == []
