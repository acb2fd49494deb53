"""Builds of damaged images: each is a record or a typed reject, whatever is asked for."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shardwright.transforms.images.policy import PolicyFault
from shardwright.transforms.user_code import Record
from tests.support import random_tests
from tests.support.build_helpers import build, ids_below, png_of, record_ids, rejects_of

# Extension: Pillow's name of the format, and the modes it can save.
FORMATS = {
    "jpg": ("JPEG", ("RGB", "L", "CMYK")),
    "png": ("PNG", ("RGB", "L", "P", "RGBA")),
    "gif": ("GIF", ("P", "L", "RGBA")),
    "bmp": ("BMP", ("RGB", "L", "P")),
    "webp": ("WEBP", ("RGB", "RGBA")),
}
CUTS = range(64)
NUM_DAMAGED = 200
ENCODINGS = ("keep", "jpeg", "png", "raw")
# What the faults that compare with a number are compared with.
LIMITS = ("--max-pixels", "5000", "--max-aspect", "1.5", "--min-side", "6")


def fail_on_odd(record: Record) -> Record:
    """Decode an image; raise for those with odd numbers (`--transform`)."""
    record.pixels()
    if int(Path(record.id).stem) % 2:
        raise KeyError(record.id)
    return record


def whole_images(rng: np.random.Generator) -> list[tuple[str, bytes]]:
    """(extension, file) of small images of each format and mode."""
    found = []
    for extension, (image_format, modes) in FORMATS.items():
        for mode in modes:
            width, height = rng.integers(4, 24, 2)
            pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
            file = BytesIO()
            Image.fromarray(pixels).convert(mode).save(file, image_format)
            found.append((extension, file.getvalue()))
    return found


def damage(data: bytes, rng: np.random.Generator) -> bytes:
    """Return the file with up to eight bytes replaced, most near its start, perhaps cut."""
    damaged = bytearray(data)
    for _ in range(rng.integers(1, 9)):
        damaged[rng.integers(0, min(len(damaged), rng.choice([16, 64, 4096])))] = rng.integers(256)
    return bytes(damaged[: rng.integers(1, len(damaged))] if rng.random() < 0.3 else damaged)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders with whole images, one twice, each short beginning of a format, and damage."""
    rng = np.random.default_rng(random_tests.seed())
    root = tmp_path_factory.mktemp("damaged")
    whole = whole_images(rng)
    files = [
        (f"whole/{number}.{extension}", data) for number, (extension, data) in enumerate(whole)
    ]
    files.append((f"whole/{len(whole)}.{whole[0][0]}", whole[0][1]))
    # One that no policy rejects, whatever is drawn.
    files.append((f"whole/{len(whole) + 1}.png", png_of(0)))
    for extension, data in dict(whole).items():
        files += [(f"cut/{num_bytes}.{extension}", data[:num_bytes]) for num_bytes in CUTS]
    for number in range(NUM_DAMAGED):
        extension, data = whole[rng.integers(len(whole))]
        files.append((f"damaged/{number}.{extension}", damage(data, rng)))
    for name, data in files:
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    return root


def check_build(source: Path, output: Path, *options: str) -> set[str]:
    """Build, compare inputs with records and rejects, and return the reasons."""
    assert build(source, output, *options, "--max-reject-fraction", "1") == 0
    records, rejects = record_ids(output), rejects_of(output)
    assert sorted([*records, *(reject["id"] for reject in rejects)]) == sorted(ids_below(source))
    assert records
    return {reject["reason"] for reject in rejects}


def encode(encoding: str) -> list[str]:
    return ["--encode", encoding, *(["--resize", "8x8"] if encoding == "raw" else [])]


def treat(fault: PolicyFault, action: str, encoding: str) -> list[str]:
    """Return the option; none where it is refused: only kept bytes can get a name's format."""
    is_refused = fault == PolicyFault.EXTENSION and action == "fix" and encoding != "keep"
    return [] if is_refused else ["--on", f"{fault}={action}"]


@pytest.mark.long_but_first
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("action", ["fix", "reject"])
def test_every_fault_at_once(encoding: str, action: str, damaged: Path, tmp_path: Path) -> None:
    faults = [args for fault in PolicyFault for args in treat(fault, action, encoding)]
    reasons = check_build(damaged, tmp_path / "out", *encode(encoding), *faults, *LIMITS)
    assert {"truncated", "corrupt", "empty_file", "not_an_image"} <= reasons
    assert "internal_error" not in reasons


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["keep", "jpeg"])
def test_duplicates_and_a_transform_that_fails(
    encoding: str, damaged: Path, tmp_path: Path
) -> None:
    options = (
        "--duplicates",
        "drop",
        "--transform",
        "tests.builds.test_damaged_builds:fail_on_odd",
    )
    reasons = check_build(damaged, tmp_path / "out", *encode(encoding), *options)
    assert {"truncated", "empty_file", "dropped_duplicate", "transform"} <= reasons
    assert "internal_error" not in reasons


@pytest.mark.long
@pytest.mark.weight(20)
def test_any_fault_alone(rng: np.random.Generator, damaged: Path, tmp_path: Path) -> None:
    """One fault, encoding and check a round."""
    fault = list(PolicyFault)[rng.integers(len(PolicyFault))]
    encoding, check = str(rng.choice(ENCODINGS)), str(rng.choice(["header", "decode", "none"]))
    for action in ("fix", "reject"):
        options = (*encode(encoding), *treat(fault, action, encoding), "--check", check, *LIMITS)
        assert "internal_error" not in check_build(damaged, tmp_path / action, *options), options
