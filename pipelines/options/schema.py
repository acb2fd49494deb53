"""Load the schema of `--schema` (ready, Python or JSON) and compare it with INPUT."""

from __future__ import annotations

import difflib
import os
import runpy
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from shardwright.errors import StorageError, UsageError
from shardwright.format.json_files import load_json
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source
from shardwright.schemas.ready import READY_SCHEMAS, WITHOUT_IMAGE
from shardwright.storage.addresses import absolute
from shardwright.storage.folder import files_of
from shardwright.storage.options import StorageOptions
from shardwright.transforms.features.column_types import check_column, check_computed, check_dtype
from shardwright.transforms.inputs.source import MAIN_IMAGE
from shardwright.transforms.references import extra_name

_FILES = (".py", ".json")
_ONE_EACH = (Source.IMAGE, Source.ID, Source.LABEL)
_OF_IMAGE = (Source.FORMAT, Source.HEIGHT, Source.WIDTH, Source.ORIENTATION)
_NAMED = frozenset({FeatureKind.CLASS_LABEL, FeatureKind.MULTI_LABEL})


def read_schema(given: str, storage: StorageOptions) -> ExampleSchema | None:
    """Return the schema of a `--schema` file, or None for a ready one, which depends on INPUT.

    Args:
        given: Name of a ready schema, or a file.
        storage: Options of the store of a JSON file.

    Raises:
        UsageError: The schema does not exist or is invalid.
    """
    if given in READY_SCHEMAS:
        return None
    if not given.lower().endswith(_FILES):
        guess = difflib.get_close_matches(given, READY_SCHEMAS, 1)
        hint = f"; did you mean {guess[0]}?" if guess else ""
        raise UsageError(
            f"--schema {given!r} is neither a ready schema ({', '.join(READY_SCHEMAS)}) nor a .py "
            f"or .json file{hint}"
        )
    if given.lower().endswith(".py"):
        return checked_schema(_load_python(given), given)
    try:
        place = absolute(given)
        schema = ExampleSchema.from_json(load_json(files_of(place, storage).read_bytes(place)))
    except StorageError as error:
        raise UsageError(f"--schema {given} cannot be read: {error}") from error
    except ValueError as error:
        raise UsageError(
            f"--schema {given} is not the JSON of ExampleSchema.to_json ({error}); kinds are "
            f"{', '.join(FeatureKind)}"
        ) from error
    return checked_schema(schema, given)


def checked_schema(schema: ExampleSchema, given: str) -> ExampleSchema:
    """Return a schema with its vocabularies as names, so that they are not learned again.

    The schema of a finished dataset has vocabularies.

    Args:
        schema: The user's schema.
        given: Its name or file in messages.

    Raises:
        UsageError: It has no image, a source twice, or an invalid declaration.
    """
    if not schema.features:
        raise UsageError(f"--schema {given} has no features, so records would be empty: add some")
    for source in _ONE_EACH:
        found = [feature.name for feature in schema.features if feature.source == source]
        if len(found) > 1:
            raise UsageError(
                f"--schema {given}: features {found[0]!r} and {found[1]!r} both have the source "
                f"{source}; only one may"
            )
    for feature in schema.features:
        if schema.image is None and feature.source in _OF_IMAGE:
            raise UsageError(
                f"--schema {given}: feature {feature.name!r} has the source {feature.source}, but "
                "no feature has the source image: add one, or fill it from a column"
            )
        check_dtype(feature)
        wanted = {Source.IMAGE: FeatureKind.IMAGE, Source.LABEL: FeatureKind.CLASS_LABEL}.get(
            feature.source, feature.kind
        )
        if feature.kind != wanted or (feature.source == Source.LABEL and feature.shape):
            raise UsageError(
                f"--schema {given}: feature {feature.name!r} with the source {feature.source} must "
                f"be one {wanted}"
            )
        if None in feature.stored_shape[1:]:
            raise UsageError(
                f"--schema {given}: feature {feature.name!r} has the shape {feature.shape}; only "
                "the first dimension may be None"
            )
        if len(set(feature.names)) < len(feature.names):
            raise UsageError(
                f"--schema {given}: the names of feature {feature.name!r} must be unique"
            )
    return with_given_names(schema)


