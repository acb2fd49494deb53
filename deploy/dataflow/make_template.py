"""Make the Flex Template: its parameters, from the parser of `build`, and its specification.

    make_template.py                 write metadata.json, which is committed
    make_template.py --check         exit with 1 if metadata.json is out of date
    make_template.py --image IMAGE   print the specification, for gcloud storage cp - gs://...

The formats are TemplateMetadata and ContainerSpec of the Dataflow API:
https://cloud.google.com/dataflow/docs/reference/rest/v1b3/projects.locations.flexTemplates/launch
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shardwright.pipelines.options.arguments import make_parser

METADATA = Path(__file__).with_name("metadata.json")
# Options that a Dataflow job cannot use: its workers share no local paths, and Beam's stock writer
# writes only to local folders.
LEFT_OUT = ("help", "help_all", "shared_filesystem", "writer")
_PLACES = ("INPUT", "OUTPUT", "DIR", "TABLE", "DATASET")
_PLACE = r"^(gs|s3|az)://.+$"
# Wording of the help -> wording in a template.
_WORDING = (
    ("those listed below", "those that `shardwright build --help-all` lists"),
    ("; may be repeated", "; once in a template"),
)
_NUMBERS: dict[object, str] = {int: r"^-?[0-9]+$", float: r"^[0-9]*\.?[0-9]+$"}


def template_metadata() -> dict[str, Any]:
    """Return TemplateMetadata: every option of `build` as a parameter, in the parser's order."""
    return {
        "name": "shardwright",
        "description": "Convert images and labels to fixed-size, globally shuffled TFRecord "
        "shards of tf.Example.",
        "streaming": False,
        "parameters": list(_parameters(make_parser("build"))),
    }


def container_spec(image: str) -> dict[str, Any]:
    """Return ContainerSpec; one image launches the job and runs its workers."""
    return {
        "image": image,
        "sdkInfo": {"language": "PYTHON"},
        "defaultEnvironment": {"sdkContainerImage": image},
        "metadata": template_metadata(),
    }


def _parameters(parser: argparse.ArgumentParser) -> Iterator[dict[str, Any]]:
    for group in parser._action_groups:
        for action in group._group_actions:
            if action.dest not in LEFT_OUT:
                named = {} if action.required else {"groupName": str(group.title).capitalize()}
                yield {**_described(action), **named, **_typed(action)}


def _described(action: argparse.Action) -> dict[str, Any]:
    text = action.help or ""
    for said, here in _WORDING:
        text = text.replace(said, here)
    parameter = {
        "name": action.dest,
        "label": action.dest.replace("_", " ").capitalize(),
        "helpText": text[:1].upper() + text[1:],
    }
    return parameter if action.required else {**parameter, "isOptional": True}


def _typed(action: argparse.Action) -> dict[str, Any]:
    default = {} if action.default in (None, [], "") else {"defaultValue": str(action.default)}
    if action.nargs == 0:
        return {"paramType": "BOOLEAN", "defaultValue": "false"}
    if action.choices:
        return {
            "paramType": "ENUM",
            "enumOptions": [{"value": choice, "label": choice} for choice in action.choices],
            **default,
        }
    if action.type in _NUMBERS:
        return {"paramType": "NUMBER", "regexes": [_NUMBERS[action.type]], **default}
    places = {"regexes": [_PLACE]} if action.metavar in _PLACES else {}
    return {"paramType": "TEXT", **places, **default}


def main() -> int:
    """Run the command and return its exit code: 1 if `--check` finds a difference."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument(
        "--image", help="print the specification of a template that runs this image"
    )
    args = parser.parse_args()
    if args.image:
        print(json.dumps(container_spec(args.image), indent=2))
        return 0
    made = json.dumps(template_metadata(), indent=2) + "\n"
    if not args.check:
        METADATA.write_text(made)
    elif METADATA.read_text() != made:
        print(f"{METADATA} is out of date: run python {sys.argv[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
