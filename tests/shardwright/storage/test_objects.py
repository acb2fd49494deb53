"""Files through `Folder`: read, written, created, removed and copied, under any name."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest

from shardwright.errors import ChangedError, ExistsError, MissingError
from shardwright.format import naming
from shardwright.storage import folder as folders
from shardwright.storage.downloads import PART_BYTES, download
from shardwright.storage.folder import Folder
from shardwright.storage.object_reads import head_object
from shardwright.storage.range_reader import BUFFER_BYTES
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.support.buckets import SERVERS, Bucket, Counted, bucket_on, on_s3_and_gcs

# Characters that clients quote in an address, or that mean more to a shell, a table or a query.
ODD_KEYS = (
    "a b", " a", "a ", "a+b", "a%20b", "a%2Fb", "%", "100%", "a#b", "a?b=c&d", "a*b", "a'b\"c",
    "<a>&amp;", "a;b,c", "[a]{b}", "a|b\\c", "a:b@c", "~a", "a^b`c", "=a", "!a$", "Löwe/naïve",
    "e\u0301", "日本/語", "🐱/😀", "a..b", "...", "-", "_", "\u00a0", "\u202ea",
)  # fmt: skip


@pytest.fixture(params=["local", *SERVERS])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """An empty folder: a local one, and one on each of the servers."""
    if request.param == "local":
        return Folder(str(tmp_path / "set"))
    return bucket_on(request, request.param).folder("set")


@pytest.mark.long_but_first
def test_odd_names(bucket: Bucket) -> None:
    ours, theirs = bucket.folder("in put/ü%41"), bucket.folder("theirs")
    contents = {name: name.encode() for name in ODD_KEYS}
    for name, data in contents.items():
        ours.write_bytes(name, data)
        bucket.put(f"theirs/{name}", data)
    prefix = "in put/ü%41/"
    keys = [start + name for start in (prefix, "theirs/") for name in ODD_KEYS]
    assert bucket.keys() == sorted(keys)
    assert {name: bucket.get(prefix + name) for name in ODD_KEYS} == contents
    assert {name: theirs.read_bytes(name) for name in ODD_KEYS} == contents
    assert [theirs.num_bytes_of(name) for name in ODD_KEYS] == list(map(len, contents.values()))
    top = sorted({name.partition("/")[0] for name in ODD_KEYS})
    assert (ours.names(), theirs.names(), theirs.names("Löwe")) == (top, top, ["naïve"])
    ours.remove_all(ODD_KEYS[::2])
    for name in ODD_KEYS[1::2]:
        ours.remove(name)
    assert bucket.folder("in put").names() == []
    assert len(bucket.keys()) == len(ODD_KEYS)


def test_ranges_are_those_of_a_local_file(bucket: Bucket, tmp_path: Path) -> None:
    data = bytes(range(10))
    (tmp_path / "x").write_bytes(data)
    bucket.put("x", data)
    for offset, length in (
        (0, 10), (3, 4), (8, 2), (8, 100), (9, 1), (10, 5), (11, 5), (10, 0), (0, 0), (5, 0),
        (1 << 40, 1),
    ):  # fmt: skip
        for folder in (Folder(str(tmp_path)), bucket.folder()):
            assert folder.read_range("x", offset, length) == data[offset : offset + length]


DATA = os.urandom(3 << 20)
NEAR = [(start, start + 50) for start in range(0, 100_000, 1000)]
SPANS = ((NEAR, 1), ([(0, 10), (2_500_000, 2_500_100)], 2), ([(9, 30), (20, 25), (9, 30)], 1))


def test_read_ranges(folder: Folder) -> None:
    folder.write_bytes("x", DATA)
    for spans, _ in SPANS:
        assert folder.read_ranges("x", spans) == [DATA[start:stop] for start, stop in spans]
    with pytest.raises(MissingError, match=rf"^{folder.uri}/y: there is no such (file|object)$"):
        folder.read_ranges("y", NEAR)


def test_near_ranges_need_one_request(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    s3_bucket.put("x", DATA)
    for spans, num_requests in SPANS:
        before = len(s3_proxy.requests)
        s3_bucket.behind(s3_proxy).folder().read_ranges("x", spans)
        assert len(s3_proxy.requests) == before + num_requests


def test_an_empty_object(bucket: Bucket) -> None:
    folder = bucket.folder("a")
    folder.write_bytes("empty", b"")
    assert (folder.num_bytes_of("empty"), folder.read_bytes("empty")) == (0, b"")
    assert folder.read_range("empty", 0, 5) == b""
    assert folder.open_input("empty").read() == b""
    with folder.local_copy("empty") as file:
        assert file.read() == b""


@on_s3_and_gcs
def test_arrow_reads_tables(bucket: Bucket) -> None:
    table = pa.table({"id": [f"image {n}" for n in range(3000)], "n": list(range(3000))})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=500)
    folder, rows = bucket.folder("t"), table.to_pylist()
    csv, json = "id,n\n", "".join('{{"id":"{id}","n":{n}}}\n'.format(**row) for row in rows)
    csv += "".join("{id},{n}\n".format(**row) for row in rows)
    folder.write_bytes("x.parquet", sink.getvalue().to_pybytes())
    folder.write_bytes("x.csv", csv.encode())
    folder.write_bytes("x.jsonl", json.encode())
    group = pq.ParquetFile(folder.open_input("x.parquet")).read_row_group(3)
    assert group == table.slice(1500, 500).combine_chunks()
    assert pq.read_table(folder.open_input("x.parquet")) == table
    assert pyarrow.csv.read_csv(folder.open_input("x.csv")) == table
    assert pyarrow.json.read_json(folder.open_input("x.jsonl")) == table


def test_a_large_input_is_read_in_a_few_requests(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    data = os.urandom(2 * BUFFER_BYTES + 1000)
    s3_bucket.put("x", data)
    file = s3_bucket.behind(s3_proxy).folder().open_input("x")
    assert b"".join(iter(lambda: file.read(100_000), b"")) == data
    assert [method for method, _ in s3_proxy.requests] == ["HEAD", *["GET"] * 3]
    end = len(data)
    for start, length in ((end - 8, 100), (5, 10), (BUFFER_BYTES - 1, 2), (end, 1), (0, 3)):
        file.seek(start)
        assert file.read(length) == data[start : start + length]
    assert (file.size(), file.tell()) == (end, 3)


def test_names_files_and_outputs(folder: Folder) -> None:
    ours = [
        "index/train-00000-of-00001.parquet", "manifest.json", "rejects/plan.parquet",
        "zoo-train.tfrecord-00000-of-00001",
    ]  # fmt: skip
    for name in [*ours, "README.md", ".hidden", "index/notes.txt", "other/manifest.json"]:
        folder.write_bytes(name, name.encode())
    parent = Folder(os.path.dirname(folder.uri), folder.options)
    nowhere = Folder(folder.path("nowhere"), folder.options)
    parent.write_bytes("set-2/manifest.json", b"")
    parent.write_bytes("setting", b"")
    assert naming.build_outputs(folder) == ours
    assert (nowhere.names(), naming.build_outputs(nowhere)) == ([], [])
    names = [".hidden", "README.md", "index", "manifest.json", "other", "rejects", ours[-1]]
    found = [folder.names(below) for below in ("", "index", "nowhere", "README.md")]
    assert found == [names, ["notes.txt", "train-00000-of-00001.parquet"], [], []]
    assert parent.names() == ["set", "set-2", "setting"]
    others = [Folder(parent.path(name), folder.options) for name in ("setting", "set", "gone")]
    assert [other.is_file() for other in others] == [True, False, False]
    folder.remove_all(["README.md", "gone", "index/notes.txt", "gone/too"])
    folder.remove_all([])
    folder.remove(".hidden")
    folder.remove("gone")
    assert (folder.names(), folder.names("index")) == (names[2:], ["train-00000-of-00001.parquet"])
    assert [folder.num_bytes_of(name) for name in ("manifest.json", "gone")] == [13, None]


def test_missing_objects(bucket: Bucket) -> None:
    folder = bucket.folder("a")
    bucket.put("a/b/c", b"x")
    reads: list[Callable[[str], object]] = [
        folder.read_bytes,
        folder.open_input,
        lambda name: folder.read_range(name, 0, 1),
        lambda name: folder.read_range(name, 0, 0),
        lambda name: folder.local_copy(name).__enter__(),
    ]
    for read in reads:
        for name in ("x", "b"):
            with pytest.raises(MissingError, match=rf"^{folder.uri}/{name}: there is no such obj"):
                read(name)
    assert (folder.num_bytes_of("x"), folder.num_bytes_of("b")) == (None, None)
    folder.remove("b")
    folder.remove_all(["x", "b"])
    assert bucket.keys() == ["a/b/c"]
    assert not bucket.folder().is_file()


def test_write_if_new_writes_nothing_twice(bucket: Bucket, proxy: FaultProxy) -> None:
    folder = bucket.behind(proxy).folder("a")
    for data, writes in ((b"1", 1), (b"1", 1), (b"2", 2), (b"2", 2)):
        folder.write_if_new("x", data)
        assert bucket.get("a/x") == data
        assert [method for method, _ in proxy.requests].count("PUT") == writes


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
    folder.below("below").copy("ü %41", folder)
    assert (folder.read_bytes("ü %41"), folder.names()) == (b"12345", ["below", "ü %41"])
    with pytest.raises(MissingError):
        folder.below("below").copy("gone", folder)


@on_s3_and_gcs
def test_many_objects_are_removed(bucket: Bucket, proxy: FaultProxy) -> None:
    keys = bucket.fill(f"d/{number:04d} ü" for number in range(1001))
    bucket.put("keep", b"x")
    bucket.behind(proxy).folder().remove_all([*keys, *(f"gone/{number}" for number in range(10))])
    assert bucket.keys() == ["keep"]
    if bucket.server.scheme == "s3":
        methods = [method for method, _ in proxy.requests]
        assert methods == ["POST"] * 2, "a thousand a request"


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


def test_an_object_that_changes_while_it_is_read(bucket: Bucket, tmp_path: Path) -> None:
    uri, options = f"{bucket.uri}/x", bucket.options()
    bucket.put("x", b"old")
    found = head_object(uri, options)
    assert found is not None
    opened = bucket.folder().open_input("x")
    bucket.put("x", b"new")
    message = rf"^{uri} has changed since it was listed, or is not 3 bytes long$"
    with (tmp_path / "copy").open("wb") as file, pytest.raises(ChangedError, match=message):
        download(uri, options, file.fileno(), 3, etag=found.etag)
    with pytest.raises(ChangedError, match=r"x has changed since it was listed$"):
        opened.read()


@on_s3_and_gcs
def test_lengths_and_times(bucket: Bucket) -> None:
    root = bucket.folder("data")
    assert (root.info("a"), root.files(), root.first_names()) == (None, {}, [])
    began = time.time()
    bucket.fill(["data/a", "data/below/b", "database"], b"xyz")
    found = root.files()
    assert list(found) == ["a"]
    alone = root.info("a")
    assert alone is not None
    assert found["a"].num_bytes == alone.num_bytes == 3
    assert abs(found["a"].modified - alone.modified) < 1  # a header has whole seconds
    assert began - 1 <= found["a"].modified <= time.time() + 1
    assert root.first_names() == ["a", "below"]
    assert bucket.folder().first_names() == ["data", "database"]
