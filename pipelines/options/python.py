"""Options of a build from Python: those of the command line as keyword arguments."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from shardwright.errors import UsageError
from shardwright.format.schema import ExampleSchema
from shardwright.pipelines.options.arguments import (
    BuildArguments,
    make_parser,
    read_options,
    split_command_line,
)
from shardwright.pipelines.options.build import BuildOptions, checked_schema
from shardwright.python_errors import PythonErrors
from shardwright.schemas.ready import READY_SCHEMAS
from shardwright.terminal import say
from shardwright.transforms.inputs.formats.record_columns import Record, hold_images
from shardwright.transforms.options import options_of
from shardwright.transforms.splits.split_rules import parse_split

INPUT = "Python records"
PYTHON_ERRORS = PythonErrors(
    {
        **{each.name: each.argument.get("choices", ()) for each in options_of(BuildArguments)},
        "schema": READY_SCHEMAS,
    }
)
_OWN_SCHEMA = "ExampleSchema"
Split = str | Mapping[str, float | int | str]


@dataclass(frozen=True, kw_only=True)
class RecordOptions(BuildOptions):
    """The options of a build of Python records.

    Attributes:
        own_schema: The schema, if it was given as an object.
    """

    own_schema: ExampleSchema | None = None

    @property
    def places(self) -> dict[str, str | None]:
        """The places that workers read or write; records have none."""
        return {**super().places, "INPUT": None}

    @property
    def append_key(self) -> str:
        """Another text in each run: two processes may append different records at the same time."""
        return uuid.uuid4().hex

    @property
    def settings(self) -> dict[str, Any]:
        """The options that determine the shards' bytes, with a schema given as an object."""
        own = {} if self.own_schema is None else {"schema": self.own_schema.to_json()}
        return super().settings | own

    def read_schema(self) -> ExampleSchema | None:
        """Return the schema that was given as an object, or that of `--schema`."""
        if self.own_schema is not None:
            return checked_schema(self.own_schema, _OWN_SCHEMA)
        return super().read_schema()

    def for_records(self, sample: Sequence[Record]) -> RecordOptions:
        """Return the options with the ready schema of records without images, if these have none.

        Args:
            sample: The first records; a schema or an image column that is given counts instead.
        """
        if self.schema is not None or self.image_column is not None or hold_images(sample):
            return self
        say("no key holds images: every key becomes a feature, as with schema='records'")
        return replace(self, schema="records")

    def with_split(self, split: Split | None, keys: Collection[str]) -> RecordOptions:
        """Return the options with a split: a key of the records, a rule, or one name for all."""
        if split is None:
            return self
        if isinstance(split, str) and split in keys:
            return replace(self, split_column=split)
        return replace(self, split=parse_split(_as_text(split)))


def record_options(
    output: str, schema: ExampleSchema | str | None, options: Mapping[str, Any]
) -> RecordOptions:
    """Return options from keyword arguments.

    Args:
        output: The dataset's folder.
        schema: An `ExampleSchema`, or a value of `--schema`.
        options: Name of an option of the command line or of Beam -> its value; `storage_options`,
            a dict, as for `shardwright.open`.

    Raises:
        UsageError: An option is unknown or invalid.
    """
    own = schema if isinstance(schema, ExampleSchema) else None
    given = {**options, "schema": _OWN_SCHEMA if own else schema}
    storage = given.pop("storage_options", None) or {}
    texts = [f"{name}={value}" for name, value in storage.items()]
    given["storage_option"] = [*texts, given.get("storage_option")]
    argv = [INPUT, str(output), *(arg for pair in given.items() for arg in _arguments(*pair))]
    parser = make_parser("build")
    parser.error = _refuse  # type: ignore[method-assign]  # without the help of a command
    known, beam_args = split_command_line(parser, argv)
    return read_options(RecordOptions, known, beam_args=tuple(beam_args), own_schema=own)


def _arguments(name: str, value: Any) -> Iterator[str]:
    """Yield the arguments of an option: `stratify=True` is `--stratify`, lists are repeated."""
    flag = "--" + name
    if isinstance(value, list | tuple):
        for each in value:
            yield from _arguments(name, each)
    elif value is True:
        yield flag
    elif value is not None and value is not False:
        yield f"{flag}={_as_text(value)}"


def _as_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{name}={part}" for name, part in value.items())
    return str(value)


def _refuse(message: str) -> NoReturn:
    raise UsageError(message)
