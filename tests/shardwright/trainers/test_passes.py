"""One rule for a pass, of a reader and of all that is made of it; of torch in `tests/torch`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice
from typing import Any

import numpy as np
import pytest

import shardwright as sw
from shardwright.errors import UsageError
from tests.support.small_datasets import Datasets, datasets_fixture  # noqa: F401

KINDS = ("reader", "jax", "grain", "tf_data", "keras")
AHEAD = ("grain", "tf_data")  # frameworks that take batches ahead of a loop


def opened(datasets: Datasets, **options: Any) -> sw.Reader:
    """Return a reader of 21 images in 6 batches."""
    defaults = {"shuffle": True, "epochs": 1, "remainder": "keep", "image": sw.TrainImage(4)}
    return datasets.read(**{**defaults, **options})


def dress(reader: sw.Reader, kind: str) -> Any:
    return reader if kind == "reader" else getattr(reader, kind)()


def pixels(batches: Iterable[Any]) -> list[bytes]:
    """Return the crops of each batch, which are others in each epoch."""
    images = (batch["image"] if isinstance(batch, dict) else batch[0] for batch in batches)
    return [np.asarray(image).tobytes() for image in images]


def passes_of(datasets: Datasets, count: int, **options: Any) -> list[list[bytes]]:
    """Return the passes of a plain reader, of which each is read to its end."""
    reader = opened(datasets, **options)
    return [pixels(reader) for _ in range(count)]


@pytest.mark.long_but_first
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_each_loop_is_a_whole_pass_of_its_own(datasets: Datasets, kind: str, shuffle: bool) -> None:
    """Also after one that was left, inside another one, and beside another one."""
    expected = passes_of(datasets, 7, shuffle=shuffle)
    data = dress(opened(datasets, shuffle=shuffle), kind)
    if kind != "grain":  # an IterDataset has no length
        assert len(data) == 6
    assert pixels(data) == expected[0]
    assert pixels(islice(data, 2)) == expected[1][:2], "this one is left"
    inside = []
    for number, batch in enumerate(data):
        inside += pixels([batch])
        if number == 3:
            assert pixels(data) == expected[3]
    assert inside == expected[2]
    left, right = zip(*zip(data, data, strict=True), strict=True)
    assert (pixels(left), pixels(right)) == (expected[4], expected[5])
    assert pixels(data) == expected[6]


@pytest.mark.parametrize("kind", ["reader", "jax", *AHEAD])
def test_an_endless_pass_begins_an_epoch_later(datasets: Datasets, kind: str) -> None:
    whole = [*chain.from_iterable(passes_of(datasets, 4))]
    data = dress(opened(datasets, epochs=None), kind)
    for number in range(3):
        assert pixels(islice(data, 9)) == whole[6 * number : 6 * number + 9]


@pytest.mark.parametrize("kind", ["reader", "jax", *AHEAD])
def test_only_a_state_begins_in_the_middle_and_once(datasets: Datasets, kind: str) -> None:
    expected = passes_of(datasets, 3)
    first = opened(datasets)
    pixels(dress(first, kind))
    pixels(islice(dress(first, kind), 2))
    state = first.state_after(2)
    if kind in AHEAD:
        with pytest.raises(UsageError, match=r"only you know how many .* state_after\(that number"):
            first.state()
    else:
        assert first.state() == state
    resumed = opened(datasets, state=state)
    assert (len(resumed), resumed.epoch) == (4, 1)
    data = dress(resumed, kind)
    assert [pixels(data), pixels(data)] == [expected[1][2:], expected[2]]
    assert len(resumed) == 6
    resumed.go_to(state["position"])
    data = dress(resumed, kind)
    assert [pixels(data), pixels(data)] == [expected[1][2:], expected[2]]


@pytest.mark.parametrize("kind", ["reader", "jax"])
def test_a_state_is_that_of_the_loop_begun_last(datasets: Datasets, kind: str) -> None:
    """An older loop does not move it, and a loop that goes on does."""
    expected = passes_of(datasets, 2)
    reader = opened(datasets)
    first, second = iter(dress(reader, kind)), iter(dress(reader, kind))
    assert pixels([next(second)]) == expected[1][:1]
    assert pixels(first) == expected[0]
    resumed = opened(datasets, state=reader.state())
    assert pixels(resumed) == expected[1][1:] == pixels(second)


def test_keras_does_not_begin_in_the_middle(datasets: Datasets) -> None:
    reader = opened(datasets)
    next(iter(reader))
    resumed = opened(datasets, state=reader.state())
    with pytest.raises(UsageError, match=r"position 4, in the middle of a pass: .*keras_callback"):
        resumed.keras()
    data = reader.keras()
    reader.go_to(reader.position)
    with pytest.raises(UsageError, match="in the middle of a pass"):
        data.on_epoch_begin()
