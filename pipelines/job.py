"""Prepare a build: combine its options with the facts about INPUT, before any worker starts."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib import metadata
from typing import Any

import pyarrow as pa

from pipelines.options import BuildOptions
from pipelines.runners import is_local
from pipelines.schemas_option import as_encoded, check_columns, kinds_of, load_schema, read_schema
from schemas.image_classification import image_classification
from schemas.ready import READY_SCHEMAS, WITH_ALL_COLUMNS
from shardwright import naming
from shardwright.errors import BuildError, StorageError, UsageError
from shardwright.schema import ExampleSchema, Feature
from shardwright.storage import Folder, absolute, files_of
from transforms.features.rows import column_features
from transforms.features.vocabularies import read_class_names
from transforms.inputs.detection import detect_source, make_request
from transforms.inputs.source import InputSource
from transforms.inputs.spool import UnwrittenFolder, forget_lost_spools
from transforms.inputs.tables.table_source import TableSource, open_label_table
from transforms.output_state import OutputRequest, check_output
from transforms.publishing.publication import Publication
from transforms.references import extra_columns, name_of_extra
from transforms.splitting.split_lists import SplitLists
from transforms.writing.write_job import WriteJob

_RECORDED_PACKAGES = (
    "shardwright",
    "apache-beam",
    "pyarrow",
    "tfx-bsl",
    "Pillow",
    "google-crc32c",
    "obstore",
)
_LOCAL_BUCKETS, _REMOTE_BUCKETS = 8, 1024


@dataclass(frozen=True, eq=False)
class BuildJob:
    """The options and the source of a build, and the configuration of the graph derived from them.

    Attributes:
        options: Options of the command line.
        source: INPUT in its detected format.
        label_table: Table of `--labels`, or None.
        class_names: From `--class-names`, `--schema` or the source; None to learn them.
        declared: Schema of `--schema`, or None.
    """

    options: BuildOptions
    source: InputSource
    label_table: TableSource | None
    class_names: tuple[str, ...] | None
    declared: ExampleSchema | None = None

    @property
    def splits_given(self) -> bool:
        if self.label_table is not None and self.label_table.split is not None:
            return True
        redrawn = (
            self.options.split is not None or bool(self.options.split_ids)
        ) and self.source.splits_can_be_redrawn
        return self.source.states_splits and not redrawn

    @cached_property
    def split_lists(self) -> SplitLists | None:
        return (
            SplitLists.parse(self.options.split_ids, self.options.storage)
            if self.options.split_ids
            else None
        )

    @property
    def integer_labels(self) -> bool:
        table = self.label_table
        return (self.source if table is None or table.label is None else table).has_integer_labels

    @property
    def label_indices(self) -> bool:
        table = self.label_table
        return (table is None or table.label is None) and self.source.labels_are_indices

    @property
    def num_buckets(self) -> int:
        """The number of sort buckets.

        Locally one process holds the whole plan, elsewhere a bucket must fit a small worker.
        """
        return _LOCAL_BUCKETS if is_local(self.options.beam_args) else _REMOTE_BUCKETS

    @property
    def needs_label(self) -> bool:
        """True if the user's own schema has a label, so that a dataset without labels fails."""
        return (
            self.declared is not None
            and self.declared.label is not None
            and self.options.schema not in READY_SCHEMAS
        )

    @cached_property
    def schema(self) -> ExampleSchema:
        encode = self.options.encode
        if self.declared is not None:
            return as_encoded(self.declared, encode)
        extras = _extras(self.source, self.label_table)
        if any(extra.name == "label" and extra.is_list for extra in extras):
            raise UsageError(
                "column 'label' holds lists: give --schema multi_label, or another column with "
                "--label-column"
            )
        schema = image_classification(
            feature_names=self.source.feature_names or self.options.feature_names,
            image_encoding=None if encode.encode == "keep" else encode.encode,
            image_shape=encode.shape,
            image_dtype=encode.image_dtype,
            oriented=encode.tells_orientation,
            extras=extras,
        )
        return as_encoded(schema, encode)

    @property
    def digest_settings(self) -> bytes:
        """The settings that determine a shard's bytes, beside its references."""
        settings = self.options.settings
        relevant = {
            key: settings[key]
            for key in ("encode", "check", "feature_names", "transforms")
            if key in settings
        }
        return json.dumps({**relevant, "schema": self.schema.to_json()}, sort_keys=True).encode()

    @property
    def write_job(self) -> WriteJob:
        options = self.options
        return WriteJob(
            options.root,
            self.schema,
            options.check,
            options.encode,
            options.threads,
            options.storage,
            options.transforms,
        )

    def describe_inputs(self) -> str:
        """Return the detected format of INPUT and the table of labels, for the log."""
        table = self.label_table
        labels = "" if table is None else f"; by {table.key}, labels from {table.describe()}"
        return f"INPUT is {self.source.describe()}{labels}"

    @property
    def samples_sizes(self) -> bool:
        """True if shards have a target size and images change theirs when they are written."""
        return _samples_sizes(self.options)

    @property
    def output_request(self) -> OutputRequest:
        return OutputRequest(self.options.root, self.options.settings, self.options.if_exists)

    @property
    def publication(self) -> Publication:
        options = self.options
        return Publication(
            root=options.root,
            name=options.name,
            version=options.version,
            schema=self.schema,
            settings=options.settings,
            provenance=_provenance(options),
            max_reject_fraction=options.max_reject_fraction,
        )


