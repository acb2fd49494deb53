"""Measure quality signals of the images of a shard, and write them beside its index.

Signals describe the image as it is stored, so that they are a function of the dataset: a sample
read from finished shards has the same values. So a re-encoded image is decoded once more; the
pixels before a lossy encoder would give others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from shardwright.errors import ImageFault
from shardwright.format.contents import FileContent
from shardwright.format.naming import ShardName
from shardwright.format.schema import ExampleSchema
from shardwright.images.decode import StoredImage, stored_image
from shardwright.images.pixel_measures import NO_PIXELS, ChannelSums
from shardwright.images.previews import decode_preview
from shardwright.images.signals import SIGNALS, PictureMeasures, measure_picture
from shardwright.images.signals_file import SIGNALS_SCHEMA, signal_values, write_signals
from shardwright.storage.folder import Folder
from shardwright.transforms.images.budget import PIXELS
from shardwright.transforms.publish.picture_statistics import describe_pictures
from shardwright.transforms.write.made_records import ImageToStore
from shardwright.transforms.write.write_job import ShardExtra

_UNKNOWN = (float("nan"),) * len(SIGNALS)


class MeasuredRecords(NamedTuple):
    """The measurements of some records.

    Attributes:
        rows: Rows of a file of signals.
        channels: The channel sums of all their images.
    """

    rows: pa.Table
    channels: ChannelSums


class MeasuredSignals(ShardExtra):
    """The extra of `--signals`."""

    def measure(
        self, ids: Sequence[str], images: Sequence[ImageToStore], schema: ExampleSchema
    ) -> MeasuredRecords:
        return measure_records(ids, images, stored_image(schema))

    def write(self, root: Folder, name: ShardName, parts: Sequence[MeasuredRecords]) -> FileContent:
        return write_signals(root, name, join_records(parts).rows)

    def describe(self, parts: Sequence[MeasuredRecords]) -> Mapping[str, Any]:
        measured = join_records(parts)
        return describe_pictures(signal_values(measured.rows), measured.channels)


def measure_records(
    ids: Sequence[str], images: Sequence[ImageToStore], stored: StoredImage
) -> MeasuredRecords:
    """Measure stored images; values are null without an image or if it does not decode."""
    found = [_measure_image(image, stored) for image in images]
    known = [each.signals if each else _UNKNOWN for each in found]
    values = np.array(known, np.float32).reshape(len(found), len(SIGNALS))
    missing = np.array([each is None for each in found], bool)
    columns = {
        "id": pa.array(ids, pa.string()),
        **{
            signal.name: pa.array(values[:, number], pa.float32(), mask=missing)
            for number, signal in enumerate(SIGNALS)
        },
    }
    channels = sum((each.channels for each in found if each), NO_PIXELS)
    return MeasuredRecords(pa.table(columns, schema=SIGNALS_SCHEMA), channels)


def join_records(parts: Sequence[MeasuredRecords]) -> MeasuredRecords:
    """Return the measurements of several chunks as one."""
    rows = pa.concat_tables([SIGNALS_SCHEMA.empty_table(), *(part.rows for part in parts)])
    return MeasuredRecords(rows, sum((part.channels for part in parts), NO_PIXELS))


def _measure_image(image: ImageToStore, stored: StoredImage) -> PictureMeasures | None:
    if not image.data:
        return None
    try:
        # Waits until all threads together hold few enough pixels.
        with PIXELS.hold(image.info.width * image.info.height):
            preview = decode_preview(image.data, stored)
    except ImageFault:
        return None
    return measure_picture(preview.pixels, width=preview.width, height=preview.height)
