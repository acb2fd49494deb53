"""Recognize `.npy` and `.npz` files."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from shardwright.transforms.inputs.arrays.array_files import is_array_name, read_records
from shardwright.transforms.inputs.input_files import base_of, find_files
from shardwright.transforms.inputs.records.record_columns import SAMPLE_RECORDS
from shardwright.transforms.inputs.records.record_facts import RecordFacts, facts_of
from shardwright.transforms.inputs.source import SourceRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayFacts(RecordFacts):
    """The facts about files of arrays, each of them a part."""

    def parts(self) -> Iterator[str]:
        yield from (file.uri for file in find_files(self.request, is_array_name))


def look(request: SourceRequest) -> ArrayFacts | None:
    """Return the facts about files of arrays; None if INPUT is something else.

    A folder is one only if the format is forced: `.npy` files often lie beside a table.

    Raises:
        UsageError: The format is forced and there are no such files, no array holds the images
            of the schema, or an option does not fit.
        BuildError: The first file cannot be read.
        StorageError: A file cannot be read.
    """
    if not request.forced and not is_array_name(os.path.basename(request.uri)):
        return None
    files = find_files(request, is_array_name)
    if not files:
        request.refuse_if_forced("holds no .npy or .npz files")
        return None
    rows = read_records(files[0].uri, request.storage)
    sample = list(itertools.islice(rows, SAMPLE_RECORDS))
    number = "a file" if len(files) == 1 else f"{len(files)} files"
    what = f"{number} of NumPy arrays at {request.uri}"
    return replace(facts_of(sample, request, what, ArrayFacts), base=base_of(files))