def _samples_sizes(options: BuildOptions) -> bool:
    encode = options.encode
    return options.policy.num_bytes is not None and (
        encode.encode != "keep" or encode.profile == "srgb" or bool(options.transforms)
    )


def _plans_by_content(options: BuildOptions) -> bool:
    """Return whether images are read before the plan is made."""
    return _samples_sizes(options) or options.duplicates != "keep"


def prepare_job(options: BuildOptions) -> BuildJob:
    """Check INPUT, the tables and OUTPUT, so that mistakes fail before any worker starts.

    Raises:
        UsageError: INPUT is invalid, or an option does not fit it.
        BuildError: A table cannot be read, or OUTPUT belongs to another build.
    """
    job = describe_job(options, Folder(options.root.path(naming.SPOOL_DIR), options.storage))
    check_output(job.output_request)
    forget_lost_spools(
        options.root,
        finished_may_stay=options.if_exists != "overwrite" and not _plans_by_content(options),
    )
    return job


def describe_job(options: BuildOptions, spool: Folder | None = None) -> BuildJob:
    """Return a job without checking OUTPUT: `plan` reports its state instead of failing.

    Args:
        options: Options of the command line.
        spool: Folder for spooled bytes; None for a plan, which writes nothing.

    Raises:
        UsageError: INPUT is invalid, or an option does not fit it.
        BuildError: A table cannot be read.
    """
    written = None if options.schema is None else read_schema(options.schema, options.storage)
    source = detect_source(
        options.input,
        _columns_of_input(options),
        storage=options.storage,
        input_format=options.input_format,
        image_root=options.image_root,
        spool=spool
        or UnwrittenFolder(
            options.root.path(naming.SPOOL_DIR), options.storage, _plans_by_content(options)
        ),
        kinds=kinds_of(written),
    )
    table = None if options.labels is None else _detect_label_table(options, options.labels, source)
    states_labels = table is None or table.label is None
    declared = None
    if options.schema is not None:
        known = _column_names(source, table)
        declared = _declared_schema(options, options.schema, written, source, table, known)
        source = source.for_features(column_features(declared))
        table = table and table.for_features(column_features(declared))
        has_label = options.schema in READY_SCHEMAS or _may_have_labels(source, table)
        check_columns(declared, _columns(source, table), known=known, has_label=has_label)
    class_names = (
        _class_names(options)
        or (declared and declared.class_names)
        or (source.class_names if states_labels else None)
    )
    job = BuildJob(
        options, source, table, class_names, declared and replace(declared, class_names=())
    )
    if job.splits_given and options.split is not None:
        raise UsageError(
            "--split draws splits, but INPUT already states them (split folders or a split "
            "column): leave --split out"
        )
    if job.splits_given and job.split_lists is not None:
        raise UsageError(
            "--split-ids lists splits, but INPUT already states them (split folders or a split "
            "column): leave --split-ids out"
        )
    _ = job.schema  # fails now if feature names clash
    return job


