"""NumPy's files as input: their arrays, their splits, and what is wrong with them."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import shardwright as sw
from shardwright.errors import BuildError, UsageError
from shardwright.storage.folder import Folder
from shardwright.storage.options import NO_OPTIONS
from shardwright.transforms.inputs.columns import MAX_COLUMNS
from shardwright.transforms.inputs.formats.arrays import ArraySource, read_records
from shardwright.transforms.inputs.source import SourceRequest
from tests.support.build_helpers import build_without_beam as build
from tests.support.listing_cases import Listing, listing
from tests.support.tfrecord_makers import read_back

RANDOM = np.random.default_rng(0)
ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "x_train": RANDOM.integers(0, 256, (70, 5, 4), np.uint8),
    "y_train": RANDOM.integers(0, 3, (70, 1)),
    "x_test": RANDOM.integers(0, 256, (9, 5, 4), np.uint8),
    "y_test": RANDOM.integers(0, 3, 9),
}


def listed(path: Path) -> Listing:
    return listing(path, spool=Folder(f"{path.parent}/spool"))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_every_row_of_an_archive_is_a_reference(tmp_path: Path, save: Any) -> None:
    save(tmp_path / "mnist.npz", **ARRAYS)
    found = listed(tmp_path / "mnist.npz")
    labels = [*ARRAYS["y_train"][:, 0], *ARRAYS["y_test"]]
    splits = ["train"] * 70 + ["test"] * 9
    assert found.of("id", "label", "split") == [
        (f"mnist.npz#{row}", str(label), split)
        for row, (label, split) in enumerate(zip(labels, splits, strict=True))
    ]
    assert (found.source.states_splits, found.rejects) == (True, [])
    pixels = [*ARRAYS["x_train"], *ARRAYS["x_test"]]
    for data, expected in zip(read_back(found.rows), pixels, strict=True):
        decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
        np.testing.assert_array_equal(decoded, expected)


def test_an_array_alone_is_images_and_a_wildcard_is_many_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", ARRAYS["x_test"])
    found = listed(tmp_path / "*.npy")
    assert found.source.description.startswith("2 NumPy files at ")
    assert found.of("id") == [(f"{name}.npy#{row}",) for name in "ab" for row in range(9)]


def npy(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


HUGE = npy(ARRAYS["x_test"]).replace(b"(9, 5, 4)", b"(9, 5, 4" + b"0" * 20 + b")")


@pytest.mark.parametrize(("data", "message"), [
    (npy(ARRAYS["x_test"])[:-1], "the file ends inside an array"),
    (npy(np.asfortranarray(ARRAYS["x_test"])), "has Fortran order"),
    (npy(np.array([{}], object), allow_pickle=True), "has objects"),
    (npy(np.array(5)), "has a single value"),
    (npy(ARRAYS["x_test"]).replace(b"(9, 5, 4)", b"(9,-5, 4)"), "a row has 1 to"),
    (npy(np.zeros((3, 0), np.uint8)), "a row has 1 to"),
    (HUGE, "cannot be read as NumPy arrays"),
    *((data, "cannot be read as NumPy arrays") for data in (b"\x93NUMPY\x09\x00", b"")),
])  # fmt: skip
def test_a_damaged_file_is_named(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(BuildError, match=message):
        list(read_records(str(tmp_path / "x.npy"), NO_OPTIONS))


@pytest.mark.parametrize(("arrays", "message"), [
    ({"images": ARRAYS["x_test"], "labels": np.arange(8)}, "length, got 'image' 9, 'label' 8"),
    ({"x": ARRAYS["x_test"], "images": ARRAYS["x_test"]}, "are both the column 'image'"),
])  # fmt: skip
def test_arrays_that_are_no_table(tmp_path: Path, arrays: Any, message: str) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(BuildError, match=message):
        listed(tmp_path / "x.npz")


@pytest.mark.long_but_first
@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_rows_that_are_vectors_are_records_without_images(tmp_path: Path, name: str) -> None:
    vectors, labels = np.arange(12, dtype=np.float32).reshape(4, 3), np.arange(4) + 5
    if name == "x.npy":
        np.save(tmp_path / name, vectors)
    else:
        np.savez(tmp_path / name, x_train=vectors, y_train=labels)
    assert build(tmp_path / name, tmp_path / "out", "--schema", "records") == 0
    found = sw.open(str(tmp_path / "out")).to_numpy()
    order = np.argsort(found["id"])
    np.testing.assert_array_equal(np.stack(found["features"])[order], vectors)
    assert ("label" in found) is (name == "x.npz")
    assert not list((tmp_path / "out" / "spool").glob("*.bin"))


def test_a_folder_is_no_file_of_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", ARRAYS["x_test"])
    assert ArraySource.look(SourceRequest(str(tmp_path))) is None
    assert ArraySource.look(SourceRequest(str(tmp_path), input_format="arrays")) is not None
    (tmp_path / "x.npy").rename(tmp_path / "x.bin")
    with pytest.raises(UsageError, match=r"holds no \.npy or \.npz files"):
        ArraySource.look(SourceRequest(str(tmp_path), input_format="arrays"))


@pytest.mark.long
def test_a_list_of_too_many_arrays_is_not_read(tmp_path: Path) -> None:
    path, one = tmp_path / "many.npz", npy(np.zeros(2, np.uint8))
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(MAX_COLUMNS + 1):
            archive.writestr(f"a{number}.npy", one)
    with pytest.raises(BuildError, match=r"many.npz lists 16,385 arrays in .* 16,384 arrays and"):
        next(read_records(str(path), NO_OPTIONS))
    # More than the end of the file says, up to its last bytes.
    end = path.read_bytes()[-22:]
    path.write_bytes(b"PK\1\2" * (5 << 20) + end[:8] + struct.pack("<HHIIH", 5, 5, 20 << 20, 0, 0))
    with pytest.raises(BuildError, match=r"lists 5 arrays in 21\.0 MB, more than"):
        next(read_records(str(path), NO_OPTIONS))
