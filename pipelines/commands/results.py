"""Run a build with its progress, report the result in the last lines and return the exit code.

Errors of the user are reported without a stack trace. This file does not import Beam, so that
`--help` and wrong options are answered at once.
"""

from __future__ import annotations

import itertools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING

from shardwright.errors import ShardwrightError, TooManyRejectsError, UsageError
from shardwright.format import naming
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.reject_counts import RejectShare
from shardwright.format.stats_keys import EXIF_KEPT, FIXES, LEAKS, NEAR_LEAKS
from shardwright.format.versions import number_of, read_version
from shardwright.inspect import command_parts
from shardwright.inspect.build_scan import Amount, BuildPhase, BuildProgress
from shardwright.inspect.command_parts import EXIT_DONE, EXIT_FAULTS, EXIT_USAGE
from shardwright.inspect.watch import show_line
from shardwright.pipelines.runners.beam_options import describe_runner, option_of
from shardwright.pipelines.runners.processes import remove_abandoned, silence_beam
from shardwright.sizes import counted, show_bytes, show_seconds
from shardwright.storage.counters import COUNTERS
from shardwright.terminal import is_live, say, set_up_log, show_in_place, wipe
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.progress import Progress as Counters
from shardwright.transforms.reject_files import first_faults
from shardwright.transforms.rejects import RETRYABLE, RejectReason

if TYPE_CHECKING:
    from shardwright.pipelines.job.build import BuildJob
    from shardwright.transforms.versions.additions import KnownDataset

_SHOWN_REJECTS = 5
_TRY_AGAIN = "rejected files are tried again by the same command with --if-exists overwrite"
REPORT = (
    "internal_error is a bug, not a fault of your images: please report it with the line "
    'above (README.md, "Report a problem")'
)
_TICK_SECONDS = 0.2
_LINE_SECONDS = 10.0  # between two lines if stderr is not a terminal


def run_build(run: Callable[[BuildJob], None], prepare: Callable[[], BuildJob]) -> int:
    """Prepare a job, run it, report its result and return the exit code."""

    def build() -> int:
        started = monotonic()
        PROGRESS.start()
        job = prepare()
        say(job.describe_inputs())
        say(describe_runner(job.options.beam_args))
        with ProgressDisplay(PROGRESS):
            run(job)
        say_result(job, monotonic() - started)
        return EXIT_DONE

    set_up_log()
    return run_command(build, fail)


def run_command(
    run: Callable[[], int], fail: Callable[[ShardwrightError], int] = command_parts.fail
) -> int:
    """Run a command, which cleans up if a signal stops it; return its exit code."""
    remove_abandoned()
    with stop_signals() as stop:
        try:
            return run()
        except (Exception, KeyboardInterrupt) as error:
            # A worker in this process may turn the interrupt into another error.
            if stop.signal is not None:
                say(f"stopped by {stop.signal.name}; run the same command again to resume")
                return 128 + stop.signal
            if isinstance(error, ShardwrightError):
                return fail(error)
            raise


