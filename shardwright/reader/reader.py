"""`sw.Reader`: a dataset as batches of NumPy arrays, in an order that can be repeated, divided and resumed exactly."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from shardwright.cache import CacheSettings
from shardwright.errors import BadRecordError
from shardwright.extras import import_part
from shardwright.images import ImageTransform
from shardwright.reader.batches import Batch
from shardwright.reader.encodings import Encoding, Spec
from shardwright.reader.engine import Engine
from shardwright.reader.iteration import BatchIterator
from shardwright.reader.options import ReaderOptions, datasets_of, features_of, remainder_of
from shardwright.reader.record_reader import BadRecord
from shardwright.reader.sampling import Sampling
from shardwright.reader.selection import Condition
from shardwright.reader.state import ReaderState
from shardwright.reader.steps import Remainder, Steps
from shardwright.schema import ExampleSchema
from shardwright.storage import StorageOptions

# Batches that are made ahead: enough that no thread waits for the end of a batch.
_BATCHES_AHEAD = 2
_ROWS_AHEAD_PER_THREAD = 16


class Reader:
    """Batches of a dataset, decoded by all cores, in exactly the same order every time, on any number of hosts.

        train = sw.Reader("gs://bucket/flowers", "train", global_batch_size=256, shuffle=True, image=sw.TrainImage(224))
        for batch in train:
            step(batch["image"], batch["label"])        # uint8 [256, 224, 224, 3], int64 [256]
            json.dump(train.state(), file)              # enough to go on from here

    A batch is a dict of NumPy arrays [rows, ...] by feature name: the image as `image` says; class labels and integers int64,
    floats float32, texts objects (str), bytes objects (bytes), lists objects (1-D arrays); other forms by `features`.

    The order of an epoch is arithmetic on (seed, epoch, place): nothing is drawn or buffered. So every record comes exactly
    once an epoch over all hosts, a reading can go on from one whole number, and on another number of hosts. Of a local dataset
    all records are permuted with each other; of one in a store those of `window` shards, which must all fit its cache.

    Iterating goes on from where the reader is, and starts anew once it has come to its end. Batches are made ahead in threads;
    nothing is forked. Any number of readers may be open; one reader is for one thread.

    Args:
        dataset: Its folder or address; or several, {address: weight}, mixed by weight.
        split: Such as "train", "train[:10%]", "train[5000:]+validation", "all".
        global_batch_size: Rows of a batch over all hosts together.
        host_index: This host, from 0.
        host_count: How many hosts share each batch: host h of H gets rows [h * B/H, (h + 1) * B/H).
        shuffle: Another order in every epoch; else the order they are stored in, a global shuffle fixed when it was built.
        seed: Of the order and of augmentation.
        image: `TrainImage`, `EvalImage` or `DecodedImage`; None gives the bytes as they are stored, as objects.
        features: Names of the features to give, or {name: encoding} with `OneHot`, `MultiHot`, `Dense`, `Sparse`, `Text`
            or `RawTensor`; None for all. What is not wanted is not parsed.
        epochs: How many times; None for no end.
        state: Go on from here: what `state()` of a reader of the same records gave.
        remainder: What becomes of the end of an epoch that does not fill a batch: "drop" (the default when shuffled), "keep"
            (the default otherwise: a smaller batch, shared out evenly), "pad" (a full batch; `mask`, bool [rows], says which
            rows are records), "carry" (the batch goes on with the next epoch).
        window: How many shards are shuffled with each other; None for all of a local dataset, 16 of one in a store.
        where: Only the records whose index row this keeps: an Arrow expression such as `pc.field("width") >= 224`, or a
            function from index rows (pyarrow.Table) to bool [rows]. No image is read for it.
        sampling: `ClassBalanced`, `ClassWeights` or `RecordWeights`.
        check: Compare the checksum of everything that is read.
        max_bad_records: How many records may be left out because they are damaged; one more raises. See `bad_records`.
        threads: That decode; None for one a core.
        prefetch: Batches made ahead; None for what keeps the threads busy, 2 or more.
        storage_options, cache, cache_bytes: As for `sw.load`.

    Raises:
        NotADatasetError: No finished dataset is there.
        StorageError: It cannot be read.
        UsageError: An argument breaks its rule, or `state` is of other records.
    """

    def __init__(
        self,
        dataset: str | os.PathLike[str] | Mapping[str, float],
        split: str = "train",
        *,
        global_batch_size: int,
        host_index: int = 0,
        host_count: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        image: ImageTransform | None = None,
        features: Sequence[str] | Mapping[str, Encoding | None] | None = None,
        epochs: int | None = None,
        state: Mapping[str, Any] | None = None,
        remainder: Remainder | str | None = None,
        window: int | None = None,
        where: Condition | None = None,
        sampling: Sampling | None = None,
        check: bool = True,
        max_bad_records: int = 0,
        threads: int | None = None,
        prefetch: int | None = None,
        storage_options: Mapping[str, object] | StorageOptions | None = None,
        cache: str | os.PathLike[str] | None = None,
        cache_bytes: int | str | None = None,
    ) -> None:
        options = ReaderOptions(
            datasets=datasets_of(dataset),
            split=split,
            global_batch_size=global_batch_size,
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
            check=check,
            max_bad_records=max_bad_records,
            threads=threads,
            prefetch=prefetch,
            storage=StorageOptions.of(storage_options),
            cache=CacheSettings.of(cache, cache_bytes),
        )
        self._open(options, state)

    def _open(self, options: ReaderOptions, state: Mapping[str, Any] | None) -> None:
        saved = None if state is None else ReaderState.from_json(state)
        if options.shuffle and options.window is None and saved is not None and saved.window:
            # The default depends on where the dataset is, and a copy of it elsewhere is the same dataset.
            options = replace(options, window=saved.window)
        self.options = options
        self.engine = Engine(options)
        self.steps = Steps(
            self.engine.epoch_size,
            options.global_batch_size,
            options.host_index,
            options.host_count,
            options.remainder,
            options.epochs,
        )
        self.position = 0
        self.bad_records: list[BadRecord] = []
        self._iterator: BatchIterator | None = None
        if saved is not None:
            saved.check_same(self._state_at(0))
            self.position = self.steps.normalize(saved.position)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy in another process opens the dataset itself, and goes on from the same place."""
        return reopen, (self.options, self.state())

    def __repr__(self) -> str:
        address = " + ".join(self.options.datasets)
        return f"<Reader of {address} {self.options.split}: {self.num_records:,} records, at {self.position:,}>"

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads and let the shards go: the reader gives nothing any more."""
        self._stop()
        self.engine.close()

    def __iter__(self) -> Iterator[Batch]:
        """From where the reader is; after the last epoch, from the start."""
        self._stop()
        if self.steps.step_at(self.position) is None:
            self.position = 0
        self._iterator = BatchIterator(
            self.engine, self.steps, self.position, self._batches_ahead(), self._deliver
        )
        return self._iterator

    def __len__(self) -> int:
        """Batches from the start to the end of the last epoch.

        Raises:
            TypeError: There is no end.
        """
        count = self.steps.count_steps(0)
        if count is None:
            raise TypeError("this Reader has no end: give it epochs=, or use steps_per_epoch")
        return count

    def state(self) -> dict[str, Any]:
        """Where the reader is, as a small JSON object, the same on every host: valid between batches."""
        return self._state_at(self.position).to_json()

    def _state_at(self, position: int) -> ReaderState:
        options = self.options
        return ReaderState(
            dataset=self.engine.fingerprint,
            shuffle=options.shuffle,
            seed=options.seed,
            window=self.engine.window,
            position=position,
            epoch=position // self.engine.epoch_size,
        )

    def batch_at(self, position: int) -> Batch:
        """The global batch that begins at a position, this host's part of it; the reader stays where it is.

        Raises:
            IndexError: The position is not before the end.
            StorageError, BadRecordError: As for iterating.
        """
        step = self.steps.step_at(position)
        if step is None:
            raise IndexError(f"position {position:,} is at or after the end, {self.steps.end:,}")
        batch, bad = self.engine.finish(self.engine.begin(step))
        self._note(bad)
        return batch

    def go_to(self, position: int) -> None:
        """Have the next iteration begin at a position, as `state()["position"]` counts them."""
        self._stop()
        self.position = self.steps.normalize(position)

    @property
    def num_records(self) -> int:
        """Records in an epoch, over all hosts."""
        return self.engine.epoch_size

    @property
    def steps_per_epoch(self) -> int:
        """Batches in an epoch, the same on every host."""
        return self.steps.steps_per_epoch

    @property
    def schema(self) -> ExampleSchema:
        """The features that the dataset has."""
        return self.engine.corpus.schema

    @property
    def class_names(self) -> tuple[str, ...]:
        """In label order; empty where the dataset has no labels."""
        return self.schema.main_class_names

    @property
    def num_classes(self) -> int:
        """0 where the dataset has no labels."""
        return len(self.class_names)

    @property
    def element_spec(self) -> dict[str, Spec]:
        """What a batch holds: (shape, dtype) by name; None in a shape where batches differ."""
        rows = self.steps.host_batch_size if self.has_static_rows else None
        return self.engine.spec(rows)

    @property
    def has_static_rows(self) -> bool:
        """Whether all batches from here on have the same number of rows."""
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
        """A torch dataset: of whole batches, for `DataLoader(..., batch_size=None)`; or of examples by number (`map_style`)."""
        return import_part("shardwright.trainers.torch").as_torch(
            self, map_style=map_style, channels_first=channels_first
        )

    def jax(self, sharding: Any = None, *, ahead: int = 1) -> Any:
        """The batches as dicts of `jax.Array`, divided by a sharding of their first axis, each on its way before it is asked for."""
        return import_part("shardwright.trainers.jax").as_jax(self, sharding, ahead=ahead)

    def grain(self) -> Any:
        """A random-access source of examples for Grain, which makes its own order and batches of them."""
        return import_part("shardwright.trainers.grain").as_grain(self)

    def tf_data(self, *, as_supervised: bool = False) -> Any:
        """A `tf.data.Dataset` of these batches: see `shardwright.trainers.tf.make_dataset`."""
        return import_part("shardwright.trainers.tf").make_dataset(
            self, as_supervised=as_supervised
        )

    def keras(self) -> Any:
        """(image, label) for Keras without TensorFlow: see `shardwright.trainers.keras.make_data`."""
        return import_part("shardwright.trainers.keras").make_data(self)

    def keras_callback(self, directory: str | os.PathLike[str], *, every: int | None = None) -> Any:
        """A callback that resumes `fit` in mid-epoch: see `shardwright.trainers.keras.ResumeTraining`."""
        return import_part("shardwright.trainers.keras").ResumeTraining(
            self, directory, every=every
        )

    def _deliver(self, next_position: int, bad: list[BadRecord]) -> None:
        self._note(bad)
        self.position = next_position

    def _note(self, bad: list[BadRecord]) -> None:
        if not bad:
            return
        known = set(self.bad_records)
        found = [*self.bad_records, *(record for record in bad if record not in known)]
        if len(found) > self.options.max_bad_records:
            raise BadRecordError(str(bad[0]), len(found), self.options.max_bad_records)
        self.bad_records = found

    def _batches_ahead(self) -> int:
        if self.options.prefetch is not None:
            return self.options.prefetch
        rows = self.engine.threads * _ROWS_AHEAD_PER_THREAD
        return max(_BATCHES_AHEAD, -(-rows // self.steps.host_batch_size))

    def _stop(self) -> None:
        if self._iterator is not None:
            self._iterator.close()
            self._iterator = None


def reopen(options: ReaderOptions, state: Mapping[str, Any] | None = None) -> Reader:
    """The reader of these options, in this process."""
    reader = Reader.__new__(Reader)
    reader._open(options, state)
    return reader
