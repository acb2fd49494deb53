"""Links in a dataset lead nowhere: no command reads, writes or removes a file through one.

Each command runs on a dataset with a link to another dataset in the place of a file or folder. It
ends with an error that names the link, or never gets there; the other dataset stays as it is.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest

import shardwright as sw
from shardwright.errors import LinkError, ShardwrightError
from shardwright.format.json_files import read_json
from shardwright.format.plan_file import OutputFile
from shardwright.inspect.cli import main
from shardwright.storage.folder import Folder
from tests.support.build_helpers import make_images, png_of
from tests.support.growing import Grown, Source
from tests.support.kills import killed
from tests.support.repairs import build_plainly, state_of

OPTIONS = (
    "--split", "train=0.7,test=0.3", "--shard-count", "2", "--signals", "--name", "grown",
    "--max-reject-fraction", "0.5", "--near-duplicates", "report",
)  # fmt: skip
LIKE_THOSE = "-00000-of-00002"
SHARD, INDEX = f"grown-train.tfrecord{LIKE_THOSE}", f"index/train{LIKE_THOSE}.parquet"
REJECTS = f"rejects/train{LIKE_THOSE}.parquet"
# The generations of versions 2 to 4, without the end of their names. The third has all records of
# both before it, and the newest version names it and the fourth.
OLD, WHOLE, NEW = (f"generations/0000{number}-" for number in (2, 3, 4))
STRANGER = "emu"  # a class of the dataset that the links lead to


def run(words: str) -> Callable[[Path], object]:
    """Return the call of a command; a word @NAME is a path beside the dataset."""

    def call(dataset: Path) -> int:
        return main([str(dataset.parent / w[1:]) if w[0] == "@" else w for w in words.split()])

    return call


def append(dataset: Path) -> object:
    return Grown(Folder(str(dataset)), OPTIONS).append(Source(dataset.with_name("photos")))


def compact(dataset: Path) -> object:
    return Grown(Folder(str(dataset)), OPTIONS).compact()


def copy_records(dataset: Path) -> object:
    build_plainly(dataset, dataset.with_name("copy"))
    return run("show @copy bird/0000.png")(dataset)


def read(dataset: Path) -> object:
    with sw.Reader(str(dataset), "all", global_batch_size=8, epochs=1, remainder="keep") as reader:
        return [batch["id"].tolist() for batch in reader]


COMMANDS: dict[str, Callable[[Path], object]] = {
    "append": append,
    "compact": compact,
    "gc": run("gc @set --keep 1 --yes"),
    "erase": run("erase @set --ids @ids.txt --receipt @receipt.json --yes"),
    "repair": run("repair @set --input @photos"),
    "verify": run("verify @set"),
    "quick": run("verify @set --quick"),
    "inspect": run("inspect @set"),
    "show": run("show @set bird/0000.png"),
    "stats": run("stats @set"),
    "report": run("report @set -o @page.html"),
    "diff": run("diff @sound @set"),
    "log": run("log @set"),
    "pin": run("pin @set mine"),
    "watch": run("watch @set --once"),
    "open": lambda dataset: sw.open(str(dataset)).class_counts("train"),
    "read": read,
    "copy": copy_records,
}
READS_ALL = "append compact erase repair verify quick show report diff read copy"
EVERY = " ".join(COMMANDS)
# The path of a link, and the commands that name it; the others do not get there.
LINKS = {
    "generations/00009-abc": "gc erase",
    f"{OLD}*": "gc erase repair verify quick",
    f"{WHOLE}*": READS_ALL,
    f"{WHOLE}*/index": READS_ALL,
    f"{WHOLE}*/{INDEX}": READS_ALL,
    f"{WHOLE}*/{SHARD}": "compact erase repair verify quick report read copy",
    f"{WHOLE}*/manifest.json": "erase repair verify quick",
    f"{WHOLE}*/plan.json": "repair verify quick",
    f"{WHOLE}*/report.html": "",
    f"{WHOLE}*/features.json": "repair verify quick",
    f"{NEW}*": "append compact erase repair verify quick report diff read copy",
    f"{NEW}*/rejects": "erase repair verify quick",
    "generations": f"{READS_ALL} gc",
    "versions": EVERY,
    "versions/00004.json": EVERY,
    "versions/00002.json": "gc erase log repair verify quick",
    "versions/pins": "gc erase log pin repair verify quick",
    "versions/pins/kept.json": "gc log repair verify quick",
    "versions/.00002.remove-0.tmp": "",
    "next": "erase watch repair verify",
    "staged": "gc erase repair",
    "spool": "erase repair",
    "index": "gc erase repair verify quick",
    INDEX: "erase repair verify quick",
    "rejects": "gc erase repair verify quick",
    REJECTS: "erase repair verify quick",
    "signals": "gc erase repair verify quick",
    SHARD: "repair verify quick",
    "manifest.json": "gc erase log watch repair verify quick",
    "plan.json": "repair verify quick",
    "report.html": "",
    "near_duplicates.parquet": "erase repair verify quick",
    "label.labels.txt": "repair verify quick",
    "README.md": "",
}


class Places:
    """A dataset of four versions, and that of a stranger with the same names of files."""

    def __init__(self, folder: Path) -> None:
        self.own, self.strange = (self._grow(folder / name, name) for name in ("cat", STRANGER))
        (self.own / "photos" / "bird" / "newest.png").write_bytes(png_of(999))
        (self.own / "ids.txt").write_text("bird/0000.png\n")
        self._before = self._states()

    def _grow(self, folder: Path, class_name: str) -> Path:
        photos = make_images(folder / "photos", 24, names=("bird", class_name))
        (photos / class_name / "bad.png").write_bytes(b"no picture")
        grown = Grown(Folder(str(folder / "set")), OPTIONS)
        for number in range(4):
            (photos / class_name / f"new{number}.png").write_bytes(png_of(900 + number))
            grown.compact() if number == 2 else grown.append(Source(photos))
        sw.pin(str(folder / "set"), "kept", version=4)
        (folder / "set" / "README.md").write_text(class_name)
        return folder

    def _states(self) -> list[object]:
        return [state_of(folder) for folder in (self.own, self.strange)]

    def check(self) -> None:
        """Check that neither has changed."""
        assert self._states() == self._before

    def copy(self, place: Path) -> Path:
        """Return a new copy of the first one, with its photos and itself beside it."""
        shutil.rmtree(place, ignore_errors=True)
        # No command changes a file, it replaces it: `check` sees if one does.
        shutil.copytree(self.own / "set", place / "set", copy_function=os.link)
        for name, path in {"sound": "set", "photos": "photos", "ids.txt": "ids.txt"}.items():
            (place / name).symlink_to(self.own / path)
        return place / "set"

    def link(self, dataset: Path, pattern: str) -> str:
        """Put a link to the other dataset in the place of a file or folder, and return its path."""
        path = only(dataset, pattern)
        put_link(path, only(self.strange / "set", pattern))
        return str(path)


def only(root: Path, pattern: str) -> Path:
    return next(root.glob(pattern), root / pattern)


def put_link(path: Path, to: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Where the stranger has no such folder, all of its dataset could be taken for one.
    whole = next(each for each in (to, *to.parents) if each.exists())
    path.symlink_to(whole if to.exists() or not path.suffix else whole / "manifest.json")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    return Places(tmp_path_factory.mktemp("links"))


def outcome(call: Callable[[], object], capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Return a command's exit code, or 1 for an error, and all that it says."""
    try:
        result = call()
    except ShardwrightError as error:
        result, code = f"{type(error).__name__}: {error}", 1
    else:
        code = result if isinstance(result, int) else 0
    said = capfd.readouterr()
    return code, f"{said.out}{said.err}{result}"


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_follows_a_link(
    command: str, places: Places, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    call = COMMANDS[command]
    refused = [link for link, commands in LINKS.items() if command in commands.split()]
    for link in refused:
        dataset = places.copy(tmp_path / "w")
        path = places.link(dataset, link)
        _, said = outcome(partial(call, dataset), capfd)
        assert f"{path} is a link" in said, said
        assert "remove it, or put what it leads to in its place" in said
        assert STRANGER not in said
    for links in apart(link for link in LINKS if link not in refused):
        dataset = places.copy(tmp_path / "w")
        for link in links:
            places.link(dataset, link)
        code, said = outcome(partial(call, dataset), capfd)
        assert (code, STRANGER in said) == (0, False), said
    places.check()


def apart(links: Iterable[str]) -> Iterator[list[str]]:
    """Yield the links in groups, none of which has a link and what would be below it."""
    rest = sorted(links)
    while rest:
        group: list[str] = []
        for link in rest:
            if not any(f"{link}/".startswith(f"{above}/") for above in group):
                group.append(link)
        yield group
        rest = [link for link in rest if link not in group]


def plain(dataset: Path, *options: str) -> Callable[[], object]:
    photos = dataset.with_name("photos")
    return lambda: build_plainly(photos, dataset, *OPTIONS, *options)


OVERWRITE = ("--if-exists", "overwrite", "--seed", "1")
PROMOTED = 45  # changes of files until the manifest says that its files are in `next/`


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return make_images(tmp_path / "w" / "photos", 24, names=("bird", "cat"))


def check_refused(call: Callable[[], object], link: Path) -> None:
    with pytest.raises(LinkError, match=r"remove it, or put what it leads to in its place") as no:
        call()
    assert str(no.value).startswith(f"{link} is a link")


@pytest.mark.long_but_first
@pytest.mark.parametrize("link", ["manifest.json", "plan.json", "index", "next", "spool"])
def test_a_build_writes_through_no_link(link: str, places: Places, photos: Path) -> None:
    dataset = photos.with_name("set")
    plain(dataset)()
    put_link(dataset / link, places.strange / "set" / link)
    check_refused(plain(dataset, *OVERWRITE), dataset / link)
    places.check()


@pytest.mark.long_but_first
@pytest.mark.parametrize("link", ["next", "next/index", f"next/{SHARD}"])
def test_a_stopped_replacement_ends_through_no_link(
    link: str, places: Places, photos: Path
) -> None:
    dataset = photos.with_name("set")
    plain(dataset)()
    with killed(PROMOTED):
        plain(dataset, *OVERWRITE)()
    found = read_json(Folder(str(dataset)), "manifest.json", OutputFile)
    assert found is not None
    assert found.folder == "next"
    put_link(dataset / link, only(places.strange / "set", link.removeprefix("next/")))
    for call in (plain(dataset, *OVERWRITE), lambda: read(dataset)):
        check_refused(call, dataset / link)
    places.check()


@pytest.mark.parametrize("pattern", ["spool", "spool/*.bin", "spool/*.parquet"])
def test_images_of_archives_are_kept_behind_no_link(
    pattern: str, photos: Path, tmp_path: Path
) -> None:
    with tarfile.open(tmp_path / "photos.tar.gz", "w:gz") as archive:
        archive.add(photos, "photos")
    dataset, before = tmp_path / "set", tmp_path / "before"
    unpack = partial(build_plainly, tmp_path / "photos.tar.gz", dataset, *OPTIONS)
    with killed(6):  # the archive is unpacked, and no shard written
        unpack()
    shutil.copytree(dataset, before)
    link, state = only(dataset, pattern), state_of(before)
    put_link(link, only(before, pattern))
    check_refused(unpack, link)
    assert state_of(before) == state


@pytest.mark.parametrize("link", ["manifest.json", SHARD])
def test_a_dataset_whose_records_are_changed_has_no_links(
    link: str, places: Places, photos: Path
) -> None:
    """It is read as other TFRecord files are, which may be links."""
    dataset = photos.with_name("set")
    plain(dataset)()
    put_link(dataset / link, places.strange / "set" / link)
    check_refused(
        lambda: build_plainly(dataset, dataset.with_name("copy"), "--encode", "png"),
        dataset / link,
    )


def test_other_folders_of_input_and_the_folder_itself_may_be_links(
    places: Places, photos: Path, tmp_path: Path
) -> None:
    """A file of class names beside TFRecord files, a folder of images, and a dataset's own one."""
    (tmp_path / "records").mkdir()
    for name in (SHARD, "features.json", "label.labels.txt"):
        (tmp_path / "records" / name).symlink_to(places.strange / "set" / name)
    more = ("--allow-outside", str(places.strange), "--max-reject-fraction", "0.5")
    build_plainly(tmp_path / "records", tmp_path / "copy", *more)
    assert STRANGER in sw.open(str(tmp_path / "copy")).class_names
    (tmp_path / "linked").symlink_to(photos)
    (tmp_path / "there").mkdir()
    (tmp_path / "set").symlink_to("there")
    build_plainly(tmp_path / "linked", tmp_path / "set", *OPTIONS)
    assert read(tmp_path / "set")
    assert main(["verify", str(tmp_path / "set")]) == 0
    places.check()
