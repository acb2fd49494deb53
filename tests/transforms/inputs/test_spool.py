"""The spool: bytes that cannot be read in place, their listing, and files of a stopped run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import BuildError, ImageFault, MissingError, UsageError
from shardwright.format import naming
from shardwright.storage.folder import Folder
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from shardwright.transforms.hashing import content_hash
from shardwright.transforms.inputs import spool
from shardwright.transforms.inputs.spool import (
    SpoolWriter,
    UnwrittenFolder,
    forget_lost_spools,
    spooled,
)
from shardwright.transforms.rejects import Reject, RejectReason
from shardwright.transforms.write.image_reads import ImageLocation as Picture
from shardwright.transforms.write.image_reads import read_local_image, read_remote_image
from tests.support.helpers import references, rejects_of, rows_of
from tests.support.listings import Rows, columns_of
from tests.support.store_places import STORES, Kind, Places

Parts = Iterator[pa.RecordBatch | Reject]
PICTURES = [b"one", b"", b"three" * 1000, b"vier"]
REJECT = Reject("ü", "/in/ü", RejectReason.CORRUPT, "bad")


class Listing:
    """Writes the pictures to a spool, and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, writer: SpoolWriter) -> Parts:
        self.calls += 1
        yield REJECT
        for number, data in enumerate(PICTURES):
            place = {"uri": writer.uri, "offset": writer.add(data), "etag": writer.etag}
            extras = {"x/list": [[1.5, None]], "x/n": [number]}
            yield references([f"{number}"], extras=extras, num_bytes=len(data), **place)


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "in.bin").write_bytes(b"input")
    return str(tmp_path / "in.bin")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "out" / "spool"))


def spooled_rows(
    folder: Folder | None, source: str, make: Callable[[SpoolWriter], Parts], etag: str = "e1"
) -> Rows:
    return rows_of(spooled(folder, source, etag, NO_OPTIONS, make))


def pictures(rows: Rows, read: Callable[[Picture], bytes] = read_local_image) -> list[bytes]:
    return [
        read(Picture(*place)) for place in columns_of(rows, "uri", "offset", "num_bytes", "etag")
    ]


def endings(folder: Folder) -> list[str]:
    return sorted(name.rpartition(".")[2] for name in folder.names())


@pytest.mark.parametrize("write_bytes", [10, 1 << 20])
def test_pictures_are_read_back_in_order(
    folder: Folder, source: str, write_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "_WRITE_BYTES", write_bytes)
    parts = list(spooled(folder, source, "e1", NO_OPTIONS, Listing()))
    rows = rows_of(parts)
    assert pictures(rows) == PICTURES
    assert columns_of(rows, "id", "x/n", "x/list") == [(f"{n}", n, [1.5, None]) for n in range(4)]
    assert rejects_of(parts) == [REJECT]
    assert parts[0].schema == references(["0"], extras={"x/list": [[1.5, None]], "x/n": [0]}).schema
    assert endings(folder) == ["bin", "parquet"]


def test_a_listing_is_used_again_but_not_for_another_etag(folder: Folder, source: str) -> None:
    listing = Listing()
    first, again = (list(spooled(folder, source, "e1", NO_OPTIONS, listing)) for _ in range(2))
    assert (rows_of(first), rejects_of(first)) == (rows_of(again), rejects_of(again))
    assert listing.calls == 1
    other = spooled_rows(folder, source, listing, "e2")
    assert listing.calls == 2
    for name in ("uri", "etag"):
        assert {row[name] for row in other}.isdisjoint(row[name] for row in rows_of(first))
    folder.remove_all(folder.names())
    assert spooled_rows(folder, source, listing) == rows_of(first)
    os.utime(rows_of(first)[0]["uri"], ns=(1, 1))
    assert pictures(rows_of(first)) == PICTURES  # the spool file's own time does not count


def test_a_spool_that_was_cut_or_is_gone_is_a_fault(folder: Folder, source: str) -> None:
    row = spooled_rows(folder, source, Listing())[2]
    os.truncate(row["uri"], 100)
    with pytest.raises(ImageFault) as cut:
        pictures([row])
    os.unlink(row["uri"])
    with pytest.raises(ImageFault) as gone:
        pictures([row])
    assert cut.value.reason == RejectReason.CHANGED
    assert gone.value.reason == RejectReason.MISSING_FILE


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_spool_stopped_halfway(folder: Folder, source: str, error: type[BaseException]) -> None:
    def stop(writer: SpoolWriter) -> Parts:
        yield from list(Listing()(writer))[:3]
        raise error

    with pytest.raises(error):
        spooled_rows(folder, source, stop)
    assert folder.names() == []
    assert len(spooled_rows(folder, source, Listing())) == 4


def test_only_rejects_are_a_listing_too(folder: Folder, source: str) -> None:
    for _ in range(2):
        assert list(spooled(folder, source, "e1", NO_OPTIONS, lambda _: iter([REJECT]))) == [REJECT]
        assert len(folder.names()) == 2


