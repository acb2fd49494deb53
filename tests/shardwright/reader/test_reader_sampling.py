"""Sampling and mixing through `sw.Reader`: shares are exact, and hosts and restarts agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
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


def assert_even(names: Iterable[str]) -> None:
    counts = Counter(names).values()
    assert max(counts) - min(counts) <= 4


@pytest.mark.long_but_first
@pytest.mark.parametrize(("sampling", "shares"), [
    (sw.ClassBalanced(), {"ape": 0.5, "bee": 0.5}),
    (sw.ClassWeights({"ape": 1, "bee": 3}), {"ape": 0.25, "bee": 0.75}),
    (sw.ClassWeights({"ape": 1, "bee": 0}), {"ape": 1.0}),
], ids=str)  # fmt: skip
def test_class_weights(uneven: str, sampling: Any, shares: dict[str, float]) -> None:
    options: dict[str, Any] = {"global_batch_size": 8, "remainder": "carry", "epochs": 40}
    options |= {"sampling": sampling, "seed": 2}
    batches = global_batches(hosts(uneven, 1, **options))
    names = [name for ids in batches for name in ids]

    assert len(names) == 40 * 30
    found = Counter(name.split("/")[0] for name in names)
    assert set(found) == set(shares)
    for label, share in shares.items():
        assert abs(found[label] / len(names) - share) < 0.05
    # Records of a class come in turn, give or take a block of 64 places.
    assert_even(name for name in names if name.startswith("ape"))
    assert global_batches(hosts(uneven, 4, **options)) == batches
    reader = sw.Reader(uneven, **options)
    take(reader, 7)
    assert global_batches(hosts(uneven, 2, state=reader.state(), **options)) == batches[7:]


@pytest.mark.long
def test_datasets_are_mixed_by_weight(uneven: str, tmp_path: Path) -> None:
    write_images(tmp_path / "images", 9, ["ape", "bee"])
    for path in (tmp_path / "images").rglob("*.png"):
        path.rename(path.with_name(f"other-{path.name}"))
    other = str(build(tmp_path / "images", tmp_path / "other", "--records-per-shard", "5"))
    mixed = {uneven: 0.75, other: 0.25}
    options: dict[str, Any] = {"global_batch_size": 12, "shuffle": True, "remainder": "carry"}
    options["epochs"] = 10
    batches = global_batches(hosts(mixed, 1, **options))  # type: ignore[arg-type]
    names = [name for ids in batches for name in ids]

    assert len(names) == 10 * (30 + 18)
    others = [name for name in names if "other-" in name]
    assert abs(len(others) / len(names) - 0.25) < 0.02
    assert_even(others)
    assert_even(name for name in names if "other-" not in name)
    assert global_batches(hosts(mixed, 3, **options)) == batches  # type: ignore[arg-type]
    one, two = (
        sw.Reader({uneven: 1, other: weight}, global_batch_size=4).state() for weight in (1, 3)
    )
    assert one != two


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
