"""Find the changes of INPUT in this process, without Beam, by the functions of `FindChanges`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from shardwright.pipelines.local.batches import HeldBatches
from shardwright.transforms.changes.known_files import KnownFile
from shardwright.transforms.changes.seen_records import (
    NewRecords,
    SeenRecords,
    mark_rows,
    no_rows,
    take_changed,
)
from shardwright.transforms.features.feature_hashes import FeatureHashes
from shardwright.transforms.rejects import Reject


class LocalChanges:
    """The differences between a listing and the records of a dataset.

    Args:
        file: The file of the records.
        features: The rule for the hashes of features.
        plain_bytes: Bytes of changed references in memory; more are in a temporary file.

    Attributes:
        seen: The records that the listing has; complete once `changed` has ended.
    """

    def __init__(self, file: KnownFile, features: FeatureHashes, plain_bytes: int) -> None:
        self._known, self._features = file.open(), features
        self._held = HeldBatches(plain_bytes)
        self.seen = SeenRecords(no_rows(file.num_rows), no_rows(file.num_rows))

    def new_of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the references whose ids the dataset does not have; splits as in `FindChanges`."""
        for batch in batches:
            compared = self._known.compare(batch, self._features)
            mark_rows(self.seen.unchanged, compared.unchanged_rows)
            if compared.changed.num_rows:
                self._held.add(compared.changed)
            if compared.new.num_rows:
                new = NewRecords.merged([self.seen.new, NewRecords.of(compared.new)])
                self.seen = replace(self.seen, new=new)
                yield compared.new

    def changed(self) -> Iterator[pa.RecordBatch | Reject]:
        """Yield changed references and rejects, after `new_of` has ended."""
        for batch in self._held.take():
            for taken in take_changed(batch, self._known, self.seen.unchanged):
                if not isinstance(taken, Reject):
                    rows = self._known.rows_at(self._known.find(taken.column("id")))
                    mark_rows(self.seen.changed, rows)
                yield taken
