"""Stop a build before it publishes a dataset that exceeds the limits of `--fail-on`."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from shardwright.errors import BuildError
from shardwright.fail_on import CHANGES, Limit, Measured, exceeded, parse_limits
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.reject_counts import RejectShare
from shardwright.format.stats_keys import LEAKS, NEAR_LEAKS
from shardwright.format.versions import read_version
from shardwright.storage.folder import Folder
from shardwright.transforms.publish.publication import DatasetDraft
from shardwright.transforms.versions.additions import Additions, Append, propose_versions

NEAR = "near-leaks"
NAMES = ("drift", *CHANGES, "leaks", NEAR, "rejects")
_PERCENTAGES = NAMES[1:]
_LOG = logging.getLogger("shardwright.publish")


@dataclass(frozen=True, slots=True)
class FailOn:
    """The limits of a dataset.

    Attributes:
        limits: The limits; every one holds.
        against: The dataset to compare with; None for the version before, or for the dataset that
            the build replaces.
    """

    limits: Sequence[Limit] = ()
    against: Folder | None = None


Version: TypeAlias = tuple[Folder, Manifest]


def parse_fail_on(text: str) -> tuple[Limit, ...]:
    """Return the limits in the value of `--fail-on`; raise `UsageError` for a wrong one."""
    return tuple(parse_limits(text, NAMES, _PERCENTAGES))


def check_against(fail_on: FailOn) -> None:
    """Fail early if there is no dataset to compare with; raise `NotADatasetError` then."""
    if fail_on.against is not None:
        read_manifest(fail_on.against)


@dataclass(frozen=True, slots=True)
class FailOnCheck:
    """A check of the dataset that is about to be published, or of the additions to a dataset.

    Attributes:
        fail_on: Its limits.
        append: The append of which these are the additions.
    """

    fail_on: FailOn
    append: Append | None = None

    def __call__(self, draft: DatasetDraft) -> None:
        """Check the limits.

        Raises:
            BuildError: A limit is exceeded.
            NotADatasetError: The dataset to compare with is damaged.
            StorageError: An index cannot be read.
        """
        root, manifest, limits = draft.root, draft.manifest, self.fail_on.limits
        if not limits:
            return
        counts = _count(manifest, 0 if draft.seen is None else draft.seen.num_unchanged)
        values = dict.fromkeys(NAMES, Measured(0))
        if compared := {limit.name for limit in limits}.difference(counts):
            values |= _compare(*self._versions(draft), compared)
        above = exceeded(limits, values | counts)
        if above:
            stay = f"; its shards stay in {root}" if manifest.num_records else ""
            raise BuildError(
                f"the dataset exceeds the limits of --fail-on ({'; '.join(above)}), so it is not "
                f"published{stay}: fix INPUT, or raise the limits and run the same command again"
            )

    def _versions(self, draft: DatasetDraft) -> tuple[Version | None, Version]:
        """Return the dataset to compare with, None without one, and the new one."""
        old, new = None, (draft.root, draft.manifest)
        if self.append is not None and draft.seen is not None:
            additions = Additions.of(draft.manifest, draft.seen)
            before, after = propose_versions(self.append, additions)
            old, new = (self.append.root, before), (self.append.root, after)
        other = self.fail_on.against or draft.replaced
        return (old if other is None else (other, read_version(other))), new


def _compare(old: Version | None, new: Version, names: Collection[str]) -> dict[str, Measured]:
    """Return the values that another dataset decides; none if there is no other."""
    from shardwright.inspect import diff

    if old is None:
        shown = ", ".join(sorted(names))
        _LOG.warning("--fail-on %s: there is no dataset to compare with: not checked", shown)
        return {}
    pair = diff.OpenedDataset(*old), diff.OpenedDataset(*new)
    if set(names) == {"drift"}:  # of fewer columns
        return {"drift": Measured(max(diff.measure_drift(*pair).values(), default=0.0))}
    return diff.measured_values(diff.compare(*pair), new[1])


def _count(manifest: Manifest, num_unchanged: int) -> dict[str, Measured]:
    def leaks(key: str) -> Measured:
        shared = [split.stats.get(key, {}).values() for split in manifest.splits.values()]
        number = sum(leak["records"] + leak["unchecked"] for found in shared for leak in found)
        return Measured(number, manifest.num_records)

    return {
        "leaks": leaks(LEAKS),
        NEAR: leaks(NEAR_LEAKS),
        "rejects": Measured(
            *RejectShare.of(manifest.rejects, manifest.num_records + num_unchanged)
        ),
    }
