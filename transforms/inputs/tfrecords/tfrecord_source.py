"""TFRecord files of any writer as input; images are read in place, not copied or re-encoded."""

from __future__ import annotations

from shardwright.transforms.inputs.input_files import state_of
from shardwright.transforms.inputs.source import Rows, SourceFormat
from shardwright.transforms.inputs.spool import rules_digest, spooled
from shardwright.transforms.inputs.tfrecords.tfrecord_files import open_tfrecord, read_frames
from shardwright.transforms.inputs.tfrecords.tfrecord_look import TFRecordFacts, look
from shardwright.transforms.inputs.tfrecords.tfrecord_references import InPlace, list_records
from shardwright.transforms.rejects import Reject, RejectReason


def list_part(facts: TFRecordFacts, part: str) -> Rows:
    """Yield the records of a file."""
    file, storage = facts.file_of(part), facts.request.storage
    state = state_of(part, storage)
    if not state.num_bytes:
        told = "the file is empty: it has no records"
        yield Reject(file.name, file.uri, RejectReason.OTHER_FILE, told)
        return
    with open_tfrecord(part, storage) as (stream, compression):
        if compression is None or not facts.layout.has_images:
            frames = read_frames(stream, None if compression else state.num_bytes)
            yield from list_records(facts, file, frames, InPlace(part, state.etag))
            return
        # A compressed file cannot be read at an offset, so its images go to the spool.
        rules = (file, facts.layout, *(["optional"] if facts.layout.may_lack_images else []))
        etag = f"{state.etag}-{state.num_bytes}-{rules_digest(*rules)}"
        yield from spooled(
            facts.request.spool,
            part,
            etag,
            storage,
            lambda writer: list_records(facts, file, read_frames(stream), writer),
        )


FORMAT = SourceFormat(
    "TFRecord files of tf.Example: a file, a wildcard or a folder "
    "(TFDS, Model Garden, shardwright, ...)",
    look,
    list_part,
    rank=20,
    reads_records=True,
)
