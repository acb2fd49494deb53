"""Check what OUTPUT holds before a build writes there.

An unfinished build has `plan.json` and no manifest; a finished one has a manifest. Both hold the
settings and the plan's fingerprint, so builds with different settings or inputs never mix.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from shardwright.errors import (
    BuildError,
    ExistsError,
    MissingError,
    NotADatasetError,
)
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.json_files import read_json
from shardwright.format.manifest import json_bytes
from shardwright.format.manifest_check import MAX_SHARDS
from shardwright.format.plan_file import OutputFile
from shardwright.format.versions import version_numbers
from shardwright.storage.folder import Folder
from shardwright.transforms.free_output import check_room, check_strangers
from shardwright.transforms.partial_inputs import WHOLE_INPUT, PartialInputs
from shardwright.transforms.plan.packing import Layout
from shardwright.transforms.promotion import finish_promotion, remove_outputs

_LOG = logging.getLogger("shardwright.storage")
_PLAN_LOG = logging.getLogger("shardwright.plan")


@dataclass(frozen=True, slots=True)
class Clearance:
    """Permission to write, given once the plan is complete.

    Attributes:
        vocabularies: Class names and words by feature name; () as class names if unlabeled.
        fingerprint: Hash of the whole plan.
        rejects: Number of rejects before shards were planned, by reason.
        unpublished: No dataset was finished in the folder before this build.
        folder: The folder below OUTPUT to write to, "" for OUTPUT.
        reject_files: Contents of the files of these rejects, by name.
        near_duplicates: Temporary files that list near-duplicates, in the order of their groups.
        num_unchanged: Records that INPUT has and the dataset, which grows, keeps as they are.
    """

    vocabularies: Mapping[str, tuple[str, ...]]
    fingerprint: str
    rejects: Mapping[str, int]
    unpublished: bool
    folder: str = ""
    reject_files: Mapping[str, FileContent] = field(default_factory=dict)
    near_duplicates: tuple[str, ...] = ()
    num_unchanged: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class SeenRecords:
    """The known records that a listing of INPUT has, sets of rows with one bit a row, uint8.

    Attributes:
        unchanged: Records that stay.
        changed: Records that a new one of the same id replaces.
    """

    unchanged: np.ndarray
    changed: np.ndarray

    @property
    def num_unchanged(self) -> int:
        return int(np.bitwise_count(self.unchanged).sum())

    @property
    def num_changed(self) -> int:
        return int(np.bitwise_count(self.changed).sum())


@dataclass(frozen=True, slots=True)
class OutputRequest:
    """The output that a build requests.

    Attributes:
        root: The dataset's folder.
        settings: The options that decide the shards' bytes, as JSON.
        if_exists: "resume", "overwrite" or "error".
        resumable: Keep shards of an unfinished build of the same plan. This holds for "overwrite",
            too: a scheduler retries a build with the same options.
        input: INPUT, for messages.
        partial: The incomplete files and folders of INPUT that the build accepts.
    """

    root: Folder
    settings: Mapping[str, Any]
    if_exists: str
    resumable: bool = True
    input: str = ""
    partial: PartialInputs = WHOLE_INPUT


def fingerprint_of(digests: Iterable[tuple[str, str]]) -> str:
    """Return the hash of all (shard name, digest) pairs, in name order."""
    whole = hashlib.blake2b(digest_size=16)
    for name, digest in sorted(digests):
        whole.update(f"{name}\0{digest}\n".encode())
    return whole.hexdigest()


def check_output(request: OutputRequest) -> tuple[OutputFile | None, OutputFile | None]:
    """Check that OUTPUT is free or belongs to this build, and return its manifest and its plan.

    Raises:
        BuildError: OUTPUT holds another build, or files that no build made.
    """
    if request.root.is_file():
        raise BuildError(f"OUTPUT {request.root} is a file; give a folder")
    _check_versions(request.root)
    manifest = read_json(request.root, naming.MANIFEST, OutputFile)
    plan = read_json(request.root, naming.PLAN, OutputFile)  # also a damaged one is an error
    known = manifest or plan
    if known is None:
        check_strangers(request.root, overwrite=request.if_exists == "overwrite")
        return None, None
    if request.if_exists == "error":
        raise BuildError(
            f"OUTPUT {request.root} already holds a dataset, and --if-exists error was given"
        )
    if request.if_exists == "resume":
        _compare_settings(request, known.settings, finished=manifest is not None)
    return manifest, plan


def _check_versions(root: Folder) -> None:
    """Check that OUTPUT is no dataset that has grown: a build would replace its first part only."""
    newest = version_numbers(root)[-1]
    if newest > 1:
        raise BuildError(
            f"OUTPUT {root} holds a dataset with versions 1 to {newest}, which `shardwright log` "
            "lists: use --if-exists append to add what has changed in INPUT, or another OUTPUT"
        )


def _compare_settings(request: OutputRequest, there: Mapping[str, Any], *, finished: bool) -> None:
    details = differences(there, request.settings)
    if details:
        state = "a finished dataset" if finished else "an unfinished build"
        raise BuildError(
            f"OUTPUT {request.root} holds {state} with other settings ({details}): "
            "use the same options to resume it, --if-exists overwrite to replace it, "
            "or another OUTPUT"
        )


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Return how the settings of a dataset and of this build differ, "" if they do not."""
    names = sorted({*there, *here})
    return "; ".join(
        f"{name} is {there.get(name)!r} there and {here.get(name)!r} here"
        for name in names
        if there.get(name) != here.get(name)
    )