@dataclass(slots=True)
class Stop:
    """The signal that stopped the build, or None."""

    signal: signal.Signals | None = None


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Raise KeyboardInterrupt in the block on SIGINT or SIGTERM, so that it can clean up.

    A second signal kills the process.
    """
    stop = Stop()

    def handle(number: int, _: FrameType | None) -> None:
        stop.signal = signal.Signals(number)
        signal.signal(number, signal.SIG_DFL)
        silence_beam()
        raise KeyboardInterrupt

    # Python lets only the main thread set signal handlers.
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def fail(error: ShardwrightError) -> int:
    """Print an error and return its exit code."""
    if isinstance(error, TooManyRejectsError):
        say_rejects("error", str(error))
    else:
        say(f"error: {error}")
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAULTS


def say_rejects(start: str, message: str) -> None:
    """Print the message of a TooManyRejectsError: the examples first, what is wrong last."""
    said, *examples = message.split("\n")
    for example in examples:
        say(example)
    if RejectReason.INTERNAL_ERROR in said:
        say(REPORT)
    say(f"{start}: {said}")


def say_result(job: BuildJob, seconds: float) -> None:
    """Print what a build wrote."""
    if template := option_of(job.options.beam_args, "template_location"):
        say(f"wrote the template {template}; start a job from it to build the dataset")
        return
    if job.known is not None and job.options.root.num_bytes_of(naming.MANIFEST) is None:
        say(_version_line(job.known))  # nothing was added
        return
    manifest = read_manifest(job.options.root)
    progress = PROGRESS.snapshot()
    shards = sum(len(split.shards) for split in manifest.splits.values())
    if progress.shards and progress.reused_shards == progress.shards:
        told = "the only shard was" if shards == 1 else f"all {shards} shards were"
        say(f"up to date: {told} already written")
    for split in manifest.splits.values():
        say(
            f"{split.name}: {counted(split.num_records, 'record')}, "
            f"{counted(len(split.shards), 'shard')}, {show_bytes(split.num_bytes)}"
        )
    from shardwright.pipelines.job.build import class_lines  # late, for wrong options

    for line in class_lines(job, manifest.schema):
        say(line)
    _say_splits(manifest, grows=job.known is not None)
    _say_turned(manifest)
    if manifest.rejects:
        reasons = ", ".join(f"{number} {reason}" for reason, number in manifest.rejects.items())
        share = RejectShare.of(manifest.rejects, manifest.num_records)
        lost = f", {share.faults / share.num_inputs:.2%} of the inputs" if share.faults else ""
        say(f"rejects: {reasons}{lost}; each is listed in {job.options.root}/rejects/")
        for reject in first_faults(job.options.root, _SHOWN_REJECTS):
            say(f"  {reject.reason}: {reject.id or reject.uri}: {reject.detail}")
        if job.known is None and not RETRYABLE.isdisjoint(manifest.rejects):
            say(_TRY_AGAIN)
        if RejectReason.INTERNAL_ERROR in manifest.rejects:
            say(REPORT)
    _say_retries()
    whole = f"{counted(manifest.num_records, 'record')} in {counted(shards, 'shard')}"
    line = f"{job.options.root}: {whole}" if job.known is None else _version_line(job.known)
    say(f"{line}, {show_seconds(seconds)}")


def _version_line(known: KnownDataset) -> str:
    """Return the version of a dataset after an append, its records, and what has changed."""
    root = known.append.root
    version = read_version(root)
    records = counted(version.num_records, "record")
    if number_of(version) == number_of(known.base):
        told = f"nothing has changed: version {number_of(version)} has {records}"
    else:
        history = version.history
        replaced = history.get("replaced", 0)
        changes = {
            "added": history["added"] - replaced,
            "replaced": replaced,
            "taken away": history["removed"] - replaced,
        }
        parts = [f"{number:,} {what}" for what, number in changes.items() if number]
        told = f"version {history['version']}: {records}: {', '.join(parts)}"
    return f"{root}: {told}"


def _say_splits(manifest: Manifest, *, grows: bool) -> None:
    """Report images that are in two splits."""
    ordered = sorted(manifest.splits, key=lambda split: manifest.splits[split].num_records)
    for place, name in enumerate(ordered):
        for other, near in manifest.splits[name].stats.get(NEAR_LEAKS, {}).items():
            # Both splits of a build state the same pairs; of an append each states what is added.
            if grows or other not in ordered[:place]:
                say(
                    f"leakage: {counted(near['records'], 'image')} of {name} nearly equal images "
                    f"of {other}; {naming.NEAR_DUPLICATES} lists them"
                )
    for name, other in itertools.combinations(ordered, 2):
        stats = manifest.splits[name].stats
        if (leak := stats.get(LEAKS, {}).get(other)) is not None:
            more = f", and perhaps {leak['unchecked']} more" if leak["unchecked"] else ""
            fix = "report.html lists examples, and --duplicates drop keeps one of each"
            say(
                f"leakage: {name} shares {counted(leak['records'], 'image')} with "
                f"{other}{more}; {fix}"
            )


def _say_turned(manifest: Manifest) -> None:
    """Report the images that a viewer shows in another way than training."""
    splits = manifest.splits.values()
    if turned := sum(split.stats.get(FIXES, {}).get(EXIF_KEPT, 0) for split in splits):
        share = turned / max(manifest.num_records, 1)
        say(
            f"EXIF: viewers turn {counted(turned, 'image')} ({share:.1%}), training does not; "
            "--on exif=fix stores them upright"
        )


def _say_retries() -> None:
    """Report the storage requests that this process retried."""
    retries = {
        name.removeprefix("retries_"): number
        for name, number in COUNTERS.snapshot().items()
        if name.startswith("retries_")
    }
    if retries:
        kinds = ", ".join(
            f"{number} {kind}"
            for kind, number in sorted(retries.items(), key=lambda item: -item[1])
        )
        say(f"storage: {counted(sum(retries.values()), 'request')} retried ({kinds})")


class ProgressDisplay:
    """A display of counters until the block ends.

    Args:
        counters: Counters to show.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="shardwright-progress")

    def __enter__(self) -> ProgressDisplay:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        planned = shown = monotonic()
        while not self._stop.wait(_TICK_SECONDS):
            counters, now = self._counters.snapshot(), monotonic()
            if not counters.total_images:  # the rate counts from the end of planning
                planned = now
            line = _progress_line(counters, now - planned)
            if is_live(sys.stderr):
                show_in_place(line, sys.stderr)
            elif now - shown >= _LINE_SECONDS:
                shown = now
                say(line)
        wipe()


def _progress_line(counters: Counters, seconds: float) -> str:
    if counters.total_images:
        return show_line(
            BuildProgress(
                BuildPhase.WRITING,
                planned=Amount(counters.total_shards, counters.total_images),
                done=Amount(counters.shards, counters.images),
                reused=Amount(counters.reused_shards, counters.reused_images),
                seconds=seconds,
            )
        )
    if counters.read_records:
        return f"read {counted(counters.read_records, 'record')}"
    return (
        f"planning, listed {counted(counters.listed, 'record')}" if counters.listed else "planning"
    )
