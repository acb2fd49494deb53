"""Show the progress of a watched build as text: one line for a log, or several for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.inspect.build_progress import BuildPhase, BuildProgress, WriteRate
from shardwright.sizes import counted, show_bytes, show_seconds

_LONG_SECONDS = 60.0  # of a shard in work, to be shown in a line
_NO_CHANGE = {
    BuildPhase.PLANNING: "the build has stopped, or reads INPUT without unpacking it",
    BuildPhase.WRITING: "the build has stopped, is planning again, or its shards take longer",
    BuildPhase.PUBLISHING: "the build has stopped, or was refused (its log has the reason)",
}


def show_line(progress: BuildProgress) -> str:
    """Return the progress in one line."""
    parts = [_phase_text(progress)]
    if progress.phase is BuildPhase.WRITING and progress.planned:
        done, planned = progress.done, progress.planned
        parts += [
            f"{done.shards:,}/{planned.shards:,} shards",
            f"{_about(progress)}{done.records:,}/{planned.records:,} records",
        ]
        if progress.recent:
            parts.append(_rate_text(progress.recent))
        if progress.seconds_left is not None:
            parts.append(f"{show_seconds(progress.seconds_left)} left")
    if progress.rejects:
        parts.append(f"rejects: {_rejects_text(progress)}")
    if progress.writing and progress.writing[0][1] > _LONG_SECONDS:
        name, seconds = progress.writing[0]
        parts.append(f"longest in work: {name} for {show_seconds(seconds)}")
    if note := stall_note(progress):
        parts.append(note)
    return ", ".join(parts)


def show_lines(progress: BuildProgress, uri: str) -> list[str]:
    """Return the progress of a build in OUTPUT `uri` as the lines of a terminal."""
    rows = [("state", _phase_text(progress))]
    done, planned = progress.done, progress.planned
    if planned is not None and progress.phase is not BuildPhase.PUBLISHED:
        reused = f", {progress.num_reused:,} of an earlier run" if progress.num_reused else ""
        about = _about(progress)
        rows += [
            ("shards", _part(done.shards, planned.shards) + reused),
            ("records", about + _part(done.records, planned.records)),
            (
                "bytes",
                f"{about}{show_bytes(done.num_bytes)} of {show_bytes(planned.num_bytes)} planned",
            ),
        ]
    if progress.recent and progress.overall:
        rows.append(("speed", f"{_rate_text(progress.recent)} {_period(progress.recent)}"))
        rows.append(("", f"{_rate_text(progress.overall)} since the plan"))
    if progress.seconds_left is not None:
        rows.append(("left", show_seconds(progress.seconds_left)))
    if progress.rejects:
        rows.append(("rejects", _rejects_text(progress)))
    if progress.slowest:
        rows.append(("slowest", _times(progress.slowest)))
    if progress.writing:
        in_work = counted(len(progress.writing), "shard")
        rows.append(("in work", f"{in_work}, longest {_times(progress.writing[:1])}"))
    if note := stall_note(progress):
        rows.append(("note", note))
    return [uri, *(f"  {name:<8}  {text}" for name, text in rows)]


def stall_note(progress: BuildProgress) -> str:
    """Return what it may mean that OUTPUT has not changed for long, or ""."""
    if not progress.is_stalled or progress.idle_seconds is None:
        return ""
    return (
        f"no change for {show_seconds(progress.idle_seconds)}: {_NO_CHANGE[progress.phase]}; "
        "the same command resumes a stopped build"
    )


def _phase_text(progress: BuildProgress) -> str:
    beside = " beside the published dataset" if progress.replaces else ""
    match progress.phase:
        case BuildPhase.EMPTY:
            return "nothing is there yet: the build has not begun, or is planning"
        case BuildPhase.PLANNING:
            return f"planning, {show_bytes(progress.spooled_bytes)} of INPUT unpacked"
        case BuildPhase.WRITING:
            return f"writing{beside} for {show_seconds(progress.seconds)}"
        case BuildPhase.PUBLISHING if progress.replaces:
            return "replacing the published dataset"
        case BuildPhase.PUBLISHING:
            return f"all {counted(progress.done.shards, 'shard')} written, publishing"
        case BuildPhase.FAILED:
            ago = show_seconds(progress.idle_seconds or 0.0)
            cause = ": INPUT lacks too many records (--max-gone)" * ("gone" in progress.rejects)
            return f"the build failed {ago} ago, before it wrote shards{cause}"
    done = progress.done
    return (
        f"published {show_seconds(progress.idle_seconds or 0.0)} ago: "
        f"{counted(done.records, 'record')}, {counted(done.shards, 'shard')}, "
        f"{show_bytes(done.num_bytes)}"
    )


def _about(progress: BuildProgress) -> str:
    return "about " if progress.num_unread else ""


def _part(done: int, planned: int) -> str:
    return f"{done:,} of {planned:,} ({done / max(planned, 1):.0%})"


def _rate_text(rate: WriteRate) -> str:
    return f"{rate.records_per_second:,.0f} images/s, {show_bytes(rate.bytes_per_second)}/s"


def _period(rate: WriteRate) -> str:
    return f"over the last {show_seconds(rate.seconds)}"


def _rejects_text(progress: BuildProgress) -> str:
    least = "at least " if progress.num_unread else ""
    return least + ", ".join(f"{number:,} {reason}" for reason, number in progress.rejects.items())


def _times(shards: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {show_seconds(seconds)}" for name, seconds in shards)
