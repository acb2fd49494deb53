"""References, the metadata of images that travels through the plan instead of pixels.

References travel as `pyarrow.RecordBatch`es of at most `BATCH_ROWS` rows. They have the columns of
`REFERENCE_SCHEMA`, then extra columns named `x/...`. Before `EncodeFeatures` these are the source's
columns, of any type; after it there is one per `tf.Example` key, of its final type (int64, float32,
binary, or lists of one) and without nulls. Additional images of a record are columns of
`PICTURE_TYPE`, named by their feature.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.transforms.rejects import Reject, RejectReason

BATCH_ROWS = 10_000
EXTRA_PREFIX = "x/"
_LENGTH_BYTES = 8
_STACKED_BYTES = 1 << 16
LABEL_INDEX = "label_index"  # int64 index into the class names, after EncodeFeatures

REFERENCE_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("uri", pa.string(), nullable=False),
        # Position in the file or object, in bytes; null if the image is all of it.
        pa.field("offset", pa.int64()),
        pa.field("num_bytes", pa.int64(), nullable=False),
        pa.field("etag", pa.string()),  # changes with the content; null if not looked up
        # The table's row, from 0; 0 for files of a folder.
        pa.field("row", pa.int64(), nullable=False),
        pa.field("split", pa.string()),
        pa.field("group", pa.string()),
        pa.field("label", pa.string()),
    ]
)

# The query of a signed URL, a secret. Only batches with such URLs have this column, and nothing
# that is published, logged or hashed has its values.
QUERY = "query"

# The height and width in pixels by which an image's boxes were divided: the fractions are right for
# images of this shape. Only sources of boxes in pixels have the column; null for an image without.
STATED_SIZE = "stated_size"
STATED_SIZE_TYPE = pa.list_(pa.float64(), 2)

# Columns of the index that references have, too, if they are known. They follow from the others, so
# no digest of a plan has them: `HASH` is of the features, `SUFFIX` and `RECORD_CRC` those of a
# copied record.
HASH, SUFFIX, RECORD_CRC = "features", "suffix", "record_crc32c"

# The place of an additional image of a record, such as a mask.
PICTURE_TYPE = pa.struct(
    [("uri", pa.string()), ("offset", pa.int64()), ("num_bytes", pa.int64()), ("etag", pa.string())]
)


class ImagePlace(NamedTuple):
    """The place of an image's bytes, a value of `PICTURE_TYPE`; no `offset` for a whole file."""

    uri: str
    offset: int | None
    num_bytes: int
    etag: str | None


# A record of a finished dataset that is copied: its place in bytes in the shard, and the columns of
# its index row that stay as they are. `uri` and `etag` are those of the original image.
ORIGIN = "origin"
ORIGIN_TYPE = pa.struct(
    [
        ("offset", pa.int64()), ("length", pa.int64()), ("crc32c", pa.uint32()),
        ("format", pa.string()), ("width", pa.int32()), ("height", pa.int32()),
        ("uri", pa.string()), ("etag", pa.string()),
    ]
)  # fmt: skip
COPIED_SCHEMA = pa.schema(
    [
        *REFERENCE_SCHEMA, pa.field(ORIGIN, ORIGIN_TYPE),
        pa.field(HASH, pa.uint64()), pa.field(SUFFIX, pa.int32()),
        pa.field(RECORD_CRC, pa.uint32()),
    ]
)  # fmt: skip


def extra_name(column: str) -> str:
    """Return the column of a reference batch that holds the extra feature `column`."""
    return EXTRA_PREFIX + column


def name_of_extra(column: str) -> str:
    """Return the feature or source column that a column of a reference batch holds."""
    return column.removeprefix(EXTRA_PREFIX)


def reference_schema(extras: Iterable[tuple[str, pa.DataType]]) -> pa.Schema:
    """Return the columns of references with these extra columns, given by name and type.

    `STATED_SIZE` may be among them, although it can be no feature.
    """
    names = ((name if name == STATED_SIZE else extra_name(name), kind) for name, kind in extras)
    return pa.schema([*REFERENCE_SCHEMA, *(pa.field(*each) for each in names)])


def extra_columns(schema: pa.Schema) -> list[str]:
    return [name for name in schema.names if name.startswith(EXTRA_PREFIX)]


def picture_columns(schema: pa.Schema) -> list[str]:
    """Return the columns of additional images."""
    return [field.name for field in schema if field.type == PICTURE_TYPE]


def record_bytes(batch: pa.RecordBatch) -> list[int]:
    """Return the bytes of all images of each record, counting unknown sizes as 0."""
    # Without `fill_null`, which gives up the interpreter's lock, and the thread that
    # writes shards would wait up to 5 ms, the switch interval, to get it back.
    sizes = [size or 0 for size in batch.column("num_bytes").to_pylist()]
    for name in picture_columns(batch.schema):
        further = pc.struct_field(batch.column(name), "num_bytes").to_pylist()
        sizes = [size + (more or 0) for size, more in zip(sizes, further, strict=True)]
    return sizes


def reject_rows(
    batch: pa.RecordBatch, mask: np.ndarray, reason: RejectReason, detail: str
) -> Iterator[Reject]:
    """Yield a reject for each row in `mask`; `detail` may contain columns as `{label}`."""
    if not mask.any():
        return
    for row in batch.filter(pa.array(mask)).to_pylist():
        yield Reject(row["id"], row["uri"], reason, detail.format_map(row))


