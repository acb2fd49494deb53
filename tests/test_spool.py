"""The spool: bytes that cannot be read in place, their listing, and what is left when something stops halfway."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from shardwright import naming
from shardwright.errors import BuildError, MissingError, UsageError
from shardwright.storage import NO_OPTIONS, Folder
from shardwright.storage.options import StorageOptions
from tests.helpers import references, rejects_of, rows_of
from tests.store_places import Places
from transforms.images import ImageFault
from transforms.inputs import spool
from transforms.inputs.spool import SpoolWriter, UnwrittenFolder, forget_lost_spools, spooled
from transforms.rejects import Reject, RejectReason
from transforms.writing.image_reads import Place as Picture
from transforms.writing.image_reads import read_local_image, read_remote_image

PICTURES = [b"one", b"", b"three" * 1000, b"vier"]
REJECT = Reject("ü", "/in/ü", RejectReason.CORRUPT, "bad")


def make(calls: list[str]) -> Callable[[SpoolWriter], Iterator[pa.RecordBatch | Reject]]:
    def rows(writer: SpoolWriter) -> Iterator[pa.RecordBatch | Reject]:
        calls.append(writer.uri)
        yield REJECT
        for number, data in enumerate(PICTURES):
            place = {
                "uri": writer.uri,
                "offset": writer.add(data),
                "num_bytes": len(data),
                "etag": writer.etag,
            }
            yield references(
                [f"{number}"], extras={"x/list": [[1.5, None]], "x/n": [number]}, **place
            )

    return rows


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "in.bin").write_bytes(b"input")
    return str(tmp_path / "in.bin")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "out" / "spool"))


def pictures(
    rows: list[dict[str, object]], read: Callable[[Picture], bytes] = read_local_image
) -> list[bytes]:
    return [read(Picture(row["uri"], row["offset"], row["num_bytes"], row["etag"])) for row in rows]  # type: ignore[arg-type]


def test_what_is_added_is_read_back_in_order(folder: Folder, source: str) -> None:
    parts = list(spooled(folder, source, "e1", NO_OPTIONS, make([])))
    rows = rows_of(parts)
    assert pictures(rows) == PICTURES
    assert [(row["id"], row["x/n"], row["x/list"]) for row in rows] == [
        (f"{n}", n, [1.5, None]) for n in range(4)
    ]
    assert rejects_of(parts) == [REJECT]
    assert parts[0].schema == references(["0"], extras={"x/list": [[1.5, None]], "x/n": [0]}).schema
    assert sorted(name.rpartition(".")[2] for name in folder.names()) == ["bin", "parquet"]


def test_a_finished_listing_is_used_and_another_etag_is_another_spool(
    folder: Folder, source: str
) -> None:
    calls: list[str] = []
    first = list(spooled(folder, source, "e1", NO_OPTIONS, make(calls)))
    again = list(spooled(folder, source, "e1", NO_OPTIONS, make(calls)))
    assert (rows_of(first), rejects_of(first)) == (rows_of(again), rejects_of(again))
    assert len(calls) == 1
    other = rows_of(spooled(folder, source, "e2", NO_OPTIONS, make(calls)))
    assert len(calls) == 2
    assert {row["uri"] for row in other}.isdisjoint(row["uri"] for row in rows_of(first))
    assert {row["etag"] for row in rows_of(first)} != {row["etag"] for row in other}


def test_references_do_not_depend_on_when_the_spool_was_written(
    folder: Folder, source: str
) -> None:
    first = rows_of(spooled(folder, source, "e1", NO_OPTIONS, make([])))
    folder.remove_all(folder.names())
    assert rows_of(spooled(folder, source, "e1", NO_OPTIONS, make([]))) == first
    os.utime(first[0]["uri"], ns=(1, 1))
    assert pictures(first) == PICTURES  # the spool file's own time says nothing


def test_a_spool_that_was_cut_or_is_gone_is_a_fault(folder: Folder, source: str) -> None:
    row = rows_of(spooled(folder, source, "e1", NO_OPTIONS, make([])))[2]
    os.truncate(row["uri"], 100)
    with pytest.raises(ImageFault) as cut:
        pictures([row])
    os.unlink(row["uri"])
    with pytest.raises(ImageFault) as gone:
        pictures([row])
    assert (cut.value.reason, gone.value.reason) == (
        RejectReason.CHANGED,
        RejectReason.MISSING_FILE,
    )


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_nothing_is_left_of_a_spool_that_stopped_halfway(
    folder: Folder, source: str, error: type[BaseException]
) -> None:
    def stop(writer: SpoolWriter) -> Iterator[pa.RecordBatch | Reject]:
        yield from list(make([])(writer))[:3]
        raise error

    with pytest.raises(error):
        list(spooled(folder, source, "e1", NO_OPTIONS, stop))
    assert folder.names() == []
    assert len(rows_of(spooled(folder, source, "e1", NO_OPTIONS, make([])))) == 4


def test_only_rejects_are_a_listing_too(folder: Folder, source: str) -> None:
    for _ in range(2):
        assert list(spooled(folder, source, "e1", NO_OPTIONS, lambda _: iter([REJECT]))) == [REJECT]
        assert len(folder.names()) == 2


def test_an_input_that_changes_while_it_is_read(folder: Folder, source: str) -> None:
    def change(writer: SpoolWriter) -> Iterator[pa.RecordBatch | Reject]:
        yield from make([])(writer)
        os.utime(source, ns=(1, 1))

    with pytest.raises(BuildError, match=r"in\.bin changed while it was read: run the build again"):
        list(spooled(folder, source, "e1", NO_OPTIONS, change))
    assert folder.names() == []


def test_what_a_spool_needs(folder: Folder, source: str) -> None:
    with pytest.raises(UsageError, match=r"in\.bin must be unpacked, and there is no place for it"):
        list(spooled(None, source, "e1", NO_OPTIONS, make([])))
    with pytest.raises(MissingError, match=r"(?i)no such file"):
        list(spooled(folder, source + "x", "e1", NO_OPTIONS, make([])))


def test_a_plan_gives_the_same_references_and_writes_nothing(folder: Folder, source: str) -> None:
    plan = UnwrittenFolder(folder.uri)
    planned = list(spooled(plan, source, "e1", NO_OPTIONS, make([])))
    assert folder.names() == []
    calls: list[str] = []
    built = rows_of(spooled(folder, source, "e1", NO_OPTIONS, make(calls)))
    assert rows_of(planned) == built
    assert rows_of(spooled(plan, source, "e1", NO_OPTIONS, make(calls))) == built
    assert len(calls) == 1


def test_pieces_are_collected_and_none_is_lost(
    folder: Folder, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "_WRITE_BYTES", 10)
    assert pictures(rows_of(spooled(folder, source, "e1", NO_OPTIONS, make([])))) == PICTURES


@pytest.mark.parametrize("kind", ["s3", "gs"])
def test_a_spool_in_a_store(places: Places, source: str, kind: str) -> None:
    place = places.make(kind)  # type: ignore[arg-type]
    options = StorageOptions.parse(
        [f"{key}={value}" for key, value in place.storage_options.items()]
    )
    folder = Folder.at(place.at("out/spool"), options)
    calls: list[str] = []
    for _ in range(2):
        rows = rows_of(spooled(folder, source, "e1", NO_OPTIONS, make(calls)))
        assert (
            pictures(rows[2:], lambda picture: read_remote_image(picture, options)) == PICTURES[2:]
        )
    assert len(calls) == 1


def test_listings_without_their_bytes_are_forgotten_where_no_dataset_is_whole(
    tmp_path: Path, folder: Folder, source: str
) -> None:
    root = Folder(str(tmp_path / "out"))
    list(spooled(folder, source, "e1", NO_OPTIONS, make([])))
    list(spooled(folder, source, "e2", NO_OPTIONS, make([])))
    lost = next(name for name in folder.names() if name.endswith(".bin"))
    folder.remove(lost)
    forget_lost_spools(root, finished_may_stay=True)
    left = folder.names()
    assert sorted(name.rpartition(".")[2] for name in left) == ["bin", "parquet"]
    assert len({name.partition(".")[0] for name in left}) == 1
    assert left[0].partition(".")[0] != lost.partition(".")[0]


def test_a_plan_that_would_look_into_pictures_says_that_it_cannot(
    folder: Folder, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    for wanted in (False, True):
        caplog.clear()
        assert (
            len(
                rows_of(
                    spooled(
                        UnwrittenFolder(folder.uri, bytes_wanted=wanted),
                        source,
                        "e1",
                        NO_OPTIONS,
                        make([]),
                    )
                )
            )
            == 4
        )
        assert ("a plan does not unpack" in caplog.text) == wanted


def test_what_no_store_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MAX_REMOTE_BYTES", 3)
    local, remote = (
        SpoolWriter("/out/spool/x.bin", "", None),
        SpoolWriter("s3://bucket/out/spool/x.bin", "", None),
    )
    assert [local.add(b"four") for _ in range(3)] == [0, 4, 8]
    remote.add(b"four")
    with pytest.raises(
        BuildError,
        match=r"s3://.*x\.bin would have more than 3 bytes.* give a local OUTPUT, split the input, or unpack it",
    ):
        remote.add(b"four")


@pytest.mark.parametrize(
    ("path", "is_ours"),
    [
        ("spool/a.bin", True),
        ("spool/a.parquet", True),
        ("spool/.a.bin.0.tmp", True),
        ("spool/a.txt", False),
        ("spool", False),
    ],
)
def test_files_of_a_spool_are_a_builds(path: str, is_ours: bool) -> None:
    assert naming.is_build_output(path) == is_ours
