"""References that stay inside of INPUT."""

from __future__ import annotations

from pathlib import Path

from shardwright.transforms.inputs.image_paths import keep_inside
from shardwright.transforms.rejects import Reject
from tests.support.helpers import references


def test_absent_files_and_folders(tmp_path: Path) -> None:
    """Their paths are followed as far as they exist, and again in the next listing."""
    root = tmp_path / "input"
    root.mkdir()
    (root / "away").symlink_to(tmp_path)
    inside = [f"{root}/a.png", f"{root}/absent/a.png", f"{root}/x/../absent/b.png"]
    outside = [f"{root}/away/absent/a.png", f"{root}/absent/../../a.png"]
    batch = references([*inside, *outside], uri=[*inside, *outside])

    def rejected() -> list[str]:
        found = keep_inside([batch, batch], (str(root),))
        return [one.uri for one in found if isinstance(one, Reject)]

    assert rejected() == outside * 2
    (root / "absent").mkdir()
    (root / "absent" / "a.png").symlink_to("/etc/hosts")
    assert rejected() == [inside[1], *outside] * 2
