"""An iterator of `shardwright.load` that is saved and restored goes on with the very next element."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import shardwright as sw
from tests.small_datasets import build, write_flat_folder

NUM_IMAGES = 90


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("checkpoint")
    return build(write_flat_folder(folder / "in", NUM_IMAGES), folder / "out", "--shard-count", "4")


def ids_in(element: dict[str, tf.Tensor]) -> list[bytes]:
    return np.atleast_1d(element["id"].numpy()).tolist()


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"split": "train[10:80]"},
        {"repeat": True, "batch_size": 7},
        {"shuffle": True},
        {"shuffle": True, "window": 2, "batch_size": 8, "image_size": (64, 64)},
        {"shuffle": True, "repeat": True, "batch_size": 7, "image_size": (64, 64)},
        {"shuffle": True, "seed": 5, "decode": False, "batch_size": 7, "repeat": True},
        {"max_bad_records": 3},
        {"shuffle": True, "keep": "images", "image_size": (64, 64), "repeat": True},
    ],
    ids=str,
)
def test_goes_on_exactly_and_the_checkpoint_is_small(
    dataset: str, tmp_path: Path, arguments: dict[str, Any]
) -> None:
    taken, following = (15, 20) if "batch_size" in arguments else (60, 30)
    if "repeat" not in arguments and "batch_size" in arguments:
        taken, following = 5, 6
    iterator = iter(sw.load(dataset, **arguments))
    before = [ids_in(next(iterator)) for _ in range(taken)]
    path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "saved"))
    expected = [ids_in(element) for _, element in zip(range(following), iterator, strict=False)]

    again = iter(sw.load(dataset, **arguments))
    tf.train.Checkpoint(iterator=again).restore(path).assert_consumed()

    assert [
        ids_in(element) for _, element in zip(range(following), again, strict=False)
    ] == expected
    assert expected
    assert expected != before[: len(expected)]
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 20_000


def test_epochs_after_a_restored_one_are_the_next_ones(dataset: str, tmp_path: Path) -> None:
    def all_ids(elements: Any) -> list[bytes]:
        return [name for element in elements for name in ids_in(element)]

    ds = sw.load(dataset, shuffle=True, features=["id"])
    all_ids(ds)
    iterator = iter(ds)
    for _ in range(40):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "saved"))
    rest, third = all_ids(iterator), all_ids(ds)

    fresh = sw.load(dataset, shuffle=True, features=["id"])
    restored = iter(fresh)
    tf.train.Checkpoint(iterator=restored).restore(path)

    assert all_ids(restored) == rest
    assert all_ids(fresh) == third


def test_saving_warns_of_nothing(
    dataset: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """TensorFlow warns of operations with state, of which a checkpoint would know nothing."""
    capfd.readouterr()
    for number, arguments in enumerate([{}, {"max_bad_records": 1}, {"keep": "images"}]):
        iterator = iter(
            sw.load(dataset, shuffle=True, batch_size=4, image_size=(8, 8), **arguments)
        )
        next(iterator)
        tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / f"saved-{number}"))

    out, err = capfd.readouterr()
    assert out == ""
    # What it always says when it saves, and what it says of its own graph rewriting, depending on what ran before.
    usual = ("Saving symbolic checkpoint", "node_def_util.cc")
    assert [line for line in err.splitlines() if not any(text in line for text in usual)] == []
