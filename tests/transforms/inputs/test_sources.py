"""Detection of INPUT: its description, and the errors of invalid inputs."""

from __future__ import annotations

import ast
import os
import pickle
from pathlib import Path

import pytest

from shardwright.errors import UsageError
from shardwright.transforms.inputs.columns import ROLE_COLUMNS
from shardwright.transforms.inputs.detection import known_formats
from shardwright.transforms.inputs.source import SourceRequest
from shardwright.transforms.references import REFERENCE_SCHEMA
from tests import ROOT
from tests.structure import imports_of, module_name
from tests.support.helpers import make_files, rows_of
from tests.support.listings import detect, list_source

NONE = dict.fromkeys(ROLE_COLUMNS)


def test_folders(tmp_path: Path) -> None:
    make_files(tmp_path / "plain", "cat/1.png")
    make_files(tmp_path / "split", "val/cat/1.png", "Train/cat/2.png")
    plain = detect(f"{tmp_path}/plain", NONE)
    split = detect(f"file://{tmp_path}/split/", NONE)
    assert (plain.name, plain.root, plain.split_folders) == (
        "folder", f"{tmp_path}/plain", (),
    )  # fmt: skip
    assert (split.name, split.root, split.split_folders) == (
        "folder", f"{tmp_path}/split", ("Train", "val"),
    )  # fmt: skip
    assert [source.states_splits for source in (plain, split)] == [False, True]
    assert plain.description == f"a folder at {tmp_path}/plain, with the folders cat"
    assert split.description == f"split folders (Train, val) at {tmp_path}/split"
    assert plain.schema == REFERENCE_SCHEMA
    assert [row["split"] for row in rows_of(list_source(split))] == ["train", "validation"]


def test_relative_inputs_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers may run in another folder."""
    make_files(tmp_path / "in", "1.png")
    monkeypatch.chdir(tmp_path)
    assert detect("in", NONE) == detect(f"{tmp_path}/in", NONE)


@pytest.mark.parametrize(("uri", "columns", "message"), [
    ("nothing", {}, "INPUT nothing does not exist"),
    ("dangling", {}, "INPUT dangling does not exist"),
    ("folder/1.png", {}, "INPUT .*1.png is a file without a table's extension"),
    ("pipe.csv", {}, "INPUT pipe.csv is neither a folder nor a file"),
    ("folder", {"label": "x"}, "--label-column needs a table, "
     "but INPUT .*folder is a folder: give the table itself as INPUT"),
    ("ftp://host/in", {}, "'ftp://host/in': ftp:// addresses are not supported; "
     "use a local path or one of s3://"),
    ("folder\udcff", {}, "the path of INPUT "
     r"'.*folder\\udcff' is not UTF-8: rename its folder, or link to it"),
])  # fmt: skip
def test_invalid_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, columns: dict[str, str], message: str
) -> None:
    make_files(tmp_path, "folder/1.png", "folder\udcff/1.png")
    (tmp_path / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe.csv")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        detect(uri, {**NONE, **columns})


@pytest.mark.long
def test_formats_import_what_they_share_and_not_the_other_way_round() -> None:
    folder = ROOT / "transforms" / "inputs"
    formats = {module_name(path, ROOT) for path in (folder / "formats").glob("*.py")}
    assert len(formats) > 20
    for path in folder.glob("*.py"):
        tree = ast.parse(path.read_text())
        assert list(imports_of(tree, formats)) == [], path


def test_each_folder_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold millions of files, and every format looks into it."""
    folders = [tmp_path, tmp_path / "cat", tmp_path / "dog"]
    make_files(tmp_path, "cat/1.png", "dog/2.png", "notes.txt")
    listed, scan = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (listed.append(path), scan(path))[1])
    source = detect(str(tmp_path))
    assert (source.name, sorted(listed)) == ("folder", [*map(str, folders)])


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
    make_files(tmp_path, "my_lmdb.py", data=code.encode())
    entry = b"[shardwright.sources]\nlmdb = my_lmdb:LmdbSource\nbroken = my_lmdb:MISSING\n"
    make_files(tmp_path / "my_lmdb-1.dist-info", "entry_points.txt", data=entry)
    make_files(tmp_path / "my_lmdb-1.dist-info", "METADATA", data=b"Name: my-lmdb\nVersion: 1\n")
    make_files(tmp_path, "x.mdb")
    monkeypatch.syspath_prepend(tmp_path)
    known_formats.cache_clear()
    try:
        with pytest.raises(UsageError, match=r"'broken' \(my_lmdb:MISSING\) cannot be loaded"):
            detect(f"{tmp_path}/x.mdb")
        entries = tmp_path / "my_lmdb-1.dist-info" / "entry_points.txt"
        entries.write_bytes(entry.partition(b"broken")[0])
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
