"""Parse and check the options of `build` and `plan`, and record them as the origin of a dataset."""

from __future__ import annotations

import functools
import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib import metadata
from typing import Any

from shardwright.errors import UsageError
from shardwright.format.manifest import time_text
from shardwright.format.naming import dataset_name_for, is_generation_folder
from shardwright.format.schema import ExampleSchema
from shardwright.pipelines.options.arguments import BuildArguments, make_parser
from shardwright.pipelines.options.parser import read_options, split_command_line
from shardwright.pipelines.runners.beam_options import (
    beam_arguments,
    check_code,
    check_runner,
    is_dataflow,
    option_of,
    runner_of,
)
from shardwright.pipelines.runners.dataflow import check_credentials
from shardwright.storage.addresses import HIDDEN, absolute, is_remote, redact
from shardwright.storage.folder import Folder
from shardwright.storage.options import is_secret
from shardwright.transforms.inputs.columns import ROLE_COLUMNS
from shardwright.transforms.options import check_values, given_options
from shardwright.transforms.plan.packing import DEFAULT_SHARD_BYTES, ShardPolicy
from shardwright.transforms.publish.fail_on import NEAR

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
        # Late, because the import of the features' code would delay `--help`.
        from shardwright.pipelines.options.schema import read_schema

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
