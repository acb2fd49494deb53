"""Stop a build before it publishes a dataset that exceeds the limits of `--fail-on`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from shardwright.errors import BuildError
from shardwright.fail_on import Limit, Measured, exceeded, parse_limits
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.reject_counts import RejectShare
from shardwright.storage.folder import Folder

NEAR = "near-leaks"
NAMES = ("drift", "leaks", NEAR, "rejects")
_PERCENTAGES = ("leaks", NEAR, "rejects")
_LOG = logging.getLogger("shardwright.publish")


@dataclass(frozen=True, slots=True)
class FailOn:
    """The limits of a dataset.

    Attributes:
        limits: The limits; every one holds.
        against: The dataset that drift is measured against; None for the one that the build
            replaces.
    """

    limits: Sequence[Limit] = ()
    against: Folder | None = None


NO_LIMITS = FailOn()


def parse_fail_on(text: str) -> tuple[Limit, ...]:
    """Return the limits in the value of `--fail-on`; raise `UsageError` for a wrong one."""
    return tuple(parse_limits(text, NAMES, _PERCENTAGES))


def check_against(fail_on: FailOn) -> None:
    """Fail early if there is no dataset to compare with; raise `NotADatasetError` then."""
    if fail_on.against is not None:
        read_manifest(fail_on.against)


def check_limits(
    fail_on: FailOn, root: Folder, manifest: Manifest, replaced: Folder | None
) -> None:
    """Check the dataset that is about to be published.

    Args:
        fail_on: Its limits.
        root: The folder that holds its shards and indexes.
        manifest: Its manifest, with the images that splits share.
        replaced: The folder of the dataset that it replaces, if it does.

    Raises:
        BuildError: A limit is exceeded.
        NotADatasetError: The dataset to compare with is damaged.
        StorageError: An index cannot be read.
    """
    if not fail_on.limits:
        return
    old = fail_on.against or replaced
    names = {limit.name for limit in fail_on.limits}
    values = _count(manifest) | {"drift": Measured(0)}
    if "drift" in names and old is not None:
        values["drift"] = Measured(_drift(old, root, manifest))
    elif "drift" in names:
        _LOG.warning("--fail-on drift: there is no dataset to compare with, so it is not checked")
    above = exceeded(fail_on.limits, values)
    if above:
        raise BuildError(
            f"the dataset exceeds the limits of --fail-on ({'; '.join(above)}), so it is not "
            f"published; its shards stay in {root}: fix INPUT, or raise the limits and run the "
            "same command again"
        )


def _count(manifest: Manifest) -> dict[str, Measured]:
    # Late, because only a build knows it, and this file is imported by the command line's parser.
    from shardwright.transforms.publish.leaks import LEAKS
    from shardwright.transforms.publish.near_duplicates import NEAR_LEAKS

    def leaks(key: str) -> Measured:
        shared = [split.stats.get(key, {}).values() for split in manifest.splits.values()]
        number = sum(leak["records"] + leak["unchecked"] for found in shared for leak in found)
        return Measured(number, manifest.num_records)

    return {
        "leaks": leaks(LEAKS),
        NEAR: leaks(NEAR_LEAKS),
        "rejects": Measured(*RejectShare.of(manifest.rejects, manifest.num_records)),
    }


def _drift(old: Folder, root: Folder, manifest: Manifest) -> float:
    from shardwright.inspect.diff import OpenedDataset, measure_drift

    found = measure_drift(OpenedDataset.at(old), OpenedDataset(root, manifest))
    return max(found.values(), default=0.0)
