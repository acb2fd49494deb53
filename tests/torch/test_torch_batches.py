"""`Reader.torch()`: the reader's very batches as tensors, in its order, whatever DataLoader and however many workers bring them."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterable
from itertools import islice
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import shardwright as sw
from shardwright.errors import BadRecordError, UsageError
from shardwright.reader.encodings import Text
from tests.bad_records import copy_with_bad_record

IMAGE = sw.TrainImage(8)
WORKERS = [(0, None), (1, "fork"), (3, "fork"), (2, "spawn")]
REMAINDERS = ("drop", "keep", "pad", "carry")


def read(dataset: str, **options: Any) -> sw.Reader:
    return sw.Reader(
        dataset,
        **{"global_batch_size": 8, "image": IMAGE, "features": ["image", "label", "id"], **options},
    )


def load(
    reader: sw.Reader, num_workers: int = 0, context: str | None = None, **options: Any
) -> DataLoader[Any]:
    return DataLoader(
        reader.torch(),
        batch_size=None,
        num_workers=num_workers,
        multiprocessing_context=context,
        **options,
    )


def ids_of(batches: Iterable[dict[str, Any]]) -> list[list[str]]:
    return [batch["id"] for batch in batches]


def expected_ids(dataset: str, **options: Any) -> list[list[str]]:
    return [list(batch["id"]) for batch in read(dataset, **options)]


def assert_same(batches: list[dict[str, Any]], arrays: list[dict[str, Any]]) -> None:
    """Tensors hold what the reader's arrays do, images with their channels first."""
    assert len(batches) == len(arrays)
    for batch, array in zip(batches, arrays, strict=True):
        assert batch["id"] == list(array["id"])
        np.testing.assert_array_equal(batch["label"].numpy(), array["label"])
        np.testing.assert_array_equal(batch["image"].numpy(), array["image"].transpose(0, 3, 1, 2))


@pytest.mark.parametrize(("num_workers", "context"), WORKERS)
def test_batches_are_those_of_the_reader(
    pictures: str, num_workers: int, context: str | None
) -> None:
    options: dict[str, Any] = {"shuffle": True, "seed": 3, "epochs": 2, "remainder": "keep"}

    batches = list(load(read(pictures, **options), num_workers, context))

    assert_same(batches, list(read(pictures, **options)))
    assert len({name for ids in ids_of(batches[:8]) for name in ids}) == 61


@pytest.mark.parametrize("remainder", REMAINDERS)
@pytest.mark.parametrize("num_workers", [0, 3])
def test_every_remainder_with_workers(pictures: str, remainder: str, num_workers: int) -> None:
    options: dict[str, Any] = {
        "shuffle": True,
        "epochs": 3,
        "remainder": remainder,
        "global_batch_size": 14,
    }

    loader = load(read(pictures, **options), num_workers, "fork" if num_workers else None)

    assert ids_of(loader) == expected_ids(pictures, **options)
    assert len(loader) == len(read(pictures, **options))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_hosts_share_each_batch(pictures: str, num_workers: int) -> None:
    options: dict[str, Any] = {"epochs": 1, "shuffle": True, "remainder": "keep"}
    loaders = [
        load(read(pictures, host_index=host, host_count=2, **options), num_workers)
        for host in range(2)
    ]

    assert [
        first + second for first, second in zip(*map(ids_of, loaders), strict=True)
    ] == expected_ids(pictures, **options)


def test_more_workers_than_batches(pictures: str) -> None:
    options: dict[str, Any] = {"epochs": 1, "global_batch_size": 40}

    assert ids_of(load(read(pictures, **options), 4, "fork")) == expected_ids(pictures, **options)


def test_a_fork_while_the_reader_is_busy(pictures: str) -> None:
    """Threads of this process hold locks at any time; a worker must not wait for them."""
    reader = read(pictures, shuffle=True, epochs=1, remainder="keep")
    stop = threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            reader.engine.read(reader.engine.places.locate(np.arange(32)))

    thread = threading.Thread(target=keep_busy)
    thread.start()
    try:
        found = [ids_of(load(reader, 2, "fork")) for _ in range(3)]
    finally:
        stop.set()
        thread.join()

    assert found == [expected_ids(pictures, shuffle=True, epochs=1, remainder="keep")] * 3


