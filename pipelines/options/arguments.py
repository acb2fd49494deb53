"""Declare the options of `build` and `plan`, and make parsers of declared options.

Each option has its name, type, default, help and parsing. A parser keeps options apart from those
of Beam, and reads them back.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, NoReturn, TypeVar, cast

from shardwright.errors import UsageError
from shardwright.fail_on import Limit, parse_most
from shardwright.format.naming import is_dataset_name
from shardwright.schemas.ready import FEATURE_NAMES, READY_SCHEMAS
from shardwright.sizes import parse_size
from shardwright.storage.addresses import absolute
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from shardwright.transforms.images.checks import CHECKS
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.near_duplicates.groups import NearDuplicateOptions
from shardwright.transforms.options import IMAGES, OptionGroup, option_of, options_of
from shardwright.transforms.publish.fail_on import NAMES as LIMITED
from shardwright.transforms.publish.fail_on import parse_fail_on
from shardwright.transforms.reject_limits import RejectLimits
from shardwright.transforms.splits.split_rules import SplitRule, parse_split
from shardwright.transforms.user_code import UserTransform

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
    """A parser with a short or a long help. The long one loads all input formats to list them.

    Args:
        command: "build" or "plan".
        is_short: Leave rare options out of the help, to fit two screens.
    """

    def __init__(self, command: str, *, is_short: bool) -> None:
        super().__init__(
            prog=f"shardwright {command}",
            usage=USAGE,
            description=DESCRIPTION[command],
            epilog=SHORT if is_short else LONG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,  # abbreviations would capture options of Beam
        )
        self.add_argument("--help-all", action="help", help="show every option and exit")
        # argparse's own rule, and "-1..1", which is a value, too, not an option.
        self._negative_number_matcher = re.compile(r"-\d+$|-\d*\.\d+$|-\d+\.\.")
        self._is_short = is_short

    def error(self, message: str) -> NoReturn:
        """Raise UsageError in place of argparse's exit, which prints every option first."""
        _, _, missing = message.partition(" are required: ")
        if missing:
            raise UsageError(f"missing {missing}: {USAGE % {'prog': self.prog}}")
        raise UsageError(f"{message}; see `{self.prog} --help`")

    def add_options(self, declaring: type) -> None:
        """Add the options of a dataclass, group by group."""
        options = list(options_of(declaring))
        for group in dict.fromkeys(option.group for option in options):
            title = group.title
            description = None if self._is_short else group.description
            target = self.add_argument_group(title, description) if title else self
            for option in options:
                flag = "--" + option.name.replace("_", "-")
                if option.group != group:
                    continue
                argument = dict(option.argument)
                if self._is_short and not option.usual:
                    argument["help"] = argparse.SUPPRESS
                if option.default is MISSING:
                    target.add_argument(option.name, **argument)
                elif option.default is False:
                    target.add_argument(flag, action="store_true", **argument)
                else:
                    default = [] if "action" in argument else option.default
                    target.add_argument(flag, default=default, **argument)

    def format_help(self) -> str:
        """Return the help; a long one lists the installed input formats, too."""
        if self._is_short:
            return super().format_help()
        # Imported here, because formats need many modules.
        from shardwright.transforms.inputs.detection import known_formats

        formats = known_formats()
        width = max(map(len, formats))
        listed = "".join(f"  {name:{width}}  {known.summary}\n" for name, known in formats.items())
        return f"{super().format_help()}\ninput formats, in the order of detection\n{listed}"


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


# Join keys of --labels: the id (its column, else the path), the path, or the name of the file.
_LABEL_KEYS = ("id", "path", "stem")
_INPUT_OUTPUT = OptionGroup("")
_INPUT = OptionGroup("input")
_SHARDS = OptionGroup("splits and shards")
_CODE = OptionGroup("your own code")
_DATASET = OptionGroup("dataset")
_STORAGE = OptionGroup(
    "storage",
    "Credentials: the AWS environment, profile or role; Google application default credentials.",
)


def _column(text: str, *, usual: bool = False) -> Any:
    return _INPUT.option(None, f"table column with {text}", metavar="NAME", usual=usual)


def _absolute_paths(text: str, *, metavar: str) -> Any:
    """Return an option that may be repeated."""
    return _INPUT.option(
        (), text, action="append", metavar=metavar, parse=lambda paths: tuple(map(absolute, paths))
    )


