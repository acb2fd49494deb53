"""Make the table of `decoders.py`, without the libraries that it measures."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from page import Target, table


def unpack(raw: dict[str, Any]) -> dict[str, Any]:
    return raw


def targets(_: object) -> list[Target]:
    return []


def render(found: dict[str, Any], lines: Sequence[str]) -> str:
    rows = []
    for name, rates in found["rates"].items():
        speeds = [f"{median(each):,.0f}" for each in rates]
        compared = found["gaps"].get(name, [])
        gaps = [f"{mean:.2f}, {greatest}" for mean, greatest in compared] or ["-", "-"]
        rows.append([name, *speeds, *gaps])
    head = [
        "images/s",
        *(f"{n} thread{'s' * (n > 1)}" for n in found["threads"]),
        "decoded: mean, max",
        "224 x 224: mean, max",
    ]
    return "\n".join([
        "## Decoding", "", *lines, "", *table(head, rows), "",
        "JPEGs of 500 x 375 pixels to random crops of 224 x 224, half of them flipped; the median",
        "of the rounds. The right columns are the difference of pixel values, 0 to 255, from "
        "`tf.io.decode_jpeg` and `tf.image.resize`.",
    ])  # fmt: skip
