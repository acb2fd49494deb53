"""Hold the images of COCO json files in about 80 bytes each."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from shardwright.transforms.inputs.annotations.boxes import ImageSize


class CocoImage(NamedTuple):
    """An item of `images`: its id from `key_of`, its file name as written, its size if stated."""

    key: str
    file_name: str
    size: ImageSize | None


class CocoImages:
    """Images in the order they were added. As Python objects they would take 500 bytes each."""

    def __init__(self) -> None:
        self._keys, self._names = _Texts(), _Texts()
        self._heights, self._widths = array("d"), array("d")

    def __len__(self) -> int:
        return len(self._heights)

    def __getitem__(self, row: int) -> CocoImage:
        height, width = self._heights[row], self._widths[row]
        size = ImageSize(height, width) if height else None
        return CocoImage(self._keys[row], self._names[row], size)

    def add(self, image: CocoImage) -> None:
        self._keys.add(image.key)
        self._names.add(image.file_name)
        height, width = image.size or (0.0, 0.0)
        self._heights.append(height)
        self._widths.append(width)


class _Texts:
    """Texts, one after another as UTF-8."""

    def __init__(self) -> None:
        self._data, self._ends = bytearray(), array("q", [0])

    def __getitem__(self, number: int) -> str:
        return self._data[self._ends[number] : self._ends[number + 1]].decode()

    def add(self, text: str) -> None:
        self._data += text.encode()
        self._ends.append(len(self._data))
