"""A shard's plan: which references it gets, in which order, and the digest that says when it is done."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from shardwright.naming import ShardName
from transforms.references import digest_of, from_ipc, to_ipc


@dataclass(frozen=True)
class ShardPlan:
    """One shard to write.

    Attributes:
        name: Which shard of which split.
        digest: Hash of the settings that decide bytes and of the ordered references.
        references: Rows in record order, with `REFERENCE_SCHEMA`, the label index and the extra features.
    """

    name: ShardName
    digest: str
    references: pa.RecordBatch

    @classmethod
    def make(cls, name: ShardName, references: pa.RecordBatch, settings: bytes) -> ShardPlan:
        """Rows and groups decide nothing any more once a shard is planned, so they are left out."""
        references = references.drop_columns(["row", "group"])
        return cls(name, digest_of(settings, references), references)

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self.name, self.digest, to_ipc(self.references))


def _restore(name: ShardName, digest: str, references: bytes) -> ShardPlan:
    return ShardPlan(name, digest, from_ipc(references))
