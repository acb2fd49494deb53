"""Plan what `sw.load` reads of a dataset: records, features and image shape.

The plan needs the manifest only, and no TensorFlow; `pipeline` makes a tf.data.Dataset of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardwright.errors import MissingError, UsageError
from shardwright.format.manifest import Manifest
from shardwright.format.schema import Feature
from shardwright.format.splits import SplitInfo
from shardwright.reader.corpus import Corpus, DatasetSource, ShardRef
from shardwright.reader.shard_opening import shard_fault
from shardwright.reader.subsets import Span, parse_split


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A plan of what to read.

    Attributes:
        corpus: The shards and the range of records; empty if the part of the split is empty.
        features: The features to read from each record, in this order.
        image: The image feature, even if it is not read; None if records have none.
        image_shape: (height, width, channels) of every image in pixels, None if they differ.
    """

    corpus: Corpus
    features: tuple[Feature, ...]
    image: Feature | None
    image_shape: tuple[int, int, int] | None

    @property
    def image_name(self) -> str:
        """The name of the image feature; "" if records have none."""
        return "" if self.image is None else self.image.name

    @property
    def num_records(self) -> int:
        return self.corpus.num_records

    @property
    def image_dtype(self) -> str:
        """The dtype of decoded images."""
        return (self.image and self.image.dtype) or "uint8"


def plan_read(source: DatasetSource, split: str, features: Sequence[str] | None) -> ReadPlan:
    """Plan what to read of splits, or of parts of them.

    Args:
        source: The dataset.
        split: Such as "train", "train[:10%]", "train+test[5000:]" or "all"; see `reader.subsets`.
        features: Names of the features to read, None for all.

    Raises:
        UsageError: A split or feature is unknown.
        StorageError: A local shard is missing or does not have the length in the manifest. Shards
            in a store are not checked here: the cache checks each one when it downloads it.
    """
    manifest = source.manifest
    spans = parse_split(
        split, {name: found.num_records for name, found in manifest.splits.items()}, manifest.name
    )
    corpus = Corpus((), (0, 0), manifest.schema)
    if any(span.num_records for span in spans):
        corpus = Corpus.of([source], split)
    _check_shards(corpus)
    return ReadPlan(
        corpus=corpus,
        features=_find_features(manifest, features),
        image=manifest.schema.image,
        image_shape=_common_shape(manifest.schema.image, _splits_of(manifest, spans)),
    )


def check_sidecars(corpus: Corpus) -> None:
    """Raise `MissingError` if a local shard has no sidecar; the cache checks those in a store."""
    shard = missing_sidecar(corpus)
    if shard is not None:
        raise MissingError(
            f"{shard.source.root.path(shard.name.sidecar)} is missing: the index of "
            f"{shard.name.shard}: "
            "copy the dataset again, or run its `shardwright build` again"
        )


def missing_sidecar(corpus: Corpus) -> ShardRef | None:
    """Return the first local shard without a sidecar, or None."""
    local = [shard for shard in corpus.shards if not shard.source.root.is_remote]
    # A listing each: thousands of lookups take a noticeable part of the time to the first batch.
    folders = {(shard.source.root, shard.name.sidecar.rpartition("/")[0]) for shard in local}
    found = {(root, f"{folder}/{name}") for root, folder in folders for name in root.names(folder)}
    missing = (shard for shard in local if (shard.source.root, shard.name.sidecar) not in found)
    return next(missing, None)


def _check_shards(corpus: Corpus) -> None:
    # TFRecord readers do not notice a file cut between two records: only its length shows it.
    for shard in corpus.shards:
        root = shard.source.root
        num_bytes = shard.info.num_bytes if root.is_remote else root.num_bytes_of(shard.name.shard)
        if num_bytes != shard.info.num_bytes:
            raise shard_fault(shard.uri, shard.info, num_bytes)


def _splits_of(manifest: Manifest, spans: Sequence[Span]) -> list[SplitInfo]:
    return [
        manifest.splits[name]
        for name in dict.fromkeys(span.split for span in spans if span.num_records)
    ]


def _find_features(manifest: Manifest, names: Sequence[str] | None) -> tuple[Feature, ...]:
    known = {feature.name: feature for feature in manifest.schema.features}
    if names is None:
        return tuple(known.values())
    if isinstance(names, str) or not names:
        raise UsageError(
            f"features={names!r} must be a list of one or more names, such as {list(known)[:2]}"
        )
    for name in names:
        if name not in known:
            raise UsageError(
                f"feature {name!r} is not in {manifest.name}, which has {', '.join(known)}"
            )
    return tuple(known[name] for name in dict.fromkeys(names))


def _common_shape(
    image: Feature | None, splits: Sequence[SplitInfo]
) -> tuple[int, int, int] | None:
    """Return the shape of resized images, or of images with the same size in the statistics."""
    if image is None:
        return None
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
