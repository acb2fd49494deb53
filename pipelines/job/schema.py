"""Choose the schema of a build: that of `--schema`, or one for INPUT, as images are encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from shardwright.errors import BuildError, StorageError, UsageError
from shardwright.format.schema import (
    CLASSES,
    PICTURES,
    ExampleSchema,
    Feature,
    FeatureKind,
    Source,
)
from shardwright.pipelines.options.build import BuildOptions
from shardwright.schemas.ready import READY_SCHEMAS, WITH_ALL_COLUMNS, WITHOUT_IMAGE
from shardwright.storage.addresses import absolute
from shardwright.storage.folder import files_of
from shardwright.transforms.features.columns import check_column, check_computed
from shardwright.transforms.features.vocabularies import read_class_names
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.inputs.file_rules import decode_text
from shardwright.transforms.inputs.formats.tables import TableSource
from shardwright.transforms.inputs.source import InputSource
from shardwright.transforms.options import given_options
from shardwright.transforms.references import extra_name

DEFAULT = "image_classification"  # the ready schema of a build without `--schema`


def choose_schema(
    options: BuildOptions,
    read: ExampleSchema | None,
    source: InputSource,
    table: TableSource | None,
) -> tuple[ExampleSchema, InputSource, TableSource | None]:
    """Return the schema of `--schema`, or the default, and both inputs with the columns it uses.

    Args:
        options: Options of the command line.
        read: Result of `options.read_schema`.
        source: INPUT.
        table: Table of `--labels`, or None.

    Raises:
        UsageError: An option contradicts the schema, or a column is missing.
        BuildError: The type of a column does not fit its feature.
    """
    given = options.schema or DEFAULT
    inputs = [source] if table is None else [source, table]
    known = [column for each in inputs for column in each.column_names]
    has_own_names = given not in READY_SCHEMAS or given in WITHOUT_IMAGE
    if has_own_names and options.feature_names != BuildOptions.feature_names:
        raise UsageError(
            f"--feature-names is for ready schemas, and --schema {given} has its own names: leave "
            "--feature-names out"
        )
    try:
        extras = _extras(inputs)
    except BuildError:  # maybe over a column that the schema does not use
        if given in WITH_ALL_COLUMNS:
            raise
        extras = ()
    _check_label_columns(given, inputs, known, extras)
    feature_names = source.feature_names or options.feature_names
    schema = schema_for(given, read, feature_names=feature_names, columns=known, extras=extras)
    schema = _with_separator(schema, options)
    refuse_options(options, schema, copies=False)
    features = schema.column_features
    source, table = source.for_features(features), table and table.for_features(features)
    inputs = [source] if table is None else [source, table]
    # Of references after the join of INPUT with the label table.
    columns = {field.name: field.type for each in inputs for field in each.schema}
    _check_columns(schema, columns, known, may_compute=bool(options.transforms))
    has_label = given in READY_SCHEMAS or any(each.may_have_labels for each in inputs)
    if schema.label is not None and not has_label:
        raise UsageError(
            "--schema has a label, and INPUT has none: give its column with --label-column, or a "
            "schema without a label"
        )
    return schema, source, table


def schema_for(
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
        read: The schema of the file.
        feature_names: Feature names of ready schemas: "tfds" or "model-garden".
        columns: Names of the source's extra columns.
        extras: Their features without a schema; class names stated there are used in the schema.
    """
    schema = READY_SCHEMAS[given].make(feature_names, columns, extras) if read is None else read
    stated = {extra.name: extra.names for extra in extras}
    features = tuple(
        replace(feature, names=stated.get(feature.name, ()))
        if feature.kind in CLASSES and not feature.names and feature.source == Source.COLUMN
        else feature
        for feature in schema.features
    )
    return replace(schema, features=features)


def _check_label_columns(
    given: str,
    inputs: Sequence[InputSource],
    columns: Sequence[str],
    extras: Sequence[Feature],
) -> None:
    """Raise UsageError if it is not clear what the labels of a ready schema are."""
    usual = READY_SCHEMAS["multi_label"].columns
    found = [column for column in dict.fromkeys(columns) if column.lower() in usual]
    if given == "multi_label" and len(found) > 1:
        feature = f'Feature("labels", FeatureKind.MULTI_LABEL, column="{found[-1]}")'
        raise UsageError(
            f"--schema multi_label: columns {' and '.join(map(repr, found))} could all be the "
            f"labels: rename all but one, or write a schema with {feature}"
        )
    targets = [extra for extra in extras if extra.name == "label"]
    if given == DEFAULT and any(extra.is_list for extra in targets):
        raise UsageError(
            "column 'label' holds lists: give --schema multi_label, or another column with "
            "--label-column; of rows of 0 and 1, one for each class, give numbers of classes"
        )
    # Of floats, which are no classes.
    if targets and given in WITH_ALL_COLUMNS and any(each.may_have_labels for each in inputs):
        raise UsageError(
            "column 'label' does not hold the labels, but the labels become the feature 'label': "
            "rename the column"
        )


def _check_columns(
    schema: ExampleSchema,
    columns: Mapping[str, pa.DataType],
    known: Sequence[str],
    *,
    may_compute: bool,
) -> None:
    """Check that a source can fill all features of a schema.

    Args:
        schema: Schema with the features.
        columns: Columns of the source's references for this schema, with their types.
        known: Names of all columns of the source.
        may_compute: `--transform` sets the features whose column is missing.

    Raises:
        UsageError: A column is missing; the message lists the known ones.
        BuildError: The type of a column does not fit its feature.
    """
    for feature in schema.column_features:
        name = extra_name(feature.column_name)
        if name in columns:
            check_column(columns[name], feature)
        elif may_compute:
            check_computed(feature)
        else:
            there = ", ".join(map(repr, known)) or "none"
            raise UsageError(
                f"--schema: feature {feature.name!r} needs the column {feature.column_name!r}, "
                f"which INPUT does not have; its columns are {there}. Set the feature's column to "
                "one of them, or compute the feature with --transform"
            )


