"""Check the whole plan against OUTPUT, the last step before images are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton

from shardwright.errors import BuildError
from shardwright.format import naming
from transforms.output_state import (
    Clearance,
    OutputRequest,
    clear_output,
    fingerprint_of,
)
from transforms.plan.packing import Layout
from transforms.plan.shard_plans import ShardPlan
from transforms.progress import PROGRESS
from transforms.reject_files import write_rejects
from transforms.reject_limits import RejectLimits, check_rejects
from transforms.rejects import Reject


class ClearOutput(beam.PTransform):
    """A transform that checks the plan and OUTPUT, and then permits writing with one Clearance.

    Args:
        request: The requested output.
        layout: The single Layout.
        vocabularies: The single dict of class names and words, by feature name.
        rejects: All rejects so far.
        limits: The rejects that the build accepts.
    """

    def __init__(
        self,
        request: OutputRequest,
        *,
        layout: beam.PCollection,
        vocabularies: beam.PCollection,
        rejects: beam.PCollection,
        limits: RejectLimits,
    ) -> None:
        super().__init__()
        self._request = request
        self._layout = layout
        self._vocabularies = vocabularies
        self._rejects = rejects
        self._limits = limits

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        return (
            shards
            | "Digest" >> beam.Map(_name_and_digest)  # (shard name, digest)
            | "Digests" >> beam.combiners.ToList()
            | "Clear"
            >> beam.Map(
                _clear,
                request=self._request,
                layout=AsSingleton(self._layout),
                vocabularies=AsSingleton(self._vocabularies),
                rejects=AsList(self._rejects),
                limits=self._limits,
            )  # Clearance
        )


def _name_and_digest(plan: ShardPlan) -> tuple[str, str]:
    return plan.name.shard, plan.digest


def _clear(
    digests: Sequence[tuple[str, str]],
    *,
    request: OutputRequest,
    layout: Layout,
    vocabularies: Mapping[str, tuple[str, ...]],
    rejects: Sequence[Reject],
    limits: RejectLimits,
) -> Clearance:
    reasons = Counter(str(reject.reason) for reject in rejects)
    try:
        check_rejects(reasons, layout.num_records, limits)
    except BuildError:
        write_rejects(request.root, naming.FAILED_REJECTS, rejects)
        raise
    fingerprint = fingerprint_of(digests)
    retry = clear_output(request, layout, fingerprint, rejects)
    PROGRESS.start(total_images=layout.num_records, total_shards=layout.num_shards)
    return Clearance(vocabularies, fingerprint, dict(reasons), retry)
