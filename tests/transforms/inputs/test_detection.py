"""INPUT: its files, its format, splits by names, and the errors of invalid inputs."""

from __future__ import annotations

import ast
import errno
import os
import pickle
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from shardwright.errors import MissingError, StorageError, UsageError
from shardwright.storage.options import NO_OPTIONS
from shardwright.transforms.inputs import list_images
from shardwright.transforms.inputs.detection import known_formats
from shardwright.transforms.inputs.folder_contents import expand_braces
from shardwright.transforms.inputs.formats.folders import FolderSource
from shardwright.transforms.inputs.formats.tables import TableSource
from shardwright.transforms.inputs.image_paths import keep_inside
from shardwright.transforms.inputs.input_files import (
    InputFile,
    find_files,
    names_state_splits,
    state_of,
)
from shardwright.transforms.inputs.list_images import ListImages
from shardwright.transforms.inputs.source import SourceRequest
from shardwright.transforms.rejects import Reject
from tests import ROOT
from tests.servers.fault_proxy import FaultProxy
from tests.structure import imports_of, module_name
from tests.support.buckets import Bucket
from tests.support.helpers import make_files, references, run_transform
from tests.support.listing_cases import PIPE, pngs, write_files
from tests.support.listings import columns_of, detect

NAMES = (
    "a.rec", "b.rec", "c.png", "sub/d.rec", "train/e.rec", ".hidden.rec", "data/f.rec",
    "Val/g.rec", "README.md",
)  # fmt: skip
FOUND = {
    "": ["Val/g.rec", "a.rec", "b.rec", "data/f.rec", "train/e.rec"], "/a.rec": ["a.rec"],
    "/c.png": [], "/train": ["e.rec"], "/no": [], "/[ab].rec": ["a.rec", "b.rec"],
    "/?.rec": ["a.rec", "b.rec"],
    "/*/?.rec": ["Val/g.rec", "data/f.rec", "sub/d.rec", "train/e.rec"],
    "/t*/*.rec": ["train/e.rec"], "/x*": [], "/{sub/d,train/e}.rec": ["sub/d.rec", "train/e.rec"],
}  # fmt: skip


def names_of(uri: str, **request: Any) -> list[str]:
    found = find_files(SourceRequest(uri, **request), lambda name: name.endswith(".rec"))
    assert all(file.uri.endswith(f"/{file.name}") for file in found)
    return [file.name for file in found]


def test_files_of_a_disk(tmp_path: Path) -> None:
    make_files(tmp_path, *NAMES)
    assert {below: names_of(f"{tmp_path}{below}") for below in FOUND} == FOUND


def test_files_of_stores(bucket: Bucket) -> None:
    bucket.fill([f"in/{name}" for name in NAMES])
    uri, options = f"{bucket.uri}/in", bucket.options()
    assert {below: names_of(f"{uri}{below}", storage=options) for below in FOUND} == FOUND