def _with_separator(schema: ExampleSchema, options: BuildOptions) -> ExampleSchema:
    """Return the schema with the separator that `--label-separator` gives to multi-labels."""
    separator = options.label_separator
    if not separator:
        return schema
    are_several = [feature.kind == FeatureKind.MULTI_LABEL for feature in schema.features]
    if not any(are_several):
        raise UsageError(
            "--label-separator is for features of kind multi_label, and the schema has none: give "
            "--schema multi_label"
        )
    features = (
        replace(feature, separator=separator) if has_several else feature
        for feature, has_several in zip(schema.features, are_several, strict=True)
    )
    return replace(schema, features=tuple(features))


def read_option_classes(options: BuildOptions) -> tuple[str, ...] | None:
    """Return the class names of `--class-names`, or None without it.

    Raises:
        UsageError: The file cannot be read or is invalid.
    """
    if options.class_names is None:
        return None
    try:
        path = absolute(options.class_names)
        text = decode_text(files_of(path, options.storage).read_bytes(path))
    except (StorageError, UnicodeError) as error:
        raise UsageError(f"--class-names {options.class_names} cannot be read: {error}") from error
    return read_class_names(text, options.class_names)


def refuse_options(options: BuildOptions, schema: ExampleSchema, *, copies: bool) -> None:
    """Raise an error for an option that needs an image or an id, which the schema lacks.

    Args:
        options: Options of the command line.
        schema: That of `--schema`, or of INPUT if it is a dataset to copy.
        copies: INPUT is such a dataset.
    """
    place, image = "the dataset INPUT" if copies else "--schema", schema.image
    # Beam decides which record goes to which shard, so the index is made from the written records.
    if options.writer == "beam" and schema.find(Source.ID) is None:
        raise UsageError(
            f"--writer beam finds its records by their id, and {place} has none: add a feature of "
            "kind text with the source id"
        )
    given = []
    if PICTURES.isdisjoint(feature.kind for feature in schema.features):
        given = [*given_options(options.encode)]
        given += ["--check"] if options.check != BuildOptions.check else []
    if image is None and options.duplicates != BuildOptions.duplicates:
        given += ["--duplicates"]
    if image is None and options.near.is_on:
        given += ["--near-duplicates"]
    if given:
        raise UsageError(
            f"{given[0]} is for images, and {place} has none: leave {given[0]} out, or add a "
            "feature of kind image"
        )
    if copies and image and options.near.is_on and image.encoding == "raw":
        raise UsageError(
            "--near-duplicates decodes images, and those of INPUT are raw pixels: leave "
            "--near-duplicates out"
        )


def _extras(inputs: Sequence[InputSource]) -> tuple[Feature, ...]:
    """Return the features of extra columns; the label table's replace those of the source.

    Raises:
        BuildError: tf.Example cannot hold a column.
    """
    features: dict[str, Feature] = {}
    for each in inputs:
        if each.unstorable:
            raise BuildError(each.unstorable)
        own = {feature.name: feature for feature in each.features}
        features = {name: each for name, each in features.items() if name not in own} | own
    return tuple(features.values())


def as_encoded(schema: ExampleSchema, options: EncodeOptions) -> ExampleSchema:
    """Return the schema with the encoding and the shape that the options give to images.

    Raises:
        UsageError: A feature declares another encoding or shape.
    """
    features = [
        _encoded(feature, options) if feature.kind in PICTURES else feature
        for feature in schema.features
    ]
    image = schema.image
    if image is not None and options.tells_orientation and not schema.find(Source.ORIENTATION):
        name = "image/orientation" if "/" in image.name else "orientation"
        is_of_column = [feature.source == Source.COLUMN for feature in features]
        place = [*is_of_column, True].index(True)
        features.insert(place, Feature(name, FeatureKind.INT64, Source.ORIENTATION))
    return replace(schema, features=tuple(features))


def _encoded(feature: Feature, options: EncodeOptions) -> Feature:
    if feature.kind == FeatureKind.MASK:
        shape = (*options.shape[:2], 1) if options.shape else feature.shape
        # Class numbers survive only a lossless format, whatever the image's own encoding.
        stored = replace(feature, encoding="png", shape=shape)
    else:
        stored = replace(
            feature,
            encoding=None if options.encode == "keep" else options.encode,
            shape=options.shape or feature.shape,
            dtype="",
        )
    if feature.encoding not in (None, stored.encoding):
        raise UsageError(
            f"--schema: feature {feature.name!r} has the encoding {feature.encoding!r}, and images "
            f"are stored with --encode {options.encode}: give --encode {feature.encoding}, or "
            "declare no encoding"
        )
    if feature.shape and feature.shape != stored.shape:
        raise UsageError(
            f"--schema: feature {feature.name!r} has the shape {feature.shape}, and --resize makes "
            f"it {stored.shape}"
        )
    if feature.dtype not in ("", stored.dtype or "uint8"):
        raise UsageError(
            f"--schema: feature {feature.name!r} has the dtype {feature.dtype!r}, and images are "
            "stored as uint8: declare no dtype"
        )
    return stored
