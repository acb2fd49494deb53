"""Choose the schema of a build: that of `--schema`, or one for INPUT, as images are encoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from shardwright.errors import BuildError, StorageError, UsageError
from shardwright.format.schema import PICTURES, ExampleSchema, Feature, FeatureKind, Source
from shardwright.pipelines.options.build import BuildOptions
from shardwright.pipelines.options.schema import check_columns, load_schema
from shardwright.schemas.image_classification import image_classification
from shardwright.schemas.ready import READY_SCHEMAS, WITH_ALL_COLUMNS, WITHOUT_IMAGE
from shardwright.storage.addresses import absolute
from shardwright.storage.folder import files_of
from shardwright.transforms.features.vocabularies import read_class_names
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.inputs.foreign_text import decode_text
from shardwright.transforms.inputs.formats.tables import TableSource
from shardwright.transforms.inputs.source import InputSource
from shardwright.transforms.options import given_options


def default_schema(
    options: BuildOptions, source: InputSource, table: TableSource | None
) -> ExampleSchema:
    """Return the schema of a build without `--schema`: image, id, label and all other columns."""
    encode = options.encode
    extras = _extras(source, table)
    if any(extra.name == "label" and extra.is_list for extra in extras):
        raise UsageError(
            "column 'label' holds lists: give --schema multi_label, or another column with "
            "--label-column; of rows of 0 and 1, one for each class, give numbers of classes"
        )
    is_target = any(extra.name == "label" for extra in extras)  # floats, which are no classes
    if is_target:
        _check_no_labels(source, *([] if table is None else [table]))
    schema = image_classification(
        labeled=not is_target,
        feature_names=source.feature_names or options.feature_names,
        image_encoding=None if encode.encode == "keep" else encode.encode,
        image_shape=encode.shape,
        oriented=encode.tells_orientation,
        extras=extras,
    )
    return _with_separator(schema, options)


def fit_schema(
    options: BuildOptions,
    given: str,
    read: ExampleSchema | None,
    source: InputSource,
    table: TableSource | None,
) -> tuple[ExampleSchema, InputSource, TableSource | None]:
    """Return the schema of `--schema`, and both inputs with the columns that it uses.

    Args:
        options: Options of the command line.
        given: Value of `--schema`.
        read: Result of `options.schema.read_schema`.
        source: INPUT.
        table: Table of `--labels`, or None.

    Raises:
        UsageError: An option contradicts the schema, or a column is missing.
        BuildError: The type of a column does not fit its feature.
    """
    known = [*source.column_names, *(table.column_names if table else ())]
    schema = _with_separator(_declared_schema(options, given, read, source, table, known), options)
    _refuse_options(options, schema)
    features = schema.column_features
    source = source.for_features(features)
    table = table and table.for_features(features)
    inputs = [source, *([] if table is None else [table])]
    has_label = given in READY_SCHEMAS or any(each.may_have_labels for each in inputs)
    # Of references after the join of INPUT with the label table.
    columns = {field.name: field.type for each in inputs for field in each.schema}
    check_columns(
        schema,
        pa.schema(list(columns.items())),
        known=known,
        has_label=has_label,
        may_compute=bool(options.transforms),
    )
    return schema, source, table


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


def check_copied(options: BuildOptions, source: InputSource) -> None:
    """Raise UsageError for an option that needs images that INPUT, a dataset, does not store."""
    copied = source.copied_schema
    image = None if copied is None else copied.image
    if copied is None or not (options.near.is_on or options.duplicates != BuildOptions.duplicates):
        return
    given = "--near-duplicates" if options.near.is_on else "--duplicates"
    if image is None:
        raise UsageError(
            f"{given} is for images, and the records of INPUT have none: leave {given} out"
        )
    if options.near.is_on and image.encoding == "raw":
        raise UsageError(
            "--near-duplicates decodes images, and those of INPUT are raw pixels: leave "
            "--near-duplicates out"
        )


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


def _refuse_options(options: BuildOptions, schema: ExampleSchema) -> None:
    """Raise an error for an option that needs an image or an id, which the schema lacks."""
    # Beam decides which record goes to which shard, so the index is made from the written records.
    if options.writer == "beam" and schema.find(Source.ID) is None:
        raise UsageError(
            "--writer beam finds its records by their id, and --schema has none: add a feature of "
            "kind text with the source id"
        )
    given = []
    if PICTURES.isdisjoint(feature.kind for feature in schema.features):
        given = [*given_options(options.encode)]
        given += ["--check"] if options.check != BuildOptions.check else []
    if schema.image is None and options.duplicates != BuildOptions.duplicates:
        given += ["--duplicates"]
    if schema.image is None and options.near.is_on:
        given += ["--near-duplicates"]
    if given:
        raise UsageError(
            f"{given[0]} is for images, and --schema has none: leave {given[0]} out, or add a "
            "feature of kind image"
        )


def _declared_schema(
    options: BuildOptions,
    given: str,
    read: ExampleSchema | None,
    source: InputSource,
    table: TableSource | None,
    columns: Sequence[str],
) -> ExampleSchema:
    has_own_names = given not in READY_SCHEMAS or given in WITHOUT_IMAGE
    if has_own_names and options.feature_names != BuildOptions.feature_names:
        raise UsageError(
            f"--feature-names is for ready schemas, and --schema {given} has its own names: leave "
            "--feature-names out"
        )
    usual = READY_SCHEMAS["multi_label"].columns
    found = [column for column in dict.fromkeys(columns) if column.lower() in usual]
    if given == "multi_label" and len(found) > 1:
        feature = f'Feature("labels", FeatureKind.MULTI_LABEL, column="{found[-1]}")'
        raise UsageError(
            f"--schema multi_label: columns {' and '.join(map(repr, found))} could all be the "
            f"labels: rename all but one, or write a schema with {feature}"
        )
    try:
        extras = _extras(source, table)
    except BuildError:  # maybe over a column that the schema does not use
        if given in WITH_ALL_COLUMNS:
            raise
        extras = ()
    if given in WITHOUT_IMAGE and any(extra.name == "label" for extra in extras):
        _check_no_labels(source, *([] if table is None else [table]))
    return load_schema(
        given,
        read,
        feature_names=source.feature_names or options.feature_names,
        columns=columns,
        extras=extras,
    )


def _check_no_labels(*inputs: InputSource) -> None:
    """Raise UsageError if the records have labels beside a column of numbers called label."""
    if any(each.may_have_labels for each in inputs):
        raise UsageError(
            "column 'label' does not hold the labels, but the labels become the feature 'label': "
            "rename the column"
        )


def _extras(source: InputSource, table: TableSource | None) -> tuple[Feature, ...]:
    """Return the features of extra columns; the label table's replace those of the source.

    Raises:
        BuildError: tf.Example cannot hold a column.
    """
    of_table = () if table is None else _features_of(table)
    replaced = {feature.name for feature in of_table}
    return (
        *(feature for feature in _features_of(source) if feature.name not in replaced),
        *of_table,
    )


def _features_of(source: InputSource) -> tuple[Feature, ...]:
    if source.unstorable:
        raise BuildError(source.unstorable)
    return source.features


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
        features.append(Feature(name, FeatureKind.INT64, Source.ORIENTATION))
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
