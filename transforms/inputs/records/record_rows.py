"""Turn records into references."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from shardwright.transforms.inputs.embedded.embedded_references import RawRows, list_rows
from shardwright.transforms.inputs.input_files import InputFile
from shardwright.transforms.inputs.records.record_columns import SAMPLE_RECORDS, Record
from shardwright.transforms.inputs.records.record_facts import RecordFacts
from shardwright.transforms.inputs.source import Rows
from shardwright.transforms.inputs.spool import SpoolWriter
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.rejects import Reject


def list_records(
    facts: RecordFacts, records: Iterable[Record], file: InputFile, prefix: str, writer: SpoolWriter
) -> Rows:
    """Yield references to records, and rejects; images without a path go to the spool.

    Args:
        facts: The facts about the records.
        records: The records, with simple values.
        file: Their place.
        prefix: The start of the ids of records without one; their number follows.
        writer: The writer of the spool.
    """
    rejects: list[Reject] = []

    def batches(pool: ThreadPoolExecutor) -> Iterator[RawRows]:
        source, first = iter(records), 0
        while some := list(itertools.islice(source, SAMPLE_RECORDS)):
            ids = [f"{prefix}{first + place}" for place in range(len(some))]
            first += len(some)
            rows, found = facts.records.rows(some, ids, pool, file.uri)
            rejects.extend(found)
            PROGRESS.add_read(len(some))
            yield rows

    with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="shardwright-records") as pool:
        yield from list_rows(facts, file, batches(pool), writer)
    yield from rejects
