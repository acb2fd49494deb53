"""Reading images from local files: their bytes as they were listed, or the reason why not, and nothing begun too early."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import StorageError
from shardwright.storage import NO_OPTIONS
from tests.build_helpers import png_of
from tests.helpers import references
from transforms.images import ImageFault
from transforms.inputs.file_rules import MAX_IMAGE_BYTES, etag_of
from transforms.rejects import RejectReason as R
from transforms.writing.image_reads import Place, read_ahead, read_local_image, start_reads

PNG = png_of(0)


def write(path: Path, data: bytes = PNG) -> Path:
    path.write_bytes(data)
    return path


def read(path: Path, etag: str | None = None, num_bytes: int = 1) -> bytes:
    """A file's bytes; without an etag nobody has looked at it before, and the length is a table's."""
    return read_local_image(Place(str(path), None, num_bytes, etag))


def fault_of(path: Path, etag: str | None = None, num_bytes: int = 1) -> tuple[R, str]:
    with pytest.raises(ImageFault) as caught:
        read(path, etag, num_bytes)
    return caught.value.reason, caught.value.detail


@pytest.mark.parametrize("size", [1, 2**20, 70 * 2**20], ids=["a byte", "1 MiB", "70 MiB"])
def test_the_bytes_are_those_of_the_file(size: int, tmp_path: Path) -> None:
    path = write(tmp_path / "a", os.urandom(size))
    status = path.stat()
    assert read(path, etag_of(status), status.st_size) == path.read_bytes()
    assert read(path) == path.read_bytes(), "a size that a table states is not believed"


@pytest.mark.parametrize("change", ["longer", "same length, later", "other file of another time"])
def test_a_file_that_changed_since_it_was_listed_is_a_fault(tmp_path: Path, change: str) -> None:
    path = write(tmp_path / "a")
    status = path.stat()
    if change == "longer":
        write(path, PNG + b"!")
        os.utime(path, ns=(0, status.st_mtime_ns))
    else:
        if change.startswith("other"):
            os.replace(write(tmp_path / "b"), path)
        os.utime(path, ns=(0, status.st_mtime_ns + 1))
    assert fault_of(path, etag_of(status), status.st_size) == (
        R.CHANGED,
        "the file changed between listing and reading: build again",
    )


def _make_missing(path: Path) -> None:
    (path.parent / "gone").touch()


def _make_folder(path: Path) -> None:
    path.mkdir()


def _make_loop(path: Path) -> None:
    path.symlink_to(path)


def _make_pipe(path: Path) -> None:
    os.mkfifo(path)


def _make_empty(path: Path) -> None:
    path.touch()


def _make_huge(path: Path) -> None:
    path.touch()
    os.truncate(path, MAX_IMAGE_BYTES + 1)  # a hole: no disk is used


@pytest.mark.parametrize(
    ("make", "reason", "detail"),
    [
        (_make_missing, R.MISSING_FILE, "there is no such file"),
        (_make_folder, R.UNREADABLE, "not a regular file"),
        (_make_loop, R.UNREADABLE, "Too many levels of symbolic links"),
        (_make_pipe, R.UNREADABLE, "not a regular file"),
        (_make_empty, R.EMPTY_FILE, "the file has no bytes"),
        (_make_huge, R.TOO_LARGE, "an image may have up to"),
    ],
)
def test_a_file_nobody_looked_at_may_be_anything(
    tmp_path: Path, make: Callable[[Path], None], reason: R, detail: str
) -> None:
    path = tmp_path / "a"
    make(path)
    found = fault_of(path)
    assert found[0] == reason
    assert detail in found[1]


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(
    ("name", "reason"),
    [("a\0b", R.UNREADABLE), ("n" * 300, R.UNREADABLE), ("file.png/below", R.MISSING_FILE)],
)
def test_a_path_that_can_be_none_is_a_fault(
    tmp_path: Path, name: str, reason: R, listed: bool
) -> None:
    write(tmp_path / "file.png")
    assert fault_of(tmp_path / name, "e" if listed else None)[0] == reason


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[Path]:
    """A file that may not be read. Root may read anything, so for a moment this process is nobody."""
    path = write(tmp_path / "secret.png")
    path.chmod(0o000)
    user = os.geteuid()
    os.seteuid(user or 65534)
    yield path
    os.seteuid(user)


def test_a_file_that_may_not_be_read_is_a_fault(secret: Path) -> None:
    assert fault_of(secret) == (R.UNREADABLE, "Permission denied")


def test_a_process_out_of_files_says_so_and_blames_no_image(tmp_path: Path) -> None:
    path = write(tmp_path / "a")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        with pytest.raises(
            StorageError,
            match=r"cannot read .*a: Too many open files; lower --threads or raise the limit \(ulimit -n\)",
        ):
            read(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_every_descriptor_is_closed_again(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    good = write(tmp_path / "a")
    before = len(os.listdir("/dev/fd"))
    read(good)
    assert fault_of(good, "another") == (
        R.CHANGED,
        "the file changed between listing and reading: build again",
    )
    assert fault_of(tmp_path / "folder")[0] == R.UNREADABLE
    assert len(os.listdir("/dev/fd")) == before


def batch_of(*paths: Path) -> pa.RecordBatch:
    """References to files as they are now."""
    status = [path.stat() for path in paths]
    sizes, etags = [found.st_size for found in status], [etag_of(found) for found in status]
    return references(
        [path.name for path in paths],
        uri=[str(path) for path in paths],
        num_bytes=sizes,
        etag=etags,
    )


def test_a_read_for_each_row_in_order(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, name.encode()) for name in ("b", "a", "c")]
    reads = start_reads(batch_of(*paths), NO_OPTIONS)
    assert [read() for read in reads] == [b"b", b"a", b"c"]


def test_files_are_read_when_they_are_wanted(tmp_path: Path) -> None:
    """Files at hand are not read ahead, so what changes after the read was made is seen."""
    path = write(tmp_path / "a")
    (read_it,) = start_reads(batch_of(path), NO_OPTIONS)
    write(path, PNG + b"!")
    with pytest.raises(ImageFault, match="changed between listing and reading"):
        read_it()
    path.unlink()
    with pytest.raises(ImageFault, match="there is no such file"):
        read_it()


def test_a_table_without_etags_is_a_programming_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="etag"):
        start_reads(batch_of(write(tmp_path / "a")).drop_columns(["etag"]), NO_OPTIONS)


@given(sizes=st.lists(st.integers(1, 5), max_size=12))
def test_chunks_of_files_are_given_one_at_a_time_and_in_order(sizes: list[int]) -> None:
    """Nothing of them is in memory before it is read, so there is nothing to be gained by going ahead."""
    drawn = 0

    def chunks() -> Iterator[pa.RecordBatch]:
        nonlocal drawn
        for number, size in enumerate(sizes):
            drawn += 1
            yield references([f"{number}-{row}" for row in range(size)], num_bytes=100 << 20)

    given_out = 0
    for number, (chunk, reads) in enumerate(read_ahead(chunks(), NO_OPTIONS, 2)):
        given_out += 1
        assert drawn == given_out, "none ahead"
        assert chunk.column("id").to_pylist() == [f"{number}-{row}" for row in range(sizes[number])]
        assert len(reads) == sizes[number]
    assert given_out == len(sizes)
