"""Reading tars: damage of every kind, memory, and the number of requests that a store gets."""

from __future__ import annotations

import io
import os
import random
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.storage import range_reader
from shardwright.storage.counters import COUNTERS
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.formats.tars import TarSource, read_headers
from tests.support.archive_files import TAR_MODES, list_tar, pack_tar, png, read_row
from tests.support.helpers import TINY_PNG
from tests.support.random_tests import examples
from tests.support.store_places import Places


@pytest.mark.parametrize("ending", [".tar", ".tar.gz", ".tar.bz2", ".txz"])
def test_a_cut_archive_gives_the_members_before_the_cut(tmp_path: Path, ending: str) -> None:
    noise = random.Random(1)
    files = {f"{number}.png": TINY_PNG + noise.randbytes(350_000) for number in range(6)}
    path = pack_tar(tmp_path / f"a{ending}", files, TAR_MODES[ending])
    os.truncate(path, path.stat().st_size * 2 // 3)
    rows, rejects = list_tar(path, tmp_path / "spool")
    assert rejects == {f"a{ending}": "incomplete"}
    assert 2 <= len(rows) <= 4  # compressors give what they have at the end of a block
    assert [read_row(row) for row in rows] == list(files.values())[: len(rows)]


@examples(25)
@given(cut=st.integers(0, 5 * 1024 + 1024), flip=st.one_of(st.none(), st.integers(0, 5 * 1024 - 1)))
def test_damage_never_raises_and_is_always_listed(cut: int, flip: int | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = pack_tar(Path(folder, "a.tar"), {f"{n}.png": png(n) for n in range(5)})
        data = bytearray(path.read_bytes()[: 6 * 1024])
        if flip is not None:
            data[flip] ^= 0xFF
        path.write_bytes(data[:cut])
        rows, rejects = list_tar(path)
    in_header = flip is not None and flip < cut and flip % 1024 < 512
    if cut < 5 * 1024 + 512 or in_header:
        assert rejects or flip is not None
        assert len(rows) <= 5
    else:
        assert (len(rows), rejects) == (5, {})
    if flip is None:
        assert len(rows) == min(5, max(0, (cut - 512 - len(png(0))) // 1024 + 1))
        assert ("a.tar" in rejects) == (cut < 5 * 1024 + 512)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_a_header_that_claims_too_much(tmp_path: Path, kind: bytes) -> None:
    bomb = tarfile.TarInfo("bomb")
    bomb.type, bomb.size = kind, 1 << 30
    info = tarfile.TarInfo("a.png")
    info.size = len(TINY_PNG)
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as tar:
        tar.addfile(info, io.BytesIO(TINY_PNG))
        tar.fileobj.write(bomb.tobuf(tarfile.GNU_FORMAT))  # type: ignore[union-attr]
    rows, rejects = list_tar(tmp_path / "a.tgz", tmp_path / "spool")
    assert (len(rows), rejects) == (1, {"a.tgz": "incomplete"})


def test_a_member_larger_than_an_image_may_be_is_not_unpacked(tmp_path: Path) -> None:
    info = tarfile.TarInfo("huge.png")
    info.size = (1 << 30) + 1
    path = tmp_path / "a.tar"
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT))
    os.truncate(path, -(-(512 + info.size) // 512) * 512 + 1024)  # a hole, which takes no disk
    assert list_tar(path) == ([], {"a.tar/huge.png": "too_large"})


@pytest.mark.parametrize("data", [b"", b"no tar at all", b"x" * 2000])
def test_a_file_that_is_no_tar_is_one_reject(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(data)
    assert list_tar(tmp_path / "a.tar") == ([], {"a.tar": "incomplete"})


def test_headers_are_not_all_kept(tmp_path: Path) -> None:
    path = pack_tar(tmp_path / "a.tar", {f"{n}.png": TINY_PNG for n in range(50)})
    headers = read_headers(str(path), StorageOptions(), path.stat().st_size, None)
    kept = [len(tar.members) for tar, _ in headers]  # type: ignore[attr-defined]
    assert max(kept) == 0


def test_few_requests_and_bytes_for_headers_between_large_members(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reader, "SKIPPED_BYTES", 4096)
    monkeypatch.setattr(range_reader, "BUFFER_BYTES", 32768)
    place = places.make("s3")
    options = StorageOptions.of(place.storage_options)

    def cost(name: str, size: int, count: int) -> tuple[int, int]:
        files = {f"{n}.png": TINY_PNG.ljust(size) for n in range(count)}
        data = pack_tar(tmp_path / name, files).read_bytes()
        place.put(name, data)
        before = COUNTERS.snapshot()
        with TarSource.open(place.at(name), options, len(data), False) as found:
            assert len(list(found.members)) == count
        after = COUNTERS.snapshot()
        requests, read = (after[key] - before.get(key, 0) for key in ("requests", "bytes_read"))
        return requests, read

    requests, num_bytes = cost("large.tar", 100_000, 20)
    assert requests <= 20 + 2
    assert num_bytes <= 22 * 4096
    requests, _ = cost("small.tar", 500, 1000)  # 1 MB in all
    assert requests <= 1_024_000 // 32768 + 6
