"""The Flex Template's parameters, made from the command line's parser, and its specification for one image.

    python deploy/dataflow/make_template.py                   write metadata.json, which is committed
    python deploy/dataflow/make_template.py --check           exit 1 if metadata.json is not what this makes
    python deploy/dataflow/make_template.py --image IMAGE     print the specification: gcloud storage cp - gs://BUCKET/shardwright.json

Their forms are TemplateMetadata and ContainerSpec of the Dataflow API:
https://cloud.google.com/dataflow/docs/reference/rest/v1b3/projects.locations.flexTemplates/launch
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.arguments import make_parser

METADATA = Path(__file__).with_name("metadata.json")
# What no job on Dataflow can have: local paths that its workers share, Beam's stock writer, which writes to local folders only.
LEFT_OUT = ("help", "shared_filesystem", "writer")
_PLACES = ("INPUT", "OUTPUT", "DIR", "TABLE")
_PLACE = r"^(gs|s3|az)://.+$"
# What the help says that is another thing in a template.
_WORDING = (
    (" (see below)", ""),
    ("those listed below", "those that `shardwright build --help` lists"),
    ("; may be repeated", "; once in a template"),
)
_NUMBERS: dict[object, str] = {int: r"^-?[0-9]+$", float: r"^[0-9]*\.?[0-9]+$"}


def template_metadata() -> dict[str, Any]:
    """TemplateMetadata: every option of `shardwright build` as a parameter, in the parser's order."""
    return {
        "name": "shardwright",
        "description": "Turn images and their labels into fixed-size, globally shuffled TFRecord shards of tf.Example.",
        "streaming": False,
        "parameters": list(_parameters(make_parser("build"))),
    }


def container_spec(image: str) -> dict[str, Any]:
    """ContainerSpec: one image both launches the job and runs its workers."""
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
    default = {} if action.default in (None, []) else {"defaultValue": str(action.default)}
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
    """Exit code 1 where `--check` finds another file."""
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
        print(f"{METADATA} is not what the parser makes: run python {sys.argv[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