def test_images_are_channels_first_without_a_copy(pictures: str) -> None:
    reader = read(pictures, epochs=1)
    first = next(iter(reader.torch()))["image"]
    last = next(iter(read(pictures, epochs=1).torch(channels_first=False)))["image"]

    assert (first.dtype, first.shape, last.shape) == (torch.uint8, (8, 3, 8, 8), (8, 8, 8, 3))
    assert first.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(first.permute(0, 2, 3, 1), last)


def test_every_kind_of_feature(pictures: str) -> None:
    features = {
        "caption": Text(),
        "count": None,
        "ratio": None,
        "boxes": sw.Sparse(),
        "tags": None,
        "label": sw.OneHot(),
        "image": None,
    }
    reader = sw.Reader(
        pictures,
        global_batch_size=5,
        features=features,
        image=sw.DecodedImage(),
        remainder="pad",
        epochs=1,
    )
    arrays = list(reader)

    batches = list(DataLoader(reader.torch(), batch_size=None, num_workers=1))

    assert len(batches) == 13
    for batch, array in zip(batches, arrays, strict=True):
        assert batch["caption"] == list(array["caption"])
        assert (batch["count"].dtype, batch["ratio"].dtype, batch["label"].dtype) == (
            torch.int64,
            torch.float32,
            torch.float32,
        )
        np.testing.assert_array_equal(batch["count"].numpy(), array["count"])
        np.testing.assert_array_equal(batch["mask"].numpy(), array["mask"])
        dense = np.zeros(array["boxes"].dense_shape, np.int64)
        dense[tuple(array["boxes"].indices.T)] = array["boxes"].values
        np.testing.assert_array_equal(batch["boxes"].to_dense().numpy(), dense)
        assert batch["tags"] == [list(tags) for tags in array["tags"]]
        for image, pixels in zip(batch["image"], array["image"], strict=True):
            np.testing.assert_array_equal(image.numpy(), pixels.transpose(2, 0, 1))
    assert int(batches[-1]["mask"].sum()) == 1


def test_stored_bytes_stay_bytes(pictures: str) -> None:
    batch = next(iter(load(read(pictures, image=None))))

    assert all(image.startswith(b"\x89PNG") for image in batch["image"])


def test_bfloat16_arrives_as_bfloat16(pictures: str) -> None:
    reader = read(pictures, image=sw.EvalImage(8, dtype="bfloat16"), epochs=1)
    array = next(iter(reader))["image"]
    reader.go_to(0)

    tensor = next(iter(load(reader)))["image"]

    assert (array.dtype, tensor.dtype) == (ml_dtypes.bfloat16, torch.bfloat16)
    np.testing.assert_array_equal(
        tensor.float().numpy(), array.astype(np.float32).transpose(0, 3, 1, 2)
    )


def test_the_reader_moves_along_without_workers(pictures: str) -> None:
    options: dict[str, Any] = {"shuffle": True, "epochs": 2}
    whole = expected_ids(pictures, **options)
    reader = read(pictures, **options)
    batches = reader.torch()

    taken = ids_of(islice(DataLoader(batches, batch_size=None), 9))

    assert batches.state_dict() == batches.state_after(9) == reader.state()
    assert taken + expected_ids(pictures, state=reader.state(), **options) == whole


@pytest.mark.parametrize("remainder", REMAINDERS)
@pytest.mark.parametrize("num_taken", [0, 7])
def test_a_state_after_so_many_batches_whatever_workers_read_ahead(
    pictures: str, remainder: str, num_taken: int
) -> None:
    options: dict[str, Any] = {
        "shuffle": True,
        "epochs": 2,
        "remainder": remainder,
        "global_batch_size": 10,
    }
    whole = expected_ids(pictures, **options)
    batches = read(pictures, **options).torch()

    taken = ids_of(islice(DataLoader(batches, batch_size=None, num_workers=2), num_taken))

    state = batches.state_after(num_taken)
    rest = ids_of(load(read(pictures, state=state, **options), 3))
    assert taken + rest == whole


def test_a_resumed_pass_counts_from_where_it_began(pictures: str) -> None:
    options: dict[str, Any] = {"shuffle": True, "epochs": 2}
    whole = expected_ids(pictures, **options)
    first = read(pictures, **options).torch()
    second = read(pictures, state=first.state_after(5), **options).torch()

    taken = ids_of(islice(DataLoader(second, batch_size=None, num_workers=2), 4))

    assert taken == whole[5:9]
    assert expected_ids(pictures, state=second.state_after(4), **options) == whole[9:]


