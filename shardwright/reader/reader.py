"""`sw.Reader`: batches of NumPy arrays in an order that can be repeated, divided and resumed."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from shardwright.cache.settings import CacheSettings
from shardwright.errors import UsageError
from shardwright.extras import import_trainer
from shardwright.format.schema import ExampleSchema
from shardwright.format.versions import LATEST, VersionKey
from shardwright.images.specs import CropImage, MultiCrop
from shardwright.python_errors import PythonErrors
from shardwright.reader.batches import Batch
from shardwright.reader.corpus import DatasetSource
from shardwright.reader.encodings import Encoding, Spec
from shardwright.reader.engine import Engine
from shardwright.reader.hosts import check_hosts
from shardwright.reader.iteration import BatchIterator, LookAhead
from shardwright.reader.options import (
    ReaderOptions,
    batch_size_of,
    datasets_of,
    features_of,
    remainder_of,
)
from shardwright.reader.processes import ProcessEngine
from shardwright.reader.record_reader import BadRecord, add_bad_records
from shardwright.reader.sampling import Sampling
from shardwright.reader.selection import Condition
from shardwright.reader.state import Pass, Passes, ReaderState
from shardwright.reader.steps import Remainder, Steps, checked_position
from shardwright.sizes import counted
from shardwright.storage.options import StorageOptions

# Number of prefetched batches; two keep every thread busy across batch boundaries.
_BATCHES_AHEAD = 2
_ROWS_AHEAD_PER_THREAD = 16


class Reader:
    """Batches of a dataset, decoded on all cores, in the same order on any number of hosts.

        train = sw.Reader("gs://bucket/flowers", "train", global_batch_size=256, shuffle=True,
                          image=sw.TrainImage(224), epochs=1)
        for epoch in range(train.epoch, 90):
            for batch in train:
                step(batch["image"], batch["label"])    # uint8 [256, 224, 224, 3], int64 [256]
                json.dump(train.state(), file)          # enough to resume from here

    A batch is a dict of NumPy arrays [rows, ...] by feature name: the image as `image` says; class
    labels and integers int64, floats float32, text objects (str), bytes objects (bytes), lists
    objects (1-D arrays); other encodings by `features`.

    The order is a pure function of (seed, epoch, place): no random draws, no shuffle buffer. So
    each record comes exactly once per epoch over all hosts, and one integer is enough to resume,
    even on another number of hosts. A local dataset is shuffled as a whole; a remote one within
    windows of `window` shards, which must fit into its cache together.

    `iter()` begins a whole pass of its own: the reader's next `epochs` epochs, in another order if
    shuffled and with other crops. Iterators are independent, and a pass that was left is over. Only
    `state` and `go_to` begin one in the middle, once. Threads prefetch batches; nothing is forked.
    Any number of readers may be open.

    Args:
        dataset: Its folder or address; or {address: weight}, to mix several by weight.
        split: Such as "train", "train[:10%]", "train[5000:]+validation", "all".
        global_batch_size: Rows of a batch, over all hosts.
        batch_size: The same, for a single host.
        host_index: This host, from 0.
        host_count: Number of hosts; host h of H gets rows [h * B/H, (h + 1) * B/H) of each batch.
        shuffle: Use another order in every epoch. Otherwise records come as stored, in the global
            shuffle fixed at build time.
        seed: Seed of the order and of augmentation.
        image: `TrainImage`, `EvalImage` or `DecodedImage`; `MultiCrop` of them gives several
            crops; None gives the stored bytes, as objects.
        features: Names of the features to return, or {name: encoding} with `OneHot`, `MultiHot`,
            `Dense` or `Text`; None for all. Other features are not parsed.
        epochs: Number of epochs in a pass, not in the reader's life; None for a pass without end.
        state: Position to resume from: the `state()` of a reader of the same records.
        remainder: Policy for the end of an epoch that does not fill a batch: "drop" it (default
            when shuffled or sampled), "keep" it as a smaller batch (default otherwise), "pad" the
            batch and add `mask`, bool [rows], True for records, or "carry" it into the next epoch.
        window: Number of shards shuffled together; None for all if local, 16 if remote.
        where: Read only the records whose index row matches an Arrow expression, such as
            `pc.field("width") >= 224`. No image is read for it.
        sampling: `ClassBalanced` or `ClassWeights`.
        max_bad_records: Number of damaged records to skip; one more raises. See `bad_records`.
        threads: Decoding threads, of each process; None for one per core, at most 8 (more wait for
            the interpreter's lock), or for 1 if no images are decoded.
        processes: Number of processes that make the batches, in memory shared with this one; None
            for threads here. About one per 4 cores uses a large machine. They share the cores,
            start with the first batch, and need a script with `if __name__ == "__main__":`.
        prefetch: Batches made ahead; None for enough to keep the threads busy, at least 2 for each
            process.
        storage_options: Options of the dataset's store, such as {"endpoint": ...}.
        cache: Folder of the cache for a dataset in a store; None for `$SHARDWRIGHT_CACHE`,
            `$XDG_CACHE_HOME/shardwright` or `~/.cache/shardwright`.
        cache_bytes: Size of the cache, a number of bytes or a size such as "200GB"; None for
            `$SHARDWRIGHT_CACHE_BYTES` or half of the free disk space.
        version: That of a dataset that has grown: its number, its day, such as "2026-11-22", or
            "latest". An open reader stays with it.

    Raises:
        NotADatasetError: There is no finished dataset at the address.
        StorageError: The dataset cannot be read.
        UsageError: An argument is invalid, or `state` is of other records.
    """

    @PythonErrors()
    def __init__(
        self,
        dataset: str | os.PathLike[str] | Mapping[str, float],
        split: str = "train",
        *,
        global_batch_size: int | None = None,
        batch_size: int | None = None,
        host_index: int = 0,
        host_count: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        image: CropImage | MultiCrop | None = None,
        features: Sequence[str] | Mapping[str, Encoding | None] | None = None,
        epochs: int | None = None,
        state: Mapping[str, Any] | None = None,
        remainder: Remainder | str | None = None,
        window: int | None = None,
        where: Condition | None = None,
        sampling: Sampling | None = None,
        max_bad_records: int = 0,
        threads: int | None = None,
        processes: int | None = None,
        prefetch: int | None = None,
        storage_options: Mapping[str, object] | StorageOptions | None = None,
        cache: str | os.PathLike[str] | None = None,
        cache_bytes: int | str | None = None,
        version: VersionKey = LATEST,
    ) -> None:
        options = ReaderOptions(
            datasets=datasets_of(dataset),
            split=split,
            global_batch_size=batch_size_of(global_batch_size, batch_size, host_count),
            host_index=host_index,
            host_count=host_count,
            shuffle=shuffle,
            seed=seed,
            image=image,
            features=features_of(features),
            epochs=epochs,
            remainder=remainder_of(remainder, shuffle=shuffle or sampling is not None),
            window=window,
            where=where,
            sampling=sampling,
            max_bad_records=max_bad_records,
            threads=threads,
            processes=processes,
            prefetch=prefetch,
            storage=StorageOptions.of(storage_options),
            cache=CacheSettings.of(cache, cache_bytes),
            version=version,
        )
        self._open(options, state)

    def _open(
        self,
        options: ReaderOptions,
        state: Mapping[str, Any] | None,
        source: DatasetSource | None = None,
    ) -> None:
        saved = None if state is None else ReaderState.from_json(state)
        if options.shuffle and options.window is None and saved is not None and saved.window:
            # The default depends on the storage; a copy elsewhere must keep the saved window.
            options = replace(options, window=saved.window)
        self.engine = (
            Engine(options, source) if options.processes is None else ProcessEngine(options)
        )
        self.options = options = self.engine.options
        self.steps = Steps(
            self.engine.epoch_size,
            options.global_batch_size,
            options.host_index,
            options.host_count,
            options.remainder,
            options.epochs,
        )
        rows = self.engine.threads * _ROWS_AHEAD_PER_THREAD
        ahead = max(_BATCHES_AHEAD, -(-rows // self.steps.host_batch_size))
        ahead *= options.processes or 1
        self.batches_ahead = ahead if options.prefetch is None else options.prefetch
        if saved is not None:
            saved.check_same(self._state_at(saved.position))
        self._passes = Passes(self.steps, 0 if saved is None else saved.position)
        self.bad_records: list[BadRecord] = []
        self._told: set[str] = set()  # warnings of `check_hosts`
        self._iterators: weakref.WeakSet[BatchIterator] = weakref.WeakSet()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the options and a state: a copy opens the dataset itself, for the next pass."""
        return reopen, (self.options, self.state_at(self._passes.next_start))

    def __repr__(self) -> str:
        address, size = " + ".join(self.options.datasets), counted(self.num_records, "record")
        return f"<Reader of {address} {self.options.split}: {size}, at {self.position:,}>"

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the threads and close the shards; the reader cannot be used afterwards."""
        for iterator in list(self._iterators):
            iterator.close()
        self.engine.close()

    def __iter__(self) -> Iterator[Batch]:
        """Begin the next pass, and return its iterator, which is independent of all others."""
        return self._iterate(self._begin_pass())

    def _begin_pass(self, *, is_ahead: bool = False, is_divided: bool = False) -> Pass:
        check_hosts(self.options, self.steps, self._told, is_divided=is_divided)
        return self._passes.begin(is_ahead=is_ahead)

    def _iterate(self, of: Pass) -> BatchIterator:
        iterator = BatchIterator(self._look_ahead(), of)
        self._iterators.add(iterator)
        return iterator

    def _look_ahead(self) -> LookAhead:
        return LookAhead(self.engine, self.steps, self.batches_ahead, self._note)

    def __len__(self) -> int:
        """Return the number of batches in the next pass: fewer if it begins in the middle.

        Raises:
            TypeError: The reader repeats forever.
        """
        count = self.steps.count_steps(self._passes.next_start)
        if count is None:
            raise TypeError("this Reader has no end: give it epochs=, or use steps_per_epoch")
        return count

    def state(self) -> dict[str, Any]:
        """Return the position of the pass begun last, as a small JSON object, equal on all hosts.

        Valid between batches.

        Raises:
            UsageError: The batches of that pass go through torch, tf.data, Keras or Grain, where
                others may take them ahead of your loop: use `state_after`.
        """
        last = self._passes.last
        if last is not None and last.is_ahead:
            raise UsageError(
                "reader.state() after batches of torch(), tf_data(), keras() or grain(), which "
                "frameworks take ahead: only you know how many your loop took. Use "
                "state_after(that number), or state_after() if the pass is over"
            )
        return self.state_at(self.position)

    def state_after(self, num_batches: int | None = None) -> dict[str, Any]:
        """Return the state after that many batches of the pass begun last, or after all of them.

        Whatever takes batches ahead of your loop, it counts what the loop took.

        Raises:
            UsageError: The pass has no such number of batches, or no end; or it is one of `keras()`
                and not over.
        """
        last, start = self._passes.last, self._passes.next_start
        if last is not None and not last.is_ordered and num_batches is not None:
            raise UsageError(
                f"state_after({num_batches}) of keras(), whose batches Keras takes in any order: "
                "use state_after() once the pass is over, or keras_callback() to resume inside one"
            )
        bounds = (last.start, last.stop) if last else (start, self.steps.pass_end(start))
        return self.state_at(self.steps.position_after(bounds, num_batches))

    def state_at(self, position: int) -> dict[str, Any]:
        """Return the state at a position, as `state()["position"]` counts it."""
        return self._state_at(position).to_json()

    def _checked_state(self, state: object) -> ReaderState:
        """Return a state; raise `UsageError` if it is none, or of other records or orders."""
        saved = ReaderState.from_json(state)
        saved.check_same(self._state_at(saved.position))
        return saved

    def _state_at(self, position: int) -> ReaderState:
        return ReaderState(
            dataset=self.engine.fingerprint,
            shuffle=self.options.shuffle,
            seed=self.options.seed,
            window=self.engine.window,
            position=position,
            epoch=position // self.engine.epoch_size,
        )

    def batch_at(self, position: int) -> Batch:
        """Return this host's part of the batch at a position; the reader's own position stays.

        Raises:
            StorageError, BadRecordError: As for iterating.
            UsageError: The position is negative, or beyond any training.
        """
        step = self.steps.step_at(checked_position(position))
        batch, bad = self.engine.finish(self.engine.begin(step))
        self._note(bad)
        return batch

    def go_to(self, position: int) -> None:
        """Have the next pass begin here, as `state()["position"]` counts; those after it are whole.

        So `reader.go_to(reader.position)` has the next loop go on with a pass that was left.

        Raises:
            UsageError: The position is negative, or beyond any training.
        """
        self._passes.go_to(checked_position(position))

    @property
    def position(self) -> int:
        """The position of the next batch of the pass begun last, or of the first pass."""
        last = self._passes.last
        return self._passes.next_start if last is None else last.position

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, counted from 0, so the number of those before it."""
        return self.position // self.num_records

    @property
    def num_records(self) -> int:
        """The number of records in an epoch, over all hosts."""
        return self.engine.epoch_size

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in an epoch, the same on every host."""
        return self.steps.steps_per_epoch

    @property
    def schema(self) -> ExampleSchema:
        """The features of the dataset."""
        return self.engine.corpus.schema

    @property
    def class_names(self) -> tuple[str, ...]:
        """The class names in label order; () without labels."""
        return self.schema.main_class_names

    @property
    def num_classes(self) -> int:
        """The number of classes; 0 if the dataset has no labels."""
        return len(self.class_names)

    @property
    def element_spec(self) -> dict[str, Spec]:
        """The (shape, dtype) of each array of a batch, by name; sizes that vary are None."""
        return self.engine.spec(self.steps.host_batch_size if self.has_static_rows else None)

    @property
    def has_static_rows(self) -> bool:
        """True if all batches from here on have the same number of rows."""
        aligned = (
            self.steps.remainder in (Remainder.DROP, Remainder.PAD)
            or self.position % self.steps.global_batch_size == 0
        )
        return (
            self.steps.has_static_rows
            and aligned
            and (self.options.is_masked or self.options.max_bad_records == 0)
        )

    def torch(self, *, map_style: bool = False, channels_first: bool = True) -> Any:
        """Return a torch dataset of batches, for `DataLoader(..., batch_size=None)`.

        With `map_style`, return a map-style dataset of examples by number.
        """
        torch = import_trainer("torch")
        made = torch.ReaderExamples if map_style else torch.ReaderBatches
        return made(self, channels_first=channels_first)

    def jax(self, sharding: Any = None, *, ahead: int = 1) -> Any:
        """Return the batches as dicts of `jax.Array`: see `shardwright.trainers.jax.JaxBatches`."""
        return import_trainer("jax").JaxBatches(self, sharding, ahead=ahead)

    def grain(self) -> Any:
        """Return these batches as a `grain.IterDataset`: see `trainers.grain.GrainBatches`."""
        return import_trainer("grain").GrainBatches(self)

    def grain_source(self) -> Any:
        """Return the examples as a `grain.MapDataset`: see `trainers.grain.GrainExamples`."""
        return import_trainer("grain").GrainExamples(self)

    def tf_data(self, *, as_supervised: bool = False) -> Any:
        """Return these batches as a `tf.data.Dataset`: see `trainers.tf_data.make_dataset`."""
        return import_trainer("tf_data").make_dataset(self, as_supervised=as_supervised)

    def keras(self, *, endless: bool = False) -> Any:
        """Return data for Keras, without TensorFlow: see `trainers.keras.make_data`."""
        return import_trainer("keras").make_data(self, endless=endless)

    def keras_callback(self, directory: str | os.PathLike[str]) -> Any:
        """Return a callback that resumes `fit`: see `trainers.keras.ResumeTraining`."""
        return import_trainer("keras").ResumeTraining(self, directory)

    def _note(self, bad: list[BadRecord]) -> None:
        self.bad_records = add_bad_records(self.bad_records, bad, self.options.max_bad_records)


def reopen(
    options: ReaderOptions,
    state: Mapping[str, Any] | None = None,
    source: DatasetSource | None = None,
) -> Reader:
    """Open a reader with these options in this process; of a dataset that is open, if given."""
    reader = Reader.__new__(Reader)
    reader._open(options, state, source)
    return reader
