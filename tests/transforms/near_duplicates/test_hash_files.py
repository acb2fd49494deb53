"""Hashes of the images of a batch, and the file in the spool that keeps them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow as pa
import pytest
from PIL import Image

from shardwright.errors import StorageError
from shardwright.storage.folder import Folder
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from shardwright.transforms.inputs.spool import UnwrittenFolder
from shardwright.transforms.near_duplicates import groups
from shardwright.transforms.near_duplicates.groups import (
    PictureHash,
    hash_batch,
    hash_picture,
    hash_places,
)
from shardwright.transforms.references import set_column
from tests.support.helpers import file_references
from tests.support.kills import killed
from tests.support.pictures import copy_of, encoded, picture


@pytest.fixture
def batch(tmp_path: Path) -> pa.RecordBatch:
    """Two pictures, a copy of the first, a flat image, and one that is cut short."""
    files = {
        "b.png": encoded(picture(0)),
        "a.jpg": copy_of(picture(0), quality=60),
        "c.png": encoded(picture(1)),
        "d.png": encoded(Image.new("RGB", (50, 40), "navy")),
        "e.jpg": copy_of(picture(2))[:500],
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    return file_references([tmp_path / name for name in files])


def hashes_of(batch: pa.RecordBatch, folder: Folder) -> dict[str, tuple[int, int]]:
    rows = hash_batch(batch, folder, NO_OPTIONS).to_pylist()
    return {row["id"]: (row["phash"], row["num_pixels"]) for row in rows}


def test_pictures_have_hashes_and_others_have_none(batch: pa.RecordBatch, tmp_path: Path) -> None:
    found = hashes_of(batch, Folder(str(tmp_path / "spool")))
    assert sorted(found) == ["a.jpg", "b.png", "c.png"]
    assert found["b.png"][1] == found["a.jpg"][1] == 96 * 72
    assert (found["a.jpg"][0] ^ found["b.png"][0]).bit_count() <= 3
    assert (found["c.png"][0] ^ found["b.png"][0]).bit_count() > 10


def test_the_next_build_reads_no_image(batch: pa.RecordBatch, tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "spool"))
    found = hashes_of(batch, folder)
    for path in batch["uri"].to_pylist():
        os.remove(path)
    assert hashes_of(batch, folder) == found
    backwards = batch.take(pa.array(range(batch.num_rows)[::-1]))
    assert hashes_of(backwards, folder) == found
    changed = set_column(batch, "etag", pa.array(["another"] * batch.num_rows))
    assert hashes_of(changed, folder) == {}
    (name,) = folder.names()
    for damaged in (b"", b"PAR1", folder.read_bytes(name)[:-9]):
        folder.write_bytes(name, damaged)
        assert hashes_of(batch, folder) == {}


def test_a_file_with_flipped_bits_is_made_again(batch: pa.RecordBatch, tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "spool"))
    found = hashes_of(batch, folder)
    (name,) = folder.names()
    data = folder.read_bytes(name)
    for place in range(4, len(data) // 2, 7):
        folder.write_bytes(name, data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :])
        assert hashes_of(batch, folder) == found


def test_what_could_not_be_read_is_read_again(batch: pa.RecordBatch, tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "spool"))
    path = tmp_path / "b.png"
    path.rename(tmp_path / "away")
    assert sorted(hashes_of(batch, folder)) == ["a.jpg", "c.png"]
    assert folder.names() == []
    (tmp_path / "away").rename(path)
    unknown = set_column(batch, "etag", pa.nulls(batch.num_rows, pa.string()))
    assert sorted(hashes_of(unknown, folder)) == ["a.jpg", "b.png", "c.png"]
    assert folder.names() == []


def test_a_plan_writes_nothing(batch: pa.RecordBatch, tmp_path: Path) -> None:
    spool = str(tmp_path / "spool")
    found = hashes_of(batch, UnwrittenFolder(spool))
    assert len(found) == 3
    assert not Path(spool).exists()
    with pytest.raises(StorageError):  # a spool that cannot be written is no fault of an image
        hashes_of(batch, Folder(str(tmp_path / "b.png")))


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "1", "I;16", "CMYK"])
def test_all_modes_have_hashes(mode: str) -> None:
    image = picture(3)
    if mode == "I;16":
        deep = image.convert("L").point(lambda level: level * 256, "I").convert("I;16")
        data = encoded(deep)
    else:
        data = encoded(image.convert(mode), "JPEG" if mode == "CMYK" else "PNG")
    value, original = hash_picture(data).phash, hash_picture(encoded(image)).phash
    assert value is not None
    assert original is not None
    assert (value ^ original).bit_count() <= (8 if mode == "1" else 4)


def test_transparent_areas_are_white() -> None:
    image = picture(4).convert("RGBA")
    image.putalpha(Image.new("L", image.size, 0))
    assert hash_picture(encoded(image)) == PictureHash(None, 96 * 72)


@pytest.mark.long
def test_after_a_death_images_are_hashed_one_by_one(
    batch: pa.RecordBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a killed process the note stays, and its image has no hash in the next attempt."""
    wanted = hashes_of(batch, Folder(str(tmp_path / "other")))
    folder = Folder(str(tmp_path / "spool"))
    with killed(after=1):  # the note
        hash_batch(batch, folder, NO_OPTIONS)
    assert suffixes(folder) == ["hashes.attempt"]
    monkeypatch.setattr(groups, "_hash_row", hash_or_die)
    del wanted["b.png"]
    assert hashes_of(batch, folder) == wanted
    # The next build does not meet the image again.
    assert suffixes(folder) == ["hashes"]
    assert hashes_of(batch, folder) == wanted


def suffixes(folder: Folder) -> list[str]:
    return [name.partition(".")[2] for name in folder.names()]


def hash_or_die(batch: pa.RecordBatch, storage: StorageOptions, row: int) -> PictureHash | None:
    if batch.column("id")[row].as_py() == "b.png":
        os.kill(os.getpid(), signal.SIGSEGV)
    return hash_places(batch.slice(row, 1), storage, 1)[0]
