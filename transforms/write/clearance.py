"""Give the permission to write, once the whole plan is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardwright.errors import BuildError
from shardwright.format import naming
from transforms.output_state import (
    Clearance,
    OutputRequest,
    clear_output,
    fingerprint_of,
)
from transforms.plan.packing import Layout
from transforms.progress import PROGRESS
from transforms.reject_files import write_rejects
from transforms.reject_limits import RejectLimits, check_rejects
from transforms.rejects import Reject, count_reasons


def clear(
    digests: Sequence[tuple[str, str]],
    *,
    request: OutputRequest,
    layout: Layout,
    vocabularies: Mapping[str, tuple[str, ...]],
    rejects: Sequence[Reject],
    limits: RejectLimits,
) -> Clearance:
    """Check the whole plan against OUTPUT, record it there, and return the permission to write.

    Args:
        digests: (shard name, digest) of every shard.
        request: The requested output.
        layout: The shards of each split.
        vocabularies: Class names and words, by feature name.
        rejects: All rejects so far.
        limits: The rejects that the build accepts.

    Raises:
        BuildError: INPUT was not read to its end, there are too many rejects, or OUTPUT holds
            another build.
    """
    reasons = count_reasons(rejects)
    try:
        request.partial.check(rejects, vocabularies)
        check_rejects(reasons, layout.num_records, limits)
    except BuildError:
        write_rejects(request.root, naming.FAILED_REJECTS, rejects)
        raise
    fingerprint = fingerprint_of(digests)
    place = clear_output(request, layout, fingerprint, rejects)
    PROGRESS.start(total_images=layout.num_records, total_shards=layout.num_shards)
    return Clearance(vocabularies, fingerprint, reasons, not place.is_finished, place.folder)
