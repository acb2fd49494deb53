"""The help of `build` and `plan`: usual options by `--help`, every option by `--help-all`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from transforms.inputs.detection import known_formats

DESCRIPTION = {
    "build": "Convert images and labels to fixed-size, globally shuffled TFRecord shards of "
    "tf.Example.",
    "plan": "Show the shards, records and bytes that `build` would write, from names and sizes.",
}
# Shown by `--help`, which fits two screens.
USUAL = frozenset(
    {
        "input", "output", "help", "help_all", "labels", "label_column", "split", "stratify",
        "duplicates", "shard_size", "records_per_shard", "seed", "encode", "resize", "check",
        "max_reject_fraction", "transform", "schema", "if_exists", "storage_option", "json",
    }
)  # fmt: skip
_USAGE = "%(prog)s INPUT OUTPUT [options]"
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
  shardwright build photos/ dataset/ --labels labels.csv --labels-key stem
  shardwright build photos/ dataset/ --encode jpeg --resize 256x256 --check decode
  shardwright build s3://raw/photos dataset/ --storage-option endpoint=http://minio:9000

  shardwright build gs://raw/photos gs://training/photos \\
      --runner DataflowRunner --project p --region r --temp_location gs://b/tmp
"""
_NOTES = """\
Run the same command again to resume a stopped build; a finished one is "up to date" in seconds.
All options of Beam are accepted, such as --runner (default: FnApiRunner, in this process).
Exit codes: 0 done, 1 the build failed, 2 wrong usage.
"""
_SHORT = f"""\
{_EXAMPLES}
{_NOTES}
--help-all lists every option and input format.
"""
_LONG = f"""\
INPUT, OUTPUT and tables are local paths, s3://BUCKET/..., gs://BUCKET/... or az://CONTAINER/...,
in any mix. INPUT is one of
  DIR/<class>/**            class folders: the first folder is the label
  DIR/<split>/<class>/**    split folders, if every first-level folder has the name of a split
                            (train, val, validation, test, ...)
  DIR/*                     images without labels
  TABLE                     .csv .tsv .jsonl .parquet with a column of image paths, relative to the
                            table's folder; other columns become features
or one of the input formats listed at the end. The first line of the log is the detected format.

{_EXAMPLES}{_MORE_EXAMPLES}
For schedulers that pass only named parameters: --input INPUT --output OUTPUT.
{_NOTES}"""


class HelpParser(argparse.ArgumentParser):
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

    def format_help(self) -> str:
        """Return the help of the usual options."""
        formatter = self._get_formatter()
        formatter.add_usage(_USAGE, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_arguments([one for one in group._group_actions if one.dest in USUAL])
            formatter.end_section()
        formatter.add_text(_SHORT)
        return formatter.format_help()

    def format_all(self) -> str:
        """Return the help of every option, and the installed input formats."""
        formats = known_formats()
        width = max(map(len, formats))
        listed = "".join(f"  {name:{width}}  {known.summary}\n" for name, known in formats.items())
        self.epilog = _LONG
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
        assert isinstance(parser, HelpParser)
        print(parser.format_all(), end="")
        parser.exit()
