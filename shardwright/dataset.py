"""An opened dataset: its manifest and its folder."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from shardwright.errors import UsageError
from shardwright.format.manifest import Manifest
from shardwright.format.versions import LATEST, VersionKey, number_of, read_version
from shardwright.python_errors import PythonErrors
from shardwright.sizes import parse_size, show_bytes
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions

if TYPE_CHECKING:
    from shardwright.images.normalize import MeanStd
    from shardwright.images.specs import CropImage, MultiCrop
    from shardwright.reader.encodings import Encoding
    from shardwright.reader.reader import Reader

_ALL_ROWS = 1 << 40  # more than any split has: one incomplete batch


@dataclass(frozen=True, slots=True, repr=False)
class Dataset(Manifest):
    """A finished dataset, as `shardwright.open` returns it: the manifest's fields, and these.

    Attributes:
        root: Its folder.
        history: As of `Manifest`, and always with the number of the version, as "version".
    """

    root: Folder

    def __repr__(self) -> str:
        """Return name, splits and features on one line; the fields would be pages."""
        splits = ", ".join(f"{name}: {split.num_records}" for name, split in self.splits.items())
        features = ", ".join(f"{one.name}: {one.kind}" for one in self.schema.features)
        return f"Dataset({self.name!r}, records {{{splits}}}, features {{{features}}})"

    @property
    def class_names(self) -> tuple[str, ...]:
        """The class names in label order, () if there are none.

        They are those of the label; without a label, those of the only feature of classes, such
        as `objects/label`.
        """
        return self.schema.main_class_names

    @property
    def num_classes(self) -> int:
        """The number of classes, 0 if the dataset has none."""
        return len(self.class_names)

    def class_counts(self, split: str) -> dict[str, int]:
        """Return the number of records per class name, in label order; {} without labels.

        The numbers come from the split's statistics.
        """
        if self.schema.label is None:
            return {}
        counts = self.splits[split].stats.get("labels", {})
        return {name: counts.get(str(label), 0) for label, name in enumerate(self.class_names)}

    def vocabulary(self, feature: str) -> tuple[str, ...]:
        """Return the class names or words of a feature, by index.

        Raises:
            UsageError: The feature is unknown, or does not hold indices.
        """
        found = next((known for known in self.schema.features if known.name == feature), None)
        names = self.schema.names_of(found) if found is not None else ()
        if not names:
            having = [known.name for known in self.schema.features if self.schema.names_of(known)]
            raise UsageError(
                f"feature {feature!r} has no vocabulary; "
                f"features with a vocabulary: {', '.join(having) or 'none'}"
            )
        return names

    def parsing_spec(self) -> dict[str, Any]:
        """Return the features argument of `tf.io.parse_example`; imports TensorFlow.

        See `trainers.tf_parsing.parsing_spec` for the form of each feature.
        """
        from shardwright.trainers.tf_parsing import parsing_spec

        return parsing_spec(self.schema)

    def mean_std(self, split: str = "train") -> MeanStd:
        """Return mean and standard deviation of each channel, 0 to 1, for `normalizer`.

        They are of all images if the dataset was built with `--signals`, else of a sample:
        `splits[split].stats["channels"]["basis"]` says which. At most 256 x 256 pixels of an image
        count, on an even grid.

        Raises:
            UsageError: The split is unknown, or its statistics do not have them.
        """
        from shardwright.images.normalize import MeanStd

        if split not in self.splits:
            raise UsageError(f"unknown split {split!r}; the splits are {', '.join(self.splits)}")
        found = self.splits[split].stats.get("channels")
        if not found:
            raise UsageError(
                f"the statistics of split {split!r} have no mean and deviation of channels: it has "
                "no images, or must be built again, with --signals"
            )
        return MeanStd(tuple(found["mean"]), tuple(found["std"]))

    def to_numpy(
        self,
        split: str = "train",
        *,
        image: CropImage | MultiCrop | None = None,
        features: Sequence[str] | Mapping[str, Encoding | None] | None = None,
        max_bytes: int | str = "8GB",
    ) -> dict[str, Any]:
        """Return a whole split in stored order: arrays [records, ...] by feature name.

        Args:
            split: As for `Reader`.
            image: As for `Reader`; None returns the stored bytes.
            features: As for `Reader`.
            max_bytes: Limit of the result: a number of bytes or a size such as "8GB".

        Raises:
            UsageError: The images would exceed `max_bytes`; or as for `Reader`.
            StorageError, BadRecordError: As for `Reader`.
        """
        from shardwright.reader.reader import Reader

        with Reader(
            self.root.uri,
            split,
            global_batch_size=_ALL_ROWS,
            image=image,
            features=features,
            epochs=1,
            storage_options=self.root.options,
            version=number_of(self),
        ) as reader:
            limit = parse_size(str(max_bytes), "max_bytes")
            num_bytes = _image_bytes(reader)
            if num_bytes > limit:
                raise UsageError(
                    f"the images of {split!r} take {show_bytes(num_bytes)} in memory, "
                    f"more than max_bytes={max_bytes}: read a part, such as 'test[:1000]', "
                    "decode to a smaller size, or read batches with sw.Reader"
                )
            return next(iter(reader))


def _image_bytes(reader: Reader) -> int:
    """Return the bytes of all images of a reader: as decoded, or estimated as stored."""
    num_bytes = 0
    for name in reader.engine.images:
        shape, dtype = reader.element_spec[name]
        if dtype.hasobject:
            return sum(
                shard.info.num_bytes * shard.num_rows // shard.info.num_records
                for shard in reader.engine.corpus.shards
            )
        num_bytes += reader.num_records * math.prod(s or 0 for s in shape[1:]) * dtype.itemsize
    return num_bytes


@PythonErrors()
def open_dataset(
    dataset: str | os.PathLike[str],
    storage_options: Mapping[str, object] | StorageOptions | None = None,
    *,
    version: VersionKey = LATEST,
) -> Dataset:
    """Open a finished dataset; reads its manifest only.

    Args:
        dataset: Its folder: a local path, `s3://BUCKET/PREFIX` or `gs://BUCKET/PREFIX`.
        storage_options: As `--storage-option`, such as {"endpoint": "http://minio:9000"}.
        version: The version of a dataset that has several: its number, a day such as "2026-11-22"
            (its last version), or "latest".

    Raises:
        NotADatasetError: The folder has no finished dataset, or one that is damaged or of another
            format version.
        StorageError: The folder cannot be read.
        UsageError: The address or an option is invalid, or there is no such version.
    """
    root = Folder.at(dataset, StorageOptions.of(storage_options))
    manifest = read_version(root, version)
    values = {field.name: getattr(manifest, field.name) for field in fields(Manifest)}
    # A manifest of version 1 does not state it: its bytes are the same whether the dataset grows.
    values["history"] = {"version": number_of(manifest), **manifest.history}
    return Dataset(**values, root=root)
