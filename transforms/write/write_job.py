"""The settings that all shards of a build share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from shardwright.format.schema import ExampleSchema
from shardwright.storage.folder import Folder
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from shardwright.transforms.features.feature_hashes import FeatureHashes
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.output_state import Clearance
from shardwright.transforms.user_code import UserTransform

IMAGE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class WriteJob:
    """The settings that all shards of a build share.

    Attributes:
        root: The dataset's folder.
        schema: The features, with vocabularies.
        check: "header", "decode" or "none".
        encode: How images are re-encoded, if at all.
        threads: Chunks of files in flight in one process, or objects read at a time; None is
            automatic.
        storage: Storage options for reading images.
        transforms: The user's functions on each record, in order.
        fingerprint: Fingerprint of the build's plan, which OUTPUT must still have when a shard is
            put there; None outside a build.
        unpublished: As in the Clearance: no dataset was finished in `root` before this build.
        signals: Measure quality signals of every image and write them beside the index.
        copies: The records are those of a finished dataset, and are copied unchanged.
        hashes: The rule for hashes that an older dataset lacks, if its records can be hashed.
        image_seconds: Longest time to read, decode and transform one image.
        processes: Processes that share a machine's cores.
    """

    root: Folder
    schema: ExampleSchema
    check: str
    encode: EncodeOptions
    threads: int | None = None
    storage: StorageOptions = NO_OPTIONS
    transforms: tuple[UserTransform, ...] = ()
    fingerprint: str | None = None
    unpublished: bool = False
    signals: bool = False
    copies: bool = False
    hashes: FeatureHashes | None = None
    image_seconds: float = IMAGE_SECONDS
    processes: int = 1

    @property
    def computing_threads(self) -> int:
        """The number of chunks that can compute at once: decoding releases the GIL."""
        decodes = self.check == "decode" or self.encode.decodes or self.signals
        decodes = decodes or bool(self.transforms)
        return -(-(os.cpu_count() or 1) // self.processes) if decodes else 1

    @property
    def may_crash(self) -> bool:
        """True if decoders or users' functions see an image; `check` "header" decodes odd ones."""
        if self.copies:
            return self.signals
        decodes = self.encode.decodes or self.signals
        return self.check != "none" or decodes or bool(self.transforms)

    def with_vocabularies(self, vocabularies: Mapping[str, tuple[str, ...]]) -> WriteJob:
        return replace(self, schema=self.schema.with_vocabularies(vocabularies))

    def cleared(self, clearance: Clearance) -> WriteJob:
        """Return the job of a build that may write."""
        return replace(
            self.with_vocabularies(clearance.vocabularies),
            root=self.root.below(clearance.folder),
            fingerprint=clearance.fingerprint,
            unpublished=clearance.unpublished,
        )
