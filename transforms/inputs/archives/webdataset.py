"""WebDataset shards as input: tars of samples, each an image with its label, caption or json."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from transforms.inputs.archives.archive_members import Member, MemberPlace, member_reject
from transforms.inputs.archives.archive_source import Rows, with_fault
from transforms.inputs.archives.tar_members import tar_stem
from transforms.inputs.archives.tars import TarSource
from transforms.inputs.archives.webdataset_layout import SampleRow
from transforms.inputs.archives.webdataset_look import WebDatasetFacts, look
from transforms.inputs.archives.webdataset_samples import Sample, read_samples
from transforms.inputs.file_rules import Problem
from transforms.inputs.image_rows import in_batches
from transforms.inputs.input_files import FileState, InputFile
from transforms.inputs.source import SourceFormat, SourceRequest
from transforms.inputs.spool import SpoolWriter
from transforms.references import extra_name
from transforms.rejects import Reject, RejectReason

_NumberedRow = tuple[int, str, SampleRow]  # number of the sample, key, row


@dataclass(frozen=True, slots=True)
class WebDatasetSource(TarSource):
    """A source of WebDataset shards."""

    facts: WebDatasetFacts

    def references(
        self,
        archive: InputFile,
        state: FileState,
        members: Iterable[Member],
        writer: SpoolWriter | None,
    ) -> Rows:
        samples = read_samples(members, MemberPlace(archive.uri, 0, state.etag), writer)
        rows = (
            self._row(archive, number, sample)
            for number, sample in enumerate(with_fault(archive, samples))
        )
        return in_batches(rows, lambda found: self._references(archive, found))

    def _row(
        self, archive: InputFile, number: int, sample: Sample | tuple[str, Problem] | Reject
    ) -> _NumberedRow | Reject:
        if isinstance(sample, Reject):
            return sample
        if isinstance(sample, tuple):
            return member_reject(archive.name, archive.uri, *sample)
        problem = sample.problem
        if problem is None:
            try:
                return number, sample.key, self.facts.samples.row_of(sample)
            except ValueError as error:
                missing = self.facts.samples.main_image(sample) is None
                reason = RejectReason.NOT_AN_IMAGE if missing else RejectReason.BAD_VALUE
                problem = reason, str(error)
        return Reject(
            f"{tar_stem(archive.name)}/{sample.key}", f"{archive.uri}#{sample.key}", *problem
        )

    def _references(self, archive: InputFile, found: Sequence[_NumberedRow]) -> pa.RecordBatch:
        rows = [row for _, _, row in found]
        places = [self.facts.layout.place_of(archive, f"{key}.") for _, key, _ in found]
        stem = tar_stem(archive.name)
        ids = [row.texts.get("id") or f"{stem}/{key}" for _, key, row in found]
        has_label = self.facts.samples.has_labels or "label" in dict(self.facts.samples.roles)
        columns = {
            "id": ids,
            "uri": [row.picture.uri for row in rows],
            "offset": [row.picture.offset for row in rows],
            "num_bytes": [row.num_bytes for row in rows],
            "etag": [row.picture.etag for row in rows],
            "row": [number for number, _, _ in found],
            "split": [
                row.texts.get("split") or split
                for row, (split, _) in zip(rows, places, strict=True)
            ],
            "group": [row.texts.get("group") for row in rows],
            "label": [
                row.texts.get("label") if has_label else label
                for row, (_, label) in zip(rows, places, strict=True)
            ],
        }
        for place, (name, _) in enumerate(self.facts.samples.columns):
            columns[extra_name(name)] = [row.extras[place] for row in rows]
        return pa.RecordBatch.from_pydict(columns, schema=self.facts.schema)


class WebDatasetFormat(SourceFormat):
    """Tars in which images share their keys with labels, captions or json."""

    name: ClassVar[str] = "webdataset"
    summary: ClassVar[str] = "WebDataset .tar shards: KEY.jpg with KEY.cls, KEY.txt or KEY.json"
    rank: ClassVar[int] = 20

    def open(self, request: SourceRequest, *, forced: bool) -> WebDatasetSource | None:
        facts = look(request, forced=forced)
        return None if facts is None else WebDatasetSource(facts)
