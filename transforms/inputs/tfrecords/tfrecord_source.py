"""TFRecord files of any writer as input; images are read in place, not copied or re-encoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, ClassVar

import pyarrow as pa

from transforms.inputs.input_files import FileState, InputFile, state_of
from transforms.inputs.source import InputSource, SourceFormat, SourceRequest
from transforms.inputs.spool import SpoolWriter, rules_digest, spooled
from transforms.inputs.tfrecords.tfrecord_files import open_tfrecord, read_frames
from transforms.inputs.tfrecords.tfrecord_look import TFRecordFacts, files_of, look
from transforms.inputs.tfrecords.tfrecord_references import list_records
from transforms.rejects import Reject, RejectReason


@dataclass(frozen=True, slots=True)
class TFRecordSource(InputSource):
    """TFRecord files to list; `parts` finds them again, so that a source of many stays small."""

    facts: TFRecordFacts

    def parts(self) -> Iterator[str]:
        for file in files_of(self.facts.request)[0]:
            yield file.uri

    def list_part(self, part: str) -> Iterator[pa.RecordBatch | Reject]:
        file = InputFile(part, part.removeprefix(self.facts.base))
        state = state_of(file.uri, self.facts.request.storage)
        if not state.num_bytes:
            told = "the file is empty: it has no records"
            yield Reject(file.name, file.uri, RejectReason.OTHER_FILE, told)
            return
        with open_tfrecord(file.uri, self.facts.request.storage) as (stream, compression):
            if compression is None:
                frames = read_frames(stream, state.num_bytes)
                yield from list_records(
                    frames,
                    file,
                    self.facts.layout,
                    schema=self.facts.schema,
                    uri=file.uri,
                    state=state,
                )
            else:
                yield from self._list_compressed(file, state, stream)

    def _list_compressed(
        self, file: InputFile, state: FileState, stream: BinaryIO
    ) -> Iterator[pa.RecordBatch | Reject]:
        """Yield references into the spool: a compressed file cannot be read at an offset."""

        def make(writer: SpoolWriter) -> Iterator[pa.RecordBatch | Reject]:
            place = FileState(0, writer.etag)
            yield from list_records(
                read_frames(stream), file, self.facts.layout,
                schema=self.facts.schema, uri=writer.uri, state=place,
                keep=lambda record, _, span: writer.add(record[span[0] : span[1]]),
            )  # fmt: skip

        rules = rules_digest(file, self.facts.layout)
        yield from spooled(
            self.facts.request.spool,
            file.uri,
            f"{state.etag}-{state.num_bytes}-{rules}",
            self.facts.request.storage,
            make,
        )


class TFRecordFormat(SourceFormat):
    """Files with the names of TFRecord files."""

    name: ClassVar[str] = "tfrecord"
    summary: ClassVar[str] = (
        "TFRecord files of tf.Example: a file, a wildcard or a folder "
        "(TFDS, Model Garden, shardwright, ...)"
    )
    rank: ClassVar[int] = 20

    def open(self, request: SourceRequest, *, forced: bool) -> TFRecordSource | None:
        facts = look(request, forced=forced)
        return None if facts is None else TFRecordSource(facts)
