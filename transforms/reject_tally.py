"""Count the rejects of a plan, and fail a build of an INPUT that was not read to its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError
from shardwright.transforms.partial_inputs import PartialInputs
from shardwright.transforms.rejects import Reject, RejectReason, rejects_in

_SHOWN = 3  # incomplete inputs in a message


class RejectTally:
    """The facts about all rejects of a plan that decide on its build, without the rejects.

    Args:
        partial: The incomplete files and folders of INPUT that the build accepts.
    """

    def __init__(self, partial: PartialInputs) -> None:
        self._partial = partial
        self._reasons: Counter[str] = Counter()
        self._num_refused = 0
        self._incomplete: list[Reject] = []  # some, those that are not accepted first

    @property
    def reasons(self) -> dict[str, int]:
        """The number of rejects by reason, in its order."""
        return dict(sorted(self._reasons.items()))

    def add(self, rejects: pa.Table) -> None:
        reasons = rejects.column("reason")
        for counted in pc.value_counts(reasons).to_pylist():
            self._reasons[counted["values"]] += counted["counts"]
        found = rejects.filter(pc.equal(reasons, str(RejectReason.INCOMPLETE)))
        if found.num_rows:
            incomplete = rejects_in(found)
            self._num_refused += sum(not self._accepts(reject) for reject in incomplete)
            self._keep_some(incomplete)

    def add_all(self, other: RejectTally) -> None:
        """Add the rejects of another part of the plan."""
        self._reasons.update(other._reasons)
        self._num_refused += other._num_refused
        self._keep_some(other._incomplete)

    def _keep_some(self, incomplete: list[Reject]) -> None:
        found = [*self._incomplete, *incomplete]
        # Sorted, so that the message is the same in whatever order workers report.
        self._incomplete = sorted(found, key=lambda one: (self._accepts(one), one.uri))[:_SHOWN]

    def _accepts(self, reject: Reject) -> bool:
        return self._partial.accepts(reject.uri)

    def check_complete(self, vocabularies: Mapping[str, tuple[str, ...]]) -> None:
        """Stop a build of an INPUT that was not read to its end.

        Args:
            vocabularies: Class names and words by feature name.

        Raises:
            BuildError: A file or folder is incomplete and not accepted, or class names would be
                learned from an incomplete listing.
        """
        # The refused ones are first, and there may be fewer than are kept.
        refused = self._incomplete[: self._num_refused]
        learned = [name for name in self._partial.learned if vocabularies.get(name)]
        names = "with --class-names FILE or the class_names of --schema" if learned else ""
        if refused:
            told = "; ".join(f"{reject.uri}: {reject.detail}" for reject in refused)
            others = self._num_refused - len(refused)
            rest = f"; and {others} more" if others else ""
            options = " ".join(f"--accept-partial '{one.uri}'" for one in refused)
            also = f", and give the class names {names}" if names else ""
            raise BuildError(
                f"INPUT cannot be read to its end ({told}{rest}): repair or copy it again, or "
                f"build from what is readable with {options}{also}"
            )
        if self._incomplete and names:
            raise BuildError(
                f"the class names of {learned[0]!r} would be learned from a part of INPUT "
                f"({self._incomplete[0].uri} is incomplete), which may lack classes: give them "
                f"{names}"
            )
