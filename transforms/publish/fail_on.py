"""Stop a build before it publishes a dataset that exceeds the limits of `--fail-on`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from shardwright.errors import BuildError
from shardwright.fail_on import CHANGES, Limit, Measured, exceeded, parse_limits
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.reject_counts import RejectShare
from shardwright.format.stats_keys import LEAKS, NEAR_LEAKS
from shardwright.storage.folder import Folder

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


NO_LIMITS = FailOn()


Version = tuple[Folder, Manifest]
Versions = Callable[[], tuple[Version | None, Version]]
"""Returns the dataset to compare with, None without one, and the new one."""


def parse_fail_on(text: str) -> tuple[Limit, ...]:
    """Return the limits in the value of `--fail-on`; raise `UsageError` for a wrong one."""
    return tuple(parse_limits(text, NAMES, _PERCENTAGES))


def check_against(fail_on: FailOn) -> None:
    """Fail early if there is no dataset to compare with; raise `NotADatasetError` then."""
    if fail_on.against is not None:
        read_manifest(fail_on.against)


def check_limits(
    fail_on: FailOn,
    root: Folder,
    manifest: Manifest,
    versions: Versions,
    *,
    num_unchanged: int = 0,
) -> None:
    """Check the dataset that is about to be published, or the additions to a dataset.

    Args:
        fail_on: Its limits.
        root: The folder that holds its shards and indexes.
        manifest: Its manifest, with the images that splits share.
        versions: Called if a limit needs another dataset.
        num_unchanged: The records of the dataset that INPUT has, too, if these are additions.

    Raises:
        BuildError: A limit is exceeded.
        NotADatasetError: The dataset to compare with is damaged.
        StorageError: An index cannot be read.
    """
    if not fail_on.limits:
        return
    counts = _count(manifest, num_unchanged)
    values = dict.fromkeys(NAMES, Measured(0))
    if compared := {limit.name for limit in fail_on.limits}.difference(counts):
        values |= _compare(versions, compared)
    above = exceeded(fail_on.limits, values | counts)
    if above:
        stay = f"; its shards stay in {root}" if manifest.num_records else ""
        raise BuildError(
            f"the dataset exceeds the limits of --fail-on ({'; '.join(above)}), so it is not "
            f"published{stay}: fix INPUT, or raise the limits and run the same command again"
        )


def _compare(versions: Versions, names: Collection[str]) -> dict[str, Measured]:
    """Return the values that another dataset decides; none if there is no other."""
    from shardwright.inspect import diff

    old, new = versions()
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