class BuildPlace(NamedTuple):
    """The folder below OUTPUT that a build writes to, "" for OUTPUT; it may be finished there."""

    folder: str
    is_finished: bool


def clear_output(request: OutputRequest, layout: Layout, fingerprint: str) -> BuildPlace:
    """Write the plan to OUTPUT, or to `next/` if `overwrite` replaces a dataset.

    Raises:
        BuildError: OUTPUT holds a finished dataset of another input, there are too many shards, or
            they do not fit on the disk.
    """
    _check_num_shards(layout)
    if layout.warning:
        _PLAN_LOG.warning("%s", layout.warning)
    check_output(request)
    try:
        # A stopped overwrite is ended first, so that OUTPUT is one dataset again, old or new.
        was_replacing = finish_promotion(request.root)
    except MissingError as error:
        root = request.root
        told = f"an earlier build stopped while it replaced {root}, and lost a file: {error}"
        if request.if_exists != "overwrite":
            raise BuildError(f"{told}; build it again with --if-exists overwrite") from error
        _PLAN_LOG.warning("%s; it is built again", told)
        was_replacing = False
    manifest = read_json(request.root, naming.MANIFEST, OutputFile)
    folder = "" if manifest is None else naming.NEXT_DIR
    if manifest is not None and (
        request.if_exists != "overwrite"
        # The replacement that was ended just now is what this command was to build.
        or (was_replacing and is_earlier_try(request, manifest, fingerprint))
    ):
        check_fingerprint(request, manifest, fingerprint)
        return BuildPlace("", is_finished=True)
    root = request.root.below(folder)
    _claim(replace(request, root=root), layout, fingerprint)
    if folder:  # it may be finished, after a crash just before it replaced the old dataset
        # Or workers would find a published dataset in `next/`, and stop.
        root.remove(naming.MANIFEST)
    return BuildPlace(folder, is_finished=False)


def _check_num_shards(layout: Layout) -> None:
    if layout.num_shards > MAX_SHARDS:
        raise BuildError(
            f"the plan has {layout.num_shards:,} shards, but a dataset has at most "
            f"{MAX_SHARDS:,}: use a larger --shard-size or --records-per-shard, or build several "
            "datasets"
        )