@pytest.mark.parametrize(("num_workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_one_epoch_a_pass(pictures: str, num_workers: int, persistent: bool) -> None:
    """The usual loop of torch: another order in every epoch, also in workers that stay."""
    options: dict[str, Any] = {"shuffle": True, "remainder": "keep"}
    whole = expected_ids(pictures, epochs=3, **options)
    batches = read(pictures, **options).torch()
    loader = DataLoader(
        batches, batch_size=None, num_workers=num_workers, persistent_workers=persistent
    )
    passes = []
    for epoch in (0, 1, 2, 1):
        batches.set_epoch(epoch)
        assert len(loader) == 8
        passes.append(ids_of(loader))

    assert passes[0] + passes[1] + passes[2] == whole
    assert passes[3] == passes[1]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_epoch_goes_on_in_its_middle(pictures: str, num_workers: int) -> None:
    options: dict[str, Any] = {"shuffle": True}
    whole = expected_ids(pictures, epochs=3, **options)
    first = read(pictures, **options).torch()
    first.set_epoch(1)
    taken = ids_of(islice(DataLoader(first, batch_size=None, num_workers=num_workers), 3))
    state = first.state_after(3)
    assert state["epoch"] == 1

    second = read(pictures, state=state, **options).torch()
    loader = DataLoader(second, batch_size=None, num_workers=num_workers)
    rest = []
    for epoch in (1, 2):
        second.set_epoch(epoch)
        rest += ids_of(loader)

    assert taken + rest == whole[7:]


@pytest.mark.parametrize(
    ("options", "epoch", "message"),
    [
        ({}, -1, "counted from 0"),
        ({}, 1.0, "counted from 0"),
        ({"epochs": 2}, 2, "epochs=2"),
        ({"remainder": "carry"}, 0, "remainder='carry'"),
    ],
)
def test_epochs_that_there_are_not(
    pictures: str, options: dict[str, Any], epoch: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        read(pictures, **options).torch().set_epoch(epoch)


def stateful(dataset: str, num_workers: int, **options: Any) -> Any:
    return StatefulDataLoader(
        read(dataset, **options).torch(), batch_size=None, num_workers=num_workers
    )


@pytest.mark.parametrize(
    ("num_workers", "num_taken"), [(0, 4), (1, 4), (2, 1), (2, 4), (2, 7), (3, 4)]
)
def test_stateful_data_loader(pictures: str, num_workers: int, num_taken: int) -> None:
    options: dict[str, Any] = {
        "shuffle": True,
        "epochs": 2,
        "global_batch_size": 13,
        "remainder": "keep",
    }
    whole = expected_ids(pictures, **options)
    first = stateful(pictures, num_workers, **options)

    taken = ids_of(islice(first, num_taken))
    state = pickle.loads(pickle.dumps(first.state_dict()))
    second = stateful(pictures, num_workers, **options)
    second.load_state_dict(state)

    assert taken + ids_of(second) == whole


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_state_of_other_records_is_refused(pictures: str, num_workers: int) -> None:
    first = stateful(pictures, num_workers, shuffle=True)
    next(iter(first))
    second = stateful(pictures, num_workers, shuffle=True, seed=1)
    second.load_state_dict(first.state_dict())

    with pytest.raises(UsageError, match="seed=0"):
        next(iter(second))


@pytest.mark.filterwarnings(
    "ignore:'pin_memory'"
)  # nothing is pinned where there is no accelerator
def test_pinned_batches_are_the_same(pictures: str) -> None:
    loader = load(read(pictures, epochs=1), 2, pin_memory=True)

    assert_same(list(loader), list(read(pictures, epochs=1)))


def test_bad_records_are_left_out_in_workers(pictures: str, tmp_path: Any) -> None:
    damaged, name = copy_with_bad_record(pictures, tmp_path)
    options: dict[str, Any] = {"epochs": 1}

    with pytest.raises(BadRecordError, match="max_bad_records=0"):
        list(load(read(damaged, **options)))
    with pytest.raises(
        RuntimeError, match=r"(?s)Caught BadRecordError in DataLoader worker.*max_bad_records=0"
    ):  # torch's own form
        list(load(read(damaged, **options), 2))

    found = ids_of(load(read(damaged, max_bad_records=1, **options), 2))
    assert found == [
        [other for other in ids if other != name] for ids in expected_ids(pictures, **options)
    ]


def test_a_reader_without_an_end_has_no_length(pictures: str) -> None:
    loader = load(read(pictures))

    with pytest.raises(TypeError, match="no end"):
        len(loader)
    assert len(list(islice(loader, 20))) == 20
