"""Images with a text that is nowhere else, and a search for it in every byte and value."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from PIL import Image, PngImagePlugin

SIDE = 24
_CANARY = re.compile(rb"canary\d{5}c\d")
_PICTURE = re.compile(rb'src="data:image/\w+;base64,([^"]+)"')
_COLOR = (255, 0, 255)


def canary(number: int, copy: int = 0) -> str:
    """Return the text of a canary; its second copy has the same id and other bytes."""
    return f"canary{number:05d}c{copy}"


def canary_png(text: str, *, is_flat: bool = True) -> bytes:
    """Return a picture in a color that no other has, with a text in its metadata.

    A picture that is not flat has a perceptual hash, the same one as all others.
    """
    info = PngImagePlugin.PngInfo()
    info.add_text("Comment", f"bytes of {text}")
    file = io.BytesIO()
    image = Image.new("RGB", (SIDE, SIDE), _COLOR)
    if not is_flat:
        image.paste((0, 0, 0), (0, 0, SIDE // 2, SIDE // 3))
    image.save(file, "PNG", pnginfo=info)
    return file.getvalue()


def find_canaries(places: Iterable[Path]) -> dict[str, set[bytes]]:
    """Return the canaries by file: in their bytes, their columns, or as a picture of the report."""
    found = {}
    for path in (path for place in places for path in sorted(place.rglob("*")) if path.is_file()):
        here = {each for text in _texts_of(path) for each in _CANARY.findall(text)}
        if path.suffix == ".html":
            here |= {b"a picture" for data in _PICTURE.findall(path.read_bytes()) if _shows(data)}
        if here:
            found[str(path)] = here
    return found


def _texts_of(path: Path) -> Iterator[bytes]:
    data = path.read_bytes()
    yield data
    yield path.name.encode()
    if path.suffix == ".parquet":
        with pq.ParquetFile(io.BytesIO(data)) as file:
            yield repr(file.read().to_pydict()).encode()
            yield repr(file.schema_arrow.metadata).encode()


def _shows(data: bytes) -> bool:
    with Image.open(io.BytesIO(base64.b64decode(data))) as image:
        pixels = np.asarray(image.convert("RGB"), np.int16)
    return bool((np.abs(pixels - _COLOR).max(axis=2) < 40).mean() > 0.5)
