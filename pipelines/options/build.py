"""Parse, check and record the options of `build` and `plan`, and load the schema of `--schema`."""

from __future__ import annotations

import difflib
import functools
import os
import platform
import runpy
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib import metadata
from typing import Any

from shardwright.errors import StorageError, UsageError
from shardwright.format.json_files import load_json
from shardwright.format.manifest import time_text
from shardwright.format.naming import dataset_name_for, is_generation_folder
from shardwright.format.schema import ExampleSchema, FeatureKind, Source
from shardwright.pipelines.options.arguments import (
    BuildArguments,
    answer_help,
    make_parser,
    read_options,
    split_command_line,
)
from shardwright.pipelines.runners.beam_options import (
    beam_arguments,
    check_code,
    check_runner,
    is_dataflow,
    option_of,
    runner_of,
)
from shardwright.pipelines.runners.dataflow import check_credentials
from shardwright.schemas.ready import READY_SCHEMAS
from shardwright.storage.addresses import HIDDEN, absolute, is_remote, redact
from shardwright.storage.folder import Folder, files_of
from shardwright.storage.options import StorageOptions, is_secret
from shardwright.transforms.features.columns import check_dtype
from shardwright.transforms.inputs.columns import ROLE_COLUMNS
from shardwright.transforms.options import check_values, given_options
from shardwright.transforms.plan.packing import DEFAULT_SHARD_BYTES, ShardPolicy
from shardwright.transforms.publish.fail_on import NEAR

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


_CHANGING = (
    "--check",
    "--class-names",
    "--feature-names",
    "--image-root",
    "--labels",
    "--schema",
    "--transform",
    "--writer",
)
_RECORDED_PACKAGES = (
    "shardwright",
    "apache-beam",
    "pyarrow",
    "tfx-bsl",
    "Pillow",
    "google-crc32c",
    "obstore",
)
_STORAGE = "--storage-option"


@dataclass(frozen=True, kw_only=True)
class BuildOptions(BuildArguments):
    """The options of a build, checked on creation.

    Attributes:
        beam_args: Options for Beam, as given.
        command: The words of the command line; () for a build from Python.
    """

    beam_args: tuple[str, ...] = ()
    command: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        _ = self.policy  # fails now if its options contradict each other
        if not self.name:
            object.__setattr__(self, "name", dataset_name_for(absolute(self.output)))
        try:
            check_values(self)
        except ValueError as error:
            raise UsageError(f"--{error}") from error
        if self.labels_key != "id" and self.labels is None:
            raise UsageError(f"--labels-key {self.labels_key} needs --labels")
        if self.writer == "beam" and self.signals:
            raise UsageError("--signals needs --writer planned: Beam's stock writer has no index")
        if self.stratify and self.split is None:
            raise UsageError("--stratify needs --split, such as --split train=0.8,test=0.2")
        if not self.near.is_on and any(limit.name == NEAR for limit in self.fail_on or ()):
            raise UsageError(f"--fail-on {NEAR} needs --near-duplicates, such as report")
        if self.split_ids and self.split is not None and self.group_column is not None:
            raise UsageError(
                "--split-ids assigns single images, so --split could divide groups: leave "
                "--group-column or --split out"
            )
        if self.places["INPUT"] is not None:
            _check_places(self.input, self.output)
        self._check_runner()

    def _check_runner(self) -> None:
        """Reject what the runner's workers cannot reach or do not have."""
        check_runner(self.beam_args, self.places, shared_filesystem=self.shared_filesystem)
        for path in (each.path for each in self.transforms if each.path):
            check_code(self.beam_args, path, shared_filesystem=self.shared_filesystem)
        if is_dataflow(self.beam_args):
            image = option_of(self.beam_args, "sdk_container_image")
            check_credentials(self.places, self.storage, has_image=bool(image))
        _ = self.all_beam_args  # fails now if the runner needs more options

    @property
    def places(self) -> dict[str, str | None]:
        """Name on the command line -> path or address that workers read or write, or None."""
        return {
            "INPUT": self.input,
            "OUTPUT": self.output,
            "--labels": self.labels,
            "--image-root": self.image_root,
            "--against": self.against,
        }

    @property
    def append_key(self) -> str:
        """The text that names the folder of an append, so that the same one can resume."""
        return f"{self.input}\0{self.labels}"

    def read_schema(self) -> ExampleSchema | None:
        """Return the schema of `--schema`; None without one, or for a ready one.

        Raises:
            UsageError: The schema does not exist or is invalid.
        """
        return None if self.schema is None else read_schema(self.schema, self.storage)

    @cached_property
    def all_beam_args(self) -> list[str]:
        """The arguments for Beam: `beam_args`, completed for the runner."""
        return beam_arguments(self.beam_args, dataset=self.name, output=absolute(self.output))

    @cached_property
    def policy(self) -> ShardPolicy:
        """The target size or number of shards."""
        sizes = (self.shard_size, self.records_per_shard, self.shard_count)
        if all(size is None for size in sizes):
            sizes = (DEFAULT_SHARD_BYTES, None, None)
        return ShardPolicy(*sizes, self.shard_count_multiple_of)

    @property
    def columns(self) -> dict[str, str | None]:
        """Role -> column of the table; None to find it by its usual names."""
        return {role: getattr(self, f"{role}_column") for role in ROLE_COLUMNS}

    @property
    def changes(self) -> tuple[str, ...]:
        """The given options that change the records of a dataset, so that none can be copied."""
        options = {*_CHANGING, *(f"--{role}-column" for role in ROLE_COLUMNS)}
        others = (option for option in given_options(self) if option in options)
        return (*given_options(self.encode), *others)

    @property
    def samples_sizes(self) -> bool:
        """True if shards have a target size and images change theirs when they are written."""
        changes = self.encode.encode != "keep" or bool(self.transforms)
        return self.policy.num_bytes is not None and changes

    @property
    def plans_by_content(self) -> bool:
        """True if images are read before the plan is made."""
        return self.samples_sizes or self.duplicates != "keep" or self.near.is_on

    @property
    def root(self) -> Folder:
        """The dataset's folder, or that of a generation below it."""
        root = Folder.at(self.output, self.storage)
        parts = root.uri.rsplit("/", 2)
        is_generation = is_generation_folder("/".join(parts[1:]))
        return replace(root, top=parts[0]) if is_generation else root

    @property
    def compared(self) -> Folder | None:
        """The folder of the dataset that drift is measured against, if it was given."""
        return None if self.against is None else Folder.at(self.against, self.storage)

    @property
    def settings(self) -> dict[str, Any]:
        """The options that determine the shards' bytes, as JSON; equal in a resumed build."""
        settings: dict[str, Any] = {
            "seed": self.seed,
            "shards": _without_none(asdict(self.policy)),
            "split": None if self.split is None else self.split.settings,
            "encode": self.encode.to_json(),
            "check": self.check,
            "feature_names": self.feature_names,
            "name": self.name,
            "version": self.version,
            "writer": self.writer,
            "columns": _without_none(self.columns),
        }
        # Recorded only if not the default.
        chosen: dict[str, Any] = {
            "schema": self.schema,
            "input_format": self.input_format,
            # Not "classes", which older datasets have without the option.
            "top_folders": self.top_folders if self.top_folders == "splits" else "",
            "label_separator": self.label_separator,
            "labels_key": "" if self.labels_key == "id" else self.labels_key,
            "stratify": self.stratify,
            "split_ids": bool(self.split_ids),
            "duplicates": "" if self.duplicates == "keep" else self.duplicates,
            "signals": self.signals,
            "near_duplicates": str(self.near),
            "transforms": [
                {"function": each.spec, "source": each.digest} for each in self.transforms
            ],
        }
        return settings | {key: value for key, value in chosen.items() if value}


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _check_places(given_input: str, given_output: str) -> None:
    source, output = _real(given_input), _real(given_output)
    folder = source if is_remote(source) or os.path.isdir(source) else None
    inside = folder and output.startswith(folder.rstrip("/") + "/")
    if inside and is_generation_folder(output[len(str(folder).rstrip("/")) + 1 :]):
        return  # of a dataset, of which only the shards in its manifest are read
    if inside or output == folder:
        raise UsageError(
            f"OUTPUT {given_output} is inside INPUT {given_input}, so its shards would be read as "
            "input: choose an OUTPUT outside INPUT"
        )
    if source.startswith(output.rstrip("/") + "/"):
        raise UsageError(
            f"INPUT {given_input} is inside OUTPUT {given_output}: choose another OUTPUT"
        )


