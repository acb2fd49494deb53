"""What one reading of a dataset takes: which shards, how many records, which features, of what shape.

Worked out from the manifest alone and free of TensorFlow; `tfdata` turns it into a pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardwright.errors import StorageError, UsageError
from shardwright.manifest import Manifest, SplitInfo, read_manifest
from shardwright.schema import Feature
from shardwright.storage import Folder

ALL_SPLITS = "all"
SHUFFLE_BUFFER_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """One reading.

    Attributes:
        shards: Paths, or addresses where the dataset is in a store, in the order they were written in.
        num_records: Of all of them together.
        num_bytes: Of all of them together.
        largest_shard_bytes: Length of the longest.
        features: What is taken from each record, in this order.
        image: The image feature, whether it is taken or not.
        image_shape: (height, width, 3) of every image, or None where they differ.
    """

    shards: tuple[str, ...]
    num_records: int
    num_bytes: int
    largest_shard_bytes: int
    features: tuple[Feature, ...]
    image: Feature
    image_shape: tuple[int, int, int] | None

    @property
    def shuffle_buffer_records(self) -> int:
        """How many records of average length fit `SHUFFLE_BUFFER_BYTES`; never more than there are."""
        mean_bytes = self.num_bytes / max(self.num_records, 1)
        return max(1, min(self.num_records, int(SHUFFLE_BUFFER_BYTES / max(mean_bytes, 1))))


def plan_read(root: Folder, split: str, features: Sequence[str] | None, manifest: Manifest | None = None) -> ReadPlan:
    """Plan the reading of a split, or of several.

    Args:
        root: The dataset's folder.
        split: A split, several joined by `+`, or "all".
        features: Names of the features to take, None for all.
        manifest: What the dataset holds, where that has been read already.

    Raises:
        NotADatasetError: No finished dataset is there.
        UsageError: No such split or feature.
        StorageError: A shard is not there, or not of the length that the manifest states. Of a dataset in a store nobody asks
            for each shard: the cache finds out.
    """
    manifest = manifest or read_manifest(root)
    splits = _find_splits(manifest, split)
    shards = _find_shards(root, manifest, splits)
    return ReadPlan(
        shards=shards,
        num_records=sum(found.num_records for found in splits),
        num_bytes=sum(found.num_bytes for found in splits),
        largest_shard_bytes=max((shard.num_bytes for found in splits for shard in found.shards), default=0),
        features=_find_features(manifest, features),
        image=manifest.schema.image,
        image_shape=_common_shape(manifest.schema.image, splits),
    )


def _find_splits(manifest: Manifest, split: str) -> list[SplitInfo]:
    if split == ALL_SPLITS and ALL_SPLITS not in manifest.splits:
        return list(manifest.splits.values())
    if not isinstance(split, str):
        raise UsageError(f"split={split!r} must be a name, such as 'train'; {ALL_SPLITS!r} is all of {', '.join(manifest.splits)}")
    names = [name.strip() for name in split.split("+")]
    for name in names:
        if name not in manifest.splits:
            hint = "; for a part of a split use the Dataset's take() and skip()" if "[" in name else ""
            raise UsageError(
                f"split {name!r} is not in {manifest.name}, which has {', '.join(manifest.splits)} "
                f"(several are joined by '+', {ALL_SPLITS!r} is all of them){hint}"
            )
        if names.count(name) > 1:
            raise UsageError(f"split {split!r} names {name!r} twice: its records would be read twice")
    return [manifest.splits[name] for name in names]


def _find_shards(root: Folder, manifest: Manifest, splits: Sequence[SplitInfo]) -> tuple[str, ...]:
    """TFRecord readers take a file cut between two records for a whole one: only the length tells."""
    paths = []
    for split in splits:
        for shard, name in zip(split.shards, manifest.shard_names(split.name), strict=True):
            path = root.path(name.shard)
            num_bytes = shard.num_bytes if root.is_remote else root.num_bytes_of(name.shard)
            if num_bytes != shard.num_bytes:
                found = "is missing" if num_bytes is None else f"is {num_bytes:,} bytes long"
                raise StorageError(
                    f"{path} {found}, and the manifest states {shard.num_bytes:,} bytes with {shard.num_records:,} records: "
                    "copy the dataset again, or run the `shardwright build` that made it again"
                )
            paths.append(path)
    return tuple(paths)


def _find_features(manifest: Manifest, names: Sequence[str] | None) -> tuple[Feature, ...]:
    known = {feature.name: feature for feature in manifest.schema.features}
    if names is None:
        return tuple(known.values())
    if isinstance(names, str) or not names:
        raise UsageError(f"features={names!r} must be a list of one or more names, such as {list(known)[:2]}")
    for name in names:
        if name not in known:
            raise UsageError(f"feature {name!r} is not in {manifest.name}, which has {', '.join(known)}")
    return tuple(known[name] for name in dict.fromkeys(names))


def _common_shape(image: Feature, splits: Sequence[SplitInfo]) -> tuple[int, int, int] | None:
    """From the schema where images were resized, else from the statistics where every image happens to be of one size."""
    if len(image.shape) == 3:
        height, width, channels = image.shape
        return (height, width, channels) if height and width and channels else None
    sizes = []
    for axis in ("height", "width"):
        stats = [split.stats.get(axis, {}) for split in splits if split.num_records]
        ends = {found.get(end, 0) for found in stats for end in ("min", "max")}
        counted = sum(found.get("count", 0) for found in stats)
        if len(ends) != 1 or 0 in ends or counted != sum(split.num_records for split in splits):
            return None
        sizes.append(ends.pop())
    return sizes[0], sizes[1], 3
