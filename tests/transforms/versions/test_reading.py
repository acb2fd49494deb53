"""Versions in tf.data and through the cache of a store."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.errors import NotADatasetError
from shardwright.format.versions import number_of, read_version
from shardwright.inspect.cli import main
from shardwright.storage.folder import Folder
from shardwright.transforms.versions.commit import commit
from tests.support.buckets import Bucket, on_s3_and_gcs
from tests.support.build_helpers import png_of
from tests.transforms.versions.histories import append, append_change, wanted, write

FIRST = {f"r{number:02d}": number for number in range(20)}
CHANGED = {"r03": 30, "new": 31}
GONE = ["r01", "r02", "r08", "r19"]
LATER = {**{name: seed for name, seed in FIRST.items() if name not in GONE}, **CHANGED}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("versions") / "out"
    write(FIRST, root)
    append(root, CHANGED, GONE)
    return root


def loaded(address: str, **options: Any) -> dict[str, tuple[bytes, int]]:
    """Return (image, label) by id, as `sw.load` reads them."""
    found = [
        (one["id"].decode(), (one["image"], int(one["label"])))
        for one in sw.load(address, decode=False, **options).as_numpy_iterator()
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    "options",
    [{}, {"shuffle": True}, {"max_bad_records": 1}],
    ids=str,
)
def test_load_reads_what_is_left(root: Path, options: dict[str, Any]) -> None:
    assert loaded(str(root), **options) == wanted(LATER)
    assert loaded(str(root), **options, version=1) == wanted(FIRST)


def test_every_version_states_its_number(root: Path) -> None:
    numbers = [sw.open(str(root), version=number).history["version"] for number in (1, 2)]
    assert numbers == [1, 2]


def test_load_has_the_order_of_the_reader(root: Path) -> None:
    with sw.Reader(str(root), global_batch_size=50, epochs=1, remainder="keep") as reader:
        ids = next(iter(reader))["id"].tolist()
    assert list(loaded(str(root))) == ids
    assert list(loaded(str(root), split="train[3:9]")) == ids[3:9]
    batches = sw.load(str(root), batch_size=4, decode=False)
    assert [name.decode() for batch in batches for name in batch["id"].numpy()] == ids


def copied(root: Path, bucket: Bucket) -> Folder:
    """Return a copy of a dataset in a bucket."""
    for path in root.rglob("*"):
        if path.is_file():
            bucket.put(f"out/{path.relative_to(root)}", path.read_bytes())
    return bucket.folder("out")


@pytest.mark.long
def test_a_store_reads_the_shards_of_an_earlier_version_once(
    root: Path, s3_bucket: Bucket, tmp_path: Path
) -> None:
    remote = copied(root, s3_bucket)
    reading: dict[str, Any] = {"storage_options": remote.options, "cache": tmp_path / "cache"}
    assert loaded(remote.uri, version=1, **reading) == wanted(FIRST)
    shards = {path: path.stat().st_ino for path in (tmp_path / "cache").rglob("grown-train*")}
    assert loaded(remote.uri, **reading) == wanted(LATER)
    assert loaded(remote.uri, shuffle=True, **reading) == wanted(LATER)
    with sw.Reader(remote.uri, global_batch_size=9, epochs=1, remainder="keep", **reading) as some:
        assert sum(len(batch["id"]) for batch in some) == len(LATER)
    now = {path: path.stat().st_ino for path in (tmp_path / "cache").rglob("grown-train*")}
    assert shards.items() < now.items()


@pytest.mark.long_but_first
@on_s3_and_gcs
def test_writers_in_a_store_lose_no_commit(bucket: Bucket, tmp_path: Path) -> None:
    """One that commits second applies its change to what the first has made."""
    local = tmp_path / "out"
    write({"a": 1, "b": 2}, local)
    changes = [append_change(local, {name: seed}, [], name) for name, seed in (("c", 3), ("d", 4))]
    remote = copied(local, bucket)
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda change: commit(remote, change), changes))
    assert sorted(map(number_of, made)) == [2, 3]
    assert read_version(remote).num_records == 4
    cache: dict[str, Any] = {"storage_options": remote.options, "cache": tmp_path / "cache"}
    found = loaded(remote.uri, **cache)
    assert {name: image for name, (image, _) in found.items()} == {
        name: png_of(seed) for name, seed in (("a", 1), ("b", 2), ("c", 3), ("d", 4))
    }


def told_by(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    code = main([str(word) for word in words])
    return code, capsys.readouterr().out


def test_commands_look_at_a_version(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = told_by(capsys, "log", root, "--json")
    versions = json.loads(out)["versions"]
    counts = [(one["version"], one["operation"], one["num_records"]) for one in versions]
    assert (code, counts) == (0, [(2, "append", len(LATER)), (1, "build", len(FIRST))])
    for at, content in (("latest", LATER), ("1", FIRST)):
        _, out = told_by(capsys, "inspect", root, "--json", "--version", at)
        assert json.loads(out)["num_records"] == len(content)
        name = sorted(content)[0]
        assert told_by(capsys, "show", root, name, "--version", at)[0] == 0
        page = tmp_path / "page.html"
        assert told_by(capsys, "report", root, "--version", at, "-o", page)[0] == 0
        assert page.read_text().count('data-id="r') >= len(content) - 1
    assert main(["show", str(root), "0", "--at", "1"]) == 0
    assert "--at is --version now" in capsys.readouterr().err
    assert told_by(capsys, "show", root, "r01")[0] == 1
    assert told_by(capsys, "show", root, str(len(LATER)), "--by", "number")[0] == 1
    _, out = told_by(capsys, "diff", root, root, "--version", "1", "--json")
    counts = json.loads(out)["records"]
    assert (counts["new"], counts["gone"], counts["changed"]) == (1, len(GONE), 1)


def test_verify_checks_every_generation(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(root, tmp_path / "out")
    assert told_by(capsys, "verify", copy)[0] == 0
    assert told_by(capsys, "verify", copy, "--quick")[0] == 0
    [shard] = copy.glob("generations/*/grown-train*")
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    code, out = told_by(capsys, "verify", copy)
    assert code == 1
    assert f"{shard.relative_to(copy)}: record" in out
    shard.write_bytes(b"".join([shard.read_bytes(), b"more"]))
    assert told_by(capsys, "verify", copy, "--quick")[0] == 1


@pytest.mark.parametrize("folder", ["", "generations/00002-x/"])
def test_a_lost_or_truncated_manifest_is_named(
    root: Path, tmp_path: Path, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(root, tmp_path / "out")
    [shard] = copy.glob("generations/*/grown-train*")
    shard.write_bytes(b"")
    file = copy / folder / "manifest.json"
    file.write_bytes(file.read_bytes()[:100])
    code, out = told_by(capsys, "verify", copy)
    assert (code, "is not readable JSON" in out) == (1, True)
    file.unlink()
    code, out = told_by(capsys, "verify", copy)
    assert (code, f"{folder}manifest.json: the file is missing: copy it again" in out) == (1, True)
    assert (str(shard.relative_to(copy)) in out) == (not folder)
    if not folder:
        with pytest.raises(NotADatasetError, match=r"out/manifest.json is missing.*: copy it"):
            read_version(Folder(str(copy)), 1)


def test_verify_finds_a_version_that_does_not_fit(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Folder(str(shutil.copytree(root, tmp_path / "out")))
    version = read_version(copy)
    train = version.splits["train"]
    other = replace(train, shards=(replace(train.shards[0], crc32c=1), *train.shards[1:]))
    copy.write_bytes("versions/00002.json", replace(version, splits={"train": other}).to_bytes())
    code, out = told_by(capsys, "verify", copy.uri)
    assert (code, "is not the shard of its generation" in out) == (1, True)
