"""Check the whole plan against OUTPUT, the last step before images are read."""

from __future__ import annotations

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton

from transforms.output_state import OutputRequest
from transforms.plan.shard_plans import ShardPlan
from transforms.reject_limits import RejectLimits
from transforms.write.clearance import clear


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
                clear,
                request=self._request,
                layout=AsSingleton(self._layout),
                vocabularies=AsSingleton(self._vocabularies),
                rejects=AsList(self._rejects),
                limits=self._limits,
            )  # Clearance
        )


def _name_and_digest(plan: ShardPlan) -> tuple[str, str]:
    return plan.name.shard, plan.digest