def test_a_folder_that_cannot_be_listed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_files(tmp_path, "a/1.rec", "b/2.rec")
    scan = os.scandir

    def refuse(path: str) -> Any:
        if path.endswith("/b"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(StorageError, match=f"cannot list {tmp_path}/b: Permission denied"):
        names_of(f"{tmp_path}/*/*.rec")
    assert names_of(f"{tmp_path}/a/[12].rec") == ["1.rec"]


def test_a_prefix_of_images_is_listed_once(s3_bucket: Bucket, s3_proxy: FaultProxy) -> None:
    """One page of 1,000 names shows that a prefix has no such files: it may have millions."""
    s3_bucket.fill([f"in/{number:05d}.png" for number in range(1001)])
    assert names_of(f"{s3_bucket.uri}/in", storage=s3_bucket.behind(s3_proxy).options()) == []
    assert len(s3_proxy.requests) == 1


def test_braces() -> None:
    names = {
        "a": ["a"], "a-{08..11}": ["a-08", "a-09", "a-10", "a-11"],
        "a-{8..10}": ["a-8", "a-9", "a-10"], "{a,b}-{0..1}": ["a-0", "a-1", "b-0", "b-1"],
        "a{,x}": ["a", "ax"], "{3..1}": [], "{a}": ["{a}"],
    }  # fmt: skip
    assert {pattern: expand_braces(pattern) for pattern in names} == names


def test_splits_by_names() -> None:
    splits = {
        "flowers-train.tfrecord-00000-of-00012": "train",
        "flowers-my_split.tfrecord-00000-of-00012": "my_split", "train-00000-of-01024": "train",
        "data/dev-00000-of-00002-abc.parquet": "validation", "x_Test.parquet": "test",
        "Split-eval/data_tfrecord-00000-of-00001.gz": "eval", "Eval/x.rec": "eval",
        "VALID/train.rec": "validation", "test_train.rec": None, "trainer.rec": None, "x.rec": None,
    }  # fmt: skip
    assert {name: InputFile(f"/in/{name}", name).split for name in splits} == splits


@pytest.mark.parametrize(("names", "found"), [
    ("", False), ("train.rec", True), ("train.rec, x.rec", False), ("x.rec", False),
    ("train.rec, val.rec", True), ("train.rec, val.rec, extra.rec", None),
    ("test.rec, x.rec", None),
])  # fmt: skip
def test_splits_count_only_where_all_files_state_one(names: str, found: bool | None) -> None:
    parts = {name: InputFile(f"/{name}", name).split for name in names.split(", ") if name}
    if found is not None:
        assert names_state_splits(SourceRequest("/in"), parts) == found
        return
    named, _, other = names.rpartition(", ")
    told = f"INPUT /in has {named}, whose names state splits, beside {other}, without a split: move"
    with pytest.raises(UsageError, match=re.escape(told)):
        names_state_splits(SourceRequest("/in"), parts)


def test_the_state_of_a_file(tmp_path: Path, s3_bucket: Bucket) -> None:
    make_files(tmp_path, "a.rec", data=b"four")
    s3_bucket.put("a.rec", b"four")
    for folder, options in ((tmp_path, NO_OPTIONS), (s3_bucket.uri, s3_bucket.options())):
        state = state_of(f"{folder}/a.rec", options)
        assert (state.num_bytes, bool(state.etag)) == (4, True)
        with pytest.raises(MissingError, match=r"/no: "):
            state_of(f"{folder}/no", options)


NO_INPUT = "^INPUT {} does not exist"
INVALID = {
    "nothing": f"{NO_INPUT}: check its spelling$", "dangling": NO_INPUT,
    "./lables.csv": f"{NO_INPUT}: check its spelling$",
    "photos/1.png": "INPUT .*1.png is a file without a table's extension",
    "pipe.tsv": "INPUT pipe.tsv is neither a folder nor a file",
    "ftp://host/in": "'ftp://host/in': ftp:// addresses are not supported; "
    "use a local path or one of s3://",
    "folder\udcff": "the path of INPUT "
    r"'.*folder\\udcff' is not UTF-8: rename its folder, or link to it",
}  # fmt: skip


@pytest.mark.parametrize("uri", INVALID)
def test_invalid_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    images = pngs("photos/1.png", "deep/PHOTOS/1.png", "labels.csv", "folder\udcff/1.png")
    write_files(tmp_path, {**images, "dangling": Path("nowhere"), "pipe.tsv": PIPE})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=INVALID[uri].format(uri)):
        detect(uri)


def test_a_column_needs_a_table(tmp_path: Path) -> None:
    message = "--label-column needs a table, but INPUT .* is a folder: give the table itself as"
    with pytest.raises(UsageError, match=message):
        detect(str(make_files(tmp_path, "1.png")), {"label": "x"})


def test_relative_inputs_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers may run in another folder."""
    make_files(tmp_path / "in", "1.png")
    monkeypatch.chdir(tmp_path)
    assert detect("in") == detect(f"{tmp_path}/in") == detect(f"file://{tmp_path}/in/")


@pytest.mark.long
def test_formats_import_what_they_share_and_not_the_other_way_round() -> None:
    folder = ROOT / "transforms" / "inputs"
    formats = {module_name(path, ROOT) for path in (folder / "formats").glob("*.py")}
    assert formats
    for path in folder.glob("*.py"):
        tree = ast.parse(path.read_text())
        assert list(imports_of(tree, formats)) == [], path


def test_each_folder_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold millions of files, and every format looks into it."""
    folders = [tmp_path, tmp_path / "cat", tmp_path / "dog"]
    make_files(tmp_path, "cat/1.png", "dog/2.png", "notes.txt")
    listed, scan = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (listed.append(path), scan(path))[1])
    assert (detect(str(tmp_path)).name, sorted(listed)) == ("folder", [*map(str, folders)])


