"""Changed files for the decoder of parts of JPEGs, which `make fuzz` compiles with sanitizers.

    python -m tests.fuzz.jpeg_part SECONDS EXTENSION FINDING    (the process that `fuzz` starts)

gcc's AddressSanitizer takes the place of the coverage that guides atheris, so changes are random.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from shardwright.errors import ImageFault
from shardwright.images import regions
from shardwright.images.jpeg import read_jpeg_header
from tests import ROOT

NAME = "jpeg-part"
_MODULE = "shardwright.images._region"
_SOURCE = ROOT / "shardwright" / "images" / "_region" / "region.c"
# The first report of undefined behavior ends the process.
_FLAGS = (
    *("-shared", "-fPIC", "-g", "-O1"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
)
_LARGEST = 60  # rows and columns of a part


def parse(data: bytes) -> None:
    """Decode a part of the file, drawn from its bytes.

    Raises:
        ImageFault: The header is damaged.
        ValueError: The rest is.
    """
    header = read_jpeg_header(data)
    if regions.has_regions(header):
        rng = np.random.default_rng(zlib.crc32(data))
        top, left = rng.integers((header.height, header.width)).tolist()
        height, width = rng.integers(1, _LARGEST, 2).tolist()
        area = top, left, min(header.height, top + height), min(header.width, left + width)
        reduction = 1 << int(rng.integers(4))
        regions._extension().decode(data, *area, bool(rng.integers(2)), reduction)


def make_seeds() -> list[bytes]:
    """Return images whose sides are no multiples of a block, of each sampling and kind of scan."""
    rough = Image.fromarray(np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8))
    image = rough.resize((83, 51), Image.Resampling.BICUBIC)
    forms: Sequence[dict[str, Any]] = (
        *({"subsampling": sampling} for sampling in ("4:4:4", "4:2:2", "4:2:0")),
        *({"optimize": True}, {"progressive": True}, {"restart_marker_blocks": 3}, {"quality": 98}),
    )
    files = [io.BytesIO() for _ in range(len(forms) + 1)]
    for file, form in zip(files, forms, strict=False):
        image.save(file, "JPEG", **form)
    image.convert("L").save(files[-1], "JPEG")
    return [file.getvalue() for file in files]


def fuzz(seconds: int, folder: Path) -> int:
    """Compile the extension, and decode changed files in another process; return its exit code."""
    gcc = shutil.which("gcc")
    if gcc is None:
        sys.exit(f"fuzz: {NAME} needs gcc and its sanitizers: apt-get install gcc libc6-dev")
    folder.mkdir(parents=True, exist_ok=True)
    extension = folder / "_region.abi3.so"
    places = [f"-I{sysconfig.get_path('include')}", str(_SOURCE), "-o", str(extension)]
    if subprocess.run([gcc, *_FLAGS, *places]).returncode:
        sys.exit(f"fuzz: {NAME}: gcc cannot compile {_SOURCE} with its sanitizers")
    # Python is compiled without them: they are loaded first, and libstdc++ for exceptions in C++.
    libraries = [
        subprocess.check_output([gcc, f"-print-file-name={name}.so"], text=True).strip()
        for name in ("libasan", "libubsan", "libstdc++")
    ]
    env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0", "LD_PRELOAD": " ".join(libraries)}
    command = [sys.executable, "-m", "tests.fuzz.jpeg_part", str(seconds), str(extension)]
    finding = folder / f"{NAME}-crash"
    return subprocess.run(
        [*command, str(finding)], cwd=ROOT, env=env, timeout=seconds + 300
    ).returncode


def _changed(data: bytes, rng: np.random.Generator) -> bytes:
    """Return the bytes with some replaced or zeroed, of the header or of all, or cut short."""
    changed = np.frombuffer(data, np.uint8).copy()
    end = (len(data), min(len(data), 700))[rng.integers(2)]
    places, kind = rng.integers(end, size=rng.integers(1, 9)), rng.integers(4)
    if kind == 0:
        changed[places] = rng.integers(256, size=len(places))
    elif kind == 1:
        changed[places] ^= np.uint8(1) << rng.integers(8, size=len(places), dtype=np.uint8)
    elif kind == 2:
        changed[places[0] : places[0] + rng.integers(1, 300)] = 0
    else:
        changed = changed[: places[0]]
    return changed.tobytes()


def _decode_changed_files(seconds: float, extension: str, finding: Path) -> None:
    """Decode changed files with the extension at a path; the last one is kept if it crashes."""
    spec = importlib.util.spec_from_file_location(_MODULE, extension)
    assert spec is not None
    sys.modules[_MODULE] = importlib.util.module_from_spec(spec)
    if regions.part_decoder() != regions.OWN:
        sys.exit(f"fuzz: {NAME}: the extension does not work with Pillow's libjpeg-turbo")
    seeds, rng = make_seeds(), np.random.default_rng()
    num_files, num_decoded, end = 0, 0, time.monotonic() + seconds
    while time.monotonic() < end:
        data = _changed(seeds[num_files % len(seeds)], rng)
        finding.write_bytes(data)
        with contextlib.suppress(ImageFault, ValueError):
            parse(data)
            num_decoded += 1
        num_files += 1
    finding.unlink()
    print(f"fuzz: {NAME}: {num_files:,} files, of which {num_decoded:,} were decoded")


if __name__ == "__main__":
    _decode_changed_files(float(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
