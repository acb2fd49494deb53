"""Functions as users write them, for `--transform`."""

from __future__ import annotations

import ctypes
import os
import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwright.transforms.user_code import Record, RejectRecord


def tiles(record: Record) -> list[Record]:
    """Yield the left and the right half."""
    pixels = record.pixels()
    middle = pixels.shape[1] // 2
    return [record.replace(image=part) for part in (pixels[:, :middle], pixels[:, middle:])]


def named_tiles(record: Record) -> list[Record]:
    return [record.replace(id=f"{record.id}/{name}") for name in ("a", "b")]


def add_one(record: Record) -> Record:
    return record.replace(features={**record.features, "age": record.features["age"] + 1})


def odd_ages_only(record: Record) -> Record | None:
    if record.features["age"] > 100:
        raise RejectRecord("too old")
    return record if record.features["age"] % 2 else None


def relabel(record: Record) -> Record:
    return record.replace(label="dog")


def mirror(record: Record) -> Record:
    mask = record.pictures.get("segmentation_mask")
    assert isinstance(mask, bytes)
    return record.replace(
        image=np.ascontiguousarray(record.pixels()[:, ::-1]),
        pictures={"segmentation_mask": np.zeros((8, 8), np.uint8)},
    )


def divide_by_zero(_: Record) -> Record:
    return 1 / 0  # type: ignore[return-value]


def same_ids(record: Record) -> list[Record]:
    return [record, record, record.replace(id=record.id + "x")]


def leave(_: Record) -> Record:
    raise SystemExit(3)


def interrupt(_: Record) -> Record:
    raise KeyboardInterrupt


MISTAKES: tuple[Callable[[Record], Any], ...] = (
    lambda record: record,
    divide_by_zero,
    lambda record: record.replace(label="yak"),
    lambda record: record.replace(features={**record.features, "age": "old"}),
    lambda record: record.replace(features={}),
    lambda record: record.replace(id="elsewhere"),
    same_ids,
    lambda record: record.image,  # no record
    lambda record: record.replace(image=np.zeros((4, 4, 3))),
    lambda record: record.replace(image=b"no image"),
    leave,
    lambda record: record.replace(features={**record.features, "new": 1}),
    interrupt,
)


def a_mistake(record: Record) -> Any:
    """Make the mistake of the record's age."""
    return MISTAKES[record.features["age"]](record)


def crash(record: Record) -> Record:
    """End the process by SIGSEGV for the images 3 and 7."""
    if record.id.endswith(("003.png", "007.png")):
        ctypes.string_at(0)
    return record


def die(record: Record) -> Record:
    """End the process by SIGSEGV for the image 3, without a signal for 5, and hang for 7."""
    if record.id.endswith("005.png"):
        os._exit(3)
    return crash(record) if record.id.endswith("003.png") else hang(record)


def end(record: Record) -> Record:
    """End the process as if all were well for the image 3."""
    if record.id.endswith("003.png"):
        os._exit(0)
    return record


def hang(record: Record) -> Record:
    """Never return for the images 3 and 7, and hold the GIL."""
    if record.id.endswith(("003.png", "007.png")):
        re.match(r"(a+)+$", "a" * 60 + "b")
    return record


def sleep(record: Record) -> Record:
    """Take a minute for the image 3."""
    if record.id.endswith("003.png"):
        time.sleep(60)
    return record
