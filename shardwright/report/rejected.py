"""Show rejects by reason, with their messages and fixes, and the fixes that the build made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from shardwright.format.stats_keys import FIXES
from shardwright.report.data import ReportData
from shardwright.report.markup import Html, join, tag
from shardwright.report.reject_rows import RejectedInput
from shardwright.report.reject_texts import REASONS, UNKNOWN
from shardwright.report.sections import Section, bare_picture, more, note, sheet
from shardwright.report.tables import Cell, names, numbers, table, texts

_OPEN = 30  # rejects that are shown at once; a click shows more


def rejected(data: ReportData) -> Section:
    """Return the section of rejects."""
    counts = data.manifest.rejects
    if not counts:
        return Section("rejects", "Rejects", tag("p", "None."))
    ordered = sorted(counts, key=lambda reason: (-counts[reason], reason))
    columns = (texts("reason"), numbers("inputs"), texts("meaning"), texts("fix"))
    rows: list[list[Cell]] = [
        [reason, counts[reason], *REASONS.get(reason, UNKNOWN)] for reason in ordered
    ]
    by_reason: dict[str, list[RejectedInput]] = defaultdict(list)
    for found in data.rejects:
        by_reason[found.reason].append(found)
    known = [one for one in ordered if by_reason[one]]
    few = len(data.rejects) <= _OPEN
    parts = [
        _gallery(by_reason, known),
        table("Rejects by reason", columns, rows),
        *(_examples(one, counts[one], by_reason[one], is_open=few) for one in known),
    ]
    parts.append(note("All of them are in rejects/*.parquet."))
    return Section("rejects", "Rejects", join(parts))


def _gallery(by_reason: Mapping[str, list[RejectedInput]], reasons: list[str]) -> Html:
    """Return the pictures of rejects that decode, at least partly, by reason."""
    groups = []
    for reason in reasons:
        figures = [
            bare_picture(one.thumbnail, one.id or one.uri, f"{reason}: {one.detail}")
            for one in by_reason[reason]
            if one.thumbnail is not None
        ]
        if figures:
            groups.append(tag("div", tag("h3", reason), sheet(figures), class_="group"))
    if not groups:
        return Html("")
    told = "Some of those whose local files still decode; what is lost of a picture is black."
    return join((note(told), tag("div", *groups, class_="groups")))


def _examples(reason: str, number: int, found: list[RejectedInput], *, is_open: bool) -> Html:
    rows: list[list[Cell]] = [[one.id or one.uri, one.uri, one.detail] for one in found]
    part = f", {len(found):,} of {number:,}" if len(found) < number else f", {number:,}"
    columns = (names("id"), names("path"), names("message and fix"))
    examples = table(f"Rejects: {reason}", columns, rows)
    return more(join((tag("code", reason), part)), examples, is_open=is_open)


def fixes(data: ReportData) -> Section | None:
    """Return the section of the images that the build fixed; None if there are none."""
    rows: list[list[Cell]] = [
        [fault, name, number]
        for name, split in data.manifest.splits.items()
        for fault, number in split.stats.get(FIXES, {}).items()
    ]
    if not rows:
        return None
    columns = (texts("fault"), names("split"), numbers("images"))
    return Section("fixes", "Fixes", table("Fixed images", columns, rows))