def with_given_names(schema: ExampleSchema) -> ExampleSchema:
    """Return a schema whose features have the names of its vocabularies, to be learned no more."""
    features = tuple(
        replace(feature, names=feature.names or tuple(schema.vocabularies.get(feature.name, ())))
        for feature in schema.features
    )
    return replace(schema, features=features, vocabularies={})


def main_image(given: str | None, read: ExampleSchema | None) -> Feature | None:
    """Return the main image of the schema of `--schema`, None if it has none.

    Args:
        given: Value of `--schema`, or None.
        read: Result of `read_schema`; None without `--schema`.
    """
    if given in WITHOUT_IMAGE:
        return None
    return MAIN_IMAGE if read is None else read.image


def kinds_of(schema: ExampleSchema | None) -> Mapping[str, FeatureKind]:
    """Return column -> kind of the feature that a schema fills from it."""
    return (
        {}
        if schema is None
        else {feature.column_name: feature.kind for feature in schema.column_features}
    )


def shapes_of(schema: ExampleSchema | None) -> Mapping[str, tuple[int | None, ...]]:
    """Return column -> shape of the stored values of the feature that a schema fills from it."""
    return (
        {}
        if schema is None
        else {each.column_name: each.stored[0].shape for each in schema.column_features}
    )


def load_schema(
    given: str,
    read: ExampleSchema | None,
    *,
    feature_names: str,
    columns: Sequence[str],
    extras: Sequence[Feature],
) -> ExampleSchema:
    """Return the schema of `--schema` for the columns of INPUT.

    Args:
        given: Name of a ready schema, or a file.
        read: Result of `read_schema`.
        feature_names: Feature names of ready schemas: "tfds" or "model-garden".
        columns: Names of the source's extra columns.
        extras: Their features without a schema; class names stated there are used in the schema.

    Raises:
        UsageError: The ready schema cannot be made from the columns.
    """
    schema = READY_SCHEMAS[given].make(feature_names, columns, extras) if read is None else read
    stated = {extra.name: extra.names for extra in extras}
    features = tuple(
        replace(feature, names=stated[feature.name])
        if feature.name in stated
        and feature.kind in _NAMED
        and not feature.names
        and feature.source == Source.COLUMN
        else feature
        for feature in schema.features
    )
    return replace(schema, features=features)


def _load_python(path: str) -> ExampleSchema:
    if not os.path.isfile(path):
        raise UsageError(f"--schema {path} does not exist: give a Python file that defines SCHEMA")
    try:
        found = runpy.run_path(path).get("SCHEMA")
    except UsageError as error:  # what it declares contradicts itself
        raise UsageError(f"--schema {path}: {error}") from error
    except Exception as error:  # any error of the user's own code
        raise UsageError(
            f"--schema {path} cannot be run: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, ExampleSchema):
        what = (
            "defines no SCHEMA"
            if found is None
            else f"defines a SCHEMA of type {type(found).__name__}"
        )
        raise UsageError(
            f"--schema {path} {what}: it must be a {ExampleSchema.__module__}.ExampleSchema"
        )
    return found


def check_columns(
    schema: ExampleSchema,
    columns: pa.Schema,
    *,
    known: Sequence[str],
    has_label: bool,
    may_compute: bool = False,
) -> None:
    """Check that a source can fill all features of a schema.

    Args:
        schema: Schema with the features.
        columns: Columns of the source's references for this schema.
        known: Names of all columns of the source.
        has_label: The source may have labels; for a folder only its listing shows that.
        may_compute: `--transform` sets the features whose column is missing.

    Raises:
        UsageError: A column is missing; the message lists the known ones.
        BuildError: The type of a column does not fit its feature.
    """
    for feature in schema.column_features:
        name = extra_name(feature.column_name)
        if name not in columns.names and may_compute:
            check_computed(feature)
            continue
        if name not in columns.names:
            there = ", ".join(map(repr, known)) or "none"
            raise UsageError(
                f"--schema: feature {feature.name!r} needs the column {feature.column_name!r}, "
                f"which INPUT does not have; its columns are {there}. Set the feature's column to "
                "one of them, or compute the feature with --transform"
            )
        check_column(columns.field(name).type, feature)
    if schema.label is not None and not has_label:
        raise UsageError(
            "--schema has a label, and INPUT has none: give its column with --label-column, or a "
            "schema without a label"
        )
