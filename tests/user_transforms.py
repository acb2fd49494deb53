"""Functions as users write them, for `--transform`."""

from __future__ import annotations

import numpy as np

from transforms.user_code import Record, RejectRecord


def tiles(record: Record) -> list[Record]:
    """The left and the right half."""
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


def fail_on_two(record: Record) -> Record:
    if record.features["age"] == 2:
        return 1 / 0  # type: ignore[return-value]
    return record


def unknown_label(record: Record) -> Record:
    return record.replace(label="yak")


def wrong_type(record: Record) -> Record:
    return record.replace(features={**record.features, "age": "old"})


def lacks_a_feature(record: Record) -> Record:
    return record.replace(features={})


def other_id(record: Record) -> Record:
    return record.replace(id="elsewhere")


def same_ids(record: Record) -> list[Record]:
    return [record, record, record.replace(id=record.id + "x")]


def no_record(record: Record) -> Record:
    return record.image  # type: ignore[return-value]


def float_pixels(record: Record) -> Record:
    return record.replace(image=np.zeros((4, 4, 3)))  # type: ignore[arg-type]


def broken_image(record: Record) -> Record:
    return record.replace(image=b"no image")


NOT_A_FUNCTION = 1
