"""Make the parser of a command from its declared options, apart from Beam's, and read them back."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, NoReturn, TypeVar, cast

from shardwright.errors import UsageError
from shardwright.transforms.options import option_of, options_of

_Options = TypeVar("_Options")
_BEAM_LABELS = "--beam-labels"
_PLACES = ("--input", "--output")
DESCRIPTION = {
    "build": "Convert images and labels to fixed-size, globally shuffled TFRecord shards of "
    "tf.Example.",
    "plan": "Show the shards, records and bytes that `build` would write, from names and sizes.",
}
USAGE = "%(prog)s INPUT OUTPUT [options]"
_EXAMPLES = """\
examples
  shardwright build photos/ dataset/
  shardwright build photos/ dataset/ --split train=0.8,test=0.2 --records-per-shard 1024
  shardwright build labels.csv dataset/ --label-column species
  shardwright build coco/annotations/instances_train2017.json dataset/ --image-root coco/train2017
  shardwright build s3://raw/photos gs://training/photos --encode jpeg --resize 256x256
"""
_MORE_EXAMPLES = """\
  shardwright build photos/ dataset/ --split test=5000,train=rest --stratify --duplicates drop
  shardwright build labels.csv dataset/ --label-column species --group-column patient
  shardwright build 'shards/train-*.tar' dataset/
  shardwright build photos/ dataset/ --labels labels.csv --label-column species
  shardwright build photos/ dataset/ --encode jpeg --resize 256x256 --check decode
  shardwright build dataset/ larger-shards/ --shard-size 500MB
  shardwright build s3://raw/photos dataset/ --storage-option endpoint=http://minio:9000

  shardwright build gs://raw/photos gs://training/photos \\
      --runner DataflowRunner --project p --region r --temp_location gs://b/tmp
