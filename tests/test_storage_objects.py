"""Files of stores through `Folder`: read, written, created, removed and copied, on every store, under any name."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest

from shardwright.errors import ChangedError, ExistsError, MissingError
from shardwright.storage import Folder
from shardwright.storage.downloads import PART_BYTES, download
from shardwright.storage.objects import head_object
from shardwright.storage.range_reader import BUFFER_BYTES
from tests.buckets import Bucket, Counted
from tests.fault_proxy import Fault, FaultProxy

# Every character that clients quote in an address, or that a shell, a table or a query would take for something else.
ODD_KEYS = (
    "a b", " a", "a ", "a+b", "a%20b", "a%2Fb", "%", "100%", "a#b", "a?b=c&d", "a*b", "a'b\"c", "<a>&amp;", "a;b,c", "[a]{b}", "a|b\\c",
    "a:b@c", "~a", "a^b`c", "=a", "!a$", "Löwe/naïve", "e\u0301", "日本/語", "🐱/😀", "a..b", "...", "-", "_", "\u00a0", "\u202ea",
)  # fmt: skip


def test_odd_names_are_written_listed_read_and_removed_as_they_are(bucket: Bucket) -> None:
    folder = bucket.folder("in put/ü%41")
    for name in ODD_KEYS:
        folder.write_bytes(name, name.encode())
        bucket.put(f"theirs/{name}", name.encode())
    prefix = "in put/ü%41/"
    assert bucket.keys() == sorted(
        [prefix + name for name in ODD_KEYS] + [f"theirs/{name}" for name in ODD_KEYS]
    )
    assert {name: bucket.get(prefix + name) for name in ODD_KEYS} == {
        name: name.encode() for name in ODD_KEYS
    }
    theirs = bucket.folder("theirs")
    assert {name: theirs.read_bytes(name) for name in ODD_KEYS} == {
        name: name.encode() for name in ODD_KEYS
    }
    assert [theirs.num_bytes_of(name) for name in ODD_KEYS] == [
        len(name.encode()) for name in ODD_KEYS
    ]
    top = sorted({name.partition("/")[0] for name in ODD_KEYS})
    assert (folder.names(), theirs.names()) == (top, top)
    assert theirs.names("Löwe") == ["naïve"]
    folder.remove_all(ODD_KEYS[::2])
    for name in ODD_KEYS[1::2]:
        folder.remove(name)
    assert bucket.folder("in put").names() == []
    assert len(bucket.keys()) == len(ODD_KEYS)


@pytest.mark.parametrize(
    ("offset", "length", "wanted"),
    [(0, 10, slice(0, 10)), (3, 4, slice(3, 7)), (8, 2, slice(8, 10)), (8, 100, slice(8, 10)), (9, 1, slice(9, 10)), (10, 5, slice(0, 0)),
     (11, 5, slice(0, 0)), (10, 0, slice(0, 0)), (0, 0, slice(0, 0)), (5, 0, slice(0, 0)), (1 << 40, 1, slice(0, 0))],
)  # fmt: skip
def test_ranges_are_those_of_a_local_file(
    bucket: Bucket, tmp_path: Path, offset: int, length: int, wanted: slice
) -> None:
    data = bytes(range(10))
    (tmp_path / "x").write_bytes(data)
    bucket.put("x", data)
    assert Folder(str(tmp_path)).read_range("x", offset, length) == data[wanted]
    assert bucket.folder().read_range("x", offset, length) == data[wanted]


def test_an_empty_object(bucket: Bucket) -> None:
    folder = bucket.folder("a")
    folder.write_bytes("empty", b"")
    assert (
        folder.num_bytes_of("empty"),
        folder.read_bytes("empty"),
        folder.read_range("empty", 0, 5),
    ) == (0, b"", b"")
    assert folder.open_input("empty").read() == folder.open_small("empty").read() == b""
    with folder.local_copy("empty") as path:
        assert Path(path).read_bytes() == b""


@pytest.mark.parametrize("opened", ["open_input", "open_small"])
def test_arrow_reads_tables_out_of_a_store(bucket: Bucket, opened: str) -> None:
    table = pa.table({"id": [f"image {n}" for n in range(3000)], "n": list(range(3000))})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=500)
    folder = bucket.folder("t")
    folder.write_bytes("x.parquet", sink.getvalue().to_pybytes())
    folder.write_bytes(
        "x.csv", b"id,n\n" + b"".join(b"image %d,%d\n" % (n, n) for n in range(3000))
    )
    folder.write_bytes(
        "x.jsonl", b"".join(b'{"id":"image %d","n":%d}\n' % (n, n) for n in range(3000))
    )
    open_: Callable[[str], pa.NativeFile] = getattr(folder, opened)
    assert (
        pq.ParquetFile(open_("x.parquet")).read_row_group(3)
        == table.slice(1500, 500).combine_chunks()
    )
    assert (
        pq.read_table(open_("x.parquet"))
        == pyarrow.csv.read_csv(open_("x.csv"))
        == pyarrow.json.read_json(open_("x.jsonl"))
        == table
    )


def test_a_large_input_is_read_in_a_few_requests(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    data = os.urandom(2 * BUFFER_BYTES + 1000)
    s3_bucket.put("x", data)
    file = s3_bucket.behind(s3_proxy).folder().open_input("x")
    assert b"".join(iter(lambda: file.read(100_000), b"")) == data
    assert [method for method, _ in s3_proxy.requests] == ["HEAD", *["GET"] * 3]
    for start, length in (
        (len(data) - 8, 100),
        (5, 10),
        (BUFFER_BYTES - 1, 2),
        (len(data), 1),
        (0, 3),
    ):
        file.seek(start)
        assert file.read(length) == data[start : start + length]
    assert (file.size(), file.tell()) == (len(data), 3)


def test_names_files_and_outputs(bucket: Bucket) -> None:
    ours = [
        "index/train-00000-of-00001.parquet",
        "manifest.json",
        "rejects/plan.parquet",
        "zoo-train.tfrecord-00000-of-00001",
    ]
    bucket.fill(
        [f"set/{name}" for name in (*ours, "README.md", "index/notes.txt", "other/manifest.json")]
    )
    bucket.fill(["set-2/manifest.json", "setting"])
    folder = bucket.folder("set")
    assert folder.outputs() == ours
    assert folder.names() == [
        "README.md",
        "index",
        "manifest.json",
        "other",
        "rejects",
        "zoo-train.tfrecord-00000-of-00001",
    ]
    assert folder.names("index") == ["notes.txt", "train-00000-of-00001.parquet"]
    assert (
        folder.names("nowhere")
        == bucket.folder("nowhere").names()
        == bucket.folder("nowhere").outputs()
        == []
    )
    assert bucket.folder().names() == ["set", "set-2", "setting"]
    assert [bucket.folder(key).is_file() for key in ("setting", "set", "nowhere", "")] == [
        True,
        False,
        False,
        False,
    ]


def test_what_is_missing(bucket: Bucket) -> None:
    folder = bucket.folder("a")
    bucket.put("a/b/c", b"x")
    told = rf"^{bucket.uri}/a/(b|x): there is no such object$"
    reads: list[Callable[[str], object]] = [
        folder.read_bytes, folder.open_input, folder.open_small,
        lambda name: folder.read_range(name, 0, 1), lambda name: folder.local_copy(name).__enter__(),
    ]  # fmt: skip
    for read in reads:
        for name in ("x", "b"):
            with pytest.raises(MissingError, match=told):
                read(name)
    assert (folder.num_bytes_of("x"), folder.num_bytes_of("b")) == (None, None)
    folder.remove("x")
    folder.remove_all(["x", "y"])
    folder.remove_all([])
    assert bucket.keys() == ["a/b/c"]


def test_write_if_new_writes_nothing_twice(bucket: Bucket, proxy: FaultProxy) -> None:
    folder = bucket.behind(proxy).folder("a")
    for data, writes in ((b"1", 1), (b"1", 1), (b"2", 2), (b"2", 2)):
        folder.write_if_new("x", data)
        assert bucket.get("a/x") == data
        assert [method for method, _ in proxy.requests].count("PUT") == writes


def test_only_one_creates(bucket: Bucket) -> None:
    folder = bucket.folder("a")

    def create(number: int) -> bool:
        try:
            folder.create_bytes("lock", b"%d" % number)
        except ExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(create, range(8)))
    assert created.count(True) == 1
    assert bucket.get("a/lock") == b"%d" % created.index(True)
    with pytest.raises(ExistsError, match=rf"^{bucket.uri}/a/lock is there already$"):
        folder.create_bytes("lock", b"%d" % created.index(True))


def test_a_creation_whose_answer_is_lost_has_gone_well(
    s3_bucket: Bucket, s3_proxy: FaultProxy
) -> None:
    folder = s3_bucket.behind(s3_proxy).folder()
    s3_proxy.add(Fault("reset_after_upstream", 1, method="PUT"))
    counted = Counted()
    folder.create_bytes("mine", b"me")
    assert (s3_bucket.get("mine"), sum(counted.retries.values())) == (b"me", 1)
    s3_bucket.put("theirs", b"them")
    s3_proxy.clear()
    s3_proxy.add(Fault("status", 1, method="PUT"))
    with pytest.raises(ExistsError, match="theirs is there already"):
        folder.create_bytes("theirs", b"me")


@pytest.mark.parametrize("bucket", ["s3_server", "gcs_server"], indirect=True)
def test_2500_objects_are_removed_and_ten_that_are_not_there(
    bucket: Bucket, proxy: FaultProxy
) -> None:
    keys = bucket.fill(f"d/{number:04d} ü" for number in range(2500))
    bucket.put("keep", b"x")
    bucket.behind(proxy).folder().remove_all([*keys, *(f"gone/{number}" for number in range(10))])
    assert bucket.keys() == ["keep"]
    if bucket.server.scheme == "s3":
        assert [method for method, _ in proxy.requests] == ["POST"] * 3, "a thousand a request"


@pytest.mark.parametrize("bucket", ["s3_server", "gcs_server"], indirect=True)
def test_a_local_copy_of_a_large_object(bucket: Bucket, proxy: FaultProxy) -> None:
    data = os.urandom(20_000_000)
    bucket.put("large", data)
    counted = Counted()
    with bucket.behind(proxy).folder().local_copy("large") as path:
        assert Path(path).read_bytes() == data
    assert not os.path.exists(path)
    assert counted.all["bytes_read"] == len(data)
    assert [method for method, _ in proxy.requests] == [
        "HEAD",
        *["GET"] * -(-len(data) // PART_BYTES),
    ]


def test_an_object_that_changes_while_it_is_downloaded(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("x", b"old")
    found = head_object(f"{bucket.uri}/x", bucket.options())
    assert found is not None
    opened = bucket.folder().open_input("x")
    bucket.put("x", b"new")
    with (
        (tmp_path / "copy").open("wb") as file,
        pytest.raises(ChangedError, match="x changed while it was downloaded"),
    ):
        download(f"{bucket.uri}/x", bucket.options(), file.fileno(), [(0, 3)], etag=found.etag)
    with pytest.raises(ChangedError, match="x changed while"):
        opened.read()