@dataclass(frozen=True, kw_only=True)
class BuildArguments:
    """The options of `build` and `plan`, not yet checked together."""

    input: str = _INPUT_OUTPUT.option(
        MISSING,
        "images and labels: folders, a table, COCO, VOC, YOLO, tar, zip, TFRecord, a dataset, ...",
        metavar="INPUT",
        usual=True,
    )
    output: str = _INPUT_OUTPUT.option(
        MISSING,
        "folder or prefix of the dataset; created if missing",
        metavar="OUTPUT",
        usual=True,
    )
    input_format: str | None = _INPUT.option(
        None, "format of INPUT, one of those listed below (default: detected)", metavar="NAME"
    )
    top_folders: str | None = _INPUT.option(
        None,
        "the folders directly in INPUT are splits or classes (default: splits if all have names "
        "such as train, val and test; an error if only some have)",
        choices=("splits", "classes"),
    )
    image_root: str | None = _INPUT.option(
        None,
        "base folder of relative image paths (default: the folder of the file with them)",
        metavar="DIR",
    )
    allow_outside: tuple[str, ...] = _absolute_paths(
        "accept images in this folder, where paths and links of INPUT may lead; may be repeated. "
        "Without it, they must be in the folder of INPUT or of --image-root",
        metavar="DIR",
    )
    labels: str | None = _INPUT.option(
        None,
        "table of any size with labels, splits and features for INPUT; all --*-column options "
        "except --size-column then refer to it",
        metavar="TABLE",
        usual=True,
    )
    labels_key: str = _INPUT.option(
        "id",
        "join key of --labels: id (default: its id column, else its path column; the id of a "
        "file is its path), path (even if it has ids), or stem (file name without extension, which "
        "must be unique in INPUT and TABLE)",
        choices=_LABEL_KEYS,
    )
    label_separator: str = _INPUT.option(
        "",
        "text between labels in a cell of a table, for features of several labels, such as ';' "
        "(default: '|'; lists of JSON and Python need none)",
        metavar="TEXT",
    )
    class_names: str | None = _INPUT.option(
        None,
        "class names in label order, one per line (default: the sorted labels)",
        metavar="FILE",
    )
    accept_partial: tuple[str, ...] = _absolute_paths(
        "build from the readable part of a file or folder of INPUT that cannot be read to its end "
        "(a path or a wildcard); may be repeated. Learned class names need --class-names then",
        metavar="PATH",
    )
    image_column: str | None = _column("image paths (default: image, path, file_name, ...)")
    label_column: str | None = _column(
        "labels (default: label, class, category, target, ...)", usual=True
    )
    id_column: str | None = _column("ids (default: id, else the image path)")
    split_column: str | None = _column("split names (default: split, subset, ...)")
    group_column: str | None = _column(
        "groups, such as patients: a group is never divided between splits"
    )
    size_column: str | None = _column("file sizes in bytes, which saves one lookup per file")
    split: SplitRule | None = _SHARDS.option(
        None,
        "draw splits: train=0.8,test=0.2 by a stable hash of the id, so new images never move "
        "others; test=5000,train=rest with exact sizes, where new images may move others "
        "(default: the splits of INPUT, else all train)",
        metavar="NAME=FRACTION|COUNT|rest,...",
        parse=parse_split,
        usual=True,
    )
    stratify: bool = _SHARDS.option(
        False,
        "give every split the same class fractions: exact to one record, approximate with "
        "--group-column; new images may move others",
        usual=True,
    )
    split_ids: tuple[str, ...] = _SHARDS.option(
        (),
        "ids of split NAME, one per line, or a table or JSON file of ids and splits; may be "
        "repeated. --split assigns all other ids",
        action="append",
        metavar="[NAME=]FILE",
        parse=tuple,
    )
    duplicates: str = _SHARDS.option(
        "keep",
        "images with identical bytes: keep all (default), or keep the first by id and drop or "
        "reject the others. Drop and reject read images of equal size once more, also for a plan. "
        "Duplicates across splits are always reported",
        choices=("keep", "drop", "reject"),
        usual=True,
    )
    shard_size: int | None = _SHARDS.option(
        None,
        "target shard size; the shards of a split have equal bytes to within one record "
        "(default: 150MB)",
        metavar="SIZE",
        parse=lambda text: parse_size(text, "--shard-size"),
        usual=True,
    )
    records_per_shard: int | None = _SHARDS.option(
        None,
        "exactly N records in every shard except the last of a split",
        type=int,
        metavar="N",
        usual=True,
    )
    shard_count: int | None = _SHARDS.option(
        None, "exactly N shards per split, equal to within one record", type=int, metavar="N"
    )
    shard_count_multiple_of: int = _SHARDS.option(
        1,
        "round the number of shards up to a multiple of N, for N readers (default: 1)",
        type=int,
        metavar="N",
    )
    seed: int = _SHARDS.option(0, "seed of the global shuffle (default: 0)", type=int, usual=True)
    encode: EncodeOptions = field(default_factory=EncodeOptions)
    check: str = IMAGES.option(
        "header",
        "check header and end of file (default), decode every image, or check nothing",
        choices=CHECKS,
        usual=True,
    )
    signals: bool = IMAGES.option(
        False,
        "measure brightness, contrast, sharpness, information, color and size of every image "
        "(signals/*.parquet); without, a sample is measured",
    )
    near: NearDuplicateOptions = field(default_factory=NearDuplicateOptions)
    limits: RejectLimits = field(default_factory=RejectLimits)
    transforms: tuple[UserTransform, ...] = _CODE.option(
        (),
        "call your function on each record before it is written (shardwright.transforms.Record "
        "in; one record, several or none out); may be repeated. For workers on other machines, "
        "add its package with --setup_file",
        name="transform",
        action="append",
        metavar="MODULE|FILE.py:FUNCTION",
        parse=lambda specs: tuple(map(UserTransform.find, specs)),
        usual=True,
    )
    schema: str | None = _DATASET.option(
        None,
        f"features of an example: {', '.join(READY_SCHEMAS)}, a .py file that defines SCHEMA "
        "(an ExampleSchema), or its .json; other columns are left out (default: image, id, label "
        "and every other column)",
        metavar="NAME|FILE",
        usual=True,
    )
    feature_names: str = _DATASET.option(
        "tfds",
        "names of the features: image, label, id (tfds, default), or those that TensorFlow "
        "Model Garden reads",
        choices=sorted(FEATURE_NAMES),
    )
    name: str = _DATASET.option(
        "",
        "prefix of the shards' file names (default: from OUTPUT)",
        rule=(
            "lower-case letters, digits and underscores and start with a letter",
            is_dataset_name,
        ),
    )
    version: str = _DATASET.option(
        "1.0.0",
        "version of the dataset (default: 1.0.0)",
        rule=("three numbers, such as 1.0.0", lambda t: bool(re.fullmatch(r"\d+\.\d+\.\d+", t))),
    )
    if_exists: str = _DATASET.option(
        "resume",
        "if OUTPUT has a dataset: resume its build (default), append changes, overwrite, or fail",
        choices=("resume", "append", "overwrite", "error"),
        usual=True,
    )
    keep_missing: bool = _DATASET.option(
        False, "with --if-exists append: keep the records that INPUT no longer has"
    )
    max_gone: Limit | None = _DATASET.option(
        None,
        "with --if-exists append: write nothing if INPUT lacks more than N records of the dataset, "
        "or N percent of them (default: if it lacks more than 10 percent and more than 20)",
        metavar="N|N%",
        parse=lambda text: parse_most(text, "--max-gone", "gone"),
    )
    fail_on: tuple[Limit, ...] | None = _DATASET.option(
        None,
        "publish nothing and exit with 1 above a limit, such as 'drift>0.1,leaks>0'; names: "
        f"{', '.join(LIMITED)}. `shardwright diff --help` explains drift",
        metavar="LIMITS",
        parse=parse_fail_on,
    )
    against: str | None = _DATASET.option(
        None,
        "dataset that --fail-on compares with (default: the version before, or the dataset that is "
        "overwritten)",
        metavar="DATASET",
    )
    writer: str = _DATASET.option(
        "planned",
        "planned (default), or beam: Beam's stock WriteToTFRecord, with inexact sizes and order",
        choices=("planned", "beam"),
    )
    threads: int | None = _DATASET.option(
        None,
        "threads per process that read and check images, or concurrent reads from a store "
        "(default: automatic, at most 32 threads or 128 reads)",
        rule=("at least 1", lambda count: count >= 1),
        type=int,
        metavar="N",
    )
    storage: StorageOptions = _STORAGE.option(
        NO_OPTIONS,
        "such as endpoint=http://minio:9000, region=eu-west-1, anonymous=true, "
        "path_style=true, role_arn=ARN (S3 on Google machines), deadline=60 (seconds of retries), "
        "or s3://BUCKET:KEY=VALUE for one bucket; may be repeated",
        name="storage_option",
        action="append",
        metavar="KEY=VALUE",
        parse=StorageOptions.parse,
        usual=True,
    )
    shared_filesystem: bool = _STORAGE.option(
        False,
        "accept local paths with a cluster's runner: all its workers see them under the same "
        "names (NFS, or a cluster on this machine)",
    )


def answer_help(command: str, argv: Sequence[str]) -> None:
    """Print the help and exit if it is asked for, before what takes longer is imported."""
    if not {"-h", "--help"}.isdisjoint(argv):
        make_parser(command, is_short=True).parse_args(["--help"])


def make_parser(command: str, *, is_short: bool = False) -> OptionParser:
    """Return the parser of `build` or `plan`."""
    parser = OptionParser(command, is_short=is_short)
    parser.add_options(BuildArguments)
    if command == "plan":
        parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    return parser