def _declared_schema(
    options: BuildOptions,
    given: str,
    read: ExampleSchema | None,
    source: InputSource,
    table: TableSource | None,
    columns: Sequence[str],
) -> ExampleSchema:
    if given not in READY_SCHEMAS and options.feature_names != BuildOptions.feature_names:
        raise UsageError(
            f"--feature-names is for ready schemas, and --schema {given} has its own names: leave "
            "--feature-names out"
        )
    try:
        extras = _extras(source, table)
    except BuildError:  # maybe over a column that the schema does not use
        if given in WITH_ALL_COLUMNS:
            raise
        extras = ()
    return load_schema(
        given,
        read,
        feature_names=source.feature_names or options.feature_names,
        columns=columns,
        extras=extras,
    )


def _extras(source: InputSource, table: TableSource | None) -> tuple[Feature, ...]:
    """Return the features of extra columns; the label table's replace those of the source."""
    of_table = () if table is None else table.features
    replaced = {feature.name for feature in of_table}
    return (*(feature for feature in source.features if feature.name not in replaced), *of_table)


def _column_names(source: InputSource, table: TableSource | None) -> list[str]:
    """Return the columns that can fill a schema's features; in tables, that is any column."""
    of_source = (
        source.columns.names
        if isinstance(source, TableSource)
        else [name_of_extra(name) for name in extra_columns(source.schema)]
    )
    return [*of_source, *(table.columns.names if table else ())]


def _columns(source: InputSource, table: TableSource | None) -> pa.Schema:
    """Return the columns of references after the join with the label table."""
    columns = {
        field.name: field.type
        for each in (source, table)
        if each is not None
        for field in each.schema
    }
    return pa.schema(list(columns.items()))


def _may_have_labels(source: InputSource, table: TableSource | None) -> bool:
    """Return whether references may have labels; for a folder only its listing shows that."""
    return (
        not isinstance(source, TableSource)
        or source.label is not None
        or (table is not None and table.label is not None)
    )


def _columns_of_input(options: BuildOptions) -> dict[str, str | None]:
    """Return the column options for INPUT: with --labels, only --size-column is one of them."""
    if options.labels is None:
        return options.columns
    return {**dict.fromkeys(options.columns), "size": options.columns.get("size")}


def _detect_label_table(options: BuildOptions, labels: str, source: InputSource) -> TableSource:
    """Return the table of labels. Its paths name files of INPUT, so both have the same root."""
    root = options.image_root or (source.root if isinstance(source, TableSource) else options.input)
    request = make_request(
        labels, {**options.columns, "size": None}, argument="--labels", storage=options.storage
    )
    return open_label_table(request, key=options.labels_key, root=absolute(root))


def _class_names(options: BuildOptions) -> tuple[str, ...] | None:
    if options.class_names_file is None:
        return None
    try:
        path = absolute(options.class_names_file)
        text = files_of(path, options.storage).read_bytes(path).decode()
    except (StorageError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--class-names {options.class_names_file} cannot be read: {error}"
        ) from error
    return read_class_names(text, options.class_names_file)


def _provenance(options: BuildOptions) -> dict[str, Any]:
    return {
        "input": options.input,
        "labels": options.labels,
        **({"split_ids": list(options.split_ids)} if options.split_ids else {}),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _RECORDED_PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
