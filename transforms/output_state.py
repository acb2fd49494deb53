"""What OUTPUT holds before a build, and whether this build may write there.

An unfinished build has `plan.json` and no manifest; a finished one has a manifest. Either names the settings and the
fingerprint of its plan, so a build with others is refused, or starts over, and never mixes with what is there.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardwright import naming
from shardwright.errors import (
    BuildError,
    ExistsError,
    NotADatasetError,
    StorageError,
    TooManyRejectsError,
)
from shardwright.manifest import json_bytes, read_json, write_json
from shardwright.storage import Folder
from transforms.planning.packing import Layout
from transforms.reject_files import write_rejects
from transforms.rejects import Reject, count_faults

_LOG = logging.getLogger("shardwright.storage")
IF_EXISTS = ("resume", "overwrite", "error")


# The folder in which Beam's file sinks write until they rename: `FileBasedSink._create_temp_dir`.
_BEAM_LEFTOVER = re.compile(r"beam-temp-[a-z][a-z0-9_]*-\w+\.tfrecord-[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Clearance:
    """Leave to write, given once the plan is whole.

    Attributes:
        vocabularies: By feature name, what its indices mean; the label's class names are () for an unlabeled dataset.
        fingerprint: Hash of the whole plan.
        rejects: Number of inputs left out before shards were planned, by reason.
        retry: The build was never published: shards that lost images to a passing fault are written again.
    """

    vocabularies: Mapping[str, tuple[str, ...]]
    fingerprint: str
    rejects: Mapping[str, int]
    retry: bool


@dataclass(frozen=True, slots=True)
class OutputRequest:
    """The output a build asks for.

    Attributes:
        root: The dataset's folder.
        settings: The options that decide the shards' bytes, as JSON.
        if_exists: "resume", "overwrite" or "error".
        resumable: Shards of an unfinished build of the same plan may stay. With "overwrite" too: such a build is an earlier try
            at this one, which a scheduler repeats with the same options.
    """

    root: Folder
    settings: Mapping[str, Any]
    if_exists: str
    resumable: bool = True


def is_beam_leftover(filename: str) -> bool:
    """Whether a file name is that of a temporary folder that a stopped `WriteToTFRecord` leaves beside the shards."""
    return _BEAM_LEFTOVER.fullmatch(filename) is not None


def fingerprint_of(digests: Iterable[tuple[str, str]]) -> str:
    """Hash of all (shard name, digest) pairs, in name order."""
    whole = hashlib.blake2b(digest_size=16)
    for name, digest in sorted(digests):
        whole.update(f"{name}\0{digest}\n".encode())
    return whole.hexdigest()


def check_rejects(rejects: Mapping[str, int], num_records: int, limit: float) -> None:
    """Stop a build that loses more of its inputs than allowed.

    Raises:
        TooManyRejectsError: There are no images, or too many rejects; the message counts them by reason.
    """
    faults = count_faults(rejects)
    reasons = ", ".join(
        f"{number} {reason}"
        for reason, number in sorted(rejects.items(), key=lambda item: -item[1])
    )
    if num_records == 0:
        raise TooManyRejectsError(
            "INPUT has no images"
            + (
                f": every file is a reject ({reasons})"
                if rejects
                else "; the folder or table is empty"
            )
        )
    fraction = faults / (faults + num_records)
    if faults and fraction > limit:
        raise TooManyRejectsError(
            f"{faults} of {faults + num_records} inputs ({fraction:.2%}) are rejects, more than --max-reject-fraction {limit:g} allows "
            f"({reasons}); each is listed in {naming.REJECTS_DIR}/. Mend them, or raise --max-reject-fraction"
        )


def check_output(request: OutputRequest) -> None:
    """Refuse an OUTPUT that another build owns, before any work is done.

    Raises:
        BuildError: What is there, what was asked, and the two ways on.
    """
    if request.root.is_file():
        raise BuildError(f"OUTPUT {request.root} is a file; give a folder")
    manifest, plan = read_json(request.root, naming.MANIFEST), read_json(request.root, naming.PLAN)
    known = manifest or plan
    if known is None:
        _refuse_strangers(request)
        return
    if request.if_exists == "error":
        raise BuildError(
            f"OUTPUT {request.root} already holds a dataset, and --if-exists error was given"
        )
    if request.if_exists == "resume":
        _compare_settings(request, known.get("settings", {}), finished=manifest is not None)


def _refuse_strangers(request: OutputRequest) -> None:
    ours = {naming.INDEX_DIR, naming.REJECTS_DIR, naming.SPOOL_DIR}
    found = (
        name for name in request.root.names() if name not in ours and not is_beam_leftover(name)
    )
    strangers = sorted(name for name in found if not naming.is_build_output(name))
    if strangers and request.if_exists != "overwrite":
        raise BuildError(
            f"OUTPUT {request.root} is not empty and holds no shardwright build (there is {strangers[0]!r}): give an empty or new folder, "
            "or --if-exists overwrite, which leaves files that no build made alone"
        )


def _compare_settings(request: OutputRequest, there: Mapping[str, Any], *, finished: bool) -> None:
    names = sorted({*there, *request.settings})
    differing = [name for name in names if there.get(name) != request.settings.get(name)]
    if differing:
        state = "a finished dataset" if finished else "an unfinished build"
        details = "; ".join(
            f"{name} is {there.get(name)!r} there and {request.settings.get(name)!r} here"
            for name in differing
        )
        raise BuildError(
            f"OUTPUT {request.root} holds {state} with other settings ({details}): "
            "give the same options to go on with it, --if-exists overwrite to replace it, or another OUTPUT"
        )


def clear_output(
    request: OutputRequest, layout: Layout, fingerprint: str, rejects: Sequence[Reject]
) -> bool:
    """Note the plan and its rejects in OUTPUT, and first remove there what `overwrite` is to replace.

    Returns:
        Whether OUTPUT now holds an unfinished build; False where the finished dataset there is the one asked for.

    Raises:
        BuildError: A finished dataset is there whose input was not this one.
    """
    check_output(request)
    _abort_leftovers(request.root)
    manifest = read_json(request.root, naming.MANIFEST)
    if request.if_exists == "overwrite":
        if manifest is not None or not is_earlier_try(
            request, read_json(request.root, naming.PLAN), fingerprint
        ):
            remove_outputs(request.root)
    elif manifest is not None:
        check_fingerprint(request, manifest, fingerprint)
        write_rejects(
            request.root, naming.PLAN_REJECTS, rejects
        )  # what is no record may have changed all the same
        return False
    _note_plan(request, plan_json(request.settings, layout, fingerprint))
    write_rejects(request.root, naming.PLAN_REJECTS, rejects)
    return True


def _abort_leftovers(root: Folder) -> None:
    """Uploads that a killed build left cost money and harm nothing: who may not list them can build all the same."""
    try:
        root.abort_uploads()
    except StorageError as error:
        _LOG.warning(
            "uploads that an earlier build may have left in %s are not cleaned up: %s", root, error
        )


def _note_plan(request: OutputRequest, plan: Mapping[str, Any]) -> None:
    """Make OUTPUT this build's own. Of two builds that begin at once with nothing there, one is told.

    Raises:
        BuildError: Another build has begun there meanwhile.
    """
    if read_json(request.root, naming.PLAN) is not None:
        write_json(request.root, naming.PLAN, plan)
        return
    try:
        request.root.create_bytes(naming.PLAN, json_bytes(plan))
    except ExistsError as error:
        raise BuildError(
            f"another build has begun at OUTPUT {request.root} meanwhile: wait for it, or give another OUTPUT"
        ) from error


def check_owner(root: Folder, fingerprint: str | None) -> None:
    """Stop a build whose OUTPUT another one has taken over meanwhile, before it puts a shard among those of the other.

    Args:
        root: The dataset's folder.
        fingerprint: Of this build's plan; None for shards written outside of any build.

    Raises:
        BuildError: `plan.json` is of another plan.
    """
    try:
        plan = None if fingerprint is None else read_json(root, naming.PLAN)
    except NotADatasetError:  # damaged: so it is not another build that has just written it
        return
    if plan is not None and plan.get("fingerprint") != fingerprint:
        raise BuildError(
            f"another build has begun at OUTPUT {root} meanwhile, with another INPUT or other options: this one stops"
        )


def is_earlier_try(
    request: OutputRequest, plan: Mapping[str, Any] | None, fingerprint: str
) -> bool:
    """Whether the unfinished build that `plan` (the content of `plan.json`) speaks of is this one, so that its shards may stay."""
    return request.resumable and plan is not None and plan.get("fingerprint") == fingerprint


def check_fingerprint(
    request: OutputRequest, manifest: Mapping[str, Any], fingerprint: str
) -> None:
    """Refuse to go on with a finished dataset whose input was not this one.

    Raises:
        BuildError: The manifest, as JSON, is of another plan; the message says what to do.
    """
    if manifest.get("fingerprint") != fingerprint:
        raise BuildError(
            f"INPUT has changed since the dataset at {request.root} was built (files added, removed or changed): "
            "--if-exists overwrite rebuilds it, and another OUTPUT keeps it"
        )


def plan_json(
    settings: Mapping[str, Any], layout: Layout, fingerprint: str | None
) -> dict[str, Any]:
    """The content of `plan.json`: how many shards and records each split is to have. Bytes are estimates."""
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


def remove_outputs(root: Folder) -> None:
    """Remove everything a build made, the manifest first, so that nothing half removed looks finished."""
    root.remove(naming.MANIFEST)
    root.remove_all(root.outputs())
