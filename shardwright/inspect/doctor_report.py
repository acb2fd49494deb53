"""Interpret a diagnosis: the limiting stage, the one change to make, and the report."""

from __future__ import annotations

import math

from shardwright.inspect.doctor import Diagnosis
from shardwright.sizes import counted, show_bytes
from shardwright.terminal import join_lines

_BUSY = 0.8  # share of the cores; below it, threads wait or other programs run
_RESIZE_MARGIN = 1.5  # stored pixels / needed pixels above which smaller images pay off
_SHORTER_SIDE = 256 / 224  # by convention, crops of 224 pixels come from images stored at 256


def limiting_stage(found: Diagnosis) -> str:
    """Return the stage that takes most of a thread's time."""
    on_threads = {stage: msec for stage, msec in found.stage_msec.items() if stage != "device copy"}
    return max(on_threads, key=lambda stage: on_threads[stage])


def advice(found: Diagnosis, target: float | None) -> str:
    """Return the one change to make, as a sentence."""
    if target is not None and found.images_per_sec >= target:
        return f"None: {found.images_per_sec:,.0f} images/s meets the target of {target:,.0f}."
    stage = limiting_stage(found)
    if stage == "read" and found.is_remote:
        return (
            "Downloads are the bottleneck: raise cache_bytes= until the cache holds the whole "
            "dataset, so that later epochs read from disk."
        )
    if stage == "read":
        return (
            "The disk is the bottleneck: copy the dataset to a faster disk, or use a machine with "
            "enough memory to cache it."
        )
    if stage == "parse":
        return (
            "Parsing is the bottleneck: read only the features that the model needs, such as "
            "features=['image', 'label']; labels then come from the index."
        )
    if stage in ("decode", "augment"):
        return _advice_for_decoding(found, target)
    return (
        "Assembling batches is the bottleneck, limited by memory bandwidth: use smaller images, or "
        "uint8 instead of a wider dtype."
    )


def _advice_for_decoding(found: Diagnosis, target: float | None) -> str:
    side = round(found.image_side * _SHORTER_SIDE)
    if found.stored_pixels > _RESIZE_MARGIN * side * side:
        times = found.stored_pixels / (side * side)
        return (
            f"Decoding is the bottleneck, and images are stored with {times:.1f} times the pixels "
            f"of {side}x{side}: build with --encode jpeg --resize {side}x{side}."
        )
    cores = (
        ""
        if target is None
        else f", {math.ceil(found.cores_for(target))} for {target:,.0f} images/s"
    )
    raw = found.image_side * found.image_side * 3
    return (
        "Decoding is the bottleneck, and images are stored no larger than needed: "
        f"use more cores{cores}; or build with "
        f"--encode raw --resize {found.image_side}x{found.image_side}, which needs no decoding but "
        f"{show_bytes(raw)} per image instead of {show_bytes(found.stored_bytes)}."
    )


def format_diagnosis(found: Diagnosis, target: float | None) -> str:
    """Return the report as lines of text."""
    total = sum(msec for stage, msec in found.stage_msec.items() if stage != "device copy")
    limit = limiting_stage(found)
    lines = ["milliseconds per image on one thread"]
    for stage, msec in found.stage_msec.items():
        share = f"to {found.device}" if stage == "device copy" else f"{msec / total:4.0%}"
        lines.append(
            f"  {stage:<12} {msec:8.3f}   {share}{'   <- limits' if stage == limit else ''}"
        )
    lines += [
        "",
        f"whole reader: {counted(found.threads, 'thread')} on {found.cores} cores, "
        f"batches of {found.image_side}x{found.image_side} crops",
        f"  {found.images_per_sec:,.0f} images/s, {found.cores_busy:.1f} cores busy, "
        f"{found.images_per_sec_per_core:,.0f} images/s per core",
        f"  limited by: {limit}",
    ]
    if found.cores_busy < _BUSY * min(found.threads, found.cores) and limit != "read":
        lines.append("  other programs used the remaining cores: measure again on an idle machine")
    if target is not None:
        lines.append(
            f"  {target:,.0f} images/s need {math.ceil(found.cores_for(target))} such cores"
        )
    return join_lines([*lines, "", "the one change to make", f"  {advice(found, target)}"])
