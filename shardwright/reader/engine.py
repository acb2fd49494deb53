"""Make the batch at any position: the open dataset, its order and its threads.

Nothing here keeps the position of a reader.

"""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import ChangedError, UsageError
from shardwright.format.schema import (
    CROPPED,
    NUMBERS,
    POSITIONS,
    ExampleSchema,
    Feature,
)
from shardwright.format.versions import number_of
from shardwright.images.decode import stored_image
from shardwright.images.regions import part_decoder
from shardwright.images.specs import (
    CropImage,
    EvalImage,
    MultiCrop,
    TrainImage,
    images_by_name,
)
from shardwright.reader.batches import MASK, Batch, BatchMaker, PendingBatch, image_spec
from shardwright.reader.columns import ColumnReader
from shardwright.reader.corpus import Corpus, DatasetSource
from shardwright.reader.encodings import Spec
from shardwright.reader.options import ReaderOptions, share_of_cores
from shardwright.reader.order import I64, Order, ShuffledOrder, StoredOrder
from shardwright.reader.permutation import derive_key
from shardwright.reader.places import PlaceTable
from shardwright.reader.record_reader import BadRecord, RecordReader
from shardwright.reader.sampled_orders import MixedOrder
from shardwright.reader.selection import INDEXES_AT_A_TIME, Selection, select_records
from shardwright.reader.shard_files import ShardFiles
from shardwright.reader.shard_index import ShardIndexes, labels_of, read_rows
from shardwright.reader.steps import Step
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads

_LOG = logging.getLogger("shardwright.reader")
# Names of numbers that are positions in the image.
_POSITION = re.compile(r"(?<![a-z])(b?box(es)?|key_?points?|landmarks?|polygons?)(?![a-z])", re.I)