def _real(uri: str) -> str:
    path = absolute(uri)
    return path if is_remote(path) else os.path.realpath(path)


def parse_options(argv: Sequence[str], command: str = "build") -> BuildOptions:
    """Parse a command line.

    Raises:
        UsageError: An option is invalid; the message has the value, the rule and the fix.
        SystemExit: From argparse: 0 after `--help`.
    """
    answer_help(command, argv)
    known, beam_args = split_command_line(make_parser(command), argv)
    words = ("shardwright", command, *argv)
    return read_options(BuildOptions, known, beam_args=tuple(beam_args), command=words)


def provenance_of(options: BuildOptions) -> dict[str, Any]:
    return {
        **({"command": shown_command(options.command)} if options.command else {}),
        "input": options.input,
        "labels": options.labels,
        **({"split_ids": list(options.split_ids)} if options.split_ids else {}),
        "created": time_text(),
        "runner": runner_of(options.beam_args),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _RECORDED_PACKAGES},
    }


def shown_command(words: Sequence[str]) -> str:
    """Return a command line as one would type it, without its secrets."""
    return shlex.join(map(_shown, words, ["", *words]))


def _shown(word: str, earlier: str) -> str:
    """Return a word without its secret; `earlier` is the one before it."""
    option, equals, value = word.partition("=")
    if earlier == _STORAGE:
        return _setting(word)
    if option == _STORAGE and equals:
        return f"{_STORAGE}={_setting(value)}"
    if _is_secret(earlier) and not word.startswith("--"):
        return HIDDEN
    return f"{option}={HIDDEN}" if equals and _is_secret(option) else redact(word)


def _setting(text: str) -> str:
    """Return the KEY=VALUE of a store without its secret."""
    key, _, _ = text.partition("=")
    return f"{key}={HIDDEN}" if is_secret(key) else redact(text)


def _is_secret(option: str) -> bool:
    """Return whether an option's value is secret; False for one that has its value already."""
    return (
        option.startswith("--")
        and "=" not in option
        and option != "--labels-key"
        and is_secret(option)
    )


@functools.cache  # it parses a file of metadata
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
