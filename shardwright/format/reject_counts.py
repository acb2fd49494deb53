"""Count the rejects that are faults; a dataset's manifest has all of them by reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

# Listed for information: files that are no images, rows of `--labels` for images that are not in
# INPUT, and what an option leaves out. Incomplete inputs fail the build unless they are accepted by
# name. All else is a loss, also that of a box or of an id of a split list.
NO_FAULTS = frozenset(
    {
        "other_file",
        "unmatched_label",
        "dropped_duplicate",
        "dropped_near_duplicate",
        "incomplete",
    }
)


def count_faults(counts: Mapping[str, int]) -> int:
    """Return the number of rejects that count against the limits."""
    return sum(number for reason, number in counts.items() if reason not in NO_FAULTS)


class RejectShare(NamedTuple):
    """The faults among the rejects, and the inputs that they are a share of."""

    faults: int
    num_inputs: int

    @classmethod
    def of(cls, counts: Mapping[str, int], num_records: int) -> RejectShare:
        """Return the share of rejects that `--fail-on` and `--max-reject-fraction` limit."""
        faults = count_faults(counts)
        return cls(faults, faults + num_records)