def _claim(request: OutputRequest, layout: Layout, fingerprint: str) -> None:
    """Write the plan where the build writes, after removing what `overwrite` replaces there.

    Of two builds that start at once, exactly one succeeds.

    Raises:
        BuildError: Another build has claimed OUTPUT first.
    """
    plan = read_json(request.root, naming.PLAN, OutputFile)
    # The shards of an earlier try of the same plan stay: a scheduler repeats the command with
    # `overwrite`.
    replaces = request.if_exists == "overwrite" and not is_earlier_try(request, plan, fingerprint)
    if replaces and plan is not None:  # without a plan, files there are of a build that starts now
        remove_outputs(request.root)
        plan = None
    # Sizes of images that are re-encoded are known only if they were estimated.
    if layout.estimate is not None or _keeps_images(request.settings):
        check_room(request.root, layout)
    data = json_bytes(plan_json(request.settings, layout, fingerprint))
    # An unfinished build with these settings: its shards stay where the new plan has the same
    # digests.
    if plan is not None:
        request.root.write_bytes(naming.PLAN, data)
        return
    try:
        # Created, not written: of two builds that find OUTPUT empty, the second one fails here.
        request.root.create_bytes(naming.PLAN, data)
    except ExistsError as error:
        raise BuildError(
            f"another build has started in OUTPUT {request.root}: wait until it finishes, "
            "or use another OUTPUT"
        ) from error


def _keeps_images(settings: Mapping[str, Any]) -> bool:
    encode = settings.get("encode")
    kept = not isinstance(encode, dict) or encode.get("encode") == "keep"
    return kept and "transforms" not in settings


def check_owner(root: Folder, fingerprint: str | None, *, unpublished: bool = False) -> None:
    """Stop a build if another one has taken over its OUTPUT, before shards of both mix.

    Args:
        root: The dataset's folder.
        fingerprint: Fingerprint of this build's plan; None for shards written outside any build.
        unpublished: As in the Clearance. Then the plan is missing only after the end of the build.

    Raises:
        BuildError: `plan.json` is of another plan, or gone.
    """
    try:
        plan = None if fingerprint is None else read_json(root, naming.PLAN, OutputFile)
    except NotADatasetError:  # damaged, so no other build has just written it
        return
    if plan is None and fingerprint is not None and unpublished:
        raise BuildError(f"{root.path(naming.PLAN)} is gone, because {_why_gone(root)}")
    if plan is not None and plan.fingerprint != fingerprint:
        raise BuildError(
            f"another build with a different INPUT or other options has started in OUTPUT {root}: "
            "this one stops"
        )


def _why_gone(root: Folder) -> str:
    adds = naming.is_generation_folder("/".join(root.uri.split("/")[-2:]))
    if adds and root.num_bytes_of(naming.MANIFEST) is None:
        return (
            "`shardwright gc` or another program removed this folder while its build ran: run the "
            "same command again"
        )
    return "the build has ended"


def is_earlier_try(request: OutputRequest, plan: OutputFile | None, fingerprint: str) -> bool:
    """Return whether `plan.json`, read as `plan`, is of this build, so its shards may stay."""
    return request.resumable and plan is not None and plan.fingerprint == fingerprint


def check_fingerprint(request: OutputRequest, manifest: OutputFile, fingerprint: str) -> None:
    """Check that a finished dataset was built from this input.

    Raises:
        BuildError: The manifest is of another plan.
    """
    if manifest.fingerprint != fingerprint:
        there = manifest.provenance.get("input")
        why = "files added, removed or changed"
        if there and request.input not in ("", there):
            why = f"it was {there}, and is {request.input}: the index has the images' addresses"
        raise BuildError(
            f"INPUT has changed since the dataset at {request.root} was built ({why}): use "
            "--if-exists overwrite to rebuild it, or another OUTPUT to keep it"
        )


def plan_json(
    settings: Mapping[str, Any], layout: Layout, fingerprint: str | None
) -> dict[str, Any]:
    """Return the content of `plan.json`: shards, records and estimated bytes per split."""
    splits = {
        split: {
            "num_shards": cuts.num_shards,
            "num_records": cuts.num_records,
            "num_bytes": layout.num_bytes[split],
            "records_per_shard": dict(zip(("min", "max"), cuts.extremes, strict=True)),
        }
        for split, cuts in layout.cuts.items()
    }
    estimate = {"estimate": layout.estimate.to_json()} if layout.estimate else {}
    return {"fingerprint": fingerprint, "settings": dict(settings), "splits": splits, **estimate}
