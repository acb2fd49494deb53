"""Cut the tiles under a crop out of a JPEG that `--crop-tiles` divided.

Restart markers (ITU-T T.81, B.2.4.4) divide each row of MCUs into tiles of equal width, and a
decoder can start at each. A segment APP15 behind the first one, which JFIF's or EXIF's has to be,
says where they are. It saves a search for markers, which takes longer than the rest, and only a
build writes it: a camera's file with markers of its own is decoded whole, because damage in other
tiles would stay unseen.
"""

from __future__ import annotations

import re
import struct
from itertools import pairwise
from typing import NamedTuple

from shardwright.images.crops import Crop
from shardwright.images.jpeg import header_segments

BASELINE, INTERVAL = 0xC0, 0xDD
# Marker, length and name of the segment; offset of the image's size in the file; height and width
# of a tile in pixels. Then for each row of tiles its offset in the file, and where each of its
# tiles and the marker behind it end, from there.
_TABLE, _ROW = struct.Struct(">2sH6sIHH"), ">I{}H"
_MARKER, _NAME = b"\xff\xef", b"tiles\0"
_SIZE = struct.Struct(">HH")
_MAX_LENGTH = 0xFFFF  # of a segment, and of a row
_HEADER_END, _IMAGE_END = b"\0\x3f\0", b"\xff\xd9"  # of a baseline scan
# Second bytes of restart markers, behind the last byte of a scan's header.
_NUMBERS = b"\0" + bytes(range(0xD0, 0xD8)) * (1 << 12)
_restarts = re.compile(rb"\xff[\xd0-\xd7]").finditer


class Tiles(NamedTuple):
    """A JPEG of neighboring tiles of an image.

    Attributes:
        data: The file.
        height: In pixels.
        width: In pixels.
        top: The image's row that is its first; a multiple of 8, as `left`.
        left: The image's column that is its first.
    """

    data: bytes | memoryview
    height: int
    width: int
    top: int = 0
    left: int = 0


class _Table(NamedTuple):
    size_at: int
    tile_height: int
    tile_width: int
    columns: int
    rows: bytes | memoryview
    row: struct.Struct
    start: int  # of its segment
    end: int
    scan: int  # offset of the first tile


def tile_interval(width: int, mcu_width: int) -> int:
    """Return the MCUs of a tile, about an eighth of a row, or 0 if none divides a row.

    Any other interval would go on in the next row.

    Args:
        width: Of the image, in pixels.
        mcu_width: In pixels.
    """
    mcus = -(-width // mcu_width)
    counts = [count for count in range(4, 17) if mcus % count == 0 and mcus > count]
    return mcus // min(counts, key=lambda count: abs(count - 8)) if counts else 0


def with_tile_table(data: bytes) -> bytes:
    """Return a JPEG with the table of its tiles, or unchanged if it has no tiles.

    Args:
        data: By libjpeg: the first component is sampled most, and tiles divide each row of MCUs.
    """
    segments = header_segments(data, (BASELINE, INTERVAL))
    at = {marker: start + 4 for marker, start, _ in segments}
    if not at.keys() >= {BASELINE, INTERVAL}:
        return data
    frame, interval = at[BASELINE], int.from_bytes(data[at[INTERVAL] :][:2])
    height, width = 8 * (data[frame + 7] & 15), 8 * (data[frame + 7] >> 4) * interval
    columns = -(-int.from_bytes(data[frame + 3 : frame + 5]) // width)
    scan = segments[-1][2]
    ends = [*(found.end() for found in _restarts(data, scan)), len(data)]
    starts = [scan, *ends[columns - 1 :: columns]]
    row = struct.Struct(_ROW.format(columns))
    size = _TABLE.size + row.size * (len(starts) - 1)
    if max(size, *(end - start for start, end in pairwise(starts))) > _MAX_LENGTH:
        return data
    table = [_TABLE.pack(_MARKER, size - 2, _NAME, size + frame + 1, height, width)]
    for number, start in enumerate(starts[:-1]):
        of_row = ends[number * columns : (number + 1) * columns]
        table.append(row.pack(size + start, *(end - start for end in of_row)))
    place = _table_at(data)
    return b"".join((data[:place], *table, data[place:]))


def has_tiles(data: bytes | memoryview) -> bool:
    """Return whether a JPEG seems to have a table of its tiles."""
    place = _table_at(data)
    return data[place : place + 2] == _MARKER


def _table_at(data: bytes | memoryview) -> int:
    """Return the end of the first segment."""
    return 4 + int.from_bytes(data[4:6])


def cut_tiles(data: bytes | memoryview, height: int, width: int, area: Crop, margin: int) -> Tiles:
    """Return the tiles under an area of an image, or the whole image if it has no table of them.

    Decoded, they have the same pixels in the area as the whole image.

    Args:
        data: The whole file.
        height: Of the image in pixels.
        width: Of the image in pixels.
        area: A rectangle in the image.
        margin: The pixels around it on which its own depend.
    """
    table = _read_table(data, height, width)
    if table is None:
        return Tiles(data, height, width)
    top = max(0, area.top - margin) // table.tile_height
    left = max(0, area.left - margin) // table.tile_width
    bottom = -(-min(height, area.top + area.height + margin) // table.tile_height)
    right = -(-min(width, area.left + area.width + margin) // table.tile_width)
    rows = table.rows[top * table.row.size : bottom * table.row.size]
    if right - left == table.columns and len(rows) == len(table.rows):
        return Tiles(data, height, width)
    removed = table.end - table.start
    kept, markers = [data[: table.start], data[table.end : table.scan]], [table.scan - removed - 1]
    for start, *ends in table.row.iter_unpack(rows):
        first = ends[left - 1] if left else 0
        kept.append(data[start + first : start + ends[right - 1]])
        before = markers[-1] - first
        markers += [before + end for end in ends[left:right]]
    cut = bytearray().join(kept)
    if len(cut) != markers[-1] + 1 or markers != sorted(markers):
        return Tiles(data, height, width)  # the table is damaged
    for marker, number in zip(markers, _NUMBERS, strict=False):
        cut[marker] = number
    cut[-1] = _IMAGE_END[1]
    top, left = top * table.tile_height, left * table.tile_width
    end_row, end_column = bottom * table.tile_height, right * table.tile_width
    size = min(height, end_row) - top, min(width, end_column) - left
    _SIZE.pack_into(cut, table.size_at - removed, *size)
    return Tiles(memoryview(cut), *size, top, left)


def _read_table(data: bytes | memoryview, height: int, width: int) -> _Table | None:
    """Return the table of an image, or None if it has none, or an editor has left a wrong one."""
    start = _table_at(data)
    if not has_tiles(data) or len(data) < start + _TABLE.size:
        return None
    _, length, name, size_at, tile_height, tile_width = _TABLE.unpack_from(data, start)
    if name != _NAME or not tile_height * tile_width:
        return None
    columns, end = -(-width // tile_width), start + 2 + length
    row = struct.Struct(_ROW.format(columns))
    rows = data[start + _TABLE.size : end]
    if len(rows) != row.size * -(-height // tile_height):
        return None
    scan, *_ = row.unpack_from(rows)
    last, *ends = row.unpack_from(rows, len(rows) - row.size)
    if (
        not end <= size_at < scan
        or data[scan - 3 : scan] != _HEADER_END
        or data[size_at : size_at + 4] != _SIZE.pack(height, width)
        or last + ends[-1] != len(data)
        or data[-2:] != _IMAGE_END
    ):
        return None
    return _Table(size_at, tile_height, tile_width, columns, rows, row, start, end, scan)
