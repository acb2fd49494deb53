"""Convert a table's columns to those of references, and its other columns to features."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError
from shardwright.format.schema import Feature, FeatureKind
from shardwright.transforms.features.lists import is_list, is_text
from shardwright.transforms.inputs.file_rules import MAX_IMAGE_BYTES, SPLIT_FOLDERS
from shardwright.transforms.references import keep_rows, reject_rows, set_column
from shardwright.transforms.rejects import Reject, RejectReason

_BYTES_TYPES = (
    pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view,
    pa.types.is_fixed_size_binary, pa.types.is_null,
)  # fmt: skip


def escaped(text: str) -> str:
    """Return a text as part of the detail of `reject_rows`, a format string."""
    return text.replace("{", "{{").replace("}", "}}")


def can_be_text(kind: pa.DataType) -> bool:
    """Return whether a column can be a path, id, label, split or group."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    tests = (pa.types.is_null, pa.types.is_integer, pa.types.is_boolean, is_text)
    return any(test(kind) for test in tests)


def check_text(kind: pa.DataType, name: str) -> None:
    """Check that a column can be a path, id, label, split or group.

    Raises:
        BuildError: It holds neither text nor whole numbers.
    """
    if not can_be_text(kind):
        raise BuildError(
            f"column {name!r} is of type {kind}; "
            "ids, paths, labels and splits must be text or whole numbers"
        )


def as_text(column: pa.Array, name: str) -> pa.Array:
    """Return a column of text or whole numbers as strings.

    Raises:
        BuildError: It has another type.
    """
    check_text(column.type, name)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.string())


def canonical_splits(column: pa.Array) -> pa.Array:
    """Return canonical split names: "Val" becomes "validation"; unknown names stay."""
    names = column.dictionary_encode()
    spelled = [
        name and SPLIT_FOLDERS.get(name.strip().lower(), name.strip())
        for name in names.dictionary.to_pylist()
    ]
    return pa.array(spelled, pa.string()).take(names.indices)


def empty_as_null(column: pa.Array) -> pa.Array:
    """Return texts without white space around them, and null for empty ones."""
    trimmed = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.string()), trimmed)


def check_sizes(kind: pa.DataType, name: str) -> None:
    """Check that a column can hold sizes in bytes.

    Raises:
        BuildError: It does not hold whole numbers.
    """
    if not pa.types.is_integer(kind):
        raise BuildError(
            f"--size-column {name!r} is of type {kind}; it must hold bytes as whole numbers"
        )


def settle_sizes(batch: pa.RecordBatch, where: str = "") -> Iterator[pa.RecordBatch | Reject]:
    """Yield a reject for each invalid size, then the references with `num_bytes` as int64.

    Args:
        batch: References, with `num_bytes` as in the table.
        where: The start of details, a format string: the table's file if it has several.
    """
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
            f"{where}row {{row}}: the size must be a number of bytes, got {{num_bytes}}",
        ),
        (sizes == 0, RejectReason.EMPTY_FILE, f"{where}row {{row}}: the size is 0"),
        (
            sizes > MAX_IMAGE_BYTES,
            RejectReason.TOO_LARGE,
            f"{{num_bytes}} bytes; an image may have at most {MAX_IMAGE_BYTES}",
        ),
    )
    for mask, reason, detail in rules:
        yield from reject_rows(batch, mask, reason, detail)
    batch = keep_rows(batch, (sizes > 0) & (sizes <= MAX_IMAGE_BYTES))
    yield set_column(batch, "num_bytes", batch.column("num_bytes").cast(pa.int64()))


def extra_type(kind: pa.DataType, name: str) -> pa.DataType:
    """Return the type of an extra column as a feature: int64, float32 or binary, or a list of one.

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
        f"column {name!r} is of type {kind}, which tf.Example cannot hold: "
        "cast it to text or a number, or drop it"
    )


def extra_feature(name: str, kind: pa.DataType) -> Feature:
    """Return the feature of a table's column that the user does not declare.

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


def features_or_problem(
    features: Callable[[], tuple[Feature, ...]],
) -> tuple[tuple[Feature, ...], str]:
    """Return the features and "", or () and the message if tf.Example cannot hold a column."""
    try:
        return features(), ""
    except BuildError as error:
        return (), str(error)
