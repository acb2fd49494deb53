"""A dataset of three versions, its erasure, and what it then holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shardwright.format.versions import number_of, read_version, read_versions
from shardwright.pipelines.commands.erase import main
from shardwright.storage.folder import Folder
from tests.support.build_helpers import files_below
from tests.support.judge import judge
from tests.transforms.versions.histories import append, pictures_of, wanted, write

FIRST = {f"r{number}": number for number in range(9)}
SECOND = {"r3": 20, "new": 21}
THIRD = {f"s{number}": 30 + number for number in range(5)}
GONE = ("r1", "r3", "r8", "s0", "new")


def make_grown(root: Path) -> Path:
    """Write a dataset of three versions, whose second takes a record away and replaces one."""
    write(FIRST, root)
    append(root, SECOND, ["r1"])
    append(root, THIRD, ["r2"])
    return root


def erase(
    root: Path, *ids: str, receipt: str = "receipt.json", also: tuple[object, ...] = ()
) -> int:
    (root.parent / "ids").write_text("\n".join(ids))
    words = ["--ids", root.parent / "ids", "--receipt", root.parent / receipt, "--yes", *also]
    return main([str(root), *map(str, words)])


def check(root: Path, receipt: str = "receipt.json") -> int:
    return main([str(root), "--verify", str(root.parent / receipt)])


def told(root: Path, receipt: str = "receipt.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root.parent / receipt).read_bytes())
    return found


def contents(*ids: str) -> dict[str, int]:
    """Return what the newest version holds without some ids."""
    newest = FIRST | SECOND | THIRD
    return {name: seed for name, seed in newest.items() if name not in ("r1", "r2", *ids)}


def assert_holds(root: Path, content: dict[str, int], number: int) -> None:
    """Check that a version is the only one, and its records and counts."""
    folder = Folder(str(root))
    assert list(map(number_of, read_versions(folder))) == [number]
    assert pictures_of(root) == wanted(content)
    assert judge(str(root)).is_sound
    for split in read_version(folder).splits.values():
        assert sum(split.stats["labels"].values()) == split.num_records
        assert split.stats["width"]["count"] == split.num_records


def state_of(root: Path) -> dict[str, bytes]:
    """Return all files without the reports, which have times."""
    files = files_below(root)
    reported = ("report.html", "manifest.json")
    return {name: path.read_bytes() for name, path in files.items() if path.name not in reported}