def test_an_input_that_changes_while_it_is_read(folder: Folder, source: str) -> None:
    def change(writer: SpoolWriter) -> Parts:
        yield from Listing()(writer)
        os.utime(source, ns=(1, 1))

    with pytest.raises(BuildError, match=r"in\.bin changed while it was read: run the build again"):
        spooled_rows(folder, source, change)
    assert folder.names() == []


def test_a_spool_needs_a_folder_and_an_input(folder: Folder, source: str) -> None:
    with pytest.raises(UsageError, match=r"in\.bin must be unpacked, which needs a folder"):
        spooled_rows(None, source, Listing())
    with pytest.raises(MissingError, match=r"(?i)no such file"):
        spooled_rows(folder, source + "x", Listing())


def test_a_plan_gives_the_same_references_and_writes_nothing(folder: Folder, source: str) -> None:
    plan, listing = UnwrittenFolder(folder.uri), Listing()
    planned = spooled_rows(plan, source, Listing())
    assert folder.names() == []
    assert spooled_rows(folder, source, listing) == planned
    assert spooled_rows(plan, source, listing) == planned
    assert listing.calls == 1


@pytest.mark.parametrize("kind", STORES)
def test_a_spool_in_a_store(places: Places, source: str, kind: Kind) -> None:
    place, listing = places.make(kind), Listing()
    options = StorageOptions.of(place.storage_options)
    folder = Folder.at(place.at("out/spool"), options)
    for _ in range(2):
        rows = spooled_rows(folder, source, listing)[2:]
        assert pictures(rows, lambda picture: read_remote_image(picture, options)) == PICTURES[2:]
    assert listing.calls == 1


def test_listings_without_bytes_are_forgotten(tmp_path: Path, folder: Folder, source: str) -> None:
    for etag in ("e1", "e2"):
        spooled_rows(folder, source, Listing(), etag)
    lost = next(name for name in folder.names() if name.endswith(".bin"))
    folder.remove(lost)
    forget_lost_spools(Folder(str(tmp_path / "out")), finished_may_stay=True)
    assert endings(folder) == ["bin", "parquet"]
    (left,) = {name.partition(".")[0] for name in folder.names()}
    assert left != lost.partition(".")[0]


def test_incomplete_listings_are_forgotten(tmp_path: Path, folder: Folder, source: str) -> None:
    """A fault of a disk may pass, and an etag does not show that."""
    part = Reject("", source, RejectReason.INCOMPLETE, "input/output error")
    for etag, reject in (("e1", part), ("e2", REJECT)):
        list(spooled(folder, source, etag, NO_OPTIONS, lambda _, one=reject: iter([one])))
    forget_lost_spools(Folder(str(tmp_path / "out")), finished_may_stay=True)
    assert endings(folder) == ["bin", "bin", "parquet"]
    found = spooled(folder, source, "e1", NO_OPTIONS, lambda _: iter([REJECT]))
    assert list(found) == [REJECT]


@pytest.mark.parametrize("wanted", [False, True])
def test_a_plan_that_cannot_look_into_pictures_warns(
    folder: Folder, source: str, caplog: pytest.LogCaptureFixture, wanted: bool
) -> None:
    plan = UnwrittenFolder(folder.uri, bytes_wanted=wanted)
    assert len(spooled_rows(plan, source, Listing())) == 4
    assert ("a plan does not unpack" in caplog.text) == wanted


def test_a_spool_larger_than_a_store_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MAX_REMOTE_BYTES", 3)
    local = SpoolWriter("/out/spool/x.bin", "", None)
    assert [local.add(b"four") for _ in range(3)] == [0, 4, 8]
    remote = SpoolWriter("s3://bucket/out/spool/x.bin", "", None)
    remote.add(b"four")
    told = r"s3://.*x\.bin would exceed 3 bytes.*"
    fix = " use a local OUTPUT, split the input, or unpack it"
    with pytest.raises(BuildError, match=told + fix):
        remote.add(b"four")


def test_files_of_a_spool_are_a_builds() -> None:
    ours = ["spool/a.bin", "spool/a.parquet", "spool/.a.bin.0.tmp"]
    assert [
        path for path in [*ours, "spool/a.txt", "spool"] if naming.is_build_output(path)
    ] == ours


@given(data=st.binary(min_size=1, max_size=40), row=st.integers(0, 39), other=st.integers(0, 39))
def test_a_changed_image_has_another_hash(data: bytes, row: int, other: int) -> None:
    row, other = row % len(data), other % len(data)
    flipped, swapped = bytearray(data), bytearray(data)
    flipped[row] ^= 1 << other % 8
    swapped[row], swapped[other] = data[other], data[row]
    found = {content_hash(bytes(one)) for one in (data, flipped, swapped)}
    assert len(found) == len({data, bytes(flipped), bytes(swapped)})
    assert content_hash(b"") not in found
