"""The same folder gives the same shards, byte for byte, wherever it is and wherever they go; and a second build writes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.build_helpers import (
    bare_index_of,
    build,
    hashes_of,
    ids_below,
    make_images,
    stamps_of,
    write_table,
)
from tests.store_places import PAIR_IDS, PAIRS, Kind, Place, Places

OPTIONS = (
    "--name",
    "same",
    "--records-per-shard",
    "7",
    "--split",
    "train=0.7,test=0.3",
    "--seed",
    "5",
)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("same") / "in", 60)


@pytest.fixture(scope="module")
def reference(images: Path) -> Path:
    """The dataset that every other build must be equal to."""
    assert build(images, images.parent / "reference", *OPTIONS) == 0
    return images.parent / "reference"


@pytest.fixture(scope="module")
def sources(images: Path, places: Places) -> dict[Kind, Place]:
    """The images, in every kind of place."""
    return {kind: places.make(kind).fill(images) for kind in ("local", "s3", "gs")}


def build_there(source: Place, output: Place, *options: str) -> int:
    return build(str(source), str(output), *source.args, *output.args, *OPTIONS, *options)


@pytest.mark.parametrize(("source_kind", "output_kind"), PAIRS, ids=PAIR_IDS)
def test_shards_are_those_of_a_local_build_and_a_second_build_writes_nothing(
    sources: dict[Kind, Place], reference: Path, places: Places, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    source_kind: Kind, output_kind: Kind,
) -> None:  # fmt: skip
    roots = []
    for threads in ("1", "64"):
        output = places.make(output_kind)
        assert build_there(sources[source_kind], output, "--threads", threads) == 0
        root = output.download(tmp_path / threads)
        assert hashes_of(root) == hashes_of(reference)
        assert bare_index_of(root) == bare_index_of(reference)
        assert output.names() == sorted(stamps_of(reference)), "the same files, and no other"
        roots.append(root)
    for path in sorted((roots[0] / "index").iterdir()):
        assert (roots[1] / "index" / path.name).read_bytes() == path.read_bytes(), (
            "the whole sidecar, of the same objects"
        )
    capfd.readouterr()
    assert_up_to_date(sources[source_kind], output, places)
    assert "shardwright: up to date: all 10 shards were already written" in capfd.readouterr().err


def assert_up_to_date(source: Place, output: Place, places: Places) -> None:
    """A second build writes nothing, not even the same bytes."""
    before = output.stamps()
    if output.server is None:
        assert build_there(source, output) == 0
    else:
        with places.proxy(output) as (proxy, through):
            assert build_there(source, through) == 0
            assert {method for method, _ in proxy.requests} == {"GET", "HEAD"}
    assert output.stamps() == before


def test_images_of_three_places_in_one_table(
    images: Path, sources: dict[Kind, Place], tmp_path: Path
) -> None:
    """Options of each bucket hold for that bucket."""
    ids = sorted(ids_below(images))
    kinds: list[Kind] = ["local", "s3", "gs"]
    everywhere = [
        {"id": image_id, "path": sources[kinds[row % 3]].at(image_id)}
        for row, image_id in enumerate(ids)
    ]
    here = [{"id": image_id, "path": image_id} for image_id in ids]
    mixed = write_table(tmp_path / "mixed.jsonl", everywhere)
    local = write_table(images.parent / "in" / "local.jsonl", here)
    args = [arg for source in sources.values() for arg in source.args]
    assert build(mixed, tmp_path / "mixed", *args, "--name", "t", "--records-per-shard", "9") == 0
    assert build(local, tmp_path / "local", "--name", "t", "--records-per-shard", "9") == 0
    assert hashes_of(tmp_path / "mixed") == hashes_of(tmp_path / "local")
