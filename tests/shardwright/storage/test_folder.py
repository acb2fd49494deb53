"""Folders on a disk, on S3 and on GCS: the same calls, with the same results and errors."""

from __future__ import annotations

import os
import re
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from shardwright.errors import ChangedError, ExistsError, MissingError, StorageError
from shardwright.storage import folder as folders
from shardwright.storage.downloads import PART_BYTES, download
from shardwright.storage.folder import Folder
from shardwright.storage.object_reads import ObjectParts, head_object, read_object
from shardwright.storage.range_reader import BUFFER_BYTES
from shardwright.storage.uploads import PART_BYTES as UPLOAD_BYTES
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.support.buckets import SERVERS, Bucket, Counted, bucket_on, on_s3_and_gcs
from tests.support.build_helpers import stamps_of

# Characters that clients quote in an address, or that mean more to a shell, a table or a query.
ODD_NAMES = (
    "a b", " a", "a ", "a+b", "a%20b", "a%2Fb", "%", "100%", "a#b", "a?b=c&d", "a*b", "a'b\"c",
    "<a>&amp;", "a;b,c", "[a]{b}", "a|b\\c", "a:b@c", "~a", "a^b`c", "=a", "!a$", "Löwe/naïve",
    "e\u0301", "日本/語", "🐱/😀", "a..b", "...", "-", "_", "\u00a0", "\u202ea",
)  # fmt: skip
LONG = os.urandom(3 << 20)


@pytest.fixture(params=["local", *SERVERS])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """An empty folder: a local one, and one on each of the servers."""
    if request.param == "local":
        return Folder(str(tmp_path / "set"))
    return bucket_on(request, request.param).folder("set")


def input_file(folder: Folder, name: str) -> bytes:
    with folder.open_input(name) as file:
        assert isinstance(file, pa.NativeFile)
        return bytes(file.read())


def copy(folder: Folder, name: str) -> bytes:
    with folder.local_copy(name) as file:
        return file.read()


