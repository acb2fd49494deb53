"""Versions are found by what is there, and believed by what their files say."""

from __future__ import annotations

import re
import shutil
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import shardwright as sw
from shardwright.errors import BuildError, NotADatasetError, UsageError
from shardwright.format.versions import read_version, read_versions, version_numbers
from shardwright.inspect.cli import main
from shardwright.storage.folder import Folder
from shardwright.transforms.versions.commit import commit
from tests.support.buckets import OBJECT_HEADERS, Answer, Request, answering
from tests.transforms.versions.histories import append, append_change, write

PAGE = b"<!doctype html><title>An app that answers every path</title>"


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("grown") / "out"
    write({f"r{number}": number for number in range(6)}, root)
    append(root, {"new": 7})
    return root


@pytest.fixture
def root(grown: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(grown, tmp_path / "out"))


@pytest.mark.parametrize("name", ["versions/00002.json", "manifest.json"])
def test_a_copied_version_file_is_refused(
    root: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change = append_change(root, {"later": 8}, [], "y")
    shutil.copy(root / name, root / "versions/00003.json")
    stated = 2 if "/" in name else 1
    message = rf"versions/00003.json states version {stated}, but its name is that of version 3"
    for use in (
        lambda: sw.open(str(root)),
        lambda: sw.open(str(root), version=3),
        lambda: sw.open(str(root), version="2100-01-01"),
        lambda: commit(Folder(str(root)), change),
    ):
        with pytest.raises(NotADatasetError, match=message):
            use()
    assert sw.open(str(root), version=2).num_records == 7
    assert main(["log", str(root)]) == 2
    assert main(["verify", str(root)]) != 0
    assert re.search(message, "".join(capsys.readouterr()))


def test_the_manifest_of_version_1_is_its_own(root: Path) -> None:
    shutil.copy(root / "versions/00002.json", root / "manifest.json")
    with pytest.raises(NotADatasetError, match=r"manifest.json states version 2, .* version 1:"):
        sw.open(str(root), version=1)


@pytest.mark.parametrize("number", [30_000_000, 999_999_999])
def test_a_high_number_in_a_name_takes_no_memory(root: Path, number: int) -> None:
    """One that the file does not state, and one that it does: then the versions before are lost."""
    folder, file = Folder(str(root)), f"versions/{number}.json"
    shutil.copy(root / "versions/00002.json", root / file)
    tracemalloc.start()
    try:
        assert version_numbers(folder)[-1] == number
        with pytest.raises(NotADatasetError, match=f"{number}.json states version 2"):
            sw.open(str(root))
        version = read_version(folder, 2)
        stated = replace(version, history={**version.history, "version": number})
        folder.write_bytes(file, stated.to_bytes())
        assert sw.open(str(root)).num_records == 7
        with pytest.raises(NotADatasetError, match=f"{number - 1}.json is missing, but later"):
            list(read_versions(folder))
        with pytest.raises(UsageError, match=f"but versions 1 to {number}"):
            read_version(folder, number + 1)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_names_with_more_digits_are_no_versions(root: Path) -> None:
    shutil.copy(root / "versions/00002.json", root / "versions/1000000000.json")
    assert version_numbers(Folder(str(root)))[-1] == 2


def test_no_commit_follows_the_last_number(root: Path) -> None:
    """It would not be found again, so that the next commit would try it for ever."""
    folder = Folder(str(root))
    change = append_change(root, {"later": 8}, [], "y")
    version = read_version(folder)
    stated = replace(version, history={**version.history, "version": 999_999_999})
    folder.write_bytes("versions/999999999.json", stated.to_bytes())
    with pytest.raises(BuildError, match="cannot get version 1,000,000,000: 999,999,999 is the"):
        commit(folder, change)
    assert not (root / "versions/1000000000.json").exists()


def server_of(root: Path, other: Callable[[Request], Answer]) -> Callable[[Request], Answer]:
    """Return a web server's answers: the files of a folder, and something for any other path."""

    def answer(request: Request) -> Answer:
        file = root / request.path.lstrip("/")
        return ranged(request, file.read_bytes()) if file.is_file() else other(request)

    return answer


def ranged(request: Request, data: bytes) -> Answer:
    wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("Range") or "")
    if wanted is None:
        return 200, OBJECT_HEADERS, data
    first, last = int(wanted[1]), min(int(wanted[2]), len(data) - 1)
    headers = {**OBJECT_HEADERS, "Content-Range": f"bytes {first}-{last}/{len(data)}"}
    return 206, headers, data[first : last + 1]


@pytest.mark.parametrize("has_ranges", [True, False])
@pytest.mark.parametrize("is_grown", [True, False])
def test_a_page_for_every_path_is_not_a_version(
    root: Path, *, has_ranges: bool, is_grown: bool
) -> None:
    if not is_grown:
        shutil.rmtree(root / "versions")
    requests = []

    def page(request: Request) -> Answer:
        requests.append(request)
        return ranged(request, PAGE) if has_ranges else (200, OBJECT_HEADERS, PAGE)

    with answering(server_of(root, page)) as endpoint:
        found = sw.open(endpoint, storage_options={"allow_http": "true"})
    assert (found.num_records, found.history["version"]) == ((7, 2) if is_grown else (6, 1))
    assert len(requests) < 4


@pytest.mark.long
def test_a_web_server_with_the_same_version_everywhere(root: Path) -> None:
    requests, version = [], (root / "versions/00002.json").read_bytes()

    def same(request: Request) -> Answer:
        requests.append(request)
        return ranged(request, version)

    with (
        answering(server_of(root, same)) as endpoint,
        pytest.raises(NotADatasetError, match=r"999999999.json states version 2, but its name"),
    ):
        sw.open(endpoint, storage_options={"allow_http": "true"})
    assert len(requests) < 130


class _HiddenFile(Folder):
    """A folder whose listings do not show a file that is there."""

    def names(self, below: str = "") -> list[str]:
        return [name for name in super().names(below) if name != "00003.json"]


def test_a_commit_ends_if_the_file_of_its_version_is_never_listed(root: Path) -> None:
    change = append_change(root, {"later": 8}, [], "y")
    (root / "versions/00003.json").write_bytes(b"{}")
    with pytest.raises(BuildError, match=r"versions/00003.json was there in each of"):
        commit(_HiddenFile(str(root)), change)
