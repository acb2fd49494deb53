"""Make the batch at any position: the open dataset, its order and its threads.

Nothing here keeps the position of a reader.

"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shardwright.errors import UsageError
from shardwright.format.schema import ExampleSchema, FeatureKind, Source
from shardwright.format.versions import number_of
from shardwright.images.decode import stored_image
from shardwright.images.specs import EvalImage, ImageTransform, TrainImage
from shardwright.reader.batches import MASK, Batch, BatchMaker, PendingBatch, static_shape
from shardwright.reader.columns import ColumnReader
from shardwright.reader.corpus import Corpus, DatasetSource
from shardwright.reader.encodings import Spec
from shardwright.reader.options import ReaderOptions
from shardwright.reader.order import Order, ShuffledOrder, StoredOrder
from shardwright.reader.permutation import derive_key
from shardwright.reader.places import Places, PlaceTable
from shardwright.reader.record_reader import BadRecord, RecordReader
from shardwright.reader.sampled_orders import MixedOrder, WeightedOrder
from shardwright.reader.sampling import ClassSampling, RecordWeights, order_classes
from shardwright.reader.selection import Selection, for_each_shard, select_records
from shardwright.reader.shard_files import ShardFiles
from shardwright.reader.shard_index import ShardIndexes, labels_of, read_rows
from shardwright.reader.steps import Step
from shardwright.storage.folder import Folder


class Engine:
    """An open dataset that makes any batch of it.

    Attributes:
        corpus: Its shards.
        fingerprint: Hash of the records that are read and of their weights.
        selection: The records to read in each shard.
        window: Number of shards shuffled together; 0 if not shuffled.
        columns: The requested features.
    """

    def __init__(self, options: ReaderOptions) -> None:
        sources = [
            DatasetSource.open(Folder.at(address, options.storage), options.cache, options.version)
            for address in options.datasets
        ]
        self.corpus = Corpus.of(sources, options.split, options.features)
        self.columns = _make_columns(self.corpus.schema, options)
        self.selection: Selection = select_records(self.corpus, options.where)
        self.window = self.corpus.window(options.window) if options.shuffle else 0
        order = make_order(self.corpus, self.selection, options, self.window)
        self.places = PlaceTable(order, self.selection, options.seed)
        self._image, self._masked = options.image, options.is_masked
        self._files = ShardFiles(
            self.corpus.shards,
            at_a_time=max(self.window, len(order.windows(0, 0)[0])),
            in_order=isinstance(order, StoredOrder),
        )
        self._indexes = ShardIndexes(self.corpus.shards, of_images=not self.columns.needs_record)
        self._check = options.check
        records = self.record_reader(self._indexes)
        self._names = tuple(
            options.features or (feature.name for feature in self.corpus.schema.features)
        )
        self._maker = BatchMaker(
            records,
            self.columns,
            options.image,
            stored=stored_image(self.corpus.schema),
            names=self._names,
            masked=options.is_masked,
        )
        self.threads = options.threads or _default_threads(options.image, self.columns)
        settings = (self.selection.fingerprint(), getattr(order, "fingerprint", b""))
        self.fingerprint = self.corpus.fingerprint(settings)
        self._pool: ThreadPoolExecutor | None = None
        self._pool_owner = 0
        self._lock = threading.Lock()
        self._window_read: tuple[int, ...] | None = None

    @property
    def version(self) -> int:
        """The number of the version that is read, of the first dataset."""
        return number_of(self.corpus.shards[0].source.manifest)

    @property
    def epoch_size(self) -> int:
        return self.places.order.size

    def record_reader(self, indexes: ShardIndexes) -> RecordReader:
        """Return a reader of its records' bytes that uses these indexes."""
        return RecordReader(self.corpus, self._files, indexes, check=self._check)

    def spec(self, rows: int | None) -> dict[str, Spec]:
        """Return (shape, dtype) of each array of a batch of `rows` rows, by name."""
        found = self.columns.spec(rows)
        if self.columns.image is not None:
            found[self.columns.image.name] = _image_spec(self._image, rows)
        return {name: found[name] for name in self._names} | (
            {MASK: ((rows,), np.dtype(np.bool_))} if self._masked else {}
        )

    def begin(self, step: Step) -> PendingBatch:
        """Start making a host's part of a global batch."""
        # The first batch: no earlier one has planned its window.
        if self._window_read is None:
            self._plan(step.position)
        return self._maker.begin(
            step, self.places.find(step.start, step.num_places), self._running_pool()
        )

    def finish(self, batch: PendingBatch) -> tuple[Batch, list[BadRecord]]:
        """Return a batch that was begun; raise `StorageError` if a file cannot be read."""
        finished = self._maker.finish(batch)
        # Only now: until its batches are finished, a window's shards must stay.
        self._plan(batch.step.next_position)
        return finished

    def read(self, places: Places) -> tuple[Batch, list[BadRecord]]:
        """Read any records as one batch, a single one in the calling thread; raise as `finish`."""
        count = len(places.rows)
        step = Step(start=0, num_places=count, num_rows=count, next_position=0, position=0)
        return self._maker.finish(
            self._maker.begin(step, places, self._running_pool() if count > 1 else None)
        )

    def close(self) -> None:
        """Stop the threads and close the shards."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)
        self._files.close()

    def _plan(self, position: int) -> None:
        """Plan downloads and release indexes when the window changes; local files need neither."""
        if not self.corpus.is_remote:
            return
        epoch, place = divmod(position, self.epoch_size)
        order = self.places.order
        window, following = order.windows(epoch, place)
        with self._lock:
            if window != self._window_read:
                self._window_read = window
                self._files.plan(window, order.upcoming(epoch, place))
                # Batches made ahead may be in the next window already.
                self._indexes.keep_only({*window, *following})

    def _running_pool(self) -> ThreadPoolExecutor:
        """Return the thread pool, a new one after a fork: threads do not survive it."""
        with self._lock:
            if self._pool is None or self._pool_owner != os.getpid():
                self._pool = ThreadPoolExecutor(
                    self.threads, thread_name_prefix="shardwright-reader"
                )
                self._pool_owner = os.getpid()
            return self._pool


def _make_columns(schema: ExampleSchema, options: ReaderOptions) -> ColumnReader:
    columns = ColumnReader(schema, options.features, indexed=frozenset({Source.LABEL}))
    if options.image is not None and columns.image is None:
        told = (
            "an image, which the records of this dataset do not have"
            if schema.image is None
            else f"the image: add {schema.image.name!r} to features=, or leave image= out"
        )
        raise UsageError(f"image={options.image} needs {told}")
    wanted = options.features or [feature.name for feature in schema.features]
    fixed = [
        feature.name
        for feature in schema.features
        if feature.name in wanted and feature.kind in (FeatureKind.BOX, FeatureKind.MASK)
    ]
    if fixed and isinstance(options.image, (TrainImage, EvalImage)):
        raise UsageError(
            f"{type(options.image).__name__} crops the image, but {', '.join(fixed)} would stay as "
            "stored: leave them out of features=, or read whole images with image=DecodedImage()"
        )
    if options.is_masked and MASK in wanted:
        raise UsageError(
            f"feature {MASK!r} has the same name as the mask of remainder='pad': "
            "leave it out of features="
        )
    return columns


def _default_threads(image: ImageTransform | None, columns: ColumnReader) -> int:
    """Return one thread per core to decode, else 1: copying bytes mostly holds the GIL."""
    decodes = image is not None and columns.image is not None
    return len(os.sched_getaffinity(0)) if decodes else 1


def _image_spec(image: ImageTransform | None, rows: int | None) -> Spec:
    if image is None or (shape := static_shape(image)) is None:
        return (rows,), np.dtype(object)
    return (rows, *shape), image.dtype


def make_order(corpus: Corpus, selection: Selection, options: ReaderOptions, window: int) -> Order:
    """Return the order of a corpus.

    Args:
        window: Number of shards shuffled together; 0 for stored order.

    Raises:
        UsageError: The sampling does not fit the records.
        StorageError: An index cannot be read; only sampling reads any.
    """
    starts = corpus.source_starts
    spans = [range(start, stop) for start, stop in pairwise(starts)]
    if len(spans) == 1:
        return _make_one(corpus, selection, options, window, spans[0], options.seed)
    # With equal seeds, datasets of equal sizes would have equal orders.
    orders = [
        _make_one(corpus, selection, options, window, span, derive_key(options.seed, number))
        for number, span in enumerate(spans)
    ]
    sizes = [selection.sizes[span.start : span.stop] for span in spans]
    return MixedOrder.of(orders, sizes, list(options.datasets.values()), options.seed)


def _make_one(
    corpus: Corpus,
    selection: Selection,
    options: ReaderOptions,
    window: int,
    span: range,
    seed: int,
) -> Order:
    """Return the order of one dataset, its shards counted from its own first one."""
    sizes = selection.sizes[span.start : span.stop]
    sampling = options.sampling
    if isinstance(sampling, ClassSampling):
        labels = _gather(corpus, selection, span, labels_of, ["label"])
        return order_classes(
            sampling,
            labels.astype(np.int32),
            sizes,
            class_names=corpus.schema.class_names,
            seed=seed,
        )
    if isinstance(sampling, RecordWeights):
        return WeightedOrder.of(_gather(corpus, selection, span, sampling.weigh, None), sizes, seed)
    return ShuffledOrder(sizes, seed, min(window, len(sizes))) if window else StoredOrder(sizes)


def _gather(
    corpus: Corpus,
    selection: Selection,
    span: range,
    work: Callable[[pa.Table], NDArray[Any]],
    columns: list[str] | None,
) -> NDArray[Any]:
    """Return `work(rows)` of the selected records' index rows, joined over all shards."""

    def work_on(number: int) -> NDArray[Any]:
        rows = read_rows(corpus.shards[number], columns)
        return work(rows.take(pa.array(selection.rows_of(number))))

    return np.concatenate(for_each_shard(list(span), work_on))
