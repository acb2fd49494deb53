"""Sampling and mixing through `sw.Reader`: shares are exact, and hosts and restarts agree."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.errors import UsageError
from shardwright.reader.corpus import Corpus, DatasetSource
from shardwright.storage.folder import Folder
from tests.support.damage import build, write_images
from tests.support.readers import global_batches, hosts, take


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> str:
    """24 images of apes, 6 of bees."""
    root = tmp_path_factory.mktemp("uneven")
    write_images(root / "images", 24, ["ape"])
    write_images(root / "more", 6, ["bee"])
    (root / "more" / "bee").rename(root / "images" / "bee")
    return str(build(root / "images", root / "uneven", "--records-per-shard", "7"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> str:
    """9 more of each."""
    root = tmp_path_factory.mktemp("other")
    for path in write_images(root / "images", 9, ["ape", "bee"]).rglob("*.png"):
        path.rename(path.with_name(f"other-{path.name}"))
    return str(build(root / "images", root / "other", "--records-per-shard", "5"))


MIX: dict[str, Any] = {"shuffle": True}


@pytest.mark.parametrize(("options", "shares"), [
    ({"sampling": sw.ClassBalanced()}, {"ape/": 0.5, "bee/": 0.5}),
    ({"sampling": sw.ClassWeights({"ape": 1, "bee": 3})}, {"ape/": 0.25, "bee/": 0.75}),
    ({"sampling": sw.ClassWeights({"ape": 1, "bee": 0})}, {"ape/": 1.0}),
    (MIX, {"other": 0.25, "/": 0.75}),
], ids=str)  # fmt: skip
def test_shares_on_any_hosts_and_after_a_stop(
    uneven: str, other: str, options: dict[str, Any], shares: dict[str, float]
) -> None:
    dataset: Any = {uneven: 0.75, other: 0.25} if options is MIX else uneven
    options = options | {"global_batch_size": 8, "remainder": "carry", "epochs": 40, "seed": 2}
    batches = global_batches(hosts(dataset, 1, **options))
    names = [name for ids in batches for name in ids]
    assert len(names) == 40 * (48 if "shuffle" in options else 30)
    rest = names
    for kind, share in shares.items():
        counts = Counter(name for name in rest if kind in name)
        rest = [name for name in rest if kind not in name]
        assert abs(counts.total() / len(names) - share) < 0.05
        # Records come in turn, give or take a block of 64 places.
        assert max(counts.values()) - min(counts.values()) <= 4
    assert rest == []
    assert global_batches(hosts(dataset, 4, **options)) == batches
    reader = sw.Reader(dataset, **options)
    take(reader, 7)
    assert global_batches(hosts(dataset, 2, state=reader.state(), **options)) == batches[7:]


def test_a_state_knows_the_weights_of_a_mix(uneven: str, other: str) -> None:
    states = [sw.Reader({uneven: 1, other: weight}, batch_size=4).state() for weight in (1, 3)]
    assert states[0] != states[1]


def test_datasets_that_cannot_be_sampled_or_mixed(uneven: str, zoo: Path) -> None:
    unknown = sw.ClassWeights({"ape": 1, "cat": 2})
    with pytest.raises(UsageError, match="the dataset has no class 'cat'"):
        sw.Reader(uneven, global_batch_size=2, sampling=unknown)
    with pytest.raises(UsageError, match="has other classes than"):
        sw.Reader({uneven: 1.0, str(zoo): 1.0}, global_batch_size=2)
    with pytest.raises(UsageError, match="a weight must be a number above 0"):
        sw.Reader({uneven: 0}, global_batch_size=2)
    for dataset in ({}, [uneven], 5):
        with pytest.raises(UsageError, match="must be a folder or an address"):
            sw.Reader(dataset, global_batch_size=2)  # type: ignore[arg-type]


def test_mixed_datasets_need_equal_features_only_where_they_are_read(uneven: str) -> None:
    source = DatasetSource.open(Folder(uneven), None)
    schema = source.manifest.schema
    fewer = tuple(feature for feature in schema.features if feature.name != "id")
    manifest = replace(source.manifest, schema=replace(schema, features=fewer))
    sources = [source, replace(source, manifest=manifest)]

    assert Corpus(sources, "train", ["image", "label"]).num_records == 2 * 30
    for names in (None, ["image", "id"]):
        with pytest.raises(UsageError, match=r"\(id\): leave them out of features="):
            Corpus(sources, "train", names)
