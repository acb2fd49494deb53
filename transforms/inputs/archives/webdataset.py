"""WebDataset shards as input: tars of samples, each an image with its label, caption or json."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import ClassVar

import pyarrow as pa

from shardwright.errors import MissingError, UsageError
from shardwright.format.schema import Feature
from transforms.inputs.archives.archive_members import ArchiveFault, Member, Place, member_reject
from transforms.inputs.archives.archive_source import (
    LEAST_LOOK,
    LOOK_BYTES,
    Look,
    Rows,
    find_archives,
    layout_of,
    with_fault,
)
from transforms.inputs.archives.tar_members import TarReader, is_tar_name, tar_stem
from transforms.inputs.archives.tars import TarSource
from transforms.inputs.archives.webdataset_layout import SampleLayout, SampleRow, learn_layout
from transforms.inputs.archives.webdataset_samples import Sample, is_webdataset, read_samples
from transforms.inputs.file_rules import Problem
from transforms.inputs.input_files import FileState, InputFile, state_of
from transforms.inputs.source import SourceFormat, SourceRequest
from transforms.inputs.spool import SpoolWriter
from transforms.references import BATCH_ROWS, extra_name
from transforms.rejects import Reject, RejectReason

_LOOK_SAMPLES = 1000


@dataclass(frozen=True, slots=True)
class WebDatasetSource(TarSource):
    """A source of WebDataset shards.

    Attributes:
        samples: The layout of the samples.
    """

    samples: SampleLayout

    @property
    def schema(self) -> pa.Schema:
        return self.samples.schema

    @property
    def features(self) -> tuple[Feature, ...]:
        return self.samples.features

    @property
    def states_splits(self) -> bool:
        return self.layout.states_splits or "split" in dict(self.samples.roles)

    @property
    def has_integer_labels(self) -> bool:
        return self.samples.has_integer_labels

    def describe(self) -> str:
        number = f"{self.count} WebDataset shards" if self.count > 1 else "a WebDataset shard"
        return f"{number} at {self.request.uri}{self.samples.describe()}{self.layout.describe()}"

    def references(
        self,
        archive: InputFile,
        state: FileState,
        members: Iterable[Member],
        writer: SpoolWriter | None,
    ) -> Rows:
        pending: list[tuple[int, Sample, SampleRow]] = []
        found = read_samples(members, Place(archive.uri, 0, state.etag), writer)
        for number, sample in enumerate(with_fault(archive, found)):
            row = self._row(archive, sample)
            if isinstance(row, Reject):
                yield row
                continue
            assert isinstance(sample, Sample)
            pending.append((number, sample, row))
            if len(pending) == BATCH_ROWS:
                yield self._references(archive, pending)
                pending = []
        if pending:
            yield self._references(archive, pending)

    def _row(
        self, archive: InputFile, sample: Sample | tuple[str, Problem] | Reject
    ) -> SampleRow | Reject:
        if isinstance(sample, Reject):
            return sample
        if isinstance(sample, tuple):
            return member_reject(archive.name, archive.uri, *sample)
        problem = sample.problem
        if problem is None:
            try:
                return self.samples.row_of(sample)
            except ValueError as error:
                missing = self.samples.main_image(sample) is None
                problem = (
                    (RejectReason.NOT_AN_IMAGE if missing else RejectReason.BAD_VALUE),
                    str(error),
                )
        return Reject(
            f"{tar_stem(archive.name)}/{sample.key}", f"{archive.uri}#{sample.key}", *problem
        )

    def _references(
        self, archive: InputFile, found: Sequence[tuple[int, Sample, SampleRow]]
    ) -> pa.RecordBatch:
        rows = [row for _, _, row in found]
        places = [self.layout.place_of(archive, f"{sample.key}.") for _, sample, _ in found]
        stem = tar_stem(archive.name)
        ids = [row.texts.get("id") or f"{stem}/{sample.key}" for _, sample, row in found]
        has_label = self.samples.has_labels or "label" in dict(self.samples.roles)
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
        for place, (name, _) in enumerate(self.samples.columns):
            columns[extra_name(name)] = [row.extras[place] for row in rows]
        return pa.RecordBatch.from_pydict(columns, schema=self.schema)


class WebDatasetFormat(SourceFormat):
    """Tars in which images share their keys with labels, captions or json."""

    name: ClassVar[str] = "webdataset"
    summary: ClassVar[str] = "WebDataset .tar shards: KEY.jpg with KEY.cls, KEY.txt or KEY.json"
    rank: ClassVar[int] = 20

    def open(self, request: SourceRequest, *, forced: bool) -> WebDatasetSource | None:
        archives = find_archives(request, is_tar_name, forced=forced, what="tar archives")
        if not archives:
            return None
        looks = [
            list(_look_into(archive, request))
            for archive in dict.fromkeys((archives[0], archives[-1]))
        ]
        if not forced and not is_webdataset(looks[0]):
            return None
        samples = list(chain.from_iterable(looks))
        if not samples:
            raise UsageError(
                f"{archives[0].uri} has no samples: "
                "expected members KEY.SUFFIX, such as 000017.jpg and 000017.cls"
            )
        paths = [
            Look(
                [f"{sample.key}.{suffix}" for sample in look for suffix in sample.sizes],
                whole=False,
            )
            for look in looks
        ]
        base = archives[0].uri.removesuffix(archives[0].name)
        return WebDatasetSource(
            request,
            base,
            layout_of(paths, archives),
            len(archives),
            learn_layout(samples, request.columns),
        )


def _look_into(archive: InputFile, request: SourceRequest) -> Iterator[Sample]:
    """Yield the first samples of a shard that can be read, without the places of images."""
    try:
        state = state_of(archive.uri, request.storage)
        members = TarReader(archive.uri, request.storage, state.num_bytes).members()
        num_bytes = 0
        found = read_samples(members, Place(archive.uri, 0, state.etag), None, places=False)
        for number, sample in enumerate(islice(found, _LOOK_SAMPLES)):
            if isinstance(sample, Sample):
                yield sample
                num_bytes += sum(sample.sizes.values())
            if number >= LEAST_LOOK and num_bytes > LOOK_BYTES:
                return
    except (ArchiveFault, MissingError):  # reported when the archive is listed
        return
