"""Make one batch: read, check, parse and decode each record into its row, in a thread pool."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import ImageFault, RecordFault
from shardwright.format.entries import Values
from shardwright.format.example import ExampleFault
from shardwright.images.decode import StoredImage
from shardwright.images.specs import CropImage, MultiCrop
from shardwright.reader.columns import ColumnReader
from shardwright.reader.encodings import Spec
from shardwright.reader.places import Places
from shardwright.reader.record_reader import BadRecord, RecordReader
from shardwright.reader.steps import Step
from shardwright.storage.cancellation import cancelable

MASK = "mask"
# Rows per task. Decoding takes a millisecond a row, so small tasks keep all threads busy to the
# end of a batch; reading takes 20 us a row.
_DECODE_ROWS, _READ_ROWS = 8, 64
ALIGNMENT_BYTES = 64

Batch = dict[str, Any]


@dataclass
class PendingBatch:
    """A batch in progress.

    Attributes:
        step: Position and size of the batch.
        places: Its records, [n].
        store: Its columns other than the image, as allocated by `ColumnReader`.
        images: By name, [rows, height, width, 3], or objects [rows] where sizes vary or images stay
            bytes; empty if not requested.
        labels: int64 [rows], where the index gives them.
        faults: Row -> what is wrong with its record.
        tasks: Tasks that fill the rows.
        canceled: Set once nobody wants it.
        owner: The process whose threads run the tasks.
    """

    step: Step
    places: Places
    store: Any
    images: dict[str, NDArray[Any]]
    labels: NDArray[np.int64]
    faults: dict[int, Exception] = field(default_factory=dict)
    tasks: list[Future[Any]] = field(default_factory=list)
    canceled: threading.Event = field(default_factory=threading.Event)
    owner: int = field(default_factory=os.getpid)

    def abandon(self) -> None:
        """Cancel its tasks, and do not wait for running ones."""
        self.canceled.set()
        for task in self.tasks:
            task.cancel()

    def cancel(self) -> None:
        """Cancel its tasks and wait for running ones, of which a forked child has none."""
        self.abandon()
        if self.owner == os.getpid():
            wait(self.tasks)


@dataclass(frozen=True)
class BatchMaker:
    """A maker of batches.

    Attributes:
        records: Reads the bytes of records.
        columns: Encodes their features.
        image: Decodes their images; None for the stored bytes.
        images: The transform of each array of images, by name.
        stored: Storage format of the images.
        names: Names of the arrays in a batch, in order.
        masked: Add `mask` to each batch and keep the rows of bad records.
    """

    records: RecordReader
    columns: ColumnReader
    image: CropImage | MultiCrop | None
    images: Mapping[str, CropImage | None]
    stored: StoredImage
    names: tuple[str, ...]
    masked: bool

    def begin(
        self,
        step: Step,
        places: Places,
        pool: ThreadPoolExecutor | None,
        memory: Mapping[str, NDArray[np.uint8]] | None = None,
    ) -> PendingBatch:
        """Start making a batch of these records.

        Args:
            step: Position and size.
            places: The records.
            pool: Makes it; None for the calling thread.
            memory: For images of one size, by name; what is missing is allocated.
        """
        rows = step.num_rows
        batch = PendingBatch(
            step,
            places,
            self.columns.allocate(rows),
            {
                name: _allocate_images(image, rows, (memory or {}).get(name))
                for name, image in self.images.items()
            },
            np.zeros(rows, np.int64),
        )
        count = len(places.rows)
        if pool is None:
            self._fill(batch, 0, count)
            return batch
        task_rows = _READ_ROWS if self.image is None else _DECODE_ROWS
        for first in range(0, count, task_rows):
            last = min(first + task_rows, count)
            batch.tasks.append(
                pool.submit(cancelable, batch.canceled, self._fill, batch, first, last)
            )
        return batch

    def finish(self, batch: PendingBatch) -> tuple[Batch, list[BadRecord]]:
        """Wait for a batch; return it and its bad records.

        Raises:
            StorageError: A shard or its index cannot be read.
        """
        # An unreachable store fails every task after its full deadline: the first error is enough.
        wait(batch.tasks, return_when=FIRST_EXCEPTION)
        try:
            for task in batch.tasks:
                task.result()
        except BaseException:
            batch.cancel()
            raise
        # Labels are converted for all rows at once, after the tasks: it is one array operation.
        batch.faults.update(self.columns.fill_indexed(batch.store, batch.labels))
        bad = [self._describe(batch, row) for row in sorted(batch.faults)]
        return self._collect(batch), bad

    def _fill(self, batch: PendingBatch, first: int, last: int) -> None:
        fill = self._fill_from_record if self.columns.needs_record else self._fill_from_index
        for row in range(first, last):
            try:
                fill(batch, row, int(batch.places.shards[row]), int(batch.places.rows[row]))
            except (RecordFault, ExampleFault, ImageFault) as fault:
                batch.faults[row] = fault

    def _fill_from_record(self, batch: PendingBatch, row: int, shard: int, record: int) -> None:
        frame, start, stop = self.records.read_record(shard, record)
        image, held = self.columns.fill(batch.store, row, frame, start, stop)
        if image is not None:
            self._put_image(batch, row, image, held)

    def _fill_from_index(self, batch: PendingBatch, row: int, shard: int, record: int) -> None:
        labels = self.records.indexes[shard].labels
        if labels is not None:
            batch.labels[row] = labels[record]
        if batch.images:
            self._put_image(batch, row, self.records.read_image(shard, record))

    def _put_image(
        self,
        batch: PendingBatch,
        row: int,
        data: bytes | memoryview,
        held: Sequence[Values] = (),
    ) -> None:
        if self.image is None:
            for stored in batch.images.values():
                # A view would keep the whole record in memory, as long as the user keeps the image.
                stored[row] = bytes(data)
            return
        move = partial(self.columns.move, batch.store, row, held) if held else None
        if not data and self.columns.image is not None and self.columns.image.is_optional:
            for images in batch.images.values():
                images[row] = self._blank(images)
            if move is not None:
                move(None)
            return
        slots = [images[row] if images.ndim == 4 else None for images in batch.images.values()]
        draw = int(batch.places.draws[row])
        if isinstance(self.image, MultiCrop):
            made = self.image.apply(data, self.stored, draw, slots)
        else:
            made = [self.image.apply(data, self.stored, draw, slots[0], move)]
        for images, slot, pixels in zip(batch.images.values(), slots, made, strict=True):
            if slot is None:
                images[row] = pixels

    def _describe(self, batch: PendingBatch, row: int) -> BadRecord:
        fault = batch.faults[row]
        what = fault.what if isinstance(fault, RecordFault) else str(fault)
        return self.records.describe(
            int(batch.places.shards[row]),
            int(batch.places.rows[row]),
            what,
            # Its checksum is verified before it is decoded.
            is_as_built=isinstance(fault, ImageFault),
        )

    def _collect(self, batch: PendingBatch) -> Batch:
        kept = np.zeros(batch.step.num_rows, np.bool_)
        # The rows behind them pad the last batch of an epoch.
        kept[: len(batch.places.rows)] = True
        kept[list(batch.faults)] = False
        columns = self.columns.finish(batch.store, kept=kept, pad=self.masked)
        for name, images in batch.images.items():
            columns[name] = self._finish_images(images, kept)
        found = {name: columns[name] for name in self.names}
        return {**found, MASK: kept} if self.masked else found

    def _finish_images(self, images: NDArray[Any], kept: NDArray[np.bool_]) -> NDArray[Any]:
        if kept.all():
            return images
        if not self.masked:
            return images[kept]
        blank = self._blank(images)
        # The memory was allocated without zeros, or is a slot that an earlier batch has used.
        for row in np.flatnonzero(~kept):
            images[row] = blank
        return images

    def _blank(self, images: NDArray[Any]) -> Any:
        """Return the value of rows without an image: zeros, or no pixels where sizes vary."""
        if images.dtype != object:
            return 0
        return b"" if self.image is None else np.zeros((0, 0, 3), np.uint8)


def _allocate_images(
    image: CropImage | None, num_rows: int, memory: NDArray[np.uint8] | None
) -> NDArray[Any]:
    """Return an array that TensorFlow and JAX use without a copy.

    They copy memory that is not 64-byte aligned, such as NumPy's own: 30 ms for 256 images of
    224x224.
    """
    shape, dtype = cast(tuple[tuple[int, ...], np.dtype[Any]], image_spec(image, num_rows))
    if dtype.hasobject:
        return np.empty(num_rows, object)
    num_bytes = math.prod(shape) * dtype.itemsize
    if memory is None:
        memory = np.empty(num_bytes + ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT_BYTES
    return memory[start : start + num_bytes].view(dtype).reshape(shape)


def image_spec(image: CropImage | None, rows: int | None) -> Spec:
    """Return (shape, dtype) of the images of a batch; objects if their sizes differ."""
    if image is None or None in image.shape:
        return (rows,), np.dtype(object)
    return (rows, *image.shape), image.dtype