READS: dict[str, Callable[[Folder, str], object]] = {
    "read_bytes": lambda folder, name: folder.read_bytes(name),
    "read_range": lambda folder, name: folder.read_range(name, 0, 10),
    "read_ranges": lambda folder, name: folder.read_ranges(name, [(0, 10)])[0],
    "open_input": input_file,
    "local_copy": copy,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_reading(folder: Folder, read: Callable[[Folder, str], object]) -> None:
    folder.write_bytes("file", b"0123456789")
    folder.write_bytes("below/file", b"")
    assert read(folder, "file") == b"0123456789"
    for name in ("gone", "gone/below", "file/below"):
        with pytest.raises(MissingError) as caught:
            read(folder, name)
        missing = f"{folder.path(name)}: there is no such (file|object)"
        assert re.fullmatch(missing, str(caught.value))
        assert isinstance(caught.value, FileNotFoundError)
    message = "there is no such" if folder.is_remote else ".*(directory|folder)"
    with pytest.raises(StorageError, match=f"^{folder.path('below')}( cannot be read)?: {message}"):
        read(folder, "below")


@pytest.mark.parametrize("read", [READS[name] for name in READS if name != "read_ranges"])
def test_an_empty_file(folder: Folder, read: Callable[[Folder, str], object]) -> None:
    folder.write_bytes("empty", b"")
    assert (folder.num_bytes_of("empty"), read(folder, "empty")) == (0, b"")


def test_ranges_are_slices(folder: Folder) -> None:
    """Ranges beyond the end are no error: callers compare lengths."""
    data = bytes(range(10))
    folder.write_bytes("x", data)
    for offset, length in (
        (0, 10), (3, 4), (8, 2), (8, 100), (9, 1), (10, 5), (11, 5), (10, 0), (0, 0), (5, 0),
        (1 << 40, 1),
    ):  # fmt: skip
        assert folder.read_range("x", offset, length) == data[offset : offset + length]
    with pytest.raises(MissingError):
        folder.read_range("gone", 0, 0)


NEAR = [(start, start + 50) for start in range(0, 100_000, 1000)]
SPANS = ((NEAR, 1), ([(0, 10), (2_500_000, 2_500_100)], 2), ([(9, 30), (20, 25), (9, 30)], 1))


def test_several_ranges(folder: Folder) -> None:
    folder.write_bytes("x", LONG)
    for spans, _ in SPANS:
        assert folder.read_ranges("x", spans) == [LONG[start:stop] for start, stop in spans]


def test_near_ranges_need_one_request(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    s3_bucket.put("x", LONG)
    for spans, num_requests in SPANS:
        before = s3_proxy.num_requests
        s3_bucket.behind(s3_proxy).folder().read_ranges("x", spans)
        assert s3_proxy.num_requests == before + num_requests


def test_an_input_is_seekable(folder: Folder) -> None:
    folder.write_bytes("x", LONG)
    end = len(LONG)
    with folder.open_input("x") as file:
        for start, length in ((end - 8, 100), (5, 10), (BUFFER_BYTES - 1, 2), (end, 1), (0, 3)):
            file.seek(start)
            assert file.read(length) == LONG[start : start + length]
        assert (file.size(), file.tell(), file.seek(-3, os.SEEK_END)) == (end, 3, end - 3)
    assert file.closed


def test_a_large_input_is_read_in_a_few_requests(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    data = os.urandom(2 * BUFFER_BYTES + 1000)
    s3_bucket.put("x", data)
    file = s3_bucket.behind(s3_proxy).folder().open_input("x")
    assert b"".join(iter(lambda: file.read(100_000), b"")) == data
    assert [method for method, _ in s3_proxy.requests] == ["HEAD", *["GET"] * 3]


@on_s3_and_gcs
def test_a_local_copy_of_a_large_object(
    bucket: Bucket, proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no name, so a process that is killed meanwhile leaves nothing of it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    data = os.urandom(20_000_000)
    bucket.put("large", data)
    counted = Counted()
    with bucket.behind(proxy).folder().local_copy("large") as file:
        assert os.listdir(tmp_path) == []
        assert file.read() == data
    assert counted.all["bytes_read"] == len(data)
    parts = -(-len(data) // PART_BYTES)
    assert [method for method, _ in proxy.requests] == ["HEAD", *["GET"] * parts]


def test_an_object_that_has_changed(bucket: Bucket, tmp_path: Path) -> None:
    uri, options = f"{bucket.uri}/x", bucket.options()
    bucket.put("x", b"old")
    found = head_object(uri, options)
    assert found is not None
    etag, opened = found.etag, bucket.folder().open_input("x")
    assert read_object(uri, options, num_bytes=3, etag=etag) == b"old"
    bucket.put("x", b"new")
    # A part of an archive that is shorter now ends in it, or begins behind its end.
    assert ObjectParts(uri, options, None).read(1, 3) == b"ew"
    reads: tuple[Callable[[], object], ...] = (
        lambda: read_object(uri, options, etag=etag),
        lambda: read_object(uri, options, num_bytes=3, etag=etag),
        lambda: read_object(uri, options, num_bytes=4),
        lambda: ObjectParts(uri, options, etag).read(1, 3),
        lambda: ObjectParts(uri, options, None).read(1, 6),
        lambda: ObjectParts(uri, options, None).read(10, 15),
        opened.read,
    )
    for read in reads:
        with pytest.raises(ChangedError, match=rf"{uri} has changed since it was listed$"):
            read()
    message = rf"^{uri} has changed since it was listed, or is not 3 bytes long$"
    with (tmp_path / "copy").open("wb") as file, pytest.raises(ChangedError, match=message):
        download(uri, options, file.fileno(), 3, etag=etag)


@pytest.mark.long_but_first
def test_odd_names(bucket: Bucket) -> None:
    ours, theirs = bucket.folder("in put/ü%41"), bucket.folder("theirs")
    contents = {name: name.encode() for name in ODD_NAMES}
    for name, data in contents.items():
        ours.write_bytes(name, data)
        bucket.put(f"theirs/{name}", data)
    prefix = "in put/ü%41/"
    keys = [start + name for start in (prefix, "theirs/") for name in ODD_NAMES]
    assert bucket.keys() == sorted(keys)
    assert {name: bucket.get(prefix + name) for name in ODD_NAMES} == contents
    assert {name: theirs.read_bytes(name) for name in ODD_NAMES} == contents
    assert [theirs.num_bytes_of(name) for name in ODD_NAMES] == list(map(len, contents.values()))
    top = sorted({name.partition("/")[0] for name in ODD_NAMES})
    assert (ours.names(), theirs.names(), theirs.names("Löwe")) == (top, top, ["naïve"])
    ours.remove_all(ODD_NAMES[::2])
    for name in ODD_NAMES[1::2]:
        ours.remove(name)
    assert bucket.folder("in put").names() == []
    assert len(bucket.keys()) == len(ODD_NAMES)


def test_names_and_removal(folder: Folder) -> None:
    parent = Folder(os.path.dirname(folder.uri), folder.options)
    assert (folder.names(), folder.first_names(), folder.files()) == ([], [], {})
    for name in ("set/.hidden", "set/a", "set/below/a", "set/below/b/c", "set-2/a", "setting"):
        parent.write_bytes(name, b"1")
    names = [".hidden", "a", "below"]
    assert folder.names() == folder.first_names() == names
    found = [folder.names(below) for below in ("below", "below/b", "nowhere", "a")]
    assert found == [["a", "b"], ["c"], [], []]
    assert parent.names() == parent.first_names() == ["set", "set-2", "setting"]
    assert [parent.below(name).is_file() for name in ("setting", "set", "gone", "setting/a")] == [
        True, False, False, False
    ]  # fmt: skip
    folder.remove_all([])
    folder.remove_all(["a", "gone", "below/a", "gone/too", "below/b/c/d"])
    for name in (".hidden", "gone", "below/b/c/d"):
        folder.remove(name)
    assert (folder.files(), folder.names("below/b")) == ({}, ["c"])
    folder.remove("below/b/c")
    folder.remove_empty()
    assert parent.names() == ["set-2", "setting"]


def test_lengths_and_times(folder: Folder) -> None:
    assert (folder.info("a"), folder.num_bytes_of("a")) == (None, None)
    began = time.time()
    folder.write_bytes("a", b"xyz")
    folder.write_bytes("below/b", b"")
    found, alone = folder.files(), folder.info("a")
    assert (list(found), list(folder.files("below")), folder.files("none")) == (["a"], ["b"], {})
    assert alone is not None
    assert found["a"].num_bytes == alone.num_bytes == folder.num_bytes_of("a") == 3
    assert abs(found["a"].modified - alone.modified) < 1  # a header has whole seconds
    assert began - 1 <= found["a"].modified <= time.time() + 1
    assert (found["a"].etag, alone.crc32c) == (alone.etag, None)
    assert (alone.etag is not None) is folder.is_remote
    assert folder.info("a/x") is None


def test_write_if_new_writes_nothing_twice(folder: Folder) -> None:
    written: list[object] = []
    for data in (b"1", b"1", b"2", b"2"):
        counted = Counted()
        folder.write_if_new("x", data)
        assert folder.read_bytes("x") == data
        # A store's times have whole seconds; a disk's writes are not counted.
        new = counted.all.get("bytes_written") if folder.is_remote else stamps_of(Path(folder.uri))
        written.append(new)
    if folder.is_remote:
        assert written == [1, None, 1, None]
    else:
        assert written[0] == written[1] != written[2] == written[3]


# Without moto, which looks for the object first and then writes it.
@pytest.mark.parametrize("folder", ["local", "s3_server", "gcs_server"], indirect=True)
def test_exactly_one_of_eight_creates(folder: Folder) -> None:
    start = threading.Barrier(8)

    def create(number: int) -> bool:
        start.wait()
        try:
            folder.create_bytes("lock", b"%d" % number * 1000)
        except ExistsError:
            return False
        return True

    for _ in range(3):
        folder.remove("lock")
        with ThreadPoolExecutor(8) as pool:
            created = list(pool.map(create, range(8)))
        winner = b"%d" % created.index(True) * 1000
        assert (created.count(True), folder.read_bytes("lock")) == (1, winner)
    with pytest.raises(ExistsError) as caught:
        folder.create_bytes("lock", winner)
    assert str(caught.value) == f"{folder.path('lock')} already exists"
    assert folder.names() == ["lock"]


def test_a_creation_without_an_answer(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    folder = s3_bucket.behind(s3_proxy).folder()
    s3_proxy.add(Fault("reset_after_upstream", 1, method="PUT"))
    counted = Counted()
    folder.create_bytes("mine", b"me")
    assert (s3_bucket.get("mine"), sum(counted.retries.values())) == (b"me", 1)
    s3_bucket.put("theirs", b"them")
    s3_proxy.clear()
    s3_proxy.add(Fault("status", 1, method="PUT"))
    with pytest.raises(ExistsError, match="theirs already exists"):
        folder.create_bytes("theirs", b"me")


@pytest.mark.parametrize(("limit", "piece"), [(1 << 30, 2), (2, 2), (2, folders._STORE_COPY_BYTES)])
def test_a_copy_stays_in_the_store(
    folder: Folder, limit: int, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object that is too large for one request is read and written."""
    monkeypatch.setattr(folders, "_MAX_STORE_COPY_BYTES", limit)
    monkeypatch.setattr(folders, "_STORE_COPY_BYTES", piece)
    folder.write_bytes("below/ü %41", b"12345")
    folder.write_bytes("ü %41", b"old")
    for _ in range(2):
        folder.below("below").copy("ü %41", folder)
        assert (folder.read_bytes("ü %41"), folder.names()) == (b"12345", ["below", "ü %41"])
    with pytest.raises(MissingError, match=f"^{folder.path('below/gone')}: there is no such"):
        folder.below("below").copy("gone", folder)


@on_s3_and_gcs
def test_many_objects_are_removed(bucket: Bucket, proxy: FaultProxy) -> None:
    keys = bucket.fill(f"d/{number:04d} ü" for number in range(1001))
    bucket.put("keep", b"x")
    bucket.behind(proxy).folder().remove_all([*keys, *(f"gone/{number}" for number in range(10))])
    assert bucket.keys() == ["keep"]
    if bucket.server.scheme == "s3":
        assert [method for method, _ in proxy.requests] == ["POST"] * 2, "a thousand a request"


def test_a_file_appears_at_the_end(folder: Folder) -> None:
    folder.write_bytes("below/x", b"old")
    with folder.open_sink("below/x") as sink:
        sink.write([LONG, b"", LONG])
        sink.write([b"end"])
        assert folder.read_bytes("below/x") == b"old"
        assert sink.num_bytes == 2 * len(LONG) + 3
    assert folder.read_bytes("below/x") == LONG + LONG + b"end"
    assert folder.names("below") == ["x"]


@pytest.mark.parametrize(
    ("folder", "size"),
    [("local", 10), *((s, n) for s in ("s3_server", "gcs_server") for n in (10, 3 * UPLOAD_BYTES))],
    indirect=["folder"],
)
@pytest.mark.parametrize(
    "error", [RuntimeError("mine"), KeyboardInterrupt(), OSError(5, "bad disk"), SystemExit(3)]
)
def test_an_error_in_the_block_leaves_nothing(
    folder: Folder, error: BaseException, size: int
) -> None:
    def fail() -> None:
        with folder.open_sink("x") as sink:
            sink.write([bytes(size)])
            raise error

    is_local = isinstance(error, OSError) and not folder.is_remote
    with pytest.raises(StorageError if is_local else type(error)) as caught:
        fail()
    # A part on its way when an upload was aborted may leave that unfinished, never an object.
    assert folder.names() == []
    assert (caught.value is error) is not is_local, "a store's client raises no error of a file"
