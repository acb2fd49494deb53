"""References: what travels through the plan instead of pixels.

A reference says where one image is and what belongs to it. References travel as `pyarrow.RecordBatch`es of up to
`BATCH_ROWS` rows with the columns of `REFERENCE_SCHEMA`, then columns named `x/...`: up to `EncodeFeatures` those that a source
brings, of any type, named by the source's column; after it one for each key of a `tf.Example`, named by the key, of its final
type (int64, float32, binary, or lists of one) and without nulls. Further pictures of a record travel as references of their own,
in columns of `PICTURE_TYPE` that are named by their feature.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.rejects import Reject, RejectReason

BATCH_ROWS = 10_000
EXTRA_PREFIX = "x/"
LABEL_INDEX = "label_index"  # int64, an index into the class names; of encoded references

REFERENCE_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("uri", pa.string(), nullable=False),
        pa.field(
            "offset", pa.int64()
        ),  # where in the file or object its bytes begin; null where they are all of it
        pa.field("num_bytes", pa.int64(), nullable=False),
        pa.field("etag", pa.string()),  # changes when the content does; null where nobody looked
        pa.field(
            "row", pa.int64(), nullable=False
        ),  # the table's row, from 0; 0 for files of a folder
        pa.field("split", pa.string()),
        pa.field("group", pa.string()),
        pa.field("label", pa.string()),
    ]
)

# Where a further picture of a record is: an image beside the first one, a mask.
PICTURE_TYPE = pa.struct(
    [("uri", pa.string()), ("offset", pa.int64()), ("num_bytes", pa.int64()), ("etag", pa.string())]
)


def extra_name(column: str) -> str:
    """The column of a reference batch that holds the extra feature `column`."""
    return EXTRA_PREFIX + column


def name_of_extra(column: str) -> str:
    """The extra feature or column that a column of a reference batch holds."""
    return column.removeprefix(EXTRA_PREFIX)


def extra_columns(schema: pa.Schema) -> list[str]:
    return [name for name in schema.names if name.startswith(EXTRA_PREFIX)]


def picture_columns(schema: pa.Schema) -> list[str]:
    """The columns of further pictures."""
    return [field.name for field in schema if field.type == PICTURE_TYPE]


def record_bytes(batch: pa.RecordBatch) -> list[int]:
    """The bytes of all pictures of each record, as far as they are known."""
    sizes = batch.column("num_bytes").fill_null(0)
    for name in picture_columns(batch.schema):
        sizes = pc.add(sizes, pc.struct_field(batch.column(name), "num_bytes").fill_null(0))
    found: list[int] = sizes.to_pylist()
    return found


def reject_rows(
    batch: pa.RecordBatch, mask: np.ndarray, reason: RejectReason, detail: str
) -> Iterator[Reject]:
    """A reject for each row where `mask` is True; `detail` may name columns in braces, as `{label}`."""
    if not mask.any():
        return
    for row in batch.filter(pa.array(mask)).to_pylist():
        yield Reject(row["id"], row["uri"], reason, detail.format_map(row))


def keep_rows(batch: pa.RecordBatch, keep: np.ndarray) -> pa.RecordBatch:
    return batch if keep.all() else batch.filter(pa.array(keep))


def set_column(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    """`batch` with the column `name` replaced, or added as the last."""
    position = batch.schema.get_field_index(name)
    field = pa.field(name, values.type)
    if position < 0:
        return batch.append_column(field, values)
    return batch.set_column(position, field, values)


def concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of all batches, in order, as one batch."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def to_ipc(batch: pa.RecordBatch) -> bytes:
    """One batch as an Arrow IPC stream; zstd takes paths to about a quarter, which is what a shuffle moves."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1), use_threads=False)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def from_ipc(data: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(data, options=pa.ipc.IpcReadOptions(use_threads=False)) as reader:
        return reader.read_next_batch()


def digest_of(settings: bytes, batch: pa.RecordBatch) -> str:
    """A stable hash of `settings` and of the batch's rows in their order, 32 hexadecimal digits.

    Columns are hashed as values (lengths, then data), so slices, buffers and padding do not matter.
    """
    digest = hashlib.blake2b(settings, digest_size=16)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        digest.update(f"\0{name}\0{column.type}\0{len(column)}\0".encode())
        _hash_array(digest, column)
    return digest.hexdigest()


def _hash_array(digest: hashlib.blake2b, array: pa.Array) -> None:
    digest.update(np.packbits(array.is_null().to_numpy(zero_copy_only=False)).tobytes())
    kind = array.type
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            _hash_array(digest, array.field(number))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        digest.update(
            pc.list_value_length(array)
            .fill_null(0)
            .to_numpy(zero_copy_only=False)
            .astype("<i8")
            .tobytes()
        )
        _hash_array(digest, array.flatten())
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        digest.update(
            pc.binary_length(array)
            .fill_null(0)
            .to_numpy(zero_copy_only=False)
            .astype("<i8")
            .tobytes()
        )
        digest.update(_binary_data(array.drop_null()))
    elif pa.types.is_boolean(kind):
        digest.update(array.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False).tobytes())
    else:
        digest.update(array.fill_null(0).to_numpy(zero_copy_only=False).tobytes())


def _binary_data(array: pa.Array) -> memoryview:
    """The bytes of all values of a string or binary array without nulls, one after another."""
    if not len(array):
        return memoryview(b"")
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)[
        array.offset : array.offset + len(array) + 1
    ]
    return (
        memoryview(array.buffers()[2])[offsets[0] : offsets[-1]] if offsets[-1] else memoryview(b"")
    )
