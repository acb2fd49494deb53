"""Assign a table's columns to roles: those that options give, else the first with a usual name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.transforms.features.lists import is_list
from shardwright.transforms.inputs.file_rules import has_image_name
from shardwright.transforms.inputs.tables.table_columns import can_be_text, check_sizes, check_text

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
_LISTED = 100  # columns in a message
_OF_IMAGES = ("image", "size")
_TEXT_ROLES = ("image", "label", "id", "split", "group")


class TableOf(StrEnum):
    """The contents of a table's rows."""

    IMAGES = "images"  # a column of image paths is required
    LABELS = "labels"  # of another input's images; a column of ids or "stem" is enough
    RECORDS = "records"  # no column is the image's


def find_roles(
    path: str,
    schema: pa.Schema,
    given: Mapping[str, str | None],
    rows: TableOf,
    declared: Collection[str] = (),
) -> dict[str, str | None]:
    """Return role -> column, None for a role that no column has.

    Args:
        path: The table's name in messages.
        schema: Its columns.
        given: Role -> column given by an option, or None to look for a usual name.
        rows: The contents of its rows.
        declared: Columns that `--schema` fills features from: by their name, they have a role only
            if their type suits it.

    Raises:
        UsageError: A given column is missing, no column can be the image's,
            or a column's name is empty or not unique.
    """
    if rows is not TableOf.RECORDS and len(set(schema.names)) < len(schema.names):
        _check_header(path, schema)
    _check_names(path, schema)
    usable = pa.schema([one for one in schema if one.name not in declared or can_be_text(one.type)])
    roles = {
        role: _given_column(path, schema, role, column)
        if (column := given.get(role)) is not None
        else _usual_column(usable, role, rows)
        for role in ROLE_COLUMNS
    }
    if rows is TableOf.RECORDS:
        return roles | dict.fromkeys(_OF_IMAGES)
    if rows is TableOf.LABELS:
        roles["image"] = roles["image"] or roles["id"] or _stems(schema)
    if roles["image"] is None:
        _check_header(path, schema)
        raise UsageError(
            f"{path} has the columns {_listed(schema)}: "
            "set --image-column to the one with the image paths; for records without images, "
            "give --schema records, or a schema of your own without an image"
        )
    return roles


def describe_columns(layout: object, extras: Iterable[str]) -> str:
    """Return for the log the columns with a role in a layout, and those that become features."""
    columns = ((role, getattr(layout, role, None)) for role in ROLE_COLUMNS)
    roles = ", ".join(f"{role}={column!r}" for role, column in columns if column)
    features = listed_columns(list(extras))
    return f"{roles}; features from {features}" if features else roles


def column_rule(label: str | None) -> str:
    """Return where labels come from, as `SourceFacts.labels_from`."""
    return "" if label is None else f"column {label!r}"


def roles_as_text(schema: pa.Schema, roles: Mapping[str, str | None]) -> pa.Schema:
    """Return a CSV's schema with its role columns as text: a class "1.5" or id "true" is text.

    Whole numbers stay, so that labels sort by value.
    """
    text = {roles[role] for role in _TEXT_ROLES}
    return pa.schema(
        [
            (
                field.name,
                pa.string()
                if field.name in text and not pa.types.is_integer(field.type)
                else field.type,
            )
            for field in schema
        ]
    )


def check_roles(schema: pa.Schema, roles: Mapping[str, str | None]) -> None:
    """Check that the columns suit their roles.

    Raises:
        BuildError: A column's type does not suit its role.
    """
    for role in _TEXT_ROLES:
        column = roles[role]
        if column is not None:
            check_text(schema.field(column).type, column)
    size = roles["size"]
    if size is not None:
        check_sizes(schema.field(size).type, size)


def _check_header(path: str, schema: pa.Schema) -> None:
    """Raise UsageError for a table whose first line holds values: one is an image's name."""
    if first := next(filter(has_image_name, schema.names), None):
        raise UsageError(
            f"{path} has no line of column names: its first line has {first!r}. Add a line above "
            "it, such as image,label"
        )


def first_doubled(names: Iterable[str]) -> str | None:
    """Return the first name that two columns have, or None."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _check_names(path: str, schema: pa.Schema) -> None:
    doubled = first_doubled(schema.names)
    if doubled is not None:
        raise UsageError(f"{path} has two columns called {doubled!r}: rename one")
    if "" in schema.names:
        raise UsageError(
            f"column {schema.names.index('') + 1} of {path} has no name: "
            "name it, or leave it out (pandas: to_csv(index=False))"
        )


def _given_column(path: str, schema: pa.Schema, role: str, given: str) -> str:
    if given not in schema.names:
        raise UsageError(
            f"--{role}-column {given!r} is not in {path}, which has the columns {_listed(schema)}"
        )
    return given


def _usual_column(schema: pa.Schema, role: str, rows: TableOf) -> str | None:
    # A column of lists has several labels a row and cannot be the label; a schema may still use it.
    # Nor can a number of a table without images: it is a value to predict.
    names = [
        field.name
        for field in schema
        if role != "label"
        or not (
            is_list(field.type) or (rows is TableOf.RECORDS and pa.types.is_floating(field.type))
        )
    ]
    by_lower = {name.strip().lower(): name for name in reversed(names)}
    return next((by_lower[name] for name in ROLE_COLUMNS[role] if name in by_lower), None)


def _stems(schema: pa.Schema) -> str | None:
    """Return the column that a table of labels has in place of paths, for `--labels-key stem`."""
    return "stem" if "stem" in schema.names else None


def _listed(schema: pa.Schema) -> str:
    return listed_columns([*map(repr, schema.names)])


def listed_columns(names: Sequence[str]) -> str:
    """Return names of columns for a message, at most 100."""
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
