"""TFRecord frames: those of TensorFlow, and the places of broken ones."""

from __future__ import annotations

import itertools
import pickle
from io import BytesIO
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import RecordFault
from shardwright.format.records import (
    FRAME_BYTES,
    MAX_RECORD_BYTES,
    frame_header,
    read_record,
    scan_records,
)
from tests.support.damage import frame

RECORDS = [b"", b"a", b"Hello, world!", bytes(range(256)) * 300]


def test_frames_are_tensorflows(tmp_path: Path) -> None:
    path = str(tmp_path / "records")
    with tf.io.TFRecordWriter(path) as writer:
        for record in RECORDS:
            writer.write(record)
    assert (tmp_path / "records").read_bytes() == b"".join(map(frame, RECORDS))


@given(st.lists(st.binary(max_size=300)))
def test_framed_records_are_read_again(records: list[bytes]) -> None:
    spans = list(scan_records(BytesIO(b"".join(map(frame, records)))))
    assert [span.data for span in spans] == records
    ends = list(itertools.accumulate(FRAME_BYTES + len(data) for data in records))
    assert [span.offset for span in spans] == [0, *ends][: len(records)]


@given(st.lists(st.binary(max_size=40), min_size=1), st.data())
def test_any_flipped_bit_is_a_fault(records: list[bytes], data: st.DataObject) -> None:
    content = bytearray(b"".join(map(frame, records)))
    offsets = [span.offset for span in scan_records(BytesIO(bytes(content)))]
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    content[bit // 8] ^= 1 << bit % 8
    with pytest.raises(RecordFault) as caught:
        list(scan_records(BytesIO(bytes(content))))
    assert caught.value.offset == max(offset for offset in offsets if offset <= bit // 8)


@given(st.lists(st.binary(max_size=40), min_size=1), st.data())
def test_any_cut_inside_a_record_is_a_fault(records: list[bytes], data: st.DataObject) -> None:
    content = b"".join(map(frame, records))
    ends = {span.next_offset for span in scan_records(BytesIO(content))} | {0}
    cut = data.draw(st.integers(0, len(content)).filter(lambda cut: cut not in ends))
    with pytest.raises(RecordFault, match="the file ends inside the record") as caught:
        list(scan_records(BytesIO(content[:cut])))
    assert caught.value.offset == max(end for end in ends if end < cut)
    assert caught.value.is_truncated


def test_only_a_sound_length_gives_the_next_offset() -> None:
    content = bytearray(frame(b"abc") + frame(b"d"))
    content[13] ^= 1
    with pytest.raises(RecordFault, match="checksum of the record's data is wrong") as caught:
        read_record(BytesIO(bytes(content)), 0)
    assert caught.value.next_offset == FRAME_BYTES + 3
    content[0] ^= 1
    with pytest.raises(RecordFault, match="checksum of the record's length is wrong") as caught:
        read_record(BytesIO(bytes(content)), 0)
    assert caught.value.next_offset is None


@pytest.mark.parametrize(("length", "known", "what"), [
    (MAX_RECORD_BYTES + 1, None, "more than an example can have"),
    (2**63, None, "more than an example can have"),
    (2**30, 100, "the file ends inside the record, which claims 1,073,741,824 bytes"),
    (5, 100, "the file ends inside the record, which claims 5 bytes"),
])  # fmt: skip
def test_lengths_no_record_can_have(length: int, known: int | None, what: str) -> None:
    """Their checksum is right: a reader that trusts them takes gigabytes of memory."""
    with pytest.raises(RecordFault, match=what):
        read_record(BytesIO(frame_header(length) + b"xy"), 0, known)


def test_an_empty_file_has_no_records() -> None:
    assert list(scan_records(BytesIO(b""))) == []
    assert read_record(BytesIO(b""), 0) is None


def test_a_fault_crosses_processes() -> None:
    fault = pickle.loads(pickle.dumps(RecordFault(7, "it is cut", 40, True)))
    assert (fault.offset, fault.what, fault.next_offset) == (7, "it is cut", 40)
    assert fault.is_truncated
    assert str(fault) == "record at byte 7: it is cut"
