"""Check the whole plan against OUTPUT, the last step before images are read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import apache_beam as beam
from apache_beam.pvalue import AsDict, AsIter, AsSingleton

from shardwright.transforms.output_state import OutputRequest
from shardwright.transforms.partial_inputs import PartialInputs
from shardwright.transforms.plan.packing import ShardPlan
from shardwright.transforms.reject_files import unpack_rejects
from shardwright.transforms.reject_limits import RejectLimits
from shardwright.transforms.reject_tally import RejectTally
from shardwright.transforms.write.clearance import (
    PlanCheck,
    clear,
    judge,
    place_rejects,
    write_near_duplicates,
    write_placed,
)


class ClearOutput(beam.PTransform):
    """A transform that checks the plan and OUTPUT, and then permits writing with one Clearance.

    Args:
        request: The requested output.
        layout: The single Layout.
        vocabularies: The single dict of class names and words, by feature name.
        rejects: All rejects so far, packed. Workers write them to files.
        limits: The rejects that the build accepts.
        near_duplicates: The parts of their list, if they were looked for: (number, rows). Workers
            write them to temporary files.
        seen: The single SeenRecords, if the build adds to a dataset.
        checks: Asked in turn, then.
    """

    def __init__(
        self,
        request: OutputRequest,
        *,
        layout: beam.PCollection,
        vocabularies: beam.PCollection,
        rejects: beam.PCollection,
        limits: RejectLimits,
        near_duplicates: beam.PCollection | None = None,
        seen: beam.PCollection | None = None,
        checks: Sequence[PlanCheck] = (),
    ) -> None:
        super().__init__()
        self._request = request
        self._layout = layout
        self._vocabularies = vocabularies
        self._rejects = rejects
        self._limits = limits
        self._near_duplicates = near_duplicates
        self._seen = seen
        self._checks = checks

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        tally = self._rejects | "Tally" >> beam.CombineGlobally(_TallyFn(self._request.partial))
        verdict = (
            shards
            | "Digest" >> beam.Map(_name_and_digest)  # (shard name, digest)
            | "Digests" >> beam.combiners.ToList()
            | "Judge"
            >> beam.Map(
                judge,
                request=self._request,
                layout=AsSingleton(self._layout),
                vocabularies=AsSingleton(self._vocabularies),
                tally=AsSingleton(tally),
                limits=self._limits,
                seen=None if self._seen is None else AsSingleton(self._seen),
                checks=self._checks,
            )  # one Verdict
        )
        files = (
            self._rejects
            | "PlaceRejects"
            >> beam.Map(place_rejects, AsSingleton(verdict)).with_output_types(tuple[int, bytes])
            | "RejectFiles" >> beam.GroupByKey()  # (file number, [packed rejects])
            | "WriteRejects" >> beam.Map(write_placed, AsSingleton(verdict))  # (name, FileContent)
        )
        if self._near_duplicates is None:
            return verdict | "Clear" >> beam.Map(clear, AsDict(files))  # one Clearance
        listed = self._near_duplicates | "WriteNearDuplicates" >> beam.FlatMap(
            write_near_duplicates, AsSingleton(verdict)
        )  # names
        return verdict | "Clear" >> beam.Map(clear, AsDict(files), AsIter(listed))


class _TallyFn(beam.CombineFn):
    """A CombineFn of packed rejects."""

    def __init__(self, partial: PartialInputs) -> None:
        self._partial = partial

    def create_accumulator(self) -> RejectTally:
        return RejectTally(self._partial)

    def add_input(self, tally: RejectTally, packed: bytes) -> RejectTally:
        tally.add(unpack_rejects(packed))
        return tally

    def merge_accumulators(self, parts: Iterable[RejectTally]) -> RejectTally:
        merged = self.create_accumulator()
        for part in parts:
            merged.add_all(part)
        return merged

    def extract_output(self, tally: RejectTally) -> RejectTally:
        return tally


def _name_and_digest(plan: ShardPlan) -> tuple[str, str]:
    return plan.name.shard, plan.digest
