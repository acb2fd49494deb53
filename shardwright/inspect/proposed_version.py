"""Propose the version of a dataset by its differences from an older one, by Croissant's rule.

Croissant 1.0, "Dataset Versioning": a patch keeps the data, which may be stored in another way; a
minor version keeps the existing data and adds to it; a major version changes or removes some, or
moves records to other splits (https://docs.mlcommons.org/croissant/docs/croissant-spec.html).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shardwright.sizes import counted

_VERSION = re.compile(r"(\d{1,18})\.(\d{1,18})\.(\d{1,18})")
_BREAKING = {
    "gone": "gone",
    "changed": "changed",
    "relabeled": "relabeled",
    "reannotated": "reannotated",
    "moved": "moved to another split",
}


def propose_version(
    version: str,
    records: Mapping[str, int],
    schema: Mapping[str, Any],
    classes: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the next version, the part of it that grows, and the reasons.

    A record whose stored bytes differ counts as changed, also if a feature was added to it.

    Args:
        version: The older version, such as "1.0.0".
        records: Number of records by change, as `shardwright diff` tells them.
        schema: The features "added", "removed" and "changed".
        classes: The classes "added", "removed" and "renumbered".

    Returns:
        "version", None if the older one is not MAJOR.MINOR.PATCH; "part", which is "major", "minor"
        or "patch"; and "because", a list of texts.
    """
    breaking = [
        *((records[change], "record", told) for change, told in _BREAKING.items()),
        *((len(schema[change]), "feature", change) for change in ("removed", "changed")),
        *((len(classes[change]), "class", change) for change in ("removed", "renumbered")),
    ]
    additions = [
        (records["new"], "record", "added"),
        (len(schema["added"]), "feature", "added"),
        (len(classes["added"]), "class", "added"),
    ]
    part, because = "patch", ["the same records, features and classes"]
    for name, changes in (("minor", additions), ("major", breaking)):
        if reasons := [
            f"{counted(number, noun)} {what}" for number, noun, what in changes if number
        ]:
            part, because = name, reasons
    raised = None
    if match := _VERSION.fullmatch(version):
        major, minor, patch = map(int, match.groups())
        raised = {
            "major": f"{major + 1}.0.0",
            "minor": f"{major}.{minor + 1}.0",
            "patch": f"{major}.{minor}.{patch + 1}",
        }[part]
    return {"version": raised, "part": part, "because": because}


def format_proposal(proposal: Mapping[str, Any]) -> str:
    """Return a proposal as a line of text."""
    version = proposal["version"] or f"the next {proposal['part']} one"
    return f"proposed version: {version} ({proposal['part']}: {', '.join(proposal['because'])})"
