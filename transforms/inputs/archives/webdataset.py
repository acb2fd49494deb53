"""WebDataset shards as input: tars of samples, each an image with its label, caption or json."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from shardwright.transforms.inputs.archives.archive_members import (
    Member,
    MemberPlace,
    member_reject,
)
from shardwright.transforms.inputs.archives.archive_source import Archive, list_archive, until_fault
from shardwright.transforms.inputs.archives.tar_members import tar_stem
from shardwright.transforms.inputs.archives.tars import list_tar
from shardwright.transforms.inputs.archives.webdataset_layout import SampleRow
from shardwright.transforms.inputs.archives.webdataset_look import WebDatasetFacts, look
from shardwright.transforms.inputs.archives.webdataset_samples import Sample, read_samples
from shardwright.transforms.inputs.file_rules import Problem
from shardwright.transforms.inputs.image_rows import in_batches
from shardwright.transforms.inputs.input_files import InputFile
from shardwright.transforms.inputs.source import Rows, SourceFormat
from shardwright.transforms.inputs.spool import SpoolWriter
from shardwright.transforms.references import extra_name
from shardwright.transforms.rejects import Reject, RejectReason

_NumberedRow = tuple[int, str, SampleRow]  # number of the sample, key, row


def list_part(facts: WebDatasetFacts, part: str) -> Rows:
    """Yield the samples of a shard."""

    def list_samples(
        archive: Archive, members: Iterable[Member], writer: SpoolWriter | None
    ) -> Rows:
        place = MemberPlace(part, 0, archive.state.etag)
        samples = enumerate(read_samples(members, place, writer))
        rows = (_row(facts, archive.file, number, sample) for number, sample in samples)
        return in_batches(
            until_fault(archive, rows), lambda found: _references(facts, archive.file, found)
        )

    return list_archive(
        facts, part, lambda archive: list_tar(archive, "WebDatasetSource", list_samples)
    )


def _row(
    facts: WebDatasetFacts,
    file: InputFile,
    number: int,
    sample: Sample | tuple[str, Problem],
) -> _NumberedRow | Reject:
    if isinstance(sample, tuple):
        return member_reject(file.name, file.uri, *sample)
    problem = sample.problem
    if problem is None:
        try:
            return number, sample.key, facts.samples.row_of(sample)
        except ValueError as error:
            missing = facts.samples.main_image(sample) is None
            reason = RejectReason.NOT_AN_IMAGE if missing else RejectReason.BAD_VALUE
            problem = reason, str(error)
    return Reject(f"{tar_stem(file.name)}/{sample.key}", f"{file.uri}#{sample.key}", *problem)


def _references(
    facts: WebDatasetFacts, file: InputFile, found: Sequence[_NumberedRow]
) -> pa.RecordBatch:
    rows = [row for _, _, row in found]
    places = [facts.layout.place_of(file, f"{key}.") for _, key, _ in found]
    stem = tar_stem(file.name)
    ids = [row.texts.get("id") or f"{stem}/{key}" for _, key, row in found]
    has_label = facts.samples.has_labels or "label" in dict(facts.samples.roles)
    columns = {
        "id": ids,
        "uri": [row.picture.uri for row in rows],
        "offset": [row.picture.offset for row in rows],
        "num_bytes": [row.num_bytes for row in rows],
        "etag": [row.picture.etag for row in rows],
        "row": [number for number, _, _ in found],
        "split": [
            row.texts.get("split") or split for row, (split, _) in zip(rows, places, strict=True)
        ],
        "group": [row.texts.get("group") for row in rows],
        "label": [
            row.texts.get("label") if has_label else label
            for row, (_, label) in zip(rows, places, strict=True)
        ],
    }
    for place, (name, _) in enumerate(facts.samples.columns):
        columns[extra_name(name)] = [row.extras[place] for row in rows]
    return pa.RecordBatch.from_pydict(columns, schema=facts.schema)


FORMAT = SourceFormat(
    "WebDataset .tar shards: KEY.jpg with KEY.cls, KEY.txt or KEY.json",
    look,
    list_part,
    rank=20,
    has_top_folders=True,
)
