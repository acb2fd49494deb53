"""Links below a folder: no operation follows one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shardwright.errors import ExistsError, LinkError, MissingError
from shardwright.storage.folder import Folder
from shardwright.storage.links import no_follow
from tests.shardwright.storage import test_local
from tests.shardwright.storage.test_local import Call
from tests.support.open_files import open_files

READS: dict[str, Call] = {
    **test_local.READS,
    "open_descriptor": Folder.open_descriptor,
    "own_path": Folder.own_path,
    "copy": lambda root, name: root.copy(name, root.below("to")),
}
LISTS: dict[str, Call] = {
    **test_local.LISTS,
    "remove_empty": lambda root, name: root.below(name).remove_empty(),
}
WRITES: dict[str, Call] = {
    **test_local.WRITES,
    **test_local.REMOVALS,
    "copy": lambda root, name: root.below("from").copy("file", root.below(name[:-5])),
}
deep = pytest.mark.parametrize("deep", ["", "own/"])


@pytest.fixture
def root(tmp_path: Path) -> Folder:
    """A folder with links to a folder outside, and to its file, at two depths."""
    for name in ("outside/below/file", "outside/file", "set/own/file", "set/from/file"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "outside" / "empty").mkdir()
    for place in (tmp_path / "set", tmp_path / "set" / "own"):
        (place / "folder").symlink_to(tmp_path / "outside")
        (place / "link").symlink_to(tmp_path / "outside" / "file")
    return Folder(str(tmp_path / "set"))


def content(folder: Path) -> dict[str, str]:
    found = sorted(folder.rglob("*"))
    return {str(path): path.read_text() if path.is_file() else "" for path in found}


def check(call: Call, root: Folder, name: str, link: str) -> None:
    outside = Path(root.uri).with_name("outside")
    before = content(outside)
    with pytest.raises(LinkError) as no:
        call(root, name)
    assert str(no.value) == (
        f"{root.uri}/{link} is a link, and no link in a dataset or a cache is followed: remove it, "
        "or put what it leads to in its place (`cp -rL` copies a folder so)"
    )
    assert (content(outside), open_files(outside.parent)) == (before, [])


@deep
@pytest.mark.parametrize("call", READS.values(), ids=READS)
def test_nothing_is_read_through_a_link(call: Call, deep: str, root: Folder) -> None:
    check(call, root, f"{deep}link", f"{deep}link")
    for name in ("file", "below/file"):
        check(call, root, f"{deep}folder/{name}", f"{deep}folder")


@deep
@pytest.mark.parametrize("call", LISTS.values(), ids=LISTS)
def test_nothing_is_listed_through_a_link(call: Call, deep: str, root: Folder) -> None:
    for name in ("", "/below", "/empty"):
        check(call, root, f"{deep}folder{name}", f"{deep}folder")


@deep
@pytest.mark.parametrize("call", WRITES.values(), ids=WRITES)
def test_nothing_is_written_through_a_link(call: Call, deep: str, root: Folder) -> None:
    for name in ("file", "new/file", "below/file"):
        check(call, root, f"{deep}folder/{name}", f"{deep}folder")


def test_a_link_itself_is_removed_replaced_or_in_the_way(root: Folder, tmp_path: Path) -> None:
    before = content(tmp_path / "outside")
    with pytest.raises(ExistsError):
        root.create_bytes("link", b"x")
    root.below("from").copy("file", root)
    root.write_bytes("link", b"new")
    root.write_bytes("own/link", b"new")
    assert root.read_bytes("link") == root.read_bytes("own/link") == b"new"
    root.remove("folder")
    assert not os.path.lexists(tmp_path / "set" / "folder")
    assert content(tmp_path / "outside") == before


def test_links_are_listed_by_name_alone(root: Folder) -> None:
    assert root.names() == ["folder", "from", "link", "own"]
    assert (root.files(), set(root.files("own"))) == ({}, {"file"})


def test_the_folder_itself_and_those_of_the_user_may_be_links(tmp_path: Path, root: Folder) -> None:
    (tmp_path / "linked").symlink_to(root.uri)
    linked = Folder(str(tmp_path / "linked"))
    linked.write_bytes("own/new/file", b"x")
    assert root.read_bytes("own/new/file") == b"x"
    assert linked.below("own").names() == ["file", "folder", "link", "new"]
    with pytest.raises(LinkError, match="linked/own/link is a link"):
        linked.below("own").read_bytes("link")
    assert Folder(root.uri, top=None).read_bytes("link") == b"outside/file"
    assert Folder(root.uri, top=None).names("own/folder") == ["below", "empty", "file"]


def test_a_missing_folder(tmp_path: Path) -> None:
    root = Folder(str(tmp_path / "none"))
    assert (root.names(), root.names("a/b"), root.num_bytes_of("a/b")) == ([], [], None)
    assert root.own_path("a/b") == str(tmp_path / "none" / "a" / "b")
    with pytest.raises(MissingError):
        root.read_bytes("a/b")
    root.write_bytes("a/b", b"x")
    assert root.names("a/b") == [], "a file"
    assert (tmp_path / "none" / "a" / "b").stat().st_mode & 0o111 == 0


def test_an_opener(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with open(tmp_path / "file", "w", opener=no_follow) as file:
        file.write("x")
    assert (tmp_path / "file").stat().st_mode & 0o111 == 0
    for mode in ("r", "w", "a", "r+"):
        with pytest.raises(LinkError), open(tmp_path / "link", mode, opener=no_follow):
            pass
    assert (tmp_path / "file").read_text() == "x"
