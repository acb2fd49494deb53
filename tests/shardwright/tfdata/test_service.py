"""tf.data service: what its workers get of a dataset of `sw.load` or `Reader.tf_data()`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
import tensorflow as tf

import shardwright as sw
from tests.support.small_datasets import build, write_flat_folder

pytestmark = pytest.mark.long
NUM_IMAGES = 10
Service = tf.data.experimental.service


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("service")
    images = write_flat_folder(folder / "in", NUM_IMAGES)
    return build(images, folder / "out", "--shard-count=2")


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    """The address of a service with two workers."""
    dispatcher = Service.DispatchServer()
    config = Service.WorkerConfig(dispatcher_address=dispatcher.target.split("://")[1])
    workers = [Service.WorkerServer(config) for _ in range(2)]
    yield dispatcher.target
    for server in (*workers, dispatcher):
        server._stop()


def served(examples: tf.data.Dataset, mode: str, target: str) -> tf.data.Dataset:
    return examples.apply(Service.distribute(processing_mode=mode, service=target))


def batches_of(examples: tf.data.Dataset, num_batches: int) -> Counter[tuple[bytes, ...]]:
    """Return how often each batch comes, by the ids of its records."""
    batches = examples.take(num_batches).as_numpy_iterator()
    return Counter(tuple(batch["id"]) for batch in batches)


def counts_of(examples: tf.data.Dataset) -> Counter[int]:
    """Return how often records come: times -> number of records."""
    names = (name for batch in examples.as_numpy_iterator() for name in batch["id"])
    return Counter(Counter(names).values())


def read(dataset: str) -> tf.data.Dataset:
    options = {"batch_size": 5, "shuffle": True, "epochs": 1, "features": ["id"]}
    return sw.Reader(dataset, "train", **options).tf_data()


def load(dataset: str, *, repeat: bool = False) -> tf.data.Dataset:
    return sw.load(dataset, "train", batch_size=5, shuffle=True, repeat=repeat, features=["id"])


def test_a_distributed_epoch_comes_from_one_worker(dataset: str, target: str) -> None:
    """A quick worker may be some epochs ahead, but no batch of an epoch comes from both."""
    endless = load(dataset, repeat=True)
    found = batches_of(served(endless, "distributed_epoch", target), 40)
    assert found <= batches_of(endless, 400)


def test_a_distributed_epoch_of_stated_length_is_an_error(dataset: str, target: str) -> None:
    """A worker that gets nothing has fewer batches than stated."""
    for examples in (load(dataset), read(dataset)):
        with pytest.raises(tf.errors.FailedPreconditionError, match="expected to contain 2"):
            counts_of(served(examples, "distributed_epoch", target))


def test_parallel_epochs_have_each_record_once_a_worker(dataset: str, target: str) -> None:
    for examples in (load(dataset), read(dataset)):
        assert counts_of(served(examples, "parallel_epochs", target)) == {2: NUM_IMAGES}