class Engine:
    """An open dataset that makes any batch of it.

    Args:
        options: The options.
        source: The single dataset, if it is open already.

    Attributes:
        options: Those given; of a single dataset, with the number of the version that is read.
        corpus: Its shards.
        fingerprint: Hash of the records that are read and of their weights.
        selection: The records to read in each shard.
        window: Number of shards shuffled together; 0 if not shuffled.
        columns: The requested features.
        images: The transform of each array of images in a batch, by name; None for stored bytes.
    """

    def __init__(self, options: ReaderOptions, source: DatasetSource | None = None) -> None:
        sources = (
            [source]
            if source is not None
            else [
                DatasetSource.open(
                    Folder.at(address, options.storage), options.cache, options.version
                )
                for address in options.datasets
            ]
        )
        self.corpus = Corpus(sources, options.split, options.features)
        if len(sources) == 1:  # another process that opens it again reads the same version
            options = replace(options, version=number_of(sources[0].manifest))
        self.options = options
        self.columns = _make_columns(self.corpus.schema, options)
        self.selection: Selection = select_records(self.corpus, options.where)
        self.window = self.corpus.window(options.window) if options.shuffle else 0
        order = _make_order(self.corpus, self.selection, options, self.window)
        self.places = PlaceTable(order, self.selection, options.seed)
        self._files = ShardFiles(
            self.corpus.shards,
            # Of a mixture or of sampled records, the first window tells how many shards are open at
            # the same time.
            at_a_time=max(self.window, len(order.windows(0, 0)[0])),
            in_order=isinstance(order, StoredOrder),
        )
        # If the image and the label are all that is read, the index alone has both, and records
        # need no parsing.
        self._indexes = ShardIndexes(self.corpus.shards, of_images=not self.columns.needs_record)
        records = RecordReader(self.corpus, self._files, self._indexes)
        # Of `columns`, the mask of padded boxes is none of the schema's.
        asked = options.features or (feature.name for feature in self.corpus.schema.features)
        self._names = tuple(dict.fromkeys([*asked, *self.columns.encodings]))
        self.images: dict[str, CropImage | None] = {}
        if self.columns.image is not None:
            name = self.columns.image.name
            self.images = images_by_name(name, options.image)
            if options.image is not None:
                part_decoder()  # tried here once, and not by each thread
            self._names = _with_crops(self._names, name, self.images)
        self._maker = BatchMaker(
            records,
            self.columns,
            options.image,
            self.images,
            stored_image(self.corpus.schema),
            self._names,
            options.is_masked,
        )
        decodes = options.image is not None and self.columns.image is not None
        # Copying bytes mostly holds the interpreter's lock.
        self.threads = options.threads or (share_of_cores(options.processes or 1) if decodes else 1)
        # Positions mean other records if the selection or the weights change: a saved state must
        # not fit then.
        settings = (self.selection.fingerprint(), getattr(order, "fingerprint", b""))
        self.fingerprint = self.corpus.fingerprint(settings)
        self._pool: ThreadPoolExecutor | None = None
        self._pool_owner = 0
        self._lock = threading.Lock()
        self._window_read: tuple[int, ...] | None = None

    @classmethod
    def of_same(cls, options: ReaderOptions, fingerprint: str) -> Engine:
        """Open a dataset, and raise `ChangedError` if it has another fingerprint, unless ""."""
        engine = cls(options)
        if fingerprint and engine.fingerprint != fingerprint:
            raise ChangedError(
                f"{' + '.join(options.datasets)} has changed since the reader was opened: open it "
                "again"
            )
        return engine

    @property
    def epoch_size(self) -> int:
        return self.places.order.size

    def spec(self, rows: int | None) -> dict[str, Spec]:
        """Return (shape, dtype) of each array of a batch of `rows` rows, by name."""
        found = self.columns.spec(rows)
        found |= {name: image_spec(image, rows) for name, image in self.images.items()}
        return {name: found[name] for name in self._names} | (
            {MASK: ((rows,), np.dtype(np.bool_))} if self.options.is_masked else {}
        )

    def begin(
        self, step: Step, memory: Mapping[str, NDArray[np.uint8]] | None = None
    ) -> PendingBatch:
        """Start making a host's part of a global batch; `memory` as of `BatchMaker.begin`."""
        # The first batch: no earlier one has planned its window.
        # Without the lock: at worst two threads plan the same window twice.
        if self._window_read is None:
            self._plan(step.position)
        return self._maker.begin(
            step, self.places.find(step.start, step.num_places), self._running_pool(), memory
        )

    def finish(self, batch: PendingBatch) -> tuple[Batch, list[BadRecord]]:
        """Return a batch that was begun; raise `StorageError` if a file cannot be read."""
        finished = self._maker.finish(batch)
        # Only now: until its batches are finished, a window's shards must stay.
        self._plan(batch.step.next_position)
        return finished

    def read(self, positions: I64) -> tuple[Batch, list[BadRecord]]:
        """Read the records of any positions as a batch, one in the calling thread; as `finish`."""
        count = len(positions)
        step = Step(start=0, num_places=count, num_rows=count, next_position=0, position=0)
        pool = self._running_pool() if count > 1 else None
        return self._maker.finish(self._maker.begin(step, self.places.locate(positions), pool))

    def close(self) -> None:
        """Stop the threads and close the shards."""
        pool, self._pool = self._pool, None
        if pool is not None:
            # Before the files: a running task would open a shard again after they are closed.
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
    image = options.image
    columns = ColumnReader(
        schema,
        options.features,
        image=image if isinstance(image, CropImage) else None,
    )
    if options.image is not None and columns.image is None:
        told = (
            "an image, which the records of this dataset do not have"
            if schema.image is None
            else f"the image: add {schema.image.name!r} to features=, or leave image= out"
        )
        raise UsageError(f"image={options.image} needs {told}")
    wanted = options.features or [feature.name for feature in schema.features]
    if isinstance(image, (TrainImage, EvalImage, MultiCrop)):
        lists = columns.objects.features if columns.objects is not None else ()
        _check_nothing_stays(
            image, [each for each in schema.features if each.name in wanted], lists
        )
    if options.is_masked and MASK in wanted:
        raise UsageError(
            f"feature {MASK!r} has the same name as the mask of remainder='pad': "
            "leave it out of features="
        )
    return columns


