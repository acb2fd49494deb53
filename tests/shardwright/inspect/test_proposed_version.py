"""The version that differences ask for, by Croissant's rule."""

from __future__ import annotations

from typing import Any

import pytest

from shardwright.inspect.proposed_version import format_proposal, propose_version
from shardwright.inspect.record_changes import CHANGES

NOTHING: dict[str, Any] = {
    "records": dict.fromkeys(CHANGES, 0),
    "schema": {"added": [], "removed": [], "changed": []},
    "classes": {"added": [], "removed": [], "renumbered": {}},
}
FEATURE = {"name": "weight"}


@pytest.mark.parametrize(
    ("of", "changes", "told"),
    [
        ("records", {}, "1.2.4 (patch: the same records, features and classes)"),
        ("records", {"new": 120}, "1.3.0 (minor: 120 records added)"),
        ("schema", {"added": [FEATURE]}, "1.3.0 (minor: 1 feature added)"),
        ("classes", {"added": ["cat", "dog"]}, "1.3.0 (minor: 2 classes added)"),
        ("records", {"new": 5, "gone": 1}, "2.0.0 (major: 1 record gone)"),
        ("records", {"changed": 2, "relabeled": 1},
         "2.0.0 (major: 2 records changed, 1 record relabeled)"),
        ("records", {"moved": 1000}, "2.0.0 (major: 1,000 records moved to another split)"),
        ("schema", {"removed": [FEATURE]}, "2.0.0 (major: 1 feature removed)"),
        ("schema", {"changed": [{"old": FEATURE, "new": FEATURE}]},
         "2.0.0 (major: 1 feature changed)"),
        ("classes", {"removed": ["cat"]}, "2.0.0 (major: 1 class removed)"),
        ("classes", {"renumbered": {"cat": [0, 1]}}, "2.0.0 (major: 1 class renumbered)"),
    ],
)  # fmt: skip
def test_the_rule(of: str, changes: dict[str, Any], told: str) -> None:
    found = {**NOTHING, of: {**NOTHING[of], **changes}}
    assert format_proposal(propose_version("1.2.3", **found)) == f"proposed version: {told}"


@pytest.mark.parametrize("version", ["", "1.0", "1.0.0-rc1", "x", "1.0.-1"])
def test_another_form_of_version(version: str) -> None:
    found = propose_version(version, **NOTHING)
    assert (found["version"], found["part"]) == (None, "patch")
    assert format_proposal(found).startswith("proposed version: the next patch one (patch: ")