def keep_rows(batch: pa.RecordBatch, keep: np.ndarray) -> pa.RecordBatch:
    return batch if keep.all() else batch.filter(pa.array(keep))


def rows_left(batch: pa.RecordBatch, keep: np.ndarray) -> Iterator[pa.RecordBatch]:
    """Yield the rows to keep, if any."""
    if keep.any():
        yield keep_rows(batch, keep)


def set_column(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    """Return the batch with the column `name` replaced, or appended."""
    position = batch.schema.get_field_index(name)
    field = pa.field(name, values.type)
    if position < 0:
        return batch.append_column(field, values)
    return batch.set_column(position, field, values)


def with_columns(batch: pa.RecordBatch, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Return the batch with further columns."""
    return pa.RecordBatch.from_arrays(
        [*batch.columns, *columns.values()], [*batch.schema.names, *columns]
    )


def stacked(
    columns: Sequence[pa.Array], rules: Sequence[object] | None = None
) -> Iterator[tuple[list[int], pa.Array]]:
    """Yield the numbers of short columns of one type, and their rows, one column after another.

    A call of Arrow takes as long for one row as for a thousand, and a table may have thousands of
    columns. A long column comes alone, as it is.

    Args:
        columns: Columns of the same length.
        rules: Further values that must be equal to stack two columns, one for each.
    """
    alike: defaultdict[object, list[int]] = defaultdict(list)
    for number, column in enumerate(columns):
        alike[column.type, rules and rules[number]].append(number)
    for numbers in alike.values():
        held: list[int] = []
        num_bytes = 0
        for number in numbers:
            more = columns[number].nbytes
            if held and num_bytes + more > _STACKED_BYTES:
                yield held, _one_array(columns, held)
                held, num_bytes = [], 0
            held.append(number)
            num_bytes += more
        yield held, _one_array(columns, held)


def _one_array(columns: Sequence[pa.Array], numbers: list[int]) -> pa.Array:
    if len(numbers) == 1:
        return columns[numbers[0]]
    return pa.concat_arrays([columns[number] for number in numbers])


def concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of all batches, in order, as one batch."""
    if len(batches) == 1:
        return batches[0]
    if any(QUERY in batch.schema.names for batch in batches):
        tables = [pa.Table.from_batches([batch]) for batch in batches]
        whole = pa.concat_tables(tables, promote_options="default")
        return whole.combine_chunks().to_batches()[0]
    return pa.concat_batches(batches)


def to_ipc(batch: pa.RecordBatch) -> bytes:
    """Return the batch as its length and an Arrow IPC stream; zstd shrinks paths to a quarter."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue()
    # As a whole: Arrow would set a compressor up for each column, which takes 250 us a batch.
    packed = pa.compress(stream, codec="zstd", asbytes=True)
    return stream.size.to_bytes(_LENGTH_BYTES, "little") + packed


def from_ipc(data: bytes) -> pa.RecordBatch:
    num_bytes = int.from_bytes(data[:_LENGTH_BYTES], "little")
    stream = pa.decompress(memoryview(data)[_LENGTH_BYTES:], num_bytes, codec="zstd")
    with pa.ipc.open_stream(stream) as reader:
        return reader.read_next_batch()


def digest_of(settings: bytes, batch: pa.RecordBatch) -> str:
    """Return a stable hash of `settings` and the rows in order, as 32 hexadecimal digits.

    Columns are hashed as values (lengths, then data), independent of slices, buffers and padding.
    """
    digest = hashlib.blake2b(settings, digest_size=16)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        # With lengths and types, so that no two batches give the same bytes by other borders.
        digest.update(f"\0{name}\0{column.type}\0{len(column)}\0".encode())
        _hash_array(digest, column)
    return digest.hexdigest()


def _hash_array(digest: hashlib.blake2b, array: pa.Array) -> None:
    nulls = array.null_count
    if nulls:
        digest.update(np.packbits(array.is_null().to_numpy(zero_copy_only=False)).tobytes())
    else:  # the mask of no row, without a call of Arrow for each of many columns
        digest.update(bytes((len(array) + 7) // 8))
    kind = array.type
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            _hash_array(digest, array.field(number))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
        digest.update(lengths.astype("<i8").tobytes())
        _hash_array(digest, array.flatten())
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        offsets, data = _binary_data(array.fill_null(pa.scalar("", kind)) if nulls else array)
        digest.update(np.diff(offsets).astype("<i8").tobytes())
        digest.update(data)
    elif pa.types.is_boolean(kind):
        digest.update(array.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False).tobytes())
    else:
        values = array.fill_null(0) if array.null_count else array
        digest.update(values.to_numpy(zero_copy_only=False).tobytes())


def _binary_data(array: pa.Array) -> tuple[np.ndarray, memoryview]:
    """Return the offsets and the concatenated values of a string or binary array without nulls."""
    _, ends, data = array.buffers()
    if not len(array):
        return np.zeros(1, np.int32), memoryview(b"")
    offsets = np.frombuffer(ends, np.int32)[array.offset : array.offset + len(array) + 1]
    return offsets, memoryview(data)[offsets[0] : offsets[-1]] if offsets[-1] else memoryview(b"")
