"""An opened dataset: what it holds, and where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from shardwright.errors import UsageError
from shardwright.manifest import Manifest, read_manifest
from shardwright.storage import Folder, StorageOptions

if TYPE_CHECKING:
    from shardwright.images import ImageTransform
    from shardwright.reader.encodings import Encoding


@dataclass(frozen=True, slots=True)
class Dataset(Manifest):
    """A finished dataset, as `shardwright.open` gives it: the manifest's fields, and these.

    Attributes:
        root: Its folder.
    """

    root: Folder

    @property
    def class_names(self) -> tuple[str, ...]:
        """In label order: of the label, or of the only feature of classes, such as `objects/label`; empty where there is none."""
        return self.schema.main_class_names

    @property
    def num_classes(self) -> int:
        """0 where the dataset has no classes."""
        return len(self.class_names)

    def class_counts(self, split: str) -> dict[str, int]:
        """How many records of a split have each class as their label, in label order, as its statistics say; {} without labels."""
        if self.schema.label is None:
            return {}
        counts = self.splits[split].stats.get("labels", {})
        return {name: counts.get(str(label), 0) for label, name in enumerate(self.class_names)}

    def vocabulary(self, feature: str) -> tuple[str, ...]:
        """What the indices of a feature mean, by index: its class names, or its words.

        Raises:
            UsageError: There is no such feature, or it holds no indices.
        """
        found = next((known for known in self.schema.features if known.name == feature), None)
        names = self.schema.names_of(found) if found is not None else ()
        if not names:
            having = [known.name for known in self.schema.features if self.schema.names_of(known)]
            raise UsageError(
                f"feature {feature!r} has no vocabulary; of this dataset these have one: {', '.join(having) or 'none'}"
            )
        return names

    def parsing_spec(self) -> dict[str, Any]:
        """What `tf.io.parse_example` takes to read the records; imports TensorFlow. Its forms: `trainers.tf_features.parsing_spec`."""
        from shardwright.trainers.tf_features import parsing_spec

        return parsing_spec(self.schema)

    def to_numpy(
        self,
        split: str = "train",
        *,
        image: ImageTransform | None = None,
        features: Sequence[str] | Mapping[str, Encoding | None] | None = None,
        max_bytes: int | str = "8GB",
    ) -> dict[str, Any]:
        """A whole split in memory, in the order it is stored in: arrays [records, ...] by feature name, as `Reader` gives them.

        Args:
            split: As for `Reader`.
            image: As for `Reader`; None gives the bytes as they are stored.
            features: As for `Reader`.
            max_bytes: What the result may take, a number of bytes or a size such as "8GB".

        Raises:
            UsageError: The images would take more; or as for `Reader`.
            StorageError, BadRecordError: As for `Reader`.
        """
        from shardwright.reader.in_memory import read_split

        return read_split(self, split, image=image, features=features, max_bytes=max_bytes)


def open_dataset(
    dataset: str, storage_options: Mapping[str, object] | StorageOptions | None = None
) -> Dataset:
    """What a finished dataset holds.

    Args:
        dataset: Its folder: a local path, `s3://BUCKET/PREFIX` or `gs://BUCKET/PREFIX`.
        storage_options: As `--storage-option` of the command line, such as {"endpoint": "http://minio:9000"}.

    Raises:
        NotADatasetError: There is none, with what to do about it; or it is of another format version, or damaged.
        StorageError: The place cannot be read.
        UsageError: An address or an option that is none.
    """
    root = Folder.at(dataset, StorageOptions.of(storage_options))
    manifest = read_manifest(root)
    return Dataset(
        **{field.name: getattr(manifest, field.name) for field in fields(Manifest)}, root=root
    )
