"""A build, ready to be made into a graph: the options, and what was found out about INPUT before any worker starts."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib import metadata
from typing import Any

from pipelines.options import BuildOptions
from pipelines.runners import is_local
from schemas.image_classification import image_classification
from shardwright.errors import StorageError, UsageError
from shardwright.schema import ExampleSchema
from shardwright.storage import absolute, files_of
from transforms.image_chunks import WriteJob
from transforms.inputs.detection import detect_source
from transforms.inputs.source import InputSource
from transforms.inputs.tables import TableSource
from transforms.labels import read_class_names
from transforms.output_state import OutputRequest, check_output
from transforms.publishing import Publication

_RECORDED_PACKAGES = ("shardwright", "apache-beam", "pyarrow", "tfx-bsl", "Pillow", "google-crc32c", "obstore")
_LOCAL_BUCKETS, _REMOTE_BUCKETS = 8, 1024


@dataclass(frozen=True, eq=False)
class BuildJob:
    """Options and source, and the parts of the graph's configuration that follow from them.

    Attributes:
        options: As given.
        source: What INPUT is.
        label_table: What `--labels` is, or None.
        class_names: From `--class-names`, or None to learn them.
    """

    options: BuildOptions
    source: InputSource
    label_table: TableSource | None
    class_names: tuple[str, ...] | None

    @property
    def splits_given(self) -> bool:
        return self.source.states_splits or (self.label_table is not None and self.label_table.split is not None)

    @property
    def integer_labels(self) -> bool:
        return (self.label_table or self.source).has_integer_labels

    @property
    def num_buckets(self) -> int:
        """Few where one process holds the plan anyway, many where a bucket must fit a small worker."""
        return _LOCAL_BUCKETS if is_local(self.options.beam_args) else _REMOTE_BUCKETS

    @cached_property
    def schema(self) -> ExampleSchema:
        encode = self.options.encode
        return image_classification(
            feature_names=self.options.feature_names,
            image_encoding=None if encode.encode == "keep" else encode.encode,
            image_shape=(encode.resize[1], encode.resize[0], 3) if encode.resize else (),
            extras=(self.label_table or self.source).features,
        )

    @property
    def digest_settings(self) -> bytes:
        """What decides a shard's bytes besides its references."""
        relevant = {key: self.options.settings[key] for key in ("encode", "check", "feature_names")}
        return json.dumps({**relevant, "schema": self.schema.to_json()}, sort_keys=True).encode()

    @property
    def write_job(self) -> WriteJob:
        options = self.options
        return WriteJob(options.root, self.schema, options.check, options.encode, options.threads, options.storage)

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


def prepare_job(options: BuildOptions) -> BuildJob:
    """Look at INPUT, the tables and OUTPUT, so that a slip is told before any worker starts.

    Raises:
        UsageError: INPUT or an option that does not fit it.
        BuildError: A table that cannot be read, or an OUTPUT that is another build's.
    """
    job = describe_job(options)
    check_output(job.output_request)
    return job


def describe_job(options: BuildOptions) -> BuildJob:
    """The same without a look at OUTPUT, for `plan`, which tells what is there and does not stop at it.

    Raises:
        UsageError: INPUT or an option that does not fit it.
        BuildError: A table that cannot be read.
    """
    columns = options.columns
    if options.labels is None:
        source, table = detect_source(options.input, columns, storage=options.storage), None
    else:
        source = detect_source(options.input, dict.fromkeys(columns), storage=options.storage)
        table = _detect_label_table(options, source)
    job = BuildJob(options, source, table, _class_names(options))
    if job.splits_given and options.split is not None:
        raise UsageError("--split draws splits, but INPUT already states them (split folders or a split column): leave --split out")
    _ = job.schema  # names that clash are told now
    return job


def _detect_label_table(options: BuildOptions, source: InputSource) -> TableSource:
    if isinstance(source, TableSource):
        raise UsageError("--labels goes with a folder INPUT; a table INPUT brings its own labels (--label-column)")
    table = detect_source(options.labels or "", options.columns, argument="--labels", storage=options.storage)
    if not isinstance(table, TableSource):
        raise UsageError(f"--labels {options.labels} is a folder; give a .csv, .tsv, .jsonl or .parquet table")
    return table.of_labels()


def _class_names(options: BuildOptions) -> tuple[str, ...] | None:
    if options.class_names_file is None:
        return None
    try:
        path = absolute(options.class_names_file)
        text = files_of(path, options.storage).read_bytes(path).decode()
    except (StorageError, UnicodeDecodeError) as error:
        raise UsageError(f"--class-names {options.class_names_file} cannot be read: {error}") from error
    return read_class_names(text, options.class_names_file)


def _provenance(options: BuildOptions) -> dict[str, Any]:
    return {
        "input": options.input,
        "labels": options.labels,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _RECORDED_PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
