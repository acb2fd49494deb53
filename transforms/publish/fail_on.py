"""Stop a build before it publishes a dataset that exceeds the limits of `--fail-on`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from shardwright.errors import BuildError
from shardwright.fail_on import CHANGES, Limit, Measured, exceeded, parse_limits
from shardwright.format.manifest import Manifest
from shardwright.format.reject_counts import RejectShare
from shardwright.format.stats_keys import LEAKS, NEAR_LEAKS
from shardwright.storage.folder import Folder
from shardwright.transforms.publish.publication import DatasetDraft
from shardwright.transforms.versions.additions import Additions, Append, propose_versions

NEAR = "near-leaks"
NAMES = ("drift", *CHANGES, "leaks", NEAR, "rejects")
_PERCENTAGES = NAMES[1:]
_LOG = logging.getLogger("shardwright.publish")


def parse_fail_on(text: str) -> tuple[Limit, ...]:
    """Return the limits in the value of `--fail-on`; raise `UsageError` for a wrong one."""
    return tuple(parse_limits(text, NAMES, _PERCENTAGES))


@dataclass(frozen=True, slots=True)
class FailOnCheck:
    """A check of the dataset that is about to be published, or of the additions to a dataset.

    Attributes:
        limits: Its limits; every one holds.
        against: The dataset to compare with; None for the version before, or for the dataset that
            the build replaces.
        append: The append of which these are the additions.
    """

    limits: Sequence[Limit] = ()
    against: Folder | None = None
    append: Append | None = None

    def __call__(self, draft: DatasetDraft) -> None:
        """Check the limits.

        Raises:
            BuildError: A limit is exceeded.
            NotADatasetError: The dataset to compare with is damaged.
            StorageError: An index cannot be read.
        """
        if not self.limits:
            return
        counts = _count(draft.manifest, 0 if draft.seen is None else draft.seen.num_unchanged)
        values = dict.fromkeys(NAMES, Measured(0))
        if compared := {limit.name for limit in self.limits}.difference(counts):
            values |= self._compare(draft, compared)
        above = exceeded(self.limits, values | counts)
        if above:
            stay = f"; its shards stay in {draft.root}" if draft.manifest.num_records else ""
            raise BuildError(
                f"the dataset exceeds the limits of --fail-on ({'; '.join(above)}), so it is not "
                f"published{stay}: fix INPUT, or raise the limits and run the same command again"
            )

    def _compare(self, draft: DatasetDraft, names: set[str]) -> dict[str, Measured]:
        """Return the values that another dataset decides; none if there is no other."""
        from shardwright.inspect import diff

        old, new = None, diff.OpenedDataset(draft.root, draft.manifest)
        if self.append is not None and draft.seen is not None:
            additions = Additions.of(draft.manifest, draft.seen)
            old, new = (
                diff.OpenedDataset(self.append.root, version)
                for version in propose_versions(self.append, additions)
            )
        if other := self.against or draft.replaced:
            old = diff.OpenedDataset.at(other)
        if old is None:
            shown = ", ".join(sorted(names))
            _LOG.warning("--fail-on %s: there is no dataset to compare with: not checked", shown)
            return {}
        if names == {"drift"}:  # of fewer columns
            return {"drift": Measured(max(diff.measure_drift(old, new).values(), default=0.0))}
        return diff.measured_values(diff.compare(old, new), new.manifest)


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
