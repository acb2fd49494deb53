"""Give the columns of an input their roles, make features of the others, and make texts of labels.

All inputs of rows with columns are described by `Columns`: tables of paths, Parquet and Arrow
files, records of Python, tf.Examples and WebDataset samples. A format reads a sample of rows, says
which columns hold images, and lets `find_roles` do the rest.

The type of a label follows from its values, not from its container. Whole numbers are class
numbers, also as floats, which pandas makes of a column with a gap. Numbers with a fraction are
values to predict and no classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError, UsageError
from shardwright.format.schema import Feature, FeatureKind
from shardwright.transforms.features.lists import (
    BYTES_TYPES,
    empty_as_null,
    is_any,
    is_list,
    is_text,
    null_where,
    plain,
)
from shardwright.transforms.inputs.file_rules import SPLIT_FOLDERS
from shardwright.transforms.inputs.source import SourceRequest
from shardwright.transforms.references import PICTURE_TYPE, reference_schema

NOT_A_CLASS = (
    "is not a class, where the first labels are: for numbers to predict, rename the column"
)
K = TypeVar("K")
_EXACT = 2**53  # whole numbers below have a float64 of their own


def can_be_text(kind: pa.DataType) -> bool:
    """Return whether a column can be a path, id, label, split or group."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return is_any(kind, (pa.types.is_null, pa.types.is_integer, pa.types.is_boolean, is_text))


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
    return plain(column).cast(pa.string())


