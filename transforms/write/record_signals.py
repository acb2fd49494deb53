"""Measure the quality signals of records while they are written, as rows of a shard's file.

Signals describe the image as it is stored, so that they are a function of the dataset: a sample
read from finished shards has the same values. So a re-encoded image is decoded once more; the
pixels before a lossy encoder would give others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from shardwright.errors import ImageFault
from shardwright.images.decode import StoredImage
from shardwright.images.pixel_measures import NO_PIXELS, ChannelSums
from shardwright.images.previews import decode_preview
from shardwright.images.signals import SIGNALS, measure_picture
from shardwright.images.signals_file import SIGNALS_SCHEMA
from shardwright.transforms.images.pixels import PIXELS
from shardwright.transforms.images.storing import ImageToStore

_UNKNOWN = (float("nan"),) * len(SIGNALS)


class MeasuredRecords(NamedTuple):
    """The measurements of some records.

    Attributes:
        rows: Rows of a file of signals.
        channels: The channel sums of all their images.
    """

    rows: pa.Table
    channels: ChannelSums


class _Measurement(NamedTuple):
    values: tuple[float, ...]
    channels: ChannelSums


_NOTHING = _Measurement(_UNKNOWN, NO_PIXELS)
NO_RECORDS = MeasuredRecords(SIGNALS_SCHEMA.empty_table(), NO_PIXELS)


def measure_records(
    ids: Sequence[str], images: Sequence[ImageToStore], stored: StoredImage
) -> MeasuredRecords:
    """Measure stored images; values are null without an image or if it does not decode."""
    found = [_measure(image, stored) for image in images]
    values = np.array([each.values for each in found], np.float32).reshape(len(found), len(SIGNALS))
    missing = np.array([each is _NOTHING for each in found], bool)
    columns = {
        "id": pa.array(ids, pa.string()),
        **{
            signal.name: pa.array(values[:, number], pa.float32(), mask=missing)
            for number, signal in enumerate(SIGNALS)
        },
    }
    channels = sum((each.channels for each in found), NO_PIXELS)
    return MeasuredRecords(pa.table(columns, schema=SIGNALS_SCHEMA), channels)


def join_records(parts: Sequence[MeasuredRecords]) -> MeasuredRecords:
    """Return the measurements of several chunks as one."""
    rows = pa.concat_tables([NO_RECORDS.rows, *(part.rows for part in parts)])
    return MeasuredRecords(rows, sum((part.channels for part in parts), NO_PIXELS))


def _measure(image: ImageToStore, stored: StoredImage) -> _Measurement:
    if not image.data:
        return _NOTHING
    try:
        # Waits until all threads together hold few enough pixels.
        with PIXELS.hold(image.info.width * image.info.height):
            preview = decode_preview(image.data, stored)
    except ImageFault:
        return _NOTHING
    measured = measure_picture(preview.pixels, width=preview.width, height=preview.height)
    return _Measurement(measured.signals.values(), measured.channels)
