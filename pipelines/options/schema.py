"""Load the schema of `--schema`: a Python or JSON file."""

from __future__ import annotations

import difflib
import os
import runpy
from dataclasses import replace

from shardwright.errors import StorageError, UsageError
from shardwright.format.json_files import load_json
from shardwright.format.schema import ExampleSchema, FeatureKind, Source
from shardwright.schemas.ready import READY_SCHEMAS
from shardwright.storage.addresses import absolute
from shardwright.storage.folder import files_of
from shardwright.storage.options import StorageOptions
from shardwright.transforms.features.column_types import check_dtype

_FILES = (".py", ".json")
_ONE_EACH = (Source.IMAGE, Source.ID, Source.LABEL)
_OF_IMAGE = (Source.FORMAT, Source.HEIGHT, Source.WIDTH, Source.ORIENTATION)


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
