"""Limits of rejects: a build that loses more of its input publishes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardwright.errors import TooManyRejectsError
from shardwright.format.reject_counts import NO_FAULTS, RejectShare
from shardwright.transforms.options import IMAGES, Rule, check_values

_FRACTION: Rule = ("from 0 to 1", lambda fraction: 0 <= fraction <= 1)
# A few bad images never end a build, whatever their share: 1 of 91 is more than 1 %.
_DEFAULT_FRACTION, _DEFAULT_NUMBER = 0.01, 10


@dataclass(frozen=True, slots=True)
class RejectLimits:
    """The rejects that a build accepts; every limit that is given holds.

    If neither `max_reject_fraction` nor `max_rejects` is given, the limit is 10 rejects or 1 % of
    the inputs, whichever is more.

    Raises:
        ValueError: A value breaks its rule.
    """

    max_reject_fraction: float | None = IMAGES.option(
        None,
        "fail if more than this fraction of the inputs is rejected, 0 to 1 (default: 0.01, and "
        "more than 10)",
        rule=_FRACTION,
        type=float,
        metavar="F",
        usual=True,
    )
    max_rejects: int | None = IMAGES.option(
        None,
        "fail if more than N inputs are rejected; it replaces the default of --max-reject-fraction",
        rule=("at least 0", lambda number: number >= 0),
        type=int,
        metavar="N",
    )

    def __post_init__(self) -> None:
        check_values(self)

    def exceeded(self, share: RejectShare) -> str:
        """Return the limit that these rejects exceed, "" if none."""
        faults, fraction = share.faults, share.faults / share.num_inputs
        if self.max_reject_fraction is not None and fraction > self.max_reject_fraction:
            return f"--max-reject-fraction {self.max_reject_fraction:g}"
        if self.max_rejects is not None and faults > self.max_rejects:
            return f"--max-rejects {self.max_rejects}"
        is_default = self.max_reject_fraction is None and self.max_rejects is None
        if is_default and faults > _DEFAULT_NUMBER and fraction > _DEFAULT_FRACTION:
            return f"the default limit of {_DEFAULT_NUMBER} and {_DEFAULT_FRACTION:.0%}"
        return ""


_EITHER = "--max-reject-fraction or --max-rejects"
_UNMOUNTED = (
    ". The dataset stays as it is, because an append never takes away all records: check that "
    "INPUT is the right address, and that its disk is mounted"
)


def check_rejects(
    rejects: Mapping[str, int],
    num_records: int,
    limits: RejectLimits,
    *,
    grows: bool = False,
    are_checked: bool = False,
) -> None:
    """Stop a build that rejects too many of its inputs.

    Args:
        rejects: Number of rejects by reason.
        num_records: Number of records.
        limits: The rejects that the build accepts.
        grows: Whether it adds to a dataset, from which an INPUT without images would take all.
        are_checked: Whether all images were read; else INPUT was only listed.

    Raises:
        TooManyRejectsError: There are no images, or there are more rejects than `limits` allow.
    """
    share = RejectShare.of(rejects, num_records)
    if num_records == 0:
        raise TooManyRejectsError(
            "INPUT has no images"
            + (
                f": every file is a reject ({_by_reason(rejects)})"
                if rejects
                else "; the folder or table is empty"
            )
            + (_UNMOUNTED if grows else "")
        )
    if limit := limits.exceeded(share):
        option = limit.split()[0] if limit.startswith("--") else _EITHER
        raise TooManyRejectsError(
            f"{share.faults} of {share.num_inputs} inputs ({share.faults / share.num_inputs:.2%}) "
            f"are rejects, more than {limit} allows ({_faults_first(rejects)}): fix "
            f"these inputs, or raise {option}"
            + ("" if are_checked else "; no image was checked yet")
        )


def _faults_first(rejects: Mapping[str, int]) -> str:
    """Return the numbers of faults, which add up to those of the message, and of the others."""
    others = {reason: number for reason, number in rejects.items() if reason in NO_FAULTS}
    faults = _by_reason({key: rejects[key] for key in rejects.keys() - others.keys()})
    return f"{faults}; not counted: {_by_reason(others)}" if others else faults


def _by_reason(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{number} {reason}" for reason, number in ordered)
