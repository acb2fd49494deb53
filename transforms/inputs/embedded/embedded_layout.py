"""Find the columns of a Parquet or Arrow file that hold encoded images, and the roles of others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.format.schema import PICTURES, Feature, FeatureKind
from shardwright.transforms.features.lists import is_list
from shardwright.transforms.inputs.embedded.embedded_files import stated_class_names
from shardwright.transforms.inputs.image_values import IMAGE_NAMES, has_image_magic, said_kinds
from shardwright.transforms.inputs.tables.table_columns import (
    can_be_text,
    check_text,
    extra_feature,
)
from shardwright.transforms.inputs.tables.table_roles import (
    ROLE_COLUMNS,
    first_doubled,
    listed_columns,
)
from shardwright.transforms.inputs.tables.table_schemas import check_width
from shardwright.transforms.references import PICTURE_TYPE, reference_schema

_BYTES = "bytes"  # of the hub's struct<bytes: binary, path: string>
_PATH = "path"
_BINARY = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
_ROLES = ("label", "id", "split", "group")
_NUMBERS = frozenset({FeatureKind.INT64, FeatureKind.FLOAT32})
PictureParts = tuple[bytes | None, str | None]  # an image's bytes, or else its path


@dataclass(frozen=True, slots=True)
class EmbeddedLayout:
    """The role of each column.

    Attributes:
        columns: All columns and their types.
        image: The column of the main image, or None for records without one.
        others: Columns of further images.
        class_names: Column -> names of its class numbers, if the file states them.
        label, id, split, group: The column with this role, or None.
        declared: Column with a role that fills a feature of a schema, too -> the feature's kind.
    """

    columns: pa.Schema
    image: str | None
    others: tuple[str, ...] = ()
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    label: str | None = None
    id: str | None = None
    split: str | None = None
    group: str | None = None
    # Not in the text of a layout, which decides the name of a spool: see `embedded_source`.
    declared: Mapping[str, FeatureKind] = field(default_factory=dict, repr=False)

    @property
    def extras(self) -> tuple[str, ...]:
        """The columns that become features, with those of further images."""
        roles = {self.image, self.label, self.id, self.split, self.group} - self.declared.keys()
        return tuple(name for name in self.columns.names if name not in roles)

    @property
    def reference_schema(self) -> pa.Schema:
        """The columns of references."""
        return reference_schema((name, self.type_of(name)) for name in self.extras)

    def for_features(self, features: Sequence[Feature]) -> EmbeddedLayout:
        """Return the layout in which columns with a role fill these features, too."""
        roles = {self.label, self.id, self.split, self.group}
        declared = {one.column_name: one.kind for one in features if one.column_name in roles}
        return replace(self, declared=declared)

    def names_in(self, extra: str) -> tuple[str, ...] | None:
        """Return the class names that an extra column has in place of its numbers, or None."""
        return None if self.declared.get(extra) in _NUMBERS else self.class_names.get(extra)

    def type_of(self, extra: str) -> pa.DataType:
        """Return the type of an extra column in references."""
        kind = self.columns.field(extra).type
        if extra in self.others:
            return PICTURE_TYPE
        if self.names_in(extra) is not None:
            return pa.list_(pa.string()) if is_list(kind) else pa.string()
        return kind

    def feature_of(self, extra: str) -> Feature:
        """Return the feature of an extra column.

        Raises:
            BuildError: tf.Example does not support the column's type.
        """
        kind = self.columns.field(extra).type
        if extra in self.others:
            return Feature(extra, FeatureKind.IMAGE, default="")  # a row may have none
        if extra in self.class_names:
            shape = (None,) if is_list(kind) else ()
            return Feature(
                extra, FeatureKind.CLASS_LABEL, shape=shape, names=self.class_names[extra]
            )
        return extra_feature(extra, kind)


def picture_parts(column: pa.Array) -> list[PictureParts]:
    """Return each row of an image column."""
    if not pa.types.is_struct(column.type):
        return [(value, None) for value in column.to_pylist()]
    return [
        (None, None) if value is None else (value.get(_BYTES), value.get(_PATH))
        for value in column.to_pylist()
    ]


def make_layout(
    rows: pa.RecordBatch,
    schema: pa.Schema,
    columns: Mapping[str, str | None],
    place: str,
    *,
    kinds: Mapping[str, FeatureKind] | None = None,
    forced: bool = False,
) -> EmbeddedLayout | None:
    """Return the layout of a file; None if no column holds images.

    Args:
        rows: The first rows.
        schema: The file's schema, with metadata.
        columns: Role -> column given by an option, or None.
        place: The input's name in messages.
        kinds: Column -> kind of the feature that `--schema` fills from it.
        forced: True to raise an error instead of returning None.

    Raises:
        UsageError: A column given by an option is missing or does not suit its role; the images
            are in lists; the main image is ambiguous; or two columns have the same name.
        BuildError: A column's type does not suit its role.
    """
    said = said_kinds(columns, kinds)
    pictures = [
        name
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
        if _is_picture(column, said.get(name))
    ]
    image = _image_column(rows, pictures, columns.get("image"), place, forced=forced)
    if image is None:
        return None
    return layout_with(image, pictures, schema, columns, place, declared=kinds or {})


def layout_with(
    image: str | None,
    pictures: Sequence[str],
    schema: pa.Schema,
    columns: Mapping[str, str | None],
    place: str,
    *,
    declared: Collection[str],
) -> EmbeddedLayout:
    """Return the layout of columns of which the images are known.

    Args:
        image: The column of the main image, or None for records without one.
        pictures: All columns of images.
        schema, columns, place: As for `make_layout`.
        declared: Columns that `--schema` fills features from.

    Raises:
        UsageError, BuildError: As `make_layout`.
    """
    check_width(place, schema.names)
    doubled = first_doubled(schema.names)
    if doubled is not None:
        raise UsageError(f"{place} has two columns called {doubled!r}: rename one")
    names = _names_of_classes(schema)
    odd = [one.name for one in schema if one.name in declared and not can_be_text(one.type)]
    roles = _find_roles(schema, columns, place, [*pictures, *odd], names)
    others = tuple(name for name in pictures if name != image)
    return EmbeddedLayout(schema.remove_metadata(), image, others, names, **roles)


def _names_of_classes(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    """Return the stated class names of each column of class numbers."""
    return {
        name: words
        for name, words in stated_class_names(schema).items()
        if name in schema.names and _is_integers(schema, name)
    }


def _find_roles(
    schema: pa.Schema,
    columns: Mapping[str, str | None],
    place: str,
    odd: Sequence[str],
    named: Collection[str],
) -> dict[str, Any]:
    """Return the column of each role, by its name none of the `odd` ones.

    A single column with `named` classes is the label.
    """
    roles = {role: _role_column(schema, role, columns.get(role), place, odd) for role in _ROLES}
    classes = [name for name in named if not is_list(schema.field(name).type)]
    if roles["label"] is None and len(classes) == 1 and classes[0] not in roles.values():
        roles["label"] = classes[0]
    for column in filter(None, roles.values()):
        check_text(schema.field(column).type, column)
    return roles


def _image_column(
    rows: pa.RecordBatch, pictures: Sequence[str], given: str | None, place: str, *, forced: bool
) -> str | None:
    if given is not None and given not in rows.schema.names:
        raise UsageError(
            f"--image-column {given!r} is not in {place}, "
            f"which has the columns {_listed(rows.schema)}"
        )
    if given in pictures:
        return given
    lists = [
        name
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
        if _holds_lists(column)
    ]
    if given in lists or (lists and not pictures and given is None):
        raise UsageError(
            f"column {given or lists[0]!r} of {place} holds lists of images, "
            "but a record has one main image: "
            "write a row for each image, or a column for each position in the list"
        )
    if given is None and pictures:
        usual = [
            name for wanted in IMAGE_NAMES for name in pictures if name.strip().lower() == wanted
        ]
        if usual or len(pictures) == 1:
            return (usual or list(pictures))[0]
        raise UsageError(
            f"{place} has several columns of images, {', '.join(map(repr, pictures))}: "
            "choose the main one with --image-column"
        )
    if forced:
        raise UsageError(
            f"no column of {place} holds encoded images (JPEG, PNG, ...); "
            f"it has the columns {_listed(rows.schema)}: for records without images, give --schema "
            "records, or a schema of your own without an image"
        )
    return None


def _is_picture(column: pa.Array, said: FeatureKind | None) -> bool:
    """Return whether a column holds images, by an option or `--schema`, else by its values."""
    if said is None:
        return _holds_pictures(column)
    return said in PICTURES and _can_hold_pictures(column.type)


def _holds_pictures(column: pa.Array) -> bool:
    """Return whether a column can hold images, and does in some row."""
    if not _can_hold_pictures(column.type):
        return False
    return any(
        has_image_magic(data) if data else bool(path) for data, path in picture_parts(column)
    )


def _can_hold_pictures(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.get_field_index(_BYTES) >= 0 and _is_binary(kind.field(_BYTES).type)
    return _is_binary(kind)


def _holds_lists(column: pa.Array) -> bool:
    return is_list(column.type) and _holds_pictures(column.flatten())


def _is_binary(kind: pa.DataType) -> bool:
    return any(test(kind) for test in _BINARY)


def _is_integers(schema: pa.Schema, name: str) -> bool:
    kind = schema.field(name).type
    return bool(pa.types.is_integer(kind.value_type if is_list(kind) else kind))


def _role_column(
    schema: pa.Schema, role: str, given: str | None, place: str, odd: Sequence[str]
) -> str | None:
    if given is not None:
        if given not in schema.names:
            raise UsageError(
                f"--{role}-column {given!r} is not in {place}, "
                f"which has the columns {_listed(schema)}"
            )
        return given
    usable = {
        field.name.strip().lower(): field.name
        for field in reversed(list(schema))
        if field.name not in odd
        and not pa.types.is_nested(field.type)
        and not pa.types.is_floating(field.type)
    }
    return next((usable[name] for name in ROLE_COLUMNS[role] if name in usable), None)


def _listed(schema: pa.Schema) -> str:
    return listed_columns([*map(repr, schema.names)])
