"""Shard plans: the ordered references of a shard, and the digest that marks it as done."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from shardwright.format.naming import ShardName
from shardwright.transforms.references import (
    HASH,
    QUERY,
    RECORD_CRC,
    STATED_SIZE,
    SUFFIX,
    digest_of,
    from_ipc,
    to_ipc,
)


@dataclass(frozen=True)
class ShardPlan:
    """A shard to write.

    Attributes:
        name: The shard's name, with split, number and count.
        digest: Hash of the settings that decide bytes and of the ordered references.
        references: Rows in record order, with `REFERENCE_SCHEMA`, label index and extra features.
    """

    name: ShardName
    digest: str
    references: pa.RecordBatch

    @classmethod
    def make(cls, name: ShardName, references: pa.RecordBatch, settings: bytes) -> ShardPlan:
        """Make a plan; drop the rows and groups, which decide nothing once a shard is planned.

        The digest is the same for other signatures of the same URLs.
        """
        references = references.drop_columns(["row", "group"])
        # What these say follows from other columns, or decides nothing about the bytes.
        others = {QUERY, STATED_SIZE, HASH, SUFFIX, RECORD_CRC}
        hashed = [column for column in references.schema.names if column not in others]
        return cls(name, digest_of(settings, references.select(hashed)), references)

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self.name, self.digest, to_ipc(self.references))


def _restore(name: ShardName, digest: str, references: bytes) -> ShardPlan:
    return ShardPlan(name, digest, from_ipc(references))
