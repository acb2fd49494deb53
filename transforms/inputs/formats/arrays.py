"""NumPy's `.npy` and `.npz` files as input: a row of the arrays is a record.

Pixels have no encoded bytes to read in place, so they go to the spool as PNG.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from shardwright.errors import BuildError
from shardwright.sizes import show_bytes
from shardwright.storage.folder import files_of
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.columns import MAX_COLUMNS, first_doubled
from shardwright.transforms.inputs.file_rules import MAX_IMAGE_BYTES, SPLIT_FOLDERS
from shardwright.transforms.inputs.formats.record_columns import (
    SAMPLE_RECORDS,
    Record,
    input_key,
    simple_value,
)
from shardwright.transforms.inputs.formats.records import RecordSource, list_records, source_of
from shardwright.transforms.inputs.input_files import (
    FilesSource,
    base_of,
    describe_files,
    find_files,
    state_of,
)
from shardwright.transforms.inputs.source import Rows, SourceRequest
from shardwright.transforms.inputs.spool import SpoolWriter, spooled_part

_INPUTS = "x"
_NAMES = {_INPUTS: _INPUTS, "images": "image", "labels": "label", "y": "label",
          "targets": "label", "ids": "id"}  # fmt: skip
_SPLIT = "split"
_MOST_LISTED = 16 << 20  # bytes of the list of a `.npz` file's arrays
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
# RuntimeError: of zipfile, for an encrypted member or an unknown compression.
_FAULTS = (
    ValueError, EOFError, OSError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error,
    struct.error,
)  # fmt: skip


def is_array_name(name: str) -> bool:
    return name.lower().endswith((".npy", ".npz"))


class _Column(NamedTuple):
    """An array of a file.

    Attributes:
        name: Name of the column: "image" for images, "label" for labels, targets or y; for x, and
            an array without a name, "image" or "features" by `input_key`.
        split: The split that the array's name states, or None.
        file: The array's bytes after its header.
        shape: Its shape; (N, 1) counts as (N,).
        dtype: Its type.
    """

    name: str
    split: str | None
    file: IO[bytes]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def rows(self) -> Iterator[Any]:
        shape = self.shape[1:]
        num_bytes = self.dtype.itemsize * math.prod(shape)
        for _ in range(self.shape[0]):
            data = self.file.read(num_bytes)
            if len(data) != num_bytes:
                raise EOFError("the file ends inside an array")
            yield simple_value(np.frombuffer(data, self.dtype).reshape(shape))


def read_records(uri: str, storage: StorageOptions) -> Iterator[Record]:
    """Yield a record for each row of a file's arrays.

    Raises:
        BuildError: The file is damaged, or its arrays have different lengths.
        StorageError: The store fails.
    """
    with files_of(uri, storage).open_input(uri) as file:
        yield from records_in(file, uri)


def records_in(file: IO[bytes], uri: str) -> Iterator[Record]:
    """Yield a record for each row of the arrays in an open file; its name tells the format.

    Raises:
        BuildError: As `read_records`.
    """
    try:
        with _open_columns(file, uri) as columns:
            splits: dict[str | None, list[_Column]] = {}
            for column in columns:
                splits.setdefault(column.split, []).append(column)
            for split, group in splits.items():
                doubled = first_doubled(column.name for column in group)
                if doubled is not None:
                    raise BuildError(
                        f"two arrays of {uri} are both the column {doubled!r}: rename one"
                    )
                if len({column.shape[0] for column in group}) > 1:
                    lengths = ", ".join(f"{column.name!r} {column.shape[0]}" for column in group)
                    raise BuildError(
                        f"the arrays of {uri} must have the same length, got {lengths}"
                    )
                stated = {} if split is None else {_SPLIT: split}
                # Row by row from all arrays at once: none is read into memory as a whole.
                for row in zip(*(column.rows() for column in group), strict=True):
                    names = (column.name for column in group)
                    yield {**dict(zip(names, row, strict=True)), **stated}
    except _FAULTS as error:
        raise BuildError(f"{uri} cannot be read as NumPy arrays: {error}") from error


@contextmanager
def _open_columns(file: IO[bytes], uri: str) -> Iterator[list[_Column]]:
    if uri.lower().endswith(".npy"):
        yield [_column(_INPUTS, file)]
        return
    _check_directory(file, uri)
    with ExitStack() as stack:
        archive = stack.enter_context(zipfile.ZipFile(file))
        yield [
            _column(name.removesuffix(".npy"), stack.enter_context(archive.open(name)))
            for name in archive.namelist()
        ]


def _check_directory(file: IO[bytes], uri: str) -> None:
    """Raise BuildError for too many arrays, before their list takes half a kilobyte for each."""
    end = zipfile._EndRecData(file)  # type: ignore[attr-defined]  # as `ZipFile` finds the list
    count, num_bytes = (end[4], end[5]) if end else (0, 0)
    if count > MAX_COLUMNS or num_bytes > _MOST_LISTED:
        raise BuildError(
            f"{uri} lists {count:,} arrays in {show_bytes(num_bytes)}, more than the "
            f"{MAX_COLUMNS:,} arrays and {show_bytes(_MOST_LISTED)} allowed: an array is a column, "
            "and its rows are the records"
        )
    file.seek(0)


def _column(name: str, file: IO[bytes]) -> _Column:
    shape, by_columns, dtype = _header(name, file)
    if dtype.hasobject or by_columns or not shape:
        problem = (
            "objects" if dtype.hasobject else "Fortran order" if by_columns else "a single value"
        )
        raise ValueError(
            f"array {name!r} has {problem}: save rows of numbers with numpy.ascontiguousarray"
        )
    row_bytes = dtype.itemsize * math.prod(shape[1:])
    if min(shape) < 0 or not 0 < row_bytes <= MAX_IMAGE_BYTES:
        raise ValueError(
            f"array {name!r} has the shape {shape}: a row has 1 to {MAX_IMAGE_BYTES} bytes"
        )
    if shape[1:] == (1,):  # labels of some data sets
        shape = shape[:1]
    column, split = _meaning_of(name)
    if column == _INPUTS:
        column = input_key(np.empty(shape[1:], dtype))
    return _Column(column, split, file, shape, dtype)


def _header(name: str, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    read = _HEADERS.get(npy.read_magic(file))
    if read is None:
        raise ValueError(f"array {name!r} has an unknown version of the format")
    try:
        return read(file)
    except OSError:
        raise
    except Exception as error:  # NumPy parses the header as Python, with any error of that
        raise ValueError(f"array {name!r} has a damaged header: {error}") from error


def _meaning_of(name: str) -> tuple[str, str | None]:
    """Return the column and the split that an array's name states, as `x_train`, `val_images`."""
    words = re.fullmatch(r"([A-Za-z]+)_([A-Za-z]+)", name)
    for split, rest in (words.groups(), words.groups()[::-1]) if words else ():
        if split.lower() in SPLIT_FOLDERS:
            return _NAMES.get(rest.lower(), rest), SPLIT_FOLDERS[split.lower()]
    return _NAMES.get(name.lower(), name), None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySource(RecordSource):
    """Files of NumPy arrays, whose rows are records."""

    summary = "NumPy arrays (.npy, .npz): a file or a wildcard"
    rank = 20
    reads_records = True

    @classmethod
    def look(cls, request: SourceRequest) -> ArraySource | None:
        """Return files of arrays as a source; None if INPUT is something else.

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
        what = describe_files(request, files, "NumPy file")
        source = source_of(cls, sample, request, what)
        return replace(source, base=base_of(files), is_part=is_array_name)

    def parts(self) -> Iterator[str]:
        yield from FilesSource.parts(self)

    def references(self, part: str) -> Rows:
        """Yield the rows of a file; their images go to the spool."""
        file, request = self.file_of(part), self.request
        state = state_of(part, request.storage)

        def make(writer: SpoolWriter) -> Rows:
            records = read_records(part, request.storage)
            yield from list_records(self, records, f"{file.name}#", writer, file)

        rules = {"columns": self.layout.to_json(), "records": str(self.records)}
        yield from spooled_part(request, file, state, make, **rules)
