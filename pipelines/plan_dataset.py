"""`shardwright plan`: the planning half of the build, and what it would write. No image is read, nothing is written."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    return 0