"""
_NOTES = """\
Run the same command again to resume a stopped build; a finished one is "up to date" in seconds.
All options of Beam are accepted, such as --runner (default: FnApiRunner, in this process).
Exit codes: 0 done, 1 the build failed, 2 wrong usage.
"""
SHORT = f"""\
{_EXAMPLES}
{_NOTES}
--help-all lists every option and input format.
"""
LONG = f"""\
INPUT, OUTPUT and tables are local paths, s3://BUCKET/..., gs://BUCKET/... or az://CONTAINER/...,
in any mix. INPUT is one of
  DIR/<class>/**            class folders: the first folder is the label
  DIR/<split>/<class>/**    split folders, if every first-level folder has the name of a split
                            (train, val, validation, test, ...); --top-folders if only some have
  DIR/*                     images without labels
  TABLE                     .csv .tsv .jsonl .parquet with a column of image paths, relative to the
                            table's folder; other columns become features
or one of the input formats listed at the end. The first line of the log is the detected format.

{_EXAMPLES}{_MORE_EXAMPLES}
For schedulers that pass only named parameters: --input INPUT --output OUTPUT.
{_NOTES}"""


class OptionParser(argparse.ArgumentParser):
    """A parser with a short and a long help. The long one loads all input formats to list them.

    Args:
        command: "build" or "plan".
    """

    def __init__(self, command: str) -> None:
        super().__init__(
            prog=f"shardwright {command}",
            description=DESCRIPTION[command],
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,  # abbreviations would capture options of Beam
        )
        self.add_argument("--help-all", action=_HelpAll, nargs=0, help="show every option and exit")
        # argparse's own rule, and "-1..1", which is a value, too, not an option.
        self._negative_number_matcher = re.compile(r"-\d+$|-\d*\.\d+$|-\d+\.\.")
        self.rare: set[str] = set()  # options that `--help` leaves out, to fit two screens

    def error(self, message: str) -> NoReturn:
        """Raise UsageError in place of argparse's exit, which prints every option first."""
        _, _, missing = message.partition(" are required: ")
        if missing:
            raise UsageError(f"missing {missing}: {USAGE % {'prog': self.prog}}")
        raise UsageError(f"{message}; see `{self.prog} --help`")

    def add_options(self, declaring: type) -> None:
        """Add the options of a dataclass, group by group."""
        options = list(options_of(declaring))
        self.rare |= {option.name for option in options if not option.usual}
        for group in dict.fromkeys(option.group for option in options):
            title = group.title
            target = self.add_argument_group(title, group.description) if title else self
            for option in options:
                flag = "--" + option.name.replace("_", "-")
                if option.group != group:
                    continue
                if option.default is MISSING:
                    target.add_argument(option.name, **option.argument)
                elif option.default is False:
                    target.add_argument(flag, action="store_true", **option.argument)
                else:
                    default = [] if "action" in option.argument else option.default
                    target.add_argument(flag, default=default, **option.argument)

    def format_help(self) -> str:
        """Return the help of the usual options."""
        formatter = self._get_formatter()
        formatter.add_usage(USAGE, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_arguments(
                [one for one in group._group_actions if one.dest not in self.rare]
            )
            formatter.end_section()
        formatter.add_text(SHORT)
        return formatter.format_help()

    def format_all(self) -> str:
        """Return the help of every option, and the installed input formats."""
        # Imported here, because `--help` lists no formats, and they need many modules.
        from shardwright.transforms.inputs.detection import known_formats

        formats = known_formats()
        width = max(map(len, formats))
        listed = "".join(f"  {name:{width}}  {known.summary}\n" for name, known in formats.items())
        self.epilog = LONG
        return f"{super().format_help()}\ninput formats, in the order of detection\n{listed}"


class _HelpAll(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        del namespace, values, option_string
        assert isinstance(parser, OptionParser)
        print(parser.format_all(), end="")
        parser.exit()


def read_options(declaring: type[_Options], known: argparse.Namespace, **others: Any) -> _Options:
    """Return a dataclass of the parsed options.

    Args:
        declaring: A dataclass that was given to `add_options`.
        known: The parsed arguments.
        others: Values of the fields that are no options.

    Raises:
        UsageError: A value is invalid, or two options contradict each other.
    """
    for each in fields(cast(Any, declaring)):
        option = option_of(each)
        if option:
            value = getattr(known, option.name)
            others[each.name] = None if value is None else option.parse(value)
        elif is_dataclass(each.default_factory):
            others[each.name] = read_options(cast(Any, each.default_factory), known)
    try:
        return declaring(**others)
    except UsageError:
        raise
    except ValueError as error:  # from image options, whose messages begin with a field's name
        raise UsageError(f"--{error}") from error


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
    # Only the job server of a portable runner knows all of its options.
    portable = ("PortableRunner", "FlinkRunner", "SparkRunner")
    if not beam_args or any(runner in arg for arg in beam_args for runner in portable):
        return known, beam_args
    # The import takes seconds, and most builds have no options for Beam.
    from apache_beam.options.pipeline_options import PipelineOptions

    beam_parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(beam_parser)
    unknown = beam_parser.parse_known_args(beam_args)[1]
    if unknown:  # Beam would ignore it
        names = [
            option
            for each in (parser, beam_parser)
            for action in each._actions
            for option in action.option_strings
        ]
        guess = difflib.get_close_matches(unknown[0].partition("=")[0], names, 1)
        hint = f"; did you mean {guess[0]}?" if guess else f"; see `{parser.prog} --help`"
        raise UsageError(f"{unknown[0]!r} is not an option of shardwright or Beam{hint}")
    return known, beam_args


def parse_words(
    parser: argparse.ArgumentParser, argv: Sequence[str]
) -> tuple[argparse.Namespace, list[str]]:
    """Return the same without a check of the arguments for Beam, which needs an import of Beam.

    Raises:
        UsageError: An argument is missing or invalid, or `--input` or `--output` is given alone.
        SystemExit: As `split_command_line`.
    """
    args, words = [], _places_first(argv)
    for arg, following in zip(words, [*words[1:], ""], strict=False):
        option, equals, value = arg.partition("=")
        # Beam's, for Dataflow jobs; ours is a table's path.
        is_beams = option == "--labels" and re.fullmatch(
            r"[a-z][\w-]*=[\w-]*|\{.*\}", value if equals else following
        )
        args.append(arg.replace("--labels", _BEAM_LABELS, 1) if is_beams else arg)
    if sum(arg.partition("=")[0] == "--labels" for arg in args) > 1:
        raise UsageError("--labels is given more than once: give one table with all labels")
    known, beam_args = parser.parse_known_args([*_as_declared(parser, args)])
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
