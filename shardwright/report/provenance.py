"""Show where the dataset comes from: source, command, runner, versions, and settings."""

from __future__ import annotations

from collections.abc import Mapping

from shardwright.report.data import ReportData
from shardwright.report.markup import join
from shardwright.report.sections import Section, more
from shardwright.report.tables import pairs_table


def provenance(data: ReportData) -> Section:
    """Return the section of the origin and the settings."""
    manifest = data.manifest
    known = dict(manifest.provenance)
    packages = known.pop("packages", {})
    known.pop("timing", None)  # in a section of its own
    origin = {**known, "fingerprint": manifest.fingerprint}
    parts = [
        pairs_table("Source", origin),
        more("Settings", pairs_table("Settings", _flat(manifest.settings))),
    ]
    if packages:
        parts.append(more("Versions", pairs_table("Versions", packages)))
    return Section("provenance", "Source and settings", join(parts))


def _flat(settings: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return nested settings under names such as `encode / quality`."""
    found: dict[str, object] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{prefix}{name} / ")
        else:
            found[f"{prefix}{name}"] = value
    return found