def test_a_pickled_request_has_no_listings(tmp_path: Path) -> None:
    """Workers list the files of INPUT again."""
    make_files(tmp_path, "a.rec")
    request = SourceRequest(str(tmp_path))
    assert request.listings.look_in(request.uri).files == ["a.rec"]
    sent = pickle.dumps(request)
    make_files(tmp_path, "b.rec")
    assert request.listings.look_in(request.uri).files == ["a.rec"]
    assert pickle.loads(sent).listings.look_in(request.uri).files == ["a.rec", "b.rec"]


def test_a_format_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of docs/plugins.md, installed: an entry point names its class."""
    code = (ROOT / "docs" / "plugins.md").read_text().split("```python\n")[1].split("```")[0]
    entry = "[shardwright.sources]\nlmdb = my_lmdb:LmdbSource\nbroken = my_lmdb:MISSING\n"
    entries = "my_lmdb-1.dist-info/entry_points.txt"
    write_files(tmp_path, {
        "my_lmdb.py": code, "x.mdb": "x", entries: entry,
        "my_lmdb-1.dist-info/METADATA": "Name: my-lmdb\nVersion: 1\n",
    })  # fmt: skip
    monkeypatch.syspath_prepend(tmp_path)
    known_formats.cache_clear()
    try:
        with pytest.raises(UsageError, match=r"'broken' \(my_lmdb:MISSING\) cannot be loaded"):
            detect(f"{tmp_path}/x.mdb")
        write_files(tmp_path, {entries: entry.partition("broken")[0]})
        source = detect(f"{tmp_path}/x.mdb")
        assert (source.name, source.description) == ("lmdb", "an LMDB database")
        assert list(source.parts()) == [""]
        with pytest.raises(NotImplementedError):
            source.list_part("")
        with pytest.raises(UsageError, match="is not an LMDB database"):
            detect(str(tmp_path), input_format="lmdb")
        assert pickle.loads(pickle.dumps(source)) == source
    finally:
        known_formats.cache_clear()


def test_absent_files_and_folders_stay_inside_of_input(tmp_path: Path) -> None:
    """Their paths are followed as far as they exist, and again in the next listing."""
    root = tmp_path / "input"
    root.mkdir()
    (root / "away").symlink_to(tmp_path)
    inside = [f"{root}/a.png", f"{root}/absent/a.png", f"{root}/x/../absent/b.png"]
    outside = [f"{root}/away/absent/a.png", f"{root}/absent/../../a.png"]
    batch = references([*inside, *outside], uri=[*inside, *outside])

    def rejected() -> list[str]:
        found = keep_inside([batch, batch], (str(root),))
        return [one.uri for one in found if isinstance(one, Reject)]

    assert rejected() == outside * 2
    (root / "absent").mkdir()
    (root / "absent" / "a.png").symlink_to("/etc/hosts")
    assert rejected() == [inside[1], *outside] * 2


def test_rejects_of_a_pipeline_are_counted(tmp_path: Path) -> None:
    text = "image,id\n1.png,a\nno.png,c\n1.png,\nftp://b/1.png,g\n1.png,h,1\n,i\n"
    write_files(tmp_path, {"t.csv": text, **pngs("1.png")})
    run = run_transform(ListImages(detect(str(tmp_path / "t.csv"))))
    assert columns_of(run.rows, "id") == [("a",)]
    reasons = ("bad_id", "bad_value", "missing_file", "bad_value", "bad_value")
    assert run.rejects == list(zip(("", "", "c", "g", "i"), reasons, strict=True))
    numbers = {"bad_value": 3, "bad_id": 1, "missing_file": 1}
    assert run.counters == {f"rejects_{reason}": number for reason, number in numbers.items()}


def test_one_machine_lists_a_long_prefix_whole() -> None:
    """Its parts would be found by requests one after another, and it has one process to list it."""
    source = FolderSource("a folder", root="s3://bucket/in", split_folders=(), storage=NO_OPTIONS)
    assert list(list_images._parts(source.pack(), one_machine=True)) == [""]


def test_the_graph_of_a_table_in_100_000_files_is_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dataflow refuses graphs above 10 MB."""
    # A pipeline that is never run leaves a folder in the temporary folder.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    source = detect(f"{write_files(tmp_path, {'t.csv': 'image,label'})}/t.csv")
    assert isinstance(source, TableSource)
    files = tuple(f"year=2020/part-{number:05d}-8f14e45f.c000.csv" for number in range(100_000))
    many = replace(source.layout, files=files).as_source(TableSource)
    pipeline = beam.Pipeline()
    _ = pipeline | ListImages(many)
    assert len(pipeline.to_runner_api().SerializeToString()) < 1_000_000
