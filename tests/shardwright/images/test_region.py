"""Parts of JPEGs by the extension: the pixels of the whole image, and its verdict on damage."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

from shardwright.errors import ImageFault
from shardwright.images import regions
from shardwright.images.crops import Crop
from shardwright.images.decode import StoredImage
from shardwright.images.jpeg import SCAN, decode_jpeg, jpeg_segments, read_jpeg_header
from shardwright.images.specs import EvalImage, MultiCrop, TrainImage
from tests import ROOT

DHT = 0xC4  # the segment of Huffman tables
FOLDER = ROOT / "shardwright" / "images" / "_region"
FORMS: list[dict[str, Any]] = [
    {},
    {"optimize": True},
    {"progressive": True},
    {"restart_marker_blocks": 5},
    {"restart_marker_rows": 1},
]


@pytest.fixture(autouse=True)
def _room_for_any_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow's buffer is too small for some images of noise."""
    monkeypatch.setattr(ImageFile, "MAXBLOCK", 1 << 20)


def draw_jpeg(rng: np.random.Generator) -> tuple[bytes, int, int]:
    """Return a JPEG of some form and size, with its height and width."""
    height, width = (int(side) for side in rng.integers(6, 300, 2))
    rough = rng.integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), np.uint8)
    smooth = Image.fromarray(rough).resize((width, height), Image.Resampling.BICUBIC)
    noisy = np.asarray(smooth) + rng.normal(0, rng.integers(0, 12), (height, width, 3))
    image = Image.fromarray(noisy.clip(0, 255).astype(np.uint8))
    form = FORMS[rng.integers(len(FORMS))]
    sampling, quality = ("4:4:4", "4:2:2", "4:2:0")[rng.integers(3)], int(rng.integers(20, 96))
    file = io.BytesIO()
    if rng.random() < 0.15:
        image.convert("L").save(file, "JPEG", quality=quality, **form)
    else:
        image.save(file, "JPEG", quality=quality, subsampling=sampling, **form)
    return file.getvalue(), height, width


def draw_crop(rng: np.random.Generator, height: int, width: int) -> Crop:
    top, left = int(rng.integers(height)), int(rng.integers(width))
    return Crop(top, left, int(rng.integers(height - top)) + 1, int(rng.integers(width - left)) + 1)


def cases(rng: np.random.Generator, count: int) -> Iterator[tuple[bytes, Crop, int, bool]]:
    for _ in range(count):
        data, height, width = draw_jpeg(rng)
        reduction = int(rng.choice([1, 1, 1, 2, 4, 8]))
        yield data, draw_crop(rng, height, width), reduction, bool(rng.integers(2))


