"""Erased images are nowhere: not in a version, a list, a report, a cache or a leftover file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.format.versions import number_of, read_versions
from shardwright.pipelines.commands.erase import main
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions
from tests.servers.store_server import StoreServer
from tests.support.build_helpers import make_images, png_of
from tests.support.canaries import canary, canary_png, find_canaries
from tests.support.growing import Grown, Source, add_batch
from tests.support.judge import judge
from tests.support.object_stores import new_bucket
from tests.support.repairs import build_plainly
from tests.support.store_places import Kind, Place, Places

OPTIONS = ("--split", "train=0.8,test=0.2", "--name", "grown", "--duplicates", "drop")
LIMITS = ("--max-reject-fraction", "0.5")


def id_of(number: int) -> str:
    return f"ant/{canary(number, 9)}.png"


class Aviary:
    """A dataset of three versions that have canaries, with what stopped builds leave.

    Args:
        output: Its place.
        source: A folder for its images.
        number: Number of canaries.
    """

    def __init__(self, output: Place, source: Path, number: int) -> None:
        self.output, self.number = output, number
        self.options = StorageOptions.of(output.storage_options)
        root = Folder.at(output.uri, self.options)
        more = ("--records-per-shard", str(max(8, number // 12)), "--signals", *LIMITS)
        self.grown = Grown(root, (*OPTIONS, *more))
        self.folder = source
        self.kept = {f"{name}/{index:05d}.png" for name in "bc" for index in range(number // 2)}
        for name in self.kept:
            self._put(name, png_of(sum(map(ord, name)) * 1000 + int(name[2:-4])))
        fifth = number // 5
        self._put("b/copy.png", canary_png(canary(2 * fifth)))  # a reject names the canary
        self._put(f"ant/{canary(99_999, 9)}.png", b"no picture of " + canary(99_999).encode())
        self._fill(range(3 * fifth), 0)
        self._build()
        self._fill(range(fifth), 1)
        self._fill(range(3 * fifth, 4 * fifth), 0)
        self._build()
        self._fill(range(4 * fifth, number), 0)
        (source / id_of(1)).unlink()
        self._build()
        self.ids = {*map(id_of, range(number)), id_of(99_999)}

    def _put(self, name: str, data: bytes) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_bytes(data)

    def _fill(self, numbers: range, copy: int) -> None:
        for number in numbers:
            self._put(id_of(number), canary_png(canary(number, copy)))

    def _build(self) -> None:
        self.grown.append(Source(self.folder))

    def leave_behind(self) -> list[str]:
        """Leave files of stopped builds, and return their names."""
        data = canary_png(canary(2))
        left = [
            "spool/images.bin",
            "next/plan.json",
            "next/manifest.json",
            "next/grown-train.tfrecord-00000-of-00001",
            "staged/fresh/grown-train.tfrecord-00000-of-00001",
            "index/.train-00000-of-00009.parquet.x.tmp",
            "generations/00009-stopped/plan.json",
            "generations/00009-stopped/grown-train.tfrecord-00000-of-00001",
            "generations/00009-stopped/spool/images.bin",
        ]
        for name in left:
            self.output.put(name, data)
        return left

    def erase(self, ids: Path, *words: object) -> int:
        ids.write_text("".join(f"{each}\n" for each in sorted(self.ids)))
        return self.run("--ids", ids, *words)

    def run(self, *words: object) -> int:
        return main([self.output.uri, *self.output.args, *map(str, words)])

    def read(self, version: int, cache: Path) -> set[str]:
        """Return the ids of a version, each read once."""
        found: dict[str, Any] = {}
        options: dict[str, Any] = {"version": version, "storage_options": self.options}
        for split in (dataset := sw.open(self.output.uri, **options)).splits:
            with sw.Reader(
                self.output.uri, split, global_batch_size=64, epochs=1, remainder="keep",
                cache=cache, **options,
            ) as reader:  # fmt: skip
                for batch in reader:
                    add_batch(found, batch, dataset.class_names, split)
        return set(found)


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    ("kind", "number"),
    [("local", 50), ("s3", 15)]
    + [pytest.param(kind, 1000, marks=pytest.mark.long) for kind in ("local", "s3", "gs")],
)
def test_no_canary_is_left(kind: Kind, number: int, places: Places, tmp_path: Path) -> None:
    aviary = Aviary(places.make(kind), tmp_path / "in", number)
    cache, receipt = tmp_path / "cache", tmp_path / "told" / "receipt.json"
    for version in (1, 2, 3):
        assert aviary.read(version, cache) & aviary.ids
    left = aviary.leave_behind()
    before = aviary.output.download(tmp_path / "before")
    assert len(find_canaries([before])) > len(left)
    assert kind == "local" or find_canaries([cache])
    words = ("--receipt", receipt, "--cache", cache, "--yes")
    assert aviary.erase(tmp_path / "ids", *words) == 0

    after = aviary.output.download(tmp_path / "after")
    assert find_canaries([after, cache, receipt.parent]) == {}
    assert not set(left) & set(aviary.output.names())
    told = json.loads(receipt.read_bytes())
    assert (len(told["ids"]), len(told["found"])) == (number + 1, number + 1)
    assert told["versions"] == [1, 2, 3]
    assert told["ended"] >= told["begun"]
    assert told["not_removed"] == []

    options = aviary.options
    assert judge(aviary.output.uri, storage_options=options).is_sound
    assert list(map(number_of, read_versions(aviary.grown.root))) == [4]
    assert aviary.read(4, cache) == aviary.kept
    assert aviary.run("--verify", receipt) == 0


@pytest.mark.long
def test_what_a_store_keeps_is_removed(moto_server: StoreServer, tmp_path: Path) -> None:
    bucket, client = new_bucket(moto_server), moto_server.s3_client()
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    output = Place(f"s3://{bucket}/data", moto_server)
    words = (output.uri, *output.args)
    build_plainly(make_images(tmp_path / "in", 4), *words, "--name", "data")
    output.put("spool/a.bin", b"left by a stopped build")
    first = sorted((tmp_path / "in").rglob("*.png"))[0]
    (tmp_path / "ids").write_text(first.relative_to(tmp_path / "in").as_posix())
    receipt = tmp_path / "receipt.json"
    asked = ("--ids", str(tmp_path / "ids"), "--receipt", str(receipt), "--yes")
    assert main([*words, *asked]) == 0
    told = json.loads(receipt.read_bytes())
    assert told["not_removed"] == []
    pages = client.get_paginator("list_object_versions").paginate(Bucket=bucket)
    found = [row for page in pages for row in page["Versions"]]
    assert {row["Key"].removeprefix("data/") for row in found} == set(output.names())
    assert len(found) == len(output.names())