def class_texts(labels: pa.Array, name: str) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Return labels as texts, and a mask of those that are no classes.

    Args:
        labels: Labels of any type that a label can have.
        name: Their column.

    Raises:
        BuildError: They have another type.
    """
    labels = plain(labels)
    if not pa.types.is_floating(labels.type):
        return empty_as_null(as_text(labels, name)), np.zeros(len(labels), bool)
    numbers = labels.cast(pa.float64()).fill_null(np.nan).to_numpy()
    whole = (numbers == np.trunc(numbers)) & (np.abs(numbers) < _EXACT)
    bad = ~whole & ~np.isnan(numbers)
    classes = pa.array(np.where(whole, numbers, 0).astype(np.int64), mask=~whole)
    texts = pc.if_else(pa.array(bad), labels.cast(pa.string()), classes.cast(pa.string()))
    return texts, bad


def can_be_classes(values: pa.Array) -> bool:
    """Return whether a column with these first values may hold labels, and no fractions."""
    values = plain(values)
    return not (pa.types.is_floating(values.type) and class_texts(values, "")[1].any())


def names_of(numbers: pa.Array, names: Sequence[str]) -> pa.Array:
    """Return the class name of each number.

    -1, which data sets use for an unknown class, becomes null; other numbers become text.
    """
    texts = class_texts(numbers, "")[0]
    places = pc.index_in(texts, value_set=pa.array(map(str, range(len(names))), pa.string()))
    others = null_where(texts, pc.equal(texts, "-1"))
    return pc.coalesce(pa.array(names, pa.string()).take(places), others)


def distinct_names(names: Mapping[K, str]) -> dict[K, str]:
    """Return names of one class each: "crane (517)" where several classes are called crane."""
    counts = Counter(names.values())
    return {key: name if counts[name] == 1 else f"{name} ({key})" for key, name in names.items()}


# Usual column names of each role, if no option gives one: the first match counts, in any case.
ROLE_COLUMNS = {
    "image": (
        "image", "image_path", "image_file", "file_name", "filename", "filepath", "file_path",
        "path", "file", "uri", "img",
    ),
    "label": ("label", "class", "class_name", "category", "target"),
    "id": ("id", "image_id"),
    "split": ("split", "subset", "partition"),
    "group": (),
    "size": (),
}  # fmt: skip
# Usual names of columns and features that hold images, in the order in which they are tried.
IMAGE_NAMES = (
    "image", "image/encoded", "img", "jpg", "jpeg", "png", "webp", "image_raw", "image_bytes",
    "image_encoded", "encoded_image",
    "encoded", "image/bytes", "img_bytes", "image_jpeg", "image_png", "picture", "pixels",
)  # fmt: skip
MAX_COLUMNS = 16_384  # as many as spreadsheets have; each is a feature in every step of a build
_LISTED = 100  # columns in a message
_FEATURE_KINDS = {
    pa.int64(): FeatureKind.INT64, pa.float32(): FeatureKind.FLOAT32,
    pa.binary(): FeatureKind.BYTES,
}  # fmt: skip
_NUMBERS = frozenset({FeatureKind.INT64, FeatureKind.FLOAT32})
F = TypeVar("F")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns of rows, and their roles.

    Attributes:
        columns: All columns and their types.
        image, label, id, split, group, size: The column with this role, or None. Without an
            `image`, records have none.
        pictures: Columns of further images.
        class_names: Column -> names of its class numbers, if the input states them.
        known: Column -> its feature, if that does not follow from its type.
        declared: Column with a role that fills a feature of a schema, too -> the feature's kind.
        brought: The columns that become features; None for all without a role.
        structs: The column of objects with boxes (`box_rows.BoxStructs`), or None.
    """

    columns: pa.Schema
    image: str | None = None
    label: str | None = None
    id: str | None = None
    split: str | None = None
    group: str | None = None
    size: str | None = None
    pictures: tuple[str, ...] = ()
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    known: Mapping[str, Feature] = field(default_factory=dict)
    declared: Mapping[str, FeatureKind] = field(default_factory=dict)
    brought: tuple[str, ...] | None = None
    structs: Any = None

    @property
    def roles(self) -> dict[str, str]:
        """Role -> column, for the roles that a column has."""
        return {role: name for role in ROLE_COLUMNS if (name := getattr(self, role)) is not None}

    @property
    def extras(self) -> tuple[str, ...]:
        """The columns that become features, with those of further images."""
        if self.brought is not None:
            return self.brought
        taken = set(self.roles.values()) - self.declared.keys()
        taken |= set() if self.structs is None else {self.structs.column}
        return tuple(name for name in self.columns.names if name not in taken)

    @property
    def reference_schema(self) -> pa.Schema:
        """The columns of references."""
        kinds = dict(zip(self.columns.names, self.columns.types, strict=True))
        extras = [(name, self._type_of(name, kinds[name])) for name in self.extras]
        make = reference_schema if self.structs is None else self.structs.values.schema
        schema: pa.Schema = make(extras)
        return schema

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of the extra columns. Raises `BuildError` if tf.Example cannot hold one."""
        kinds = dict(zip(self.columns.names, self.columns.types, strict=True))
        objects = () if self.structs is None else self.structs.values.features
        return (*(self._feature_of(name, kinds[name]) for name in self.extras), *objects)

    def names_in(self, extra: str) -> tuple[str, ...] | None:
        """Return the class names that an extra column has in place of its numbers, or None."""
        return None if self.declared.get(extra) in _NUMBERS else self.class_names.get(extra)

    def _type_of(self, extra: str, kind: pa.DataType) -> pa.DataType:
        """Return the type of an extra column in references."""
        if extra in self.pictures:
            return PICTURE_TYPE
        if self.names_in(extra) is None:
            return kind
        return pa.list_(pa.string()) if is_list(kind) else pa.string()

    def _feature_of(self, extra: str, kind: pa.DataType) -> Feature:
        if extra in self.known:
            return self.known[extra]
        if extra in self.pictures:
            return Feature(extra, FeatureKind.IMAGE, default="")  # a row may have none
        if (names := self.class_names.get(extra)) is None:
            return extra_feature(extra, kind)
        shape = (None,) if is_list(kind) else ()
        return Feature(extra, FeatureKind.CLASS_LABEL, shape=shape, names=names)

    def for_features(self, features: Sequence[Feature]) -> Self:
        """Return the columns where those with a role fill these features, too."""
        roles = {self.label, self.id, self.split, self.group}
        declared = {one.column_name: one.kind for one in features if one.column_name in roles}
        return replace(self, declared=declared)

    def source_as(self, kind: Callable[..., F], description: str, **more: Any) -> F:
        """Return an input with these columns as a source.

        Args:
            kind: Its class.
            description: Its log line.
            more: Further attributes, and those that differ.
        """
        label = self.label
        found: dict[str, Any] = {
            "schema": self.reference_schema,
            **feature_attributes(self),
            "columns": tuple(name for name in self.columns.names if name != self.image),
            "states_splits": self.split is not None,
            "splits_can_be_redrawn": self.split is None,
            "may_have_labels": label is not None,
            "labels_from": "" if label is None else f"column {label!r}",
            "class_names": None if label is None else self.class_names.get(label),
        }
        if self.structs is not None:
            found |= {"columns": None, "labels_from": f"column {self.structs.column!r}"}
        return kind(description=description, **(found | more))

    def describe(self, extras: Iterable[str] | None = None) -> str:
        """Return for the log the columns with a role, and those that become features."""
        roles = ", ".join(f"{role}={column!r}" for role, column in self.roles.items())
        features = listed_columns([*(self.extras if extras is None else extras)])
        return f"{roles}; features from {features}" if features else roles

    def to_json(self) -> dict[str, Any]:
        """Return what decides the references made of rows, for the names of a spool.

        These are all fields, those of a subclass included, so that none can be forgotten.
        """
        found = {one.name: str(getattr(self, one.name)) for one in fields(self)}
        # Its text has the addresses of functions.
        return found | {"structs": None if self.structs is None else self.structs.column}


def feature_attributes(columns: Any) -> dict[str, Any]:
    """Return a source's attributes for `features` of columns, which tf.Example may not hold."""
    try:
        return {"features": columns.features, "unstorable": ""}
    except BuildError as error:
        return {"features": (), "unstorable": str(error)}


