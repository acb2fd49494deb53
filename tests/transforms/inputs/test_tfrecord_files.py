"""TFRecord files: names, compression, and the records of damaged files."""

from __future__ import annotations

import gzip
import io
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import pytest
from google_crc32c import value
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import RecordFault, StorageError
from shardwright.format.records import (
    HEADER_BYTES,
    RecordSpan,
    frame_footer,
    frame_header,
)
from shardwright.storage.options import NO_OPTIONS
from shardwright.transforms.inputs.formats.tfrecords import (
    is_tfrecord_name,
    open_tfrecord,
    read_frames,
)
from tests.support.random_tests import examples

RECORDS = [bytes([number]) * (7 * number) for number in range(6)]
FRAMES = [frame_header(len(data)) + data + frame_footer(value(data)) for data in RECORDS]
STARTS = [sum(map(len, FRAMES[:number])) for number in range(len(FRAMES) + 1)]


def test_names() -> None:
    known = [
        "x.tfrecord", "x.TFRecords", "x.tfrec", "x.tfrecord.gz", "x.tfrecords-1",
        "flowers-train.tfrecord-00003-of-00012", "train-00000-of-01024",
        "train.record", "coco_train.record-00003-of-00100", "data_tfrecord-00000-of-00001.gz",
    ]  # fmt: skip
    others = ["train-00000-of-00002.parquet", "record", "x.tar", "tfrecord", "x.png"]
    assert [name for name in known + others if is_tfrecord_name(name)] == known


PACKED = {
    "": b"".join(FRAMES),
    "gzip": gzip.compress(b"".join(FRAMES)),
    "zlib": zlib.compress(b"".join(FRAMES)),
}


def data_of(frames: Iterable[RecordSpan | RecordFault]) -> list[bytes]:
    """Return the data of the sound records."""
    return [frame.data for frame in frames if isinstance(frame, RecordSpan)]


@pytest.mark.parametrize("compression", PACKED)
def test_compression_is_found_by_looking(tmp_path: Path, compression: str) -> None:
    (tmp_path / "x").write_bytes(PACKED[compression])
    with open_tfrecord(f"{tmp_path}/x", NO_OPTIONS) as (file, found):
        assert found == bool(compression)
        assert data_of(read_frames(file)) == RECORDS


@pytest.mark.parametrize("end", [b"", bytes(600)])
def test_gzip_files_one_after_another(tmp_path: Path, end: bytes) -> None:
    """Read the result of `cat a.gz b.gz`, padded with zeros as gzip allows."""
    first, second = (gzip.compress(b"".join(part)) for part in (FRAMES[:3], FRAMES[3:]))
    (tmp_path / "x").write_bytes(first + second + end)
    with open_tfrecord(f"{tmp_path}/x", NO_OPTIONS) as (file, _):
        assert data_of(read_frames(file)) == RECORDS


def test_no_such_file(tmp_path: Path) -> None:
    gone = open_tfrecord(f"{tmp_path}/x", NO_OPTIONS)
    with pytest.raises(StorageError, match=r"x cannot be read: No such file or directory"), gone:
        pass


@given(st.integers(0, STARTS[-1] - 1), st.integers(1, 255))
def test_a_changed_byte(position: int, change: int) -> None:
    """Lose the record that it is in; in a length or its checksum, all that follow as well."""
    data = bytearray(b"".join(FRAMES))
    data[position] ^= change
    number = max(index for index, start in enumerate(STARTS) if start <= position)
    in_length = position - STARTS[number] < HEADER_BYTES
    frames = list(read_frames(io.BytesIO(bytes(data)), len(data)))
    assert data_of(frames[:number]) == RECORDS[:number]
    fault = frames[number]
    assert isinstance(fault, RecordFault)
    assert fault.offset == STARTS[number]
    assert (fault.next_offset is None) == in_length
    assert data_of(frames[number + 1 :]) == ([] if in_length else RECORDS[number + 1 :])


@examples(25)
@given(st.sampled_from(list(PACKED)), st.data())
def test_a_cut(compression: str, data: st.DataObject) -> None:
    """Read the records before it; at a record's end nobody can tell that a plain file was cut."""
    whole = PACKED[compression]
    length = data.draw(st.integers(HEADER_BYTES, len(whole) - 1))
    with tempfile.NamedTemporaryFile() as cut:
        cut.write(whole[:length])
        cut.flush()
        with open_tfrecord(cut.name, NO_OPTIONS) as (file, _):
            frames = list(read_frames(file))
    spans = data_of(frames)
    assert spans == RECORDS[: len(spans)]
    if not compression and length in STARTS:
        assert len(spans) == STARTS.index(length)
    else:
        assert isinstance(frames[-1], RecordFault)
        assert frames[-1].next_offset is None
        assert len(frames) == len(spans) + 1


def test_a_length_that_memory_cannot_hold() -> None:
    """Reject it before memory is taken, though its checksum is right."""
    file = io.BytesIO(FRAMES[0] + frame_header(1 << 40) + b"data" + frame_footer(0))
    first, second = read_frames(file)
    assert isinstance(first, RecordSpan)
    assert isinstance(second, RecordFault)
    assert "claims 1,099,511,627,776 bytes" in str(second)