@pytest.fixture(autouse=True)
def _is_built() -> None:
    if not shutil.which("cc"):
        pytest.skip("needs a C compiler: without one, whole images are decoded")
    assert regions.part_decoder() == regions.OWN, "make install builds the extension"


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_part_has_the_pixels_of_the_whole_image(rng: np.random.Generator, count: int) -> None:
    for data, area, reduction, fast in cases(rng, count):
        header = read_jpeg_header(data)
        whole = decode_jpeg(header, fast=fast, reduction=reduction)
        part, top, left = regions.decode_region(header, reduction, area, fast=fast)
        assert top % 8 == left % 8 == 0
        assert top <= area.top
        assert left <= area.left
        rows = slice(area.top // reduction, -(-(area.top + area.height) // reduction))
        columns = slice(area.left // reduction, -(-(area.left + area.width) // reduction))
        found = part[
            rows.start - top // reduction : rows.stop - top // reduction,
            columns.start - left // reduction : columns.stop - left // reduction,
        ]
        np.testing.assert_array_equal(found, whole[rows, columns])


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Return the file cut short, with a changed byte, or with some bytes zeroed."""
    kind, place = rng.integers(3), int(rng.integers(2, len(data)))
    if kind == 0:
        return data[:place]
    changed = bytearray(data)
    if kind == 1:
        changed[place] ^= 1 << rng.integers(8)
    else:
        changed[place : place + 20] = bytes(len(changed[place : place + 20]))
    return bytes(changed)


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])
def test_what_simplejpeg_refuses_is_refused(rng: np.random.Generator, count: int) -> None:
    num_refused = 0
    for data, area, _, fast in cases(rng, count):
        bad = damaged(data, rng)
        try:
            header = read_jpeg_header(bad)
        except ImageFault:
            continue
        if not regions.has_regions(header):
            continue
        area = Crop(0, 0, min(area.height, header.height), min(area.width, header.width))
        try:
            whole = decode_jpeg(header, fast=fast)
        except ImageFault:
            num_refused += 1
            with pytest.raises(ImageFault):
                regions.decode_region(header, 1, area, fast=fast)
        else:
            part, top, left = regions.decode_region(header, 1, area, fast=fast)
            wanted = whole[top : top + area.height, left : left + area.width]
            np.testing.assert_array_equal(part[: area.height, : area.width], wanted)
    assert num_refused > count // 10


IMAGES: list[Any] = [
    TrainImage(32),
    TrainImage(32, fast=False),
    EvalImage(32),
    MultiCrop(TrainImage(32), TrainImage(16, scale=(0.05, 0.4))),
]


@pytest.mark.parametrize("spec", IMAGES, ids=repr)
def test_batches_do_not_depend_on_the_extension(
    spec: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, draws = [draw_jpeg(rng)[0] for _ in range(20)], range(20)
    slots = [None, None] if isinstance(spec, MultiCrop) else None

    def made() -> list[Any]:
        return [
            spec.apply(data, StoredImage(), draw, slots)
            for data, draw in zip(files, draws, strict=True)
        ]

    found = made()
    monkeypatch.setattr(regions, "_extension", lambda: None)
    for one, other in zip(found, made(), strict=True):
        for left, right in zip(*((one, other) if slots else ([one], [other])), strict=True):
            np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("arguments", [
    (0, 0, 0, 8, True, 1), (0, 0, 8, 0, True, 1), (8, 0, 8, 8, True, 1), (0, 0, 41, 8, True, 1),
    (0, 0, 8, 49, True, 1), (0, 0, 8, 8, True, 3), (0, 0, 8, 8, True, 16), (0, 0, 8, 8, True, 0),
    (2**32 - 1, 0, 8, 8, True, 1), (0, 2**32 - 9, 8, 2**32 - 1, True, 1),
])  # fmt: skip
def test_impossible_parts(arguments: tuple[Any, ...]) -> None:
    file = io.BytesIO()
    Image.new("RGB", (48, 40)).save(file, "JPEG")
    with pytest.raises(ValueError, match=r"rectangle|reduction"):
        regions._extension().decode(file.getvalue(), *arguments)


# No other file here uses the last two tables, so no decoder has made them before.
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("left", [0, 32])
def test_a_table_without_codes_ends(left: int, number: int, rng: np.random.Generator) -> None:
    """Decoding must not loop, neither in the columns of the crop nor left of them."""
    file = io.BytesIO()
    Image.fromarray(rng.integers(256, size=(64, 64), dtype=np.uint8)).save(file, "JPEG")
    data = bytearray(file.getvalue())
    for marker, start, end in [*jpeg_segments(bytes(data))][::-1]:
        if marker == SCAN:
            data[start + 6] = number  # of AC; that of DC is 0
        elif marker == DHT and data[start + 4] >> 4:
            data[start:end] = b"\xff\xc4\0\x13" + bytes([0x10 + number, *bytes(16)])
    with pytest.raises(ValueError, match="not in the table"):
        regions._extension().decode(bytes(data), 0, left, 64, left + 8, True, 1)


def test_a_library_that_does_not_work_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, library = regions._paths() or ("", "")
    broken = tmp_path / "libjpeg.so.62"
    broken.write_bytes(b"\x7fELF")
    for tried, told in ((library, regions.OWN), (str(broken), regions.NONE)):
        monkeypatch.setattr(regions, "_paths", lambda tried=tried: (path, tried))
        assert regions.part_decoder.__wrapped__() == told


def test_without_the_extension_there_is_a_fix() -> None:
    code = (
        "import sys; sys.modules['shardwright.images._region'] = None\n"
        "from shardwright.images import regions\n"
        "print(regions.part_decoder(), regions.part_decoder_fix())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.startswith("none install a C compiler (Debian: gcc and libc6-dev)"), done
    assert regions.part_decoder_fix() == ""


PLACES = (
    "client_data:common.client_data src:source image_width:width image_height:height "
    "num_components:num_components out_color_space:out_space scale_num:scale_num "
    "scale_denom:scale_denom dct_method:dct_method do_fancy_upsampling:fancy_upsampling "
    "output_width:out_width output_height:out_height output_scanline:out_row "
    "dc_huff_tbl_ptrs:dc_tables ac_huff_tbl_ptrs:ac_tables data_precision:precision "
    "progressive_mode:is_progressive arith_code:is_arithmetic restart_interval:restart_interval "
    "max_h_samp_factor:max_h_samp max_v_samp_factor:max_v_samp comps_in_scan:scan_components "
    "cur_comp_info:scan MCUs_per_row:mcus_per_row MCU_rows_in_scan:mcu_rows "
    "blocks_in_MCU:mcu_blocks MCU_membership:mcu_membership Ss:ss Se:se Ah:ah Al:al "
    "entropy:entropy"
)


def test_the_structure_is_that_of_jpeglib(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None or not Path("/usr/include/jpeglib.h").exists():
        pytest.skip("needs a C compiler and libjpeg-turbo's headers (libjpeg-dev)")
    pairs = [place.split(":") for place in PLACES.split()]
    checks = "\n".join(
        f"_Static_assert(offsetof(struct jpeg_decompress_struct, {theirs}) == "
        f'offsetof(struct ours, {ours}), "{theirs}");'
        for theirs, ours in pairs
    )
    code = (
        "#include <stdio.h>\n#include <jpeglib.h>\n#undef JPEG_HEADER_OK\n#define jpeg_file ours\n"
        f'#include "{FOLDER}/jpeg62.h"\n{checks}\n'
        '_Static_assert(sizeof(struct jpeg_decompress_struct) == sizeof(struct ours), "size");\n'
        '_Static_assert(sizeof(struct jpeg_error_mgr) == sizeof(jpeg_errors), "errors");\n'
    )
    (tmp_path / "check.c").write_text(code)
    command = [compiler, "-fsyntax-only", str(tmp_path / "check.c")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