def find_roles(
    sample: pa.RecordBatch,
    request: SourceRequest,
    place: str,
    usual: Mapping[str, Sequence[str]] = ROLE_COLUMNS,
    *,
    odd: Container[str] = (),
    texts: bool = False,
) -> dict[str, Any]:
    """Return the column of each role that `usual` has, None for a role that no column has.

    Args:
        sample: The first rows, with all columns.
        request: The request for INPUT, which may give columns.
        place: The input's name in messages.
        usual: Role -> the usual names, in the order in which they are tried.
        odd: Columns without a role by their name, such as images.
        texts: True if all values can be read as text, as in CSV.

    Raises:
        UsageError: A given column is missing.
        BuildError: A column's values do not suit its role.
    """
    types = dict(zip(sample.schema.names, sample.schema.types, strict=True))

    def suits(role: str, name: str) -> bool:
        if name in odd or pa.types.is_nested(types[name]):
            return False
        if role == "label" and pa.types.is_floating(types[name]):
            # A number of a record without an image is a value to predict.
            is_value = request.image is None or name in request.kinds
            return not is_value and can_be_classes(sample.column(name))
        is_number = pa.types.is_floating(types[name])
        return texts or not (is_number or (name in request.kinds and not can_be_text(types[name])))

    roles: dict[str, Any] = {}
    for role, names in usual.items():
        if (column := request.columns.get(role)) is None:
            there = {folded(one): one for one in reversed([*types]) if suits(role, one)}
            column = next((there[name] for name in names if name in there), None)
        elif column not in types:
            raise UsageError(
                f"--{role}-column {column!r} is not in {place}, which has the columns "
                f"{quoted([*types])}"
            )
        roles[role] = column
        if column is not None and role == "label":
            labels, bad = class_texts(sample.column(column), column)
            if bad.any():
                raise BuildError(
                    f"column {column!r} holds {labels.filter(pa.array(bad))[0]}, and labels are "
                    "classes: leave --label-column out, and the column becomes a feature of numbers"
                )
        elif column is not None and role == "size":
            if not pa.types.is_integer(types[column]):
                raise BuildError(
                    f"--size-column {column!r} is of type {types[column]}; it must hold bytes as "
                    "whole numbers"
                )
        elif column is not None and not texts:
            check_text(types[column], column)
    return roles


def folded(name: str) -> str:
    """Return a column's name in lower case, without white space around it."""
    return name.strip().lower()


def said_kinds(
    columns: Mapping[str, str | None], kinds: Mapping[str, FeatureKind]
) -> dict[str, FeatureKind]:
    """Return column -> kind for the columns whose kind `--schema` or `--image-column` sets.

    Args:
        columns: Role -> column given by an option, or None.
        kinds: Column -> kind of the feature that `--schema` fills from it.
    """
    image = columns.get("image")
    return {**kinds, **({} if image is None else {image: FeatureKind.IMAGE})}


def check_width(path: str, names: Sequence[str]) -> None:
    """Raise `UsageError` if a table has more than `MAX_COLUMNS` columns."""
    if len(names) > MAX_COLUMNS:
        raise UsageError(
            f"{path} has {len(names):,} columns, more than the {MAX_COLUMNS:,} allowed: store the "
            "values of many columns as lists in one, or leave out columns"
        )


def first_doubled(names: Iterable[str]) -> str | None:
    """Return the first name that two columns have, or None."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def check_names(place: str, names: Sequence[str]) -> None:
    """Raise `UsageError` if two columns have the same name."""
    doubled = first_doubled(names)
    if doubled is not None:
        raise UsageError(f"{place} has two columns called {doubled!r}: rename one")


def listed_columns(names: Sequence[str]) -> str:
    """Return names of columns for a message, at most 100."""
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def quoted(names: Iterable[str]) -> str:
    """Return names of columns in quotes for a message, at most 100."""
    return listed_columns([*map(repr, names)])


def role_text(rows: pa.RecordBatch, column: str | None) -> pa.Array:
    """Return a column of rows as text; nulls without a column."""
    if column is None:
        return pa.nulls(rows.num_rows, pa.string())
    return as_text(rows.column(column), column)


def canonical_splits(column: pa.Array) -> pa.Array:
    """Return canonical split names: "Val" becomes "validation"; unknown names stay."""
    names = column.dictionary_encode()
    spelled = [
        name and SPLIT_FOLDERS.get(name.strip().lower(), name.strip())
        for name in names.dictionary.to_pylist()
    ]
    return pa.array(spelled, pa.string()).take(names.indices)


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
    if is_text(kind) or is_any(kind, BYTES_TYPES):
        return pa.binary()
    fix = "cast it to text or a number, or drop it"
    if (is_list(kind) and is_list(kind.value_type)) or "bbox: " in str(kind):
        fix = (
            'for boxes, give schema="detection" or --schema detection, and columns objects/bbox of '
            "[ymin, xmin, ymax, xmax] as fractions and objects/label of classes; else drop it"
        )
    raise BuildError(f"column {name!r} is of type {kind}, which tf.Example cannot hold: {fix}")


def extra_feature(name: str, kind: pa.DataType) -> Feature:
    """Return the feature of a table's column that the user does not declare.

    Raises:
        BuildError: tf.Example has no such type.
    """
    stored = extra_type(kind, name)
    several = pa.types.is_list(stored)
    value = _FEATURE_KINDS[stored.value_type if several else stored]
    return Feature(name, value, shape=(None,) if several else ())
