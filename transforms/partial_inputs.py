"""Fail a build of an INPUT that was not read to its end, unless the user accepts what was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from shardwright.errors import BuildError
from transforms.rejects import Reject, RejectReason

_SHOWN = 3  # incomplete inputs in a message


@dataclass(frozen=True, slots=True)
class PartialInputs:
    """The incomplete files and folders of INPUT that a build accepts.

    Attributes:
        accepted: Their absolute paths or addresses, or wildcards (`--accept-partial`).
        learned: Features whose class names are learned from INPUT.
    """

    accepted: tuple[str, ...] = ()
    learned: tuple[str, ...] = ()

    def check(self, rejects: Sequence[Reject], vocabularies: Mapping[str, tuple[str, ...]]) -> None:
        """Stop a build of an INPUT that was not read to its end.

        Args:
            rejects: All rejects of the listing.
            vocabularies: Class names and words by feature name.

        Raises:
            BuildError: A file or folder is incomplete and not accepted, or class names would be
                learned from an incomplete listing.
        """
        found = [reject for reject in rejects if reject.reason == RejectReason.INCOMPLETE]
        refused = [reject for reject in found if not self._accepts(reject.uri)]
        learned = [name for name in self.learned if vocabularies.get(name)]
        names = "with --class-names FILE or the class_names of --schema" if learned else ""
        if refused:
            told = "; ".join(f"{reject.uri}: {reject.detail}" for reject in refused[:_SHOWN])
            rest = f"; and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
            options = " ".join(f"--accept-partial '{one.uri}'" for one in refused[:_SHOWN])
            also = f", and give the class names {names}" if names else ""
            raise BuildError(
                f"INPUT cannot be read to its end ({told}{rest}): repair or copy it again, or "
                f"build from what is readable with {options}{also}"
            )
        if found and names:
            raise BuildError(
                f"the class names of {learned[0]!r} would be learned from a part of INPUT "
                f"({found[0].uri} is incomplete), which may lack classes: give them {names}"
            )

    def _accepts(self, uri: str) -> bool:
        return any(uri == one or fnmatchcase(uri, one) for one in self.accepted)


WHOLE_INPUT = PartialInputs()
