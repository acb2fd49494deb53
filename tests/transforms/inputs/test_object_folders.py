"""Listing prefixes of stores: the same rows and rejects as of a local folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import StorageError, UsageError
from shardwright.storage.counters import COUNTERS
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.columns import ROLE_COLUMNS
from shardwright.transforms.inputs.file_rules import NO_IMAGE_NAME
from shardwright.transforms.inputs.formats.folders import list_files
from shardwright.transforms.inputs.source import InputSource
from shardwright.transforms.rejects import Reject, RejectReason
from tests.servers.fault_proxy import FaultProxy
from tests.support.buckets import Bucket, on_s3_and_gcs
from tests.support.helpers import TINY_PNG, make_files, rejects_of, rows_of
from tests.support.listings import detect, list_source

NONE = dict.fromkeys(ROLE_COLUMNS)
FILES = {
    "cat/1.png": TINY_PNG, "cat/2.PNG": TINY_PNG, "dog/deep/er/3.jpg": b"no jpeg",
    "loose.png": TINY_PNG, "no-extension": TINY_PNG, "cat/ü #%41?+.png": TINY_PNG,
    "cat/empty.png": b"", "notes.txt": b"not an image", "cat/Thumbs.db": b"x",
    ".hidden/4.png": TINY_PNG, "cat/.5.png": TINY_PNG, "__MACOSX/6.png": TINY_PNG,
    "jpeg.bin": b"\xff\xd8\xff...", "short": b"B", "empty.txt": b"", " /7.png": TINY_PNG,
}  # fmt: skip
Rows = list[tuple[Any, ...]]


def upload(
    bucket: Bucket, files: Mapping[str, bytes] | Iterable[str], prefix: str = "in"
) -> Bucket:
    """Write files below a prefix; tiny images where only names are given."""
    given = files if isinstance(files, Mapping) else dict.fromkeys(files, TINY_PNG)
    for name, data in given.items():
        bucket.folder(prefix).write_bytes(name, data)
    return bucket


def listed(uri: str, storage: StorageOptions) -> tuple[Rows, dict[str, Reject]]:
    """Return (id, num_bytes, split, label) of each row, sorted, and the rejects by id."""
    parts = list(list_source(detect(uri, NONE, storage=storage)))
    names = ("id", "num_bytes", "split", "label")
    rows = [tuple(row[name] for name in names) for row in rows_of(parts)]
    return sorted(rows, key=str), {reject.id: reject for reject in rejects_of(parts)}


def listed_in(bucket: Bucket, prefix: str = "in") -> tuple[Rows, dict[str, Reject]]:
    return listed(f"{bucket.uri}/{prefix}", bucket.options())


def ids_of(rows: Rows) -> list[str]:
    return [row[0] for row in rows]


@pytest.mark.long
@on_s3_and_gcs
def test_workers_list_ranges_of_a_long_prefix(bucket: Bucket) -> None:
    bucket.fill([f"in/{'äb c'[number % 4]}/{number}.png" for number in range(2500)], TINY_PNG)
    bucket.put("in/", b"")  # listed and left out
    source = detect(f"{bucket.uri}/in", NONE, storage=bucket.options())
    parts = list(source.worker_parts())
    found = [sorted(ids_of_part(source, part)) for part in parts]
    assert 1 < len(parts) <= 16
    assert all(found)
    assert sorted(chain(*found)) == sorted(ids_of_part(source, ""))
    assert len(set(chain(*found))) == 2500
    short = detect(f"{bucket.uri}/in/c", NONE, storage=bucket.options())
    assert list(short.worker_parts()) == [""]


def ids_of_part(source: InputSource, part: str) -> list[str]:
    return [row["id"] for row in rows_of(source.list_part(part))]


@on_s3_and_gcs
@pytest.mark.parametrize("prefix", ["in", "a b/ü%41"])
def test_the_same_as_of_a_local_folder(bucket: Bucket, tmp_path: Path, prefix: str) -> None:
    upload(bucket, FILES, prefix)
    upload(bucket, ["8.png"], prefix + "-not")
    for name, data in FILES.items():
        make_files(tmp_path, name, data=data)
    local, local_rejects = listed(str(tmp_path), StorageOptions())
    rows, rejects = listed_in(bucket, prefix)
    assert rows == local
    for folder in (".hidden", "__MACOSX"):  # a store has no folders: each file is a reject
        [name] = [name for name in FILES if name.startswith(folder)]
        local_rejects[name] = local_rejects.pop(folder)
    assert {name: (reject.reason, reject.detail) for name, reject in rejects.items()} == {
        name: (reject.reason, reject.detail) for name, reject in local_rejects.items()
    }
    for name, reject in rejects.items():
        assert reject.uri == f"{bucket.uri}/{prefix}/{name}"
    for row in list_files(f"{bucket.uri}/{prefix}", (), bucket.options()):
        if not isinstance(row, Reject):
            etag = bucket.client().objects.head(f"{prefix}/{row.id}")["e_tag"].strip('"')
            assert (row.uri, row.etag) == (f"{bucket.uri}/{prefix}/{row.id}", etag)


@pytest.mark.long
@pytest.mark.parametrize("bucket", ["moto_server", "gcs_server"], indirect=True)
def test_folder_markers_and_invalid_names_are_rejects(bucket: Bucket) -> None:
    """Consoles and sync tools leave empty objects whose names end with a slash."""
    for marker in ("in/", "in/cat/", "in/dog/empty/"):
        bucket.put(marker, b"")
    part, control = ["a//b.png", "./x.png", "cat/../y.png", "/z.png"], ["cat/\x01.png"]
    for name in ["cat/1.png", *part, *control]:
        bucket.put(f"in/{name}", TINY_PNG)
    rows, rejects = listed_in(bucket)
    assert ids_of(rows) == ["cat/1.png"]
    found = {
        name.removesuffix("/"): (reject.reason, reject.detail.partition(" in its name")[0])
        for name, reject in rejects.items()
    }
    bad_part = RejectReason.BAD_ID, "the object has an empty, '.' or '..' part"
    bad_control = RejectReason.BAD_ID, "the object has a control character"
    marker_reject = RejectReason.OTHER_FILE, "stands for a folder"
    assert found == {
        **dict.fromkeys(part, bad_part),
        **dict.fromkeys(control, bad_control),
        **dict.fromkeys(["cat", "dog/empty"], marker_reject),
    }


def test_text_beside_images_costs_no_request(
    s3_bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    """A bucket of triples, as tools write them, is listed with one request per thousand keys."""
    names = [f"{number}.{kind}" for number in range(400) for kind in ("jpg", "json", "txt")]
    s3_bucket.fill([f"in/{name}" for name in names], TINY_PNG)
    source = detect(f"{s3_bucket.uri}/in", NONE, storage=s3_bucket.options(), input_format="folder")
    before = COUNTERS.snapshot().get("requests", 0)
    found = list(source.list_part(""))
    assert COUNTERS.snapshot()["requests"] - before <= 3
    reasons = Counter(str(row.reason) for row in found if isinstance(row, Reject))
    assert (len(rows_of(found)), reasons) == (400, {"other_file": 800})
    told = "not images by their names: 400 ending in .json, 400 ending in .txt"
    assert told in caplog.text


@pytest.mark.parametrize("num_others", [3, 1300])
def test_objects_with_other_names_are_never_read(s3_bucket: Bucket, num_others: int) -> None:
    """However many there are, and in however many parts, the listing is the same."""
    names = [f"{number:04d}.dat" for number in range(num_others)] + ["9.png", "zz"]
    s3_bucket.fill([f"in/{name}" for name in names], TINY_PNG)
    source = detect(f"{s3_bucket.uri}/in", NONE, storage=s3_bucket.options())
    for parts in (source.parts(), source.worker_parts()):
        found = [found for part in parts for found in source.list_part(part)]
        assert [row["id"] for row in rows_of(found)] == ["9.png"]
        rejects = {reject.id: (reject.reason, reject.detail) for reject in rejects_of(found)}
        assert rejects == dict.fromkeys({*names} - {"9.png"}, NO_IMAGE_NAME)


@on_s3_and_gcs
def test_an_empty_prefix(bucket: Bucket) -> None:
    bucket.put("in-2/1.png", TINY_PNG)
    options = bucket.options()
    for prefix in ("in", "nowhere", "in-2/1.png"):
        uri = f"{bucket.uri}/{prefix}"
        message = rf"^INPUT {uri} does not exist: there are no objects below it$"
        with pytest.raises(UsageError, match=message):
            detect(uri, NONE, storage=options)
    source = detect(bucket.uri, NONE, storage=options)
    description = f"a folder at {bucket.uri}, with the folders in-2"
    assert (source.name, source.description) == ("folder", description)


def test_a_web_server_is_no_folder() -> None:
    message = "a web server cannot be listed: use a folder or a bucket, or give the image URLs"
    with pytest.raises(StorageError, match=message):
        detect("https://127.0.0.1:1/in", NONE, storage=StorageOptions())


def test_all_formats_look_at_one_listing(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    s3_bucket.fill(["in/cat/1.png", "in/dog/2.png", "in/notes.txt"], TINY_PNG)
    uri = f"{s3_bucket.uri}/in"
    source = detect(uri, storage=s3_bucket.behind(s3_proxy).options())
    description = f"a folder at {uri}, with the folders cat, dog"
    assert (source.name, source.description) == ("folder", description)
    assert len(s3_proxy.requests) == 2, "the first page and notes.txt"
