"""A build into a store that was stopped in the middle goes on, and nobody ever sees a part of a shard, or pays for one for ever."""

from __future__ import annotations

import hashlib
import signal
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import obstore
import pytest

from shardwright.errors import NotADatasetError
from shardwright.manifest import read_manifest
from shardwright.storage import Folder, StorageOptions
from tests.build_helpers import RunningBuild, build, hashes_of, make_images, start_build, wait_for
from tests.fault_proxy import Fault, FaultProxy
from tests.servers.clients import open_store
from tests.store_places import PAIR_IDS, PAIRS, STORES, Kind, Place, Places

NUM_SHARDS = 8
SMALL = ("--name", "small", "--shard-count", str(NUM_SHARDS))
LARGE = ("--name", "large", "--records-per-shard", "4")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_images(tmp_path_factory.mktemp("resumed") / "in", 48)
    assert build(root, root.parent / "reference", *SMALL) == 0
    return root


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images for 3 shards of 14 MB, which are uploaded in two parts."""
    root = make_images(tmp_path_factory.mktemp("large") / "in", 12, side=1100)
    assert build(root, root.parent / "reference", *LARGE) == 0
    return root


@pytest.fixture(scope="module")
def sources(images: Path, places: Places) -> dict[Kind, Place]:
    return {
        "local": Place(str(images)),
        "s3": places.make("s3").fill(images),
        "gs": places.make("gs").fill(images),
    }


def reference_of(images: Path) -> dict[str, str]:
    return hashes_of(images.parent / "reference")


def start(images: Path, output: Place, stderr: Path, *options: str) -> RunningBuild:
    return start_build(stderr, images, output.uri, *output.args, *options)


def num_asked(proxy: FaultProxy, method: str, text: str) -> int:
    return sum(method == found and text in unquote(target) for found, target in proxy.requests)


def finished_files(stamps: dict[str, Any]) -> set[str]:
    """The names of every shard that has its sidecar, and of the sidecar."""
    positions = [
        name.removesuffix(".parquet").partition("-")[2]
        for name in stamps
        if name.startswith("index/")
    ]
    return {name for name in stamps for position in positions if position in name}


MOMENTS = [
    ("plan.json", 1),
    ("index/", 1),
    ("tfrecord-", 4),
    ("index/", 6),
    ("tfrecord-", 7),
    ("report.html", 1),
    ("index/", 3),
    ("index/", 7),
]


@pytest.mark.parametrize(
    ("source_kind", "output_kind", "written", "number"),
    [(*pair, *moment) for pair, moment in zip(PAIRS, MOMENTS, strict=True)],
    ids=PAIR_IDS,
)
def test_a_killed_build_goes_on_where_it_stopped(
    sources: dict[Kind, Place],
    images: Path,
    places: Places,
    tmp_path: Path,
    source_kind: Kind,
    output_kind: Kind,
    written: str,
    number: int,
) -> None:
    source, output = sources[source_kind], places.make(output_kind)
    with places.proxy(output if output.server else source, latency_msec=8) as (proxy, through):
        slow = (source, through) if output.server else (through, output)
        running = start_build(tmp_path / "stderr", *argv_of(*slow))
        wait_for(lambda: sum(written in name for name in output.names()) >= number, running)
        running.signal(signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL
        wait_for(lambda: not proxy.num_in_flight)
    before = output.stamps()
    finished = finished_files(before)
    if "manifest.json" not in before:  # whose answer may have come too late only
        with pytest.raises(
            NotADatasetError,
            match=r"unfinished build .* run the same `shardwright build` command again",
        ):
            read_manifest(Folder.at(output.uri, StorageOptions.of(output.storage_options)))
    assert (
        len(finished) >= 2 * (number - 1)
        if written != "plan.json"
        else len(finished) < 2 * NUM_SHARDS
    )

    assert_only_the_rest_is_written(source, output, finished, places)
    after = output.stamps()
    assert {name: after[name] for name in finished} == {name: before[name] for name in finished}
    root = output.download(tmp_path / "out")
    assert hashes_of(root) == reference_of(images)
    assert sorted(after) == Place(str(images.parent / "reference")).names()


def argv_of(source: Place, output: Place) -> list[str]:
    return [source.uri, output.uri, *source.args, *output.args, *SMALL, "--threads", "1"]


def assert_only_the_rest_is_written(
    source: Place, output: Place, finished: set[str], places: Places
) -> None:
    if output.server is None:
        assert build(*argv_of(source, output)) == 0
        return
    with places.proxy(output) as (proxy, through):
        assert build(*argv_of(source, through)) == 0
        assert [name for name in finished if num_asked(proxy, "PUT", name)] == [], (
            "finished shards are not written again"
        )


def assert_only_whole_shards(output: Place, reference: dict[str, str]) -> set[str]:
    """The names of the shards that can be seen, each of which is already what it is to be."""
    visible = {name for name in output.names() if "tfrecord" in name}
    for name in visible:
        assert hashlib.sha256(output.get(name)).hexdigest() == reference[name]
    return visible


@pytest.mark.parametrize("kind", STORES)
def test_a_shard_is_visible_only_when_it_is_whole(
    large: Path, places: Places, tmp_path: Path, kind: Kind
) -> None:
    output, seen = places.make(kind), []
    with places.proxy(output, latency_msec=30) as (_, through):
        running = start(large, through, tmp_path / "stderr", *LARGE)
        while running.process.is_alive():
            seen.append(len(assert_only_whole_shards(output, reference_of(large))))
        assert running.wait() == 0
    assert seen[0] == 0
    assert len(set(seen)) > 2, "looked at while it was written"
    assert len(assert_only_whole_shards(output, reference_of(large))) == 3
    assert output.pending_uploads() == []


@pytest.mark.parametrize("kind", STORES)
def test_an_upload_that_a_killed_build_left_is_aborted_by_the_next_run(
    large: Path, places: Places, tmp_path: Path, kind: Kind
) -> None:
    output = places.make(kind)
    with places.proxy(output) as (proxy, through):
        proxy.add(hang := Fault("stall", None, path_contains="partNumber=2", skip=1))
        running = start(large, through, tmp_path / "stderr", *LARGE)
        wait_for(lambda: proxy.hits(hang) > 0, running)
        running.signal(signal.SIGKILL)
        running.wait()
    (left,) = output.pending_uploads()
    assert "tfrecord" in left
    first = assert_only_whole_shards(output, reference_of(large))
    assert len(first) == 1
    assert left not in first
    before = output.stamps()

    assert build(large, output.uri, *output.args, *LARGE) == 0
    assert output.pending_uploads() == []
    assert len(assert_only_whole_shards(output, reference_of(large))) == 3
    after = output.stamps()
    assert [name for name in first if after[name] != before[name]] == []


@pytest.mark.parametrize("kind", STORES)
def test_uploads_of_others_are_left_alone(images: Path, places: Places, kind: Kind) -> None:
    """Of others' files below OUTPUT, and of files that look like a build's elsewhere in the bucket."""
    output = places.make(kind)
    assert output.server is not None
    store = open_store(output.server, output.bucket)
    with obstore.open_writer(store, f"{output.prefix}thesis.tex", buffer_size=5 << 20) as one:
        one.write(bytes(6 << 20))
        with obstore.open_writer(
            store, "elsewhere/small-train.tfrecord-00000-of-00008", buffer_size=5 << 20
        ) as other:
            other.write(bytes(6 << 20))
            wait_for(lambda: len(output.pending_uploads()) == 2)
            assert build(images, output.uri, *output.args, *SMALL) == 0
    assert len(output.get("thesis.tex")) == 6 << 20


@pytest.mark.parametrize(
    ("kind", "number", "code"), [("s3", signal.SIGTERM, 143), ("gs", signal.SIGINT, 130)]
)
def test_a_signal_in_mid_upload_leaves_nothing_and_says_how_to_go_on(
    large: Path, places: Places, tmp_path: Path, kind: Kind, number: signal.Signals, code: int
) -> None:
    """In the second shard, whose first part is on its way while the last image is waited for."""
    source, output = places.make("s3").fill(large), places.make(kind)
    with places.proxy(source) as (slow, slowly), places.proxy(output) as (proxy, through):
        slow.add(Fault("latency", None, method="GET", path_contains=".png", latency_msec=400))
        running = start_build(
            tmp_path / "stderr",
            slowly.uri,
            output.uri,
            *slowly.args,
            *through.args,
            *LARGE,
            "--threads",
            "1",
        )
        wait_for(lambda: num_asked(proxy, "PUT", "partNumber=1&") >= 2, running)
        running.signal(number)
        started = time.monotonic()
        assert running.wait() == code
        assert time.monotonic() - started < 8
    assert (
        running.said.splitlines()[-1]
        == f"shardwright: stopped by {number.name}; run the same command again to go on"
    )
    assert "Traceback" not in running.said
    assert output.pending_uploads() == []
    assert len(assert_only_whole_shards(output, reference_of(large))) == 1
    assert "manifest.json" not in output.names()
