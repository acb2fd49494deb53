"""What is the same for all shards of a build."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from shardwright.schema import ExampleSchema
from shardwright.storage import NO_OPTIONS, Folder, StorageOptions
from transforms.images import EncodeOptions
from transforms.user_code import UserTransform


@dataclass(frozen=True, slots=True)
class WriteJob:
    """What is the same for all shards of a build.

    Attributes:
        root: The dataset's folder.
        schema: The features, vocabularies included.
        check: "header", "decode" or "none".
        encode: What becomes of an image's bytes.
        threads: Chunks of files worked on at a time in one process, or objects read at a time; None for as many as pay.
        storage: Options of the stores that images are in.
        transforms: The user's functions on each record, in order.
        fingerprint: Of the build's plan, which OUTPUT must still be about when a shard is put there; None outside of a build.
    """

    root: Folder
    schema: ExampleSchema
    check: str
    encode: EncodeOptions
    threads: int | None = None
    storage: StorageOptions = NO_OPTIONS
    transforms: tuple[UserTransform, ...] = ()
    fingerprint: str | None = None

    @property
    def computing_threads(self) -> int:
        """How many chunks can keep a core busy: those that decode run without Python's lock."""
        decodes = self.check == "decode" or self.encode.decodes or bool(self.transforms)
        return (os.cpu_count() or 1) if decodes else 1

    def with_vocabularies(self, vocabularies: Mapping[str, tuple[str, ...]]) -> WriteJob:
        return replace(self, schema=self.schema.with_vocabularies(vocabularies))
