"""What a diagnosis means: the stage that limits, and the one change to make."""

from __future__ import annotations

import math

from shardwright.doctor import Diagnosis
from shardwright.sizes import show_bytes

_BUSY = 0.8  # of the cores: below that, threads wait, or other programs run
_RESIZE_MARGIN = (
    1.5  # images with that many times the pixels that are needed are worth building smaller
)
_SHORTER_SIDE = 256 / 224  # what is stored for crops of 224, by custom


def limiting_stage(found: Diagnosis) -> str:
    """The stage that each thread spends most of its time in."""
    on_threads = {stage: msec for stage, msec in found.stage_msec.items() if stage != "device copy"}
    return max(on_threads, key=lambda stage: on_threads[stage])


def advice(found: Diagnosis, target: float | None) -> str:
    """The one change to make."""
    if target is not None and found.images_per_sec >= target:
        return f"None: {found.images_per_sec:,.0f} images/s is enough for {target:,.0f}."
    stage = limiting_stage(found)
    if stage == "read" and found.is_remote:
        return "The threads wait for downloads: give the cache room for the whole dataset (cache_bytes=), so that later epochs read from disk."
    if stage == "read":
        return "The threads wait for the disk: copy the dataset to a faster one, or give the machine memory enough to keep it cached."
    if stage == "parse":
        return "Parsing takes most: ask only for what the model needs, features=['image', 'label']; then the index gives labels."
    if stage in ("decode", "augment"):
        return _advice_for_decoding(found, target)
    return "Making batches takes most, which is memory's speed: give a smaller image, or uint8 in place of a wider dtype."


def _advice_for_decoding(found: Diagnosis, target: float | None) -> str:
    side = round(found.image_side * _SHORTER_SIDE)
    if found.stored_pixels > _RESIZE_MARGIN * side * side:
        times = found.stored_pixels / (side * side)
        return (
            f"Decoding takes most, and images are stored with {times:.1f} times the pixels of {side}x{side}: "
            f"build with --encode jpeg --resize {side}x{side}."
        )
    cores = (
        ""
        if target is None
        else f", {math.ceil(found.cores_for(target))} for {target:,.0f} images/s"
    )
    raw = found.image_side * found.image_side * 3
    return (
        f"Decoding takes most, and images are stored no larger than they must be: use more cores{cores}; or build with "
        f"--encode raw --resize {found.image_side}x{found.image_side}, which needs no decoding, "
        f"and {show_bytes(raw)} an image, not {show_bytes(found.stored_bytes)}."
    )


def format_diagnosis(found: Diagnosis, target: float | None) -> str:
    """The report as text."""
    total = sum(msec for stage, msec in found.stage_msec.items() if stage != "device copy")
    limit = limiting_stage(found)
    lines = ["one thread, milliseconds an image"]
    for stage, msec in found.stage_msec.items():
        share = f"to {found.device}" if stage == "device copy" else f"{msec / total:4.0%}"
        lines.append(
            f"  {stage:<12} {msec:8.3f}   {share}{'   <- limits' if stage == limit else ''}"
        )
    lines += [
        "",
        f"all together, {found.threads} threads on {found.cores} cores, batches of {found.image_side}x{found.image_side} crops",
        f"  {found.images_per_sec:,.0f} images/s, {found.cores_busy:.1f} cores busy, "
        f"{found.images_per_sec_per_core:,.0f} images/s per core",
        f"  limited by: {limit}",
    ]
    if found.cores_busy < _BUSY * min(found.threads, found.cores) and limit != "read":
        lines.append("  other programs had the rest of the cores: measure again on a quiet machine")
    if target is not None:
        lines.append(
            f"  {target:,.0f} images/s need {math.ceil(found.cores_for(target))} such cores"
        )
    return "\n".join([*lines, "", "the one change to make", f"  {advice(found, target)}"])
