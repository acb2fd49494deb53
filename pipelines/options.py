"""Parse and check the options of `build` and `plan`."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pipelines.arguments import ROLES, make_parser
from pipelines.command_line import split_command_line
from pipelines.image_options import parse_encode_options
from pipelines.runners import beam_arguments, check_code, check_runner
from shardwright.errors import UsageError
from shardwright.format.naming import dataset_name_for, is_dataset_name
from shardwright.sizes import parse_size
from shardwright.storage import NO_OPTIONS, Folder, StorageOptions, absolute, is_remote
from transforms.images import EncodeOptions
from transforms.plan.packing import DEFAULT_SHARD_BYTES, ShardPolicy
from transforms.splits.split_rules import SplitRule, parse_split
from transforms.user_code import UserTransform


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """The options of a build, checked on creation.

    Attributes:
        input: Path or address of INPUT.
        output: Folder or prefix of the dataset.
        labels: Table of labels, or None.
        labels_key: Join key of `labels`: "id", "path" or "stem".
        input_format: Format of INPUT, or None to detect it.
        image_root: Base of relative image paths, or None for the format's own rule.
        columns: Role -> column of the table; None to find it by its usual names.
        split: Rule to draw splits, or None for the splits of INPUT, else all `train`.
        stratify: Every split gets the same class fractions.
        split_ids: Files of ids with a known split, each as FILE or SPLIT=FILE.
        duplicates: Treatment of images with identical bytes: "keep", "drop" or "reject".
        policy: Target size or number of shards.
        seed: Seed of the global shuffle.
        encode: Encoding of images.
        check: Check of images: "header", "decode" or "none".
        transforms: The user's functions on each record, in order.
        max_reject_fraction: The build fails if more than this fraction of inputs is rejected.
        schema: Name of a ready schema, or a file; None for image, id, label and all other columns.
        feature_names: "tfds" or "model-garden".
        class_names_file: File of class names in label order, or None to learn them.
        name: Name of the dataset.
        version: "major.minor.patch".
        if_exists: "resume", "overwrite" or "error".
        writer: "planned", or "beam" for Beam's stock WriteToTFRecord.
        threads: Threads per process, or concurrent reads from a store; None for automatic.
        storage: Options of the stores of INPUT, tables and OUTPUT.
        shared_filesystem: Workers on other machines see local paths under the same names.
        beam_args: Options for Beam, as given.
    """

    input: str
    output: str
    labels: str | None = None
    labels_key: str = "id"
    input_format: str | None = None
    image_root: str | None = None
    columns: dict[str, str | None] = field(default_factory=lambda: dict.fromkeys(ROLES))
    split: SplitRule | None = None
    stratify: bool = False
    split_ids: tuple[str, ...] = ()
    duplicates: str = "keep"
    policy: ShardPolicy = field(default_factory=lambda: ShardPolicy(num_bytes=DEFAULT_SHARD_BYTES))
    seed: int = 0
    encode: EncodeOptions = field(default_factory=EncodeOptions)
    check: str = "header"
    transforms: tuple[UserTransform, ...] = ()
    max_reject_fraction: float = 0.01
    schema: str | None = None
    feature_names: str = "tfds"
    class_names_file: str | None = None
    name: str = ""
    version: str = "1.0.0"
    if_exists: str = "resume"
    writer: str = "planned"
    threads: int | None = None
    storage: StorageOptions = NO_OPTIONS
    shared_filesystem: bool = False
    beam_args: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.max_reject_fraction <= 1:
            raise UsageError(
                f"--max-reject-fraction must be from 0 to 1, got {self.max_reject_fraction:g}"
            )
        if not is_dataset_name(self.name):
            raise UsageError(
                "--name must be lower-case letters, digits and underscores and start with a "
                f"letter, got {self.name!r}"
            )
        if not re.fullmatch(r"\d+\.\d+\.\d+", self.version):
            raise UsageError(
                f"--version must be three numbers, such as 1.0.0, got {self.version!r}"
            )
        if self.threads is not None and self.threads < 1:
            raise UsageError(f"--threads must be at least 1, got {self.threads}")
        if self.labels_key != "id" and self.labels is None:
            raise UsageError(f"--labels-key {self.labels_key} needs --labels")
        if self.stratify and self.split is None:
            raise UsageError("--stratify needs --split, such as --split train=0.8,test=0.2")
        if self.split_ids and self.split is not None and self.columns.get("group") is not None:
            raise UsageError(
                "--split-ids assigns single images, so --split could divide groups: leave "
                "--group-column or --split out"
            )
        _check_places(self.input, self.output)
        places = {
            "INPUT": self.input,
            "OUTPUT": self.output,
            "--labels": self.labels,
            "--image-root": self.image_root,
        }
        check_runner(self.beam_args, places, shared_filesystem=self.shared_filesystem)
        for path in (each.path for each in self.transforms if each.path):
            check_code(self.beam_args, path, shared_filesystem=self.shared_filesystem)
        _ = self.all_beam_args  # fails now if the runner needs more options

    @cached_property
    def all_beam_args(self) -> list[str]:
        """The arguments for Beam: `beam_args`, completed for the runner."""
        return beam_arguments(self.beam_args, dataset=self.name, output=absolute(self.output))

    @property
    def root(self) -> Folder:
        """The dataset's folder."""
        return Folder.at(self.output, self.storage)

    @property
    def settings(self) -> dict[str, Any]:
        """The options that determine the shards' bytes, as JSON; equal in a resumed build."""
        policy = self.policy
        settings: dict[str, Any] = {
            "seed": self.seed,
            "shards": _without_none(
                {
                    "num_bytes": policy.num_bytes,
                    "num_records": policy.num_records,
                    "num_shards": policy.num_shards,
                    "multiple_of": policy.multiple_of,
                }
            ),
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
            "labels_key": "" if self.labels_key == "id" else self.labels_key,
            "stratify": self.stratify,
            "split_ids": bool(self.split_ids),
            "duplicates": "" if self.duplicates == "keep" else self.duplicates,
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
    if folder and (output == folder or output.startswith(folder.rstrip("/") + "/")):
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
        SystemExit: From argparse: 2 for a command line that it cannot parse, 0 after `--help`.
    """
    known, beam_args = split_command_line(make_parser(command), argv)
    sizes = _parse_sizes(known)
    return BuildOptions(
        input=known.input,
        output=known.output,
        labels=known.labels,
        labels_key=known.labels_key,
        input_format=known.input_format,
        image_root=known.image_root,
        columns={role: getattr(known, f"{role}_column") for role in ROLES},
        split=None if known.split is None else parse_split(known.split),
        stratify=known.stratify,
        split_ids=tuple(known.split_ids),
        duplicates=known.duplicates,
        policy=ShardPolicy(**sizes, multiple_of=known.shard_count_multiple_of),
        seed=known.seed,
        encode=parse_encode_options(known),
        check=known.check,
        transforms=tuple(UserTransform.find(spec) for spec in known.transform),
        max_reject_fraction=known.max_reject_fraction,
        schema=known.schema,
        feature_names=known.feature_names,
        class_names_file=known.class_names,
        name=known.name or dataset_name_for(absolute(known.output)),
        version=known.version,
        if_exists=known.if_exists,
        writer=known.writer,
        threads=known.threads,
        storage=StorageOptions.parse(known.storage_option),
        shared_filesystem=known.shared_filesystem,
        beam_args=tuple(beam_args),
    )


def _parse_sizes(known: argparse.Namespace) -> dict[str, int | None]:
    """Return the number of bytes, records and shards that a policy is made from."""
    sizes = {
        "num_bytes": None,
        "num_records": known.records_per_shard,
        "num_shards": known.shard_count,
    }
    if known.shard_size is not None or all(size is None for size in sizes.values()):
        text = str(DEFAULT_SHARD_BYTES) if known.shard_size is None else known.shard_size
        sizes["num_bytes"] = parse_size(text, "--shard-size")
    return sizes
