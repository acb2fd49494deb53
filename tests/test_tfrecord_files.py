"""TFRecord files of anybody: their names, their compression, and what is read of damaged ones."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.errors import RecordFault, StorageError
from shardwright.records import HEADER_BYTES, RecordSpan, crc32c_of, frame_footer, frame_header
from shardwright.storage import NO_OPTIONS
from transforms.inputs.tfrecords.tfrecord_files import (
    Compression,
    is_tfrecord_name,
    open_tfrecord,
    read_frames,
)

RECORDS = [bytes([number]) * (7 * number) for number in range(6)]
FRAMES = [frame_header(len(data)) + data + frame_footer(crc32c_of([data])) for data in RECORDS]
STARTS = [sum(map(len, FRAMES[:number])) for number in range(len(FRAMES) + 1)]


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("x.tfrecord", True),
        ("x.TFRecords", True),
        ("x.tfrec", True),
        ("x.tfrecord.gz", True),
        ("flowers-train.tfrecord-00003-of-00012", True),
        ("train-00000-of-01024", True),
        ("x.tfrecords-1", True),
        ("train-00000-of-00002.parquet", False),
        ("x.tar", False),
        ("tfrecord", False),
        ("x.png", False),
    ],
)
def test_names(name: str, known: bool) -> None:
    assert is_tfrecord_name(name) == known


PACKED = {
    None: b"".join(FRAMES),
    Compression.GZIP: gzip.compress(b"".join(FRAMES)),
    Compression.ZLIB: zlib.compress(b"".join(FRAMES)),
}


@pytest.mark.parametrize("compression", PACKED)
def test_compression_is_found_by_looking(tmp_path: Path, compression: Compression | None) -> None:
    (tmp_path / "x").write_bytes(PACKED[compression])
    with open_tfrecord(f"{tmp_path}/x", NO_OPTIONS) as (file, found):
        assert found == compression
        assert [
            frame.data for frame in read_frames(file) if isinstance(frame, RecordSpan)
        ] == RECORDS


def test_gzip_files_one_after_another(tmp_path: Path) -> None:
    """`cat a.gz b.gz` is a GZIP file, too."""
    (tmp_path / "x").write_bytes(
        gzip.compress(b"".join(FRAMES[:3])) + gzip.compress(b"".join(FRAMES[3:]))
    )
    with open_tfrecord(f"{tmp_path}/x", NO_OPTIONS) as (file, _):
        assert [
            frame.data for frame in read_frames(file) if isinstance(frame, RecordSpan)
        ] == RECORDS


def test_no_such_file(tmp_path: Path) -> None:
    with (
        pytest.raises(StorageError, match=r"x cannot be read: No such file or directory"),
        open_tfrecord(f"{tmp_path}/x", NO_OPTIONS),
    ):
        pass


@given(st.integers(0, STARTS[-1] - 1), st.integers(1, 255))
def test_a_changed_byte(position: int, change: int) -> None:
    """Costs the record that it is in; in a length or its checksum, all that follow as well."""
    data = bytearray(b"".join(FRAMES))
    data[position] ^= change
    number = max(index for index, start in enumerate(STARTS) if start <= position)
    in_length = position - STARTS[number] < HEADER_BYTES
    frames = list(read_frames(io.BytesIO(bytes(data)), len(data)))
    assert [frame.data for frame in frames[:number] if isinstance(frame, RecordSpan)] == RECORDS[
        :number
    ]
    fault = frames[number]
    assert isinstance(fault, RecordFault)
    assert fault.offset == STARTS[number]
    assert (fault.next_offset is None) == in_length
    assert [frame.data for frame in frames[number + 1 :] if isinstance(frame, RecordSpan)] == (
        [] if in_length else RECORDS[number + 1 :]
    )


@given(st.sampled_from(list(PACKED)), st.data())
@settings(max_examples=60)
def test_a_cut(
    tmp_path_factory: pytest.TempPathFactory, compression: Compression | None, data: st.DataObject
) -> None:
    """What comes before it is read; at a record's end nobody can tell that a plain file was cut."""
    whole = PACKED[compression]
    length = data.draw(st.integers(HEADER_BYTES, len(whole) - 1))
    path = tmp_path_factory.mktemp("cut") / "x"
    path.write_bytes(whole[:length])
    with open_tfrecord(str(path), NO_OPTIONS) as (file, _):
        frames = list(read_frames(file))
    spans = [frame.data for frame in frames if isinstance(frame, RecordSpan)]
    assert spans == RECORDS[: len(spans)]
    if compression is None and length in STARTS:
        assert len(spans) == STARTS.index(length)
    else:
        assert isinstance(frames[-1], RecordFault)
        assert frames[-1].next_offset is None
        assert len(frames) == len(spans) + 1


def test_a_length_that_memory_cannot_hold() -> None:
    """With a checksum that is right; it is refused before memory is taken for it."""
    file = io.BytesIO(FRAMES[0] + frame_header(1 << 40) + b"data" + frame_footer(0))
    first, second = read_frames(file)
    assert isinstance(first, RecordSpan)
    assert isinstance(second, RecordFault)
    assert "claims 1099511627776 bytes" in str(second)
