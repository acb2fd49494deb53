"""A table's columns as what references hold: texts and sizes, and what its other columns are as features."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError
from shardwright.schema import Feature, FeatureKind
from transforms.features.lists import is_list, is_text
from transforms.inputs.file_rules import MAX_IMAGE_BYTES, SPLIT_FOLDERS
from transforms.references import keep_rows, reject_rows, set_column
from transforms.rejects import Reject, RejectReason

_BYTES_TYPES = (
    pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary, pa.types.is_null,
)  # fmt: skip


def in_detail(column: str) -> str:
    """A column's name as the detail of `reject_rows` shows it, where braces have a meaning."""
    return repr(column).replace("{", "{{").replace("}", "}}")


def check_text(kind: pa.DataType, name: str) -> None:
    """Whether a column can be a path, id, label, split or group.

    Raises:
        BuildError: It is neither of text nor of whole numbers.
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (
        pa.types.is_null(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or is_text(kind)
    ):
        raise BuildError(
            f"column {name!r} is of type {kind}; ids, paths, labels and splits are text or whole numbers"
        )


def as_text(column: pa.Array, name: str) -> pa.Array:
    """A column of text or whole numbers as strings.

    Raises:
        BuildError: It is of another type.
    """
    check_text(column.type, name)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.string())


def canonical_splits(column: pa.Array) -> pa.Array:
    """Split names as folders spell them: "Val" is "validation"; a name of the user's own stays."""
    names = column.dictionary_encode()
    spelled = [
        name and SPLIT_FOLDERS.get(name.strip().lower(), name.strip())
        for name in names.dictionary.to_pylist()
    ]
    return pa.array(spelled, pa.string()).take(names.indices)


def empty_as_null(column: pa.Array) -> pa.Array:
    """Texts without white space around them; what is empty then is null."""
    trimmed = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.string()), trimmed)


def check_sizes(kind: pa.DataType, name: str) -> None:
    """Whether a column can hold sizes in bytes.

    Raises:
        BuildError: It does not hold whole numbers.
    """
    if not pa.types.is_integer(kind):
        raise BuildError(
            f"--size-column {name!r} is of type {kind}; it must hold bytes as whole numbers"
        )


def settle_sizes(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | Reject]:
    """References whose `num_bytes` a table states, as int64; a size that no image has is a reject."""
    sizes = (
        batch.column("num_bytes")
        .cast(pa.float64(), safe=False)
        .fill_null(-1)
        .to_numpy(zero_copy_only=False)
    )
    rules = (
        (
            sizes < 0,
            RejectReason.BAD_VALUE,
            "row {row}: the size is {num_bytes}, which is no number of bytes",
        ),
        (sizes == 0, RejectReason.EMPTY_FILE, "row {row}: the size is 0"),
        (
            sizes > MAX_IMAGE_BYTES,
            RejectReason.TOO_LARGE,
            f"{{num_bytes}} bytes; an image may have up to {MAX_IMAGE_BYTES}",
        ),
    )
    for mask, reason, detail in rules:
        yield from reject_rows(batch, mask, reason, detail)
    batch = keep_rows(batch, (sizes > 0) & (sizes <= MAX_IMAGE_BYTES))
    yield set_column(batch, "num_bytes", batch.column("num_bytes").cast(pa.int64()))


def extra_type(kind: pa.DataType, name: str) -> pa.DataType:
    """The type an extra column has as a feature: int64, float32 or binary, or a list of one.

    Raises:
        BuildError: tf.Example has no such type.
    """
    if pa.types.is_dictionary(kind):
        return extra_type(kind.value_type, name)
    if is_list(kind) and not is_list(kind.value_type):
        return pa.list_(extra_type(kind.value_type, name))
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float32()
    if is_text(kind) or any(test(kind) for test in _BYTES_TYPES):
        return pa.binary()
    raise BuildError(
        f"column {name!r} is of type {kind}, which no tf.Example feature holds: cast it to text or a number, or drop it"
    )


def extra_feature(name: str, kind: pa.DataType) -> Feature:
    """The feature that a table's column is where the user declares none.

    Raises:
        BuildError: tf.Example has no such type.
    """
    stored = extra_type(kind, name)
    value = stored.value_type if pa.types.is_list(stored) else stored
    if pa.types.is_int64(value):
        feature_kind = FeatureKind.INT64
    else:
        feature_kind = FeatureKind.FLOAT32 if pa.types.is_float32(value) else FeatureKind.BYTES
    return Feature(name, feature_kind, shape=(None,) if pa.types.is_list(stored) else ())
