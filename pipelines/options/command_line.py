"""Separate the options of `build` and `plan` on a command line from those of Beam."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Iterator, Sequence

from shardwright.errors import UsageError

_BEAM_LABELS = "--beam-labels"
_PLACES = ("--input", "--output")


def split_command_line(
    parser: argparse.ArgumentParser, argv: Sequence[str]
) -> tuple[argparse.Namespace, list[str]]:
    """Return the parsed options of the command, and the arguments for Beam.

    Raises:
        UsageError: An option is unknown, an argument is missing or invalid, or `--input` or
            `--output` is given alone.
        SystemExit: From argparse: 0 after `--help`.
    """
    known, beam_args = parse_words(parser, argv)
    _check_beam_args(parser, beam_args)
    return known, beam_args


def parse_words(
    parser: argparse.ArgumentParser, argv: Sequence[str]
) -> tuple[argparse.Namespace, list[str]]:
    """Return the same without a check of the arguments for Beam, which needs an import of Beam.

    Raises:
        UsageError: An argument is missing or invalid, or `--input` or `--output` is given alone.
        SystemExit: As `split_command_line`.
    """
    known, beam_args = parser.parse_known_args(
        [*_as_declared(parser, _labels_for_beam(_places_first(argv)))]
    )
    return known, [arg.replace(_BEAM_LABELS, "--labels", 1) for arg in beam_args]


def _places_first(argv: Sequence[str]) -> list[str]:
    """Move `--input` and `--output` to the front, as INPUT and OUTPUT.

    Some schedulers pass only named parameters.
    """
    places: dict[str, str] = {}
    rest: list[str] = []
    args = iter(argv)
    for arg in args:
        option, equals, value = arg.partition("=")
        if option in _PLACES:
            places[option] = value if equals else next(args, "")
        else:
            rest.append(arg)
    if len(places) == 1:
        missing = next(place for place in _PLACES if place not in places)
        raise UsageError(
            f"{next(iter(places))} needs {missing}: give both, or INPUT and OUTPUT without names"
        )
    return [*(places[place] for place in _PLACES if places), *rest]


def _labels_for_beam(argv: Sequence[str]) -> list[str]:
    """Rename Beam's `--labels` (key=value or JSON, for Dataflow jobs); ours is a table's path."""
    result = []
    for arg, following in zip(argv, [*argv[1:], ""], strict=False):
        option, equals, value = arg.partition("=")
        is_beams = option == "--labels" and re.fullmatch(
            r"[a-z][\w-]*=[\w-]*|\{.*\}", value if equals else following
        )
        result.append(arg.replace("--labels", _BEAM_LABELS, 1) if is_beams else arg)
    return result


def _as_declared(parser: argparse.ArgumentParser, args: Iterable[str]) -> Iterator[str]:
    """Yield options as the parser declares them: `--some_flag=true` as `--some-flag`.

    Dataflow templates pass every parameter as NAME=VALUE, even an option that takes no value. With
    `=false` such an option is left out. Arguments that the parser does not know stay as they are.
    """
    for arg in args:
        name, equals, value = arg.partition("=")
        declared = name.replace("_", "-")
        action = parser._option_string_actions.get(declared) if name.startswith("--") else None
        if action is None:
            yield arg
        elif action.nargs != 0 or value not in ("true", "false"):
            yield f"{declared}{equals}{value}"
        elif value == "true":
            yield declared


def _check_beam_args(parser: argparse.ArgumentParser, beam_args: Sequence[str]) -> None:
    """Raise UsageError for an option unknown to this command and to Beam, which would ignore it."""
    if not beam_args or _is_portable(beam_args):
        return
    # The import takes seconds, and most builds have no options for Beam.
    from apache_beam.options.pipeline_options import PipelineOptions

    beam_parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(beam_parser)
    unknown = beam_parser.parse_known_args(list(beam_args))[1]
    if unknown:
        known = [
            option
            for each in (parser, beam_parser)
            for action in each._actions
            for option in action.option_strings
        ]
        guess = difflib.get_close_matches(unknown[0].partition("=")[0], known, 1)
        hint = f"; did you mean {guess[0]}?" if guess else f"; see `{parser.prog} --help`"
        raise UsageError(f"{unknown[0]!r} is not an option of shardwright or Beam{hint}")


def _is_portable(beam_args: Sequence[str]) -> bool:
    """Return whether the runner is portable: only its job server knows all of its options."""
    return any(
        runner in arg
        for arg in beam_args
        for runner in ("PortableRunner", "FlinkRunner", "SparkRunner")
    )
