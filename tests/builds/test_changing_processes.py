"""Appends, compactions, erasures and repairs in processes: killed at random moments, six at once.

The same command ends one that was killed. Until then every look at the dataset finds one of its
versions, whole. Of what is erased no byte is left in any file of it, in a cache, or among temporary
files. `make torture` repeats these tests with new seeds.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from shardwright.format import naming
from shardwright.format.versions import number_of, read_version, read_versions
from shardwright.inspect.verify import verify
from shardwright.storage.folder import Folder
from tests.support.build_helpers import build, forks, png_of, start_build
from tests.support.canaries import canary, canary_png, find_canaries
from tests.support.growing import Grown
from tests.support.judge import judge
from tests.support.repairs import cut, flip

pytestmark = [pytest.mark.long, pytest.mark.weight(15)]
OPTIONS = ("--name", "x", "--records-per-shard", "6", "--split", "train=0.8,test=0.2")
APPEND = ("--if-exists", "append", "--max-gone", "100%", "--max-reject-fraction", "1")
NUM_APPENDERS = 4
Ids = frozenset[str]


@dataclass(frozen=True)
class Photos:
    """A dataset of two versions, and what its next commands work with.

    Attributes:
        folder: Of `dataset`, of `in` with its present images, and of `ids` to erase.
        ids: The records of the newest version.
        erased: Those of them with the text of a canary.
    """

    folder: Path
    ids: Ids
    erased: Ids

    @property
    def source(self) -> Path:
        return self.folder / "in"


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Photos:
    folder = tmp_path_factory.mktemp("photos")
    source, dataset = folder / "in", folder / "dataset"
    for number in range(20):
        put(source / f"ant/{number}.png", png_of(number))
        if number < 8:
            put(source / f"rare/{canary(number)}.png", canary_png(canary(number)))
    assert build(source, dataset, *OPTIONS) == 0
    for number in range(20, 30):
        put(source / f"cat/{number}.png", png_of(number))
    (source / "ant/1.png").unlink()
    put(source / "ant/2.png", png_of(1002))
    assert build(source, dataset, *OPTIONS, *APPEND) == 0
    ids = ids_of(dataset)
    erased = frozenset(each for each in ids if "canary" in each)
    (folder / "ids").write_text("".join(f"{each}\n" for each in sorted(erased)))
    return Photos(folder, ids, erased)


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def ids_of(dataset: Path) -> Ids:
    return frozenset(Grown(Folder(str(dataset)), ()).records())


def kill_and_repeat(
    rng: np.random.Generator, folder: Path, look: Callable[[], object], command: str, *argv: str
) -> None:
    """Kill a command at random moments, look at the dataset after each, and let it end at last."""
    took = 4.0
    for number in range(int(rng.integers(2, 6))):
        running = start_build(folder / f"{number}.stderr", *argv, command=command)
        started = time.monotonic()
        running.process.join(rng.uniform(0.0, took))
        with contextlib.suppress(ProcessLookupError):  # it has ended
            running.signal(signal.SIGKILL)
        code = running.wait()
        assert code in (0, -signal.SIGKILL), running.said
        look()
        took = min(took, 1.1 * (time.monotonic() - started)) if code == 0 else took
    last = start_build(folder / "last.stderr", *argv, command=command)
    assert last.wait() == 0, last.said


def copy_of(photos: Photos, folder: Path) -> Path:
    return Path(shutil.copytree(photos.folder / "dataset", folder / "out"))


def test_appends(photos: Photos, tmp_path: Path, rng: np.random.Generator) -> None:
    out, source = copy_of(photos, tmp_path), tmp_path / "in"
    shutil.copytree(photos.source, source)
    for number in range(int(rng.integers(1, 20))):
        put(source / f"dog/{number}.png", png_of(2000 + number))
        (source / f"ant/{number}.png").unlink(missing_ok=True)
    wanted = frozenset(str(path.relative_to(source)) for path in source.rglob("*.png"))
    allowed = (photos.ids, wanted)

    def look() -> None:
        assert judge(str(out)).faults == ()
        assert ids_of(out) in allowed

    argv = (str(source), str(out), *OPTIONS, *APPEND)
    kill_and_repeat(rng, tmp_path, look, "build", *argv)
    assert ids_of(out) == wanted
    assert len(list(read_versions(Folder(str(out))))) == 3


def test_compactions(photos: Photos, tmp_path: Path, rng: np.random.Generator) -> None:
    out = copy_of(photos, tmp_path)

    def look() -> None:
        assert judge(str(out)).faults == ()
        assert ids_of(out) == photos.ids

    kill_and_repeat(rng, tmp_path, look, "compact", str(out))
    look()
    assert len(read_version(Folder(str(out))).folders) == 1


@pytest.mark.parametrize("has_grown", [True, False])
def test_erasures(
    photos: Photos, tmp_path: Path, rng: np.random.Generator, *, has_grown: bool
) -> None:
    out, cache = tmp_path / "out", tmp_path / "cache"
    if has_grown:
        copy_of(photos, tmp_path)
    else:
        assert build(photos.source, out, *OPTIONS) == 0
    assert find_canaries([out])

    def look() -> None:
        assert verify(str(out)).faults == ()
        assert ids_of(out) in (photos.ids, photos.ids - photos.erased)

    asked = ("--ids", photos.folder / "ids", "--receipt", tmp_path / "receipt.json")
    argv = (out, *asked, "--cache", cache, "--yes")
    kill_and_repeat(rng, tmp_path, look, "erase", *map(str, argv))
    assert ids_of(out) == photos.ids - photos.erased
    assert find_canaries([tmp_path]) == {}
    assert judge(str(out)).faults == ()


def test_repairs(photos: Photos, tmp_path: Path, rng: np.random.Generator) -> None:
    out = tmp_path / "out"
    assert build(photos.source, out, *OPTIONS) == 0
    whole = contents_of(out)
    files = [out / name for name in sorted(whole) if name not in (naming.MANIFEST, naming.REPORT)]
    for path in rng.choice(np.array(files, object), int(rng.integers(1, 4)), replace=False):
        damage = (flip, cut, Path.unlink)[int(rng.integers(3))]
        damage(path)

    def look() -> None:
        sound = {name: data for name, data in contents_of(out).items() if data == whole.get(name)}
        assert sound.keys() >= whole.keys() - {str(path.relative_to(out)) for path in files}

    kill_and_repeat(rng, tmp_path, look, "repair", str(out))
    found = contents_of(out)
    assert {name for name in whole if found.get(name) != whole[name]} == set()
    assert found.keys() == whole.keys()
    assert judge(str(out)).faults == ()


def contents_of(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name[0] != ".")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def write_until(ends: float, seed: int, number: int, folder: str, out: str) -> None:
    """Append own images to a dataset, or compact and collect it, again and again."""
    from shardwright.pipelines.commands import build as append
    from shardwright.pipelines.commands import collect, compact

    os.environ["TMPDIR"] = tempfile.tempdir = str(Path(folder).parent)
    rng, step = np.random.default_rng(seed + number), 0
    while time.time() < ends:
        if number < NUM_APPENDERS:
            put(Path(folder, f"{number}/{rng.integers(6)}.png"), png_of(1000 * number + step))
            # Another one has made a version too often meanwhile: the message says to run it again.
            while append.main([folder, out, *OPTIONS, *APPEND, "--keep-missing"]) != 0:
                assert time.time() < ends + 120
        elif number == NUM_APPENDERS:
            compact.main([out])
        else:
            collect.main([out, "--keep", "3", "--yes"])
        step += 1


def test_six_writers_lose_nothing(tmp_path: Path, rng: np.random.Generator) -> None:
    out, ends, seed = tmp_path / "out", time.time() + 20, int(rng.integers(2**32))
    put(tmp_path / "first/ant/0.png", png_of(0))
    assert build(tmp_path / "first", out, *OPTIONS) == 0
    folders = [tmp_path / f"in{number}" for number in range(NUM_APPENDERS + 2)]
    tasks = [(ends, seed, number, str(folder), str(out)) for number, folder in enumerate(folders)]
    writers = [forks().Process(target=write_until, args=task) for task in tasks]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    wanted = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for folder in [tmp_path / "first", *folders]
        for path in folder.rglob("*.png")
    }
    found = Grown(Folder(str(out)), ()).records()
    assert {name: record.image for name, record in found.items()} == wanted
    assert judge(str(out)).faults == ()
    assert number_of(read_version(Folder(str(out)))) > NUM_APPENDERS