def _with_crops(
    names: Sequence[str], image: str, crops: Mapping[str, CropImage | None]
) -> tuple[str, ...]:
    """Return the names of a batch's arrays, with those of the crops in place of their image's."""
    for name in crops:
        if name != image and name in names:
            raise UsageError(
                f"MultiCrop names a crop {name!r}, and so is a feature of this dataset: leave the "
                "feature out of features="
            )
    place = names.index(image)
    return (*names[:place], *crops, *names[place + 1 :])


def _check_nothing_stays(
    image: TrainImage | EvalImage | MultiCrop,
    features: Sequence[Feature],
    moving: Sequence[Feature],
) -> None:
    """Raise `UsageError` if boxes, keypoints or masks would not be moved with their image.

    Warn of numbers that are such positions by their name: of the datasets of others, schemas often
    say no more.

    Args:
        image: The crop.
        features: Those that are read.
        moving: Those of them that move with the boxes, and these.
    """
    moved = [*image.masks, *(feature.name for feature in moving)]
    fixed = [
        feature for feature in features if feature.kind in CROPPED and feature.name not in moved
    ]
    kind = type(image).__name__
    plain = [
        feature.name
        for feature in features
        if feature.kind in NUMBERS - POSITIONS and feature.shape and _POSITION.search(feature.name)
    ]
    if plain and multiprocessing.parent_process() is None:
        _LOG.warning(
            "%s crops images, but %s stays as stored: if it is positions in the image, give it the "
            "kind box or keypoints when the dataset is built, or leave it out of features=",
            kind,
            ", ".join(plain),
        )
    if not fixed:
        return
    names = ", ".join(feature.name for feature in fixed)
    move = f"name lists of boxes, and masks, in boxes= and masks= of sw.{kind}, leave the rest"
    raise UsageError(
        f"{kind} crops the image, but {names} would stay as stored: "
        f"{'leave it' if isinstance(image, MultiCrop) else move} out of features=, or read whole "
        "images with image=sw.DecodedImage()"
    )


def _make_order(corpus: Corpus, selection: Selection, options: ReaderOptions, window: int) -> Order:
    """Return the order of a corpus; `window` is 0 for stored order.

    Raises:
        UsageError: The sampling does not fit the records.
        StorageError: An index cannot be read; only sampling reads any.
    """
    spans = [range(start, stop) for start, stop in pairwise(corpus.source_starts)]
    sizes = [selection.sizes[span.start : span.stop] for span in spans]
    # With equal seeds, datasets of equal sizes would have equal orders.
    seeds = [derive_key(options.seed, number) for number in range(len(spans))]
    seeds = seeds if len(spans) > 1 else [options.seed]
    orders: list[Order] = []
    for span, mine, seed in zip(spans, sizes, seeds, strict=True):
        if options.sampling is not None:
            labels, names = _labels_of(corpus, selection, span), corpus.schema.class_names
            orders.append(options.sampling._order(labels, mine, class_names=names, seed=seed))
        else:
            orders.append(
                ShuffledOrder(mine, seed, min(window, len(mine))) if window else StoredOrder(mine)
            )
    if len(orders) == 1:
        return orders[0]
    return MixedOrder(orders, sizes, list(options.datasets.values()), options.seed)


def _labels_of(corpus: Corpus, selection: Selection, span: range) -> NDArray[np.int32]:
    """Return the labels of the selected records, int32 [records], joined over all shards."""

    def read_labels(number: int) -> NDArray[np.int32]:
        return labels_of(read_rows(corpus.shards[number], ["label"]))[selection.rows_of(number)]

    return np.concatenate(list(map_reads(read_labels, span, INDEXES_AT_A_TIME)))
