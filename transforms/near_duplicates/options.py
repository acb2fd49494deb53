"""Options of the search for near-duplicates."""

from __future__ import annotations

from dataclasses import dataclass

from shardwright.transforms.options import IMAGES, check_values

MAX_DISTANCE = 8


@dataclass(frozen=True, slots=True)
class NearDuplicateOptions:
    """The near-duplicates that a build looks for.

    Raises:
        ValueError: A value breaks its rule.
    """

    policy: str = IMAGES.option(
        "keep",
        "images that look nearly the same: keep all without a search (default), report them, or "
        "keep the best of each group and drop or reject the others. Reads and decodes every image "
        "once more, also for a plan",
        name="near_duplicates",
        choices=("keep", "report", "drop", "reject"),
        usual=True,
    )
    distance: int = IMAGES.option(
        3,
        "bits of 64 in which the hashes of near-duplicates may differ, 0 to 8 (default: 3)",
        rule=("from 0 to 8", lambda bits: 0 <= bits <= MAX_DISTANCE),
        type=int,
        metavar="BITS",
    )

    def __post_init__(self) -> None:
        check_values(self)
        if not self.is_on and self.distance != 3:
            raise ValueError("distance needs --near-duplicates, such as --near-duplicates report")

    @property
    def is_on(self) -> bool:
        return self.policy != "keep"

    def __str__(self) -> str:
        """Return the options as settings of a dataset, "" for no search."""
        return f"{self.policy}, distance {self.distance}" if self.is_on else ""
