"""The incomplete files and folders of INPUT that the user accepts."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class PartialInputs:
    """The incomplete files and folders of INPUT that a build accepts.

    Attributes:
        accepted: Their absolute paths or addresses, or wildcards (`--accept-partial`).
        learned: Features whose class names are learned from INPUT.
    """

    accepted: tuple[str, ...] = ()
    learned: tuple[str, ...] = ()

    def accepts(self, uri: str) -> bool:
        return any(uri == one or fnmatchcase(uri, one) for one in self.accepted)


WHOLE_INPUT = PartialInputs()
