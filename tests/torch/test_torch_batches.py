"""`Reader.torch()`: the reader's batches as tensors, in its order, whatever workers bring them."""

from __future__ import annotations

import logging
import pickle
import re
import runpy
import sys
import threading
from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.data import DataLoader, IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

import shardwright as sw
from shardwright.errors import BadRecordError, UsageError
from shardwright.reader.encodings import Text
from tests.support.bad_records import copy_with_bad_record
from tests.support.trainer_datasets import EXAMPLES, NUM_PICTURES, read

TWO_EPOCHS: dict[str, Any] = {"shuffle": True, "epochs": 2}
ONE_EPOCH: dict[str, Any] = {"shuffle": True, "epochs": 1, "remainder": "keep"}


def load(batches: Any, num_workers: int = 0, context: Any = None, **options: Any) -> Any:
    options |= {"num_workers": num_workers, "multiprocessing_context": context}
    return DataLoader(batches, batch_size=None, **options)


def ids_of(batches: Iterable[dict[str, Any]]) -> list[list[str]]:
    return [batch["id"] for batch in batches]


def expected_ids(dataset: str, **options: Any) -> list[list[str]]:
    return [list(batch["id"]) for batch in read(dataset, **options)]


@pytest.mark.parametrize(
    ("num_workers", "context"),
    [(0, None), (3, "fork"), pytest.param(1, "spawn", marks=pytest.mark.long)],
)
def test_batches_are_those_of_the_reader(pictures: str, num_workers: int, context: Any) -> None:
    options = {**TWO_EPOCHS, "seed": 3, "remainder": "keep"}
    batches = list(load(read(pictures, **options).torch(), num_workers, context))
    for batch, array in zip(batches, read(pictures, **options), strict=True):
        assert batch["id"] == list(array["id"])
        np.testing.assert_array_equal(batch["label"].numpy(), array["label"])
        np.testing.assert_array_equal(batch["image"].numpy(), array["image"].transpose(0, 3, 1, 2))
    assert len({name for ids in ids_of(batches[:8]) for name in ids}) == NUM_PICTURES


@pytest.mark.parametrize("host_count", [1, 2])
def test_a_reader_of_all_rows_in_distributed_training_is_told(
    host_count: int, pictures: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if its loader was made before the process group."""
    list(load(read(pictures, **ONE_EPOCH).torch()))
    reader = read(pictures, host_index=host_count - 1, host_count=host_count, **ONE_EPOCH)
    loader = load(reader.torch())
    dist.init_process_group("fake", rank=1, world_size=2, store=FakeStore())
    try:
        next(iter(loader))
        next(iter(reader))
    finally:
        dist.destroy_process_group()
    told = "this is process 1 of 2, and its reader has all of each batch"
    assert [record.message[: len(told)] for record in caplog.records] == (
        [told] if host_count == 1 else []
    )


class OwnDataset(IterableDataset[Any]):
    """A reader in a dataset of the user's own."""

    def __init__(self, reader: sw.Reader) -> None:
        self.reader = reader

    def __iter__(self) -> Any:
        return iter(self.reader)


def test_a_reader_that_each_worker_reads_whole_is_told(
    pictures: str, capfd: pytest.CaptureFixture[str]
) -> None:
    log, handler = logging.getLogger("shardwright.reader"), logging.StreamHandler()
    log.addHandler(handler)
    try:
        list(load(OwnDataset(read(pictures, **ONE_EPOCH)), 2))
        told = capfd.readouterr().err
        list(load(OwnDataset(read(pictures, **ONE_EPOCH)), 1))
        list(load(read(pictures, **ONE_EPOCH).torch(), 2))
    finally:
        log.removeHandler(handler)
    assert "worker 1 of 2 of a DataLoader" in told
    assert "give the DataLoader reader.torch(), which divides them" in told
    assert "of a DataLoader" not in capfd.readouterr().err


def test_a_reader_with_processes(pictures: str) -> None:
    """Workers of a DataLoader make their batches themselves."""
    expected = expected_ids(pictures, **{**ONE_EPOCH, "epochs": 2})
    with read(pictures, processes=1, **ONE_EPOCH) as reader:
        batches = list(load(reader.torch()))
        assert batches[0]["image"].is_contiguous(memory_format=torch.channels_last)
        assert ids_of(batches) + ids_of(load(reader.torch(), 2)) == expected


@pytest.mark.parametrize(
    ("remainder", "size", "num_workers"),
    [("drop", 14, 0), ("drop", 40, 4), ("keep", 14, 3), ("pad", 14, 3), ("carry", 14, 3)],
)
def test_remainders_with_workers(
    pictures: str, remainder: str, size: int, num_workers: int
) -> None:
    """Three batches of 40 are fewer than workers."""
    options = {"shuffle": True, "epochs": 3, "remainder": remainder, "global_batch_size": size}
    loader = load(read(pictures, **options).torch(), num_workers)
    assert ids_of(loader) == expected_ids(pictures, **options)
    assert len(loader) == len(read(pictures, **options))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_hosts_share_each_batch(pictures: str, num_workers: int) -> None:
    readers = [read(pictures, host_index=host, host_count=2, **ONE_EPOCH) for host in range(2)]
    parts = [ids_of(load(reader.torch(), num_workers)) for reader in readers]
    whole = [first + second for first, second in zip(*parts, strict=True)]
    assert whole == expected_ids(pictures, **ONE_EPOCH)


def test_a_fork_while_the_reader_is_busy(pictures: str) -> None:
    """Threads of this process hold locks at any time; a worker must not wait for them."""
    reader, stop = read(pictures, **ONE_EPOCH), threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            reader.engine.read(reader.engine.places.locate(np.arange(32)))

    thread = threading.Thread(target=keep_busy)
    thread.start()
    try:
        found = [ids_of(load(reader.torch(), 2, "fork")) for _ in range(3)]
    finally:
        stop.set()
        thread.join()

    whole = expected_ids(pictures, **{**ONE_EPOCH, "epochs": 3})
    assert found[0] + found[1] + found[2] == whole


def test_images_are_channels_first_without_a_copy(pictures: str) -> None:
    first = next(iter(read(pictures).torch()))["image"]
    last = next(iter(read(pictures).torch(channels_first=False)))["image"]
    assert (first.dtype, first.shape, last.shape) == (torch.uint8, (8, 3, 8, 8), (8, 8, 8, 3))
    assert first.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(first.permute(0, 2, 3, 1), last)


def test_several_crops_are_channels_first(pictures: str) -> None:
    views = sw.MultiCrop(sw.TrainImage((5, 7)), sw.TrainImage(4))
    options: dict[str, Any] = {**ONE_EPOCH, "image": views}
    for workers in (0, 2):
        for batch, array in zip(
            load(read(pictures, **options).torch(), workers), read(pictures, **options), strict=True
        ):
            assert batch["image_0"].shape[1:] == (3, 5, 7)
            for name in ("image_0", "image_1"):
                np.testing.assert_array_equal(batch[name].movedim(1, -1), array[name])
    example = read(pictures, **options).torch(map_style=True)[0]
    assert (example["image_0"].shape, example["image_1"].shape) == ((3, 5, 7), (3, 4, 4))


def test_every_kind_of_feature(pictures: str) -> None:
    features = {"caption": Text(), "label": sw.OneHot()}
    features |= dict.fromkeys(("count", "ratio", "tags", "image"))
    options = {"features": features, "image": sw.DecodedImage(), "remainder": "pad", "epochs": 1}
    arrays = list(read(pictures, global_batch_size=5, **options))
    batches = list(load(read(pictures, global_batch_size=5, **options).torch(), 1))

    assert len(batches) == 13
    dtypes = {"count": torch.int64, "ratio": torch.float32, "label": torch.float32}
    for batch, array in zip(batches, arrays, strict=True):
        assert batch["caption"] == list(array["caption"])
        assert {name: batch[name].dtype for name in dtypes} == dtypes
        for name in (*dtypes, "mask"):
            np.testing.assert_array_equal(batch[name].numpy(), array[name])
        assert batch["tags"] == [list(tags) for tags in array["tags"]]
        for image, pixels in zip(batch["image"], array["image"], strict=True):
            np.testing.assert_array_equal(image.numpy(), pixels.transpose(2, 0, 1))
    assert int(batches[-1]["mask"].sum()) == 1


def test_bfloat16_and_stored_bytes_keep_their_type(pictures: str) -> None:
    image = sw.EvalImage(8, dtype="bfloat16")
    array = next(iter(read(pictures, image=image)))["image"]
    tensor = next(iter(load(read(pictures, image=image).torch())))["image"]
    assert (array.dtype, tensor.dtype) == (ml_dtypes.bfloat16, torch.bfloat16)
    pixels = array.astype(np.float32).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(tensor.float().numpy(), pixels)
    stored = next(iter(load(read(pictures, image=None).torch())))["image"]
    assert all(data.startswith(b"\x89PNG") for data in stored)


@pytest.mark.parametrize(
    ("remainder", "num_taken"), [("drop", 7), ("keep", 0), ("keep", 7), ("pad", 7), ("carry", 7)]
)
def test_a_state_after_some_batches_whatever_workers_read_ahead(
    pictures: str, remainder: str, num_taken: int
) -> None:
    options = {**TWO_EPOCHS, "remainder": remainder, "global_batch_size": 10}
    batches = read(pictures, **options).torch()
    taken = ids_of(islice(load(batches, 2), num_taken))
    rest = read(pictures, state=batches.state_after(num_taken), **options).torch()
    assert taken + ids_of(load(rest, 3)) == expected_ids(pictures, **options)


def test_a_resumed_pass_counts_from_where_it_began(pictures: str) -> None:
    whole = expected_ids(pictures, **TWO_EPOCHS)
    first = read(pictures, **TWO_EPOCHS).torch()
    second = read(pictures, state=first.state_after(5), **TWO_EPOCHS).torch()
    assert ids_of(islice(load(second, 2), 4)) == whole[5:9]
    assert expected_ids(pictures, state=second.state_after(4), **TWO_EPOCHS) == whole[9:]


WORKERS = [
    (1, 0, None, False),
    (2, 0, None, False),
    (2, 2, "fork", False),
    (1, 2, "fork", True),
    *(
        pytest.param(*case, marks=pytest.mark.long)
        for case in ((1, 2, "fork", False), (2, 2, "fork", True))
    ),
]


@pytest.mark.parametrize(("epochs", "num_workers", "context", "persistent"), WORKERS)
def test_iterating_again_reads_the_next_pass(
    pictures: str, num_workers: int, context: Any, persistent: bool, epochs: int
) -> None:
    """In the same loader, in a new one and after a resume; and `state_after()` counts."""
    options: dict[str, Any] = {"shuffle": True, "remainder": "keep", "epochs": epochs}
    reader, twin = read(pictures, **options), read(pictures, **options)
    batches = reader.torch()
    loader = load(batches, num_workers, context, persistent_workers=persistent)
    for number in (1, 2, 3):
        first, second = list(loader), list(twin)
        assert ids_of(first) == [list(batch["id"]) for batch in second]
        pixels = second[-1]["image"].transpose(0, 3, 1, 2)
        np.testing.assert_array_equal(first[-1]["image"].numpy(), pixels)
        assert batches.state_after() == twin.state()
        assert reader.epoch == number * epochs
    expected = [ids_of(map_ids(twin)), ids_of(map_ids(twin))]
    batches = reader.torch()
    assert ids_of(load(batches, num_workers, context)) == expected[0]
    resumed = read(pictures, **options, state=batches.state_after())
    assert ids_of(load(resumed.torch(), num_workers, context)) == expected[1]


@pytest.mark.long
def test_spawned_workers_learn_where_a_pass_begins(pictures: str) -> None:
    """One worker: each start of a process takes seconds."""
    reader, twin = read(pictures, **ONE_EPOCH), read(pictures, **ONE_EPOCH)
    batches = reader.torch()
    loader = load(batches, 1, "spawn")
    for _ in range(2):
        assert ids_of(loader) == ids_of(map_ids(twin))
        assert batches.state_after() == twin.state()


def map_ids(reader: sw.Reader) -> list[dict[str, Any]]:
    return [{"id": list(batch["id"])} for batch in reader]


def test_passes_of_other_worker_counts_and_of_equal_seeds(pictures: str) -> None:
    """Workers tell passes apart by torch's seed; a user may set the same one before each."""
    options: dict[str, Any] = {"shuffle": True, "epochs": 1}
    reader, twin = read(pictures, **options), read(pictures, **options)
    batches = reader.torch()
    for num_workers in (1, 3, 3, 2, 0, 2, 3):
        torch.manual_seed(7)
        assert ids_of(load(batches, num_workers)) == ids_of(map_ids(twin))


LOADERS = [(0, False), (2, False), (2, True)]


@pytest.mark.parametrize(("num_workers", "persistent"), LOADERS)
def test_each_loop_is_a_whole_pass_of_its_own(
    pictures: str, num_workers: int, persistent: bool
) -> None:
    """Also after one that was left; and a state begins in the middle, once."""
    reader, twin = read(pictures, **ONE_EPOCH), read(pictures, **ONE_EPOCH)
    passes = [ids_of(map_ids(twin)) for _ in range(4)]
    batches = reader.torch()
    loader = load(batches, num_workers, persistent_workers=persistent)
    assert len(loader) == 8
    assert ids_of(islice(loader, 3)) == passes[0][:3]
    state = batches.state_after(3)
    with pytest.raises(UsageError, match=r"Use state_after\(that number\)"):
        reader.state()
    assert ids_of(loader) == passes[1]
    assert ids_of(islice(loader, len(passes[2]))) == passes[2]
    assert batches.state_after()["position"] == 3 * NUM_PICTURES
    resumed = read(pictures, state=state, **ONE_EPOCH).torch()
    loader = load(resumed, num_workers, persistent_workers=persistent)
    for wanted in (passes[0][3:], passes[1]):
        with pytest.raises(TypeError, match=r"has no one length: use len\(reader\)"):
            len(loader)  # Lightning asks before and after the first batch, once for all epochs
        assert ids_of(loader) == wanted
    assert len(loader) == 8
    batches.load_state_dict(state)
    loader = load(batches, num_workers, persistent_workers=persistent)
    assert ids_of(loader) == passes[0][3:]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_loops_beside_each_other_are_independent(pictures: str, num_workers: int) -> None:
    twin = read(pictures, **ONE_EPOCH)
    passes = [ids_of(map_ids(twin)) for _ in range(3)]
    batches = read(pictures, **ONE_EPOCH).torch()
    pairs = zip(load(batches, num_workers), load(batches, num_workers), strict=True)
    found = [(one["id"], other["id"]) for one, other in pairs]
    assert [list(ids) for ids in zip(*found, strict=True)] == passes[:2]
    assert ids_of(load(batches, num_workers)) == passes[2]


@pytest.mark.parametrize(("num_workers", "persistent"), LOADERS)
def test_an_endless_pass_begins_an_epoch_later(
    pictures: str, num_workers: int, persistent: bool
) -> None:
    options: dict[str, Any] = {"shuffle": True, "seed": 5, "remainder": "keep"}
    whole = expected_ids(pictures, epochs=4, **options)
    batches = read(pictures, **options).torch()
    loader = load(batches, num_workers, persistent_workers=persistent)
    for number in range(3):
        assert ids_of(islice(loader, 9)) == whole[8 * number : 8 * number + 9]


def test_a_state_after_batches_that_a_pass_does_not_have_is_refused(pictures: str) -> None:
    batches = read(pictures, **ONE_EPOCH).torch()
    count = len(batches)
    assert batches.state_after(count) == batches.state_after()
    for number in (-1, count + 1):
        with pytest.raises(UsageError, match=f"{number}"):
            batches.state_after(number)
    with pytest.raises(UsageError, match="give the number of batches taken"):
        read(pictures, shuffle=True).torch().state_after()


def stateful(dataset: str, num_workers: int, **options: Any) -> Any:
    batches = read(dataset, **options).torch()
    return StatefulDataLoader(batches, batch_size=None, num_workers=num_workers)


@pytest.mark.parametrize(
    ("num_workers", "num_taken"),
    [(0, 4), (2, 7), *(pytest.param(*case, marks=pytest.mark.long) for case in ((2, 1), (3, 4)))],
)
def test_stateful_data_loader(pictures: str, num_workers: int, num_taken: int) -> None:
    options = {**TWO_EPOCHS, "global_batch_size": 13, "remainder": "keep"}
    first = stateful(pictures, num_workers, **options)
    taken = ids_of(islice(first, num_taken))
    second = stateful(pictures, num_workers, **options)
    second.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    assert taken + ids_of(second) == expected_ids(pictures, **options)
    further = expected_ids(pictures, **options, state=read(pictures, **options).state_at(2 * 61))
    assert ids_of(second) == further


@pytest.mark.parametrize("num_workers", [0, 2])
def test_stateful_data_loader_between_passes(pictures: str, num_workers: int) -> None:
    options = {"shuffle": True, "epochs": 1, "remainder": "keep"}
    first, twin = stateful(pictures, num_workers, **options), read(pictures, **options)
    passes = [ids_of(map_ids(twin)) for _ in range(3)]
    assert ids_of(first) == passes[0]
    second = stateful(pictures, num_workers, **options)
    second.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    assert [ids_of(second), ids_of(second)] == passes[1:]


@pytest.mark.parametrize(
    ("num_workers", "batch_size"), [(0, 4), (1, 4)]
)  # one worker: torch waits 5 seconds for each of a loader that fails
def test_a_stateful_loader_of_another_batch_size(
    pictures: str, num_workers: int, batch_size: int
) -> None:
    """Exact in this process, and refused in workers, whose shares are others then."""
    first = stateful(pictures, num_workers, **ONE_EPOCH)
    taken = ids_of(islice(first, 3))
    second = stateful(pictures, num_workers, **ONE_EPOCH, global_batch_size=batch_size)
    second.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    if num_workers:
        with pytest.raises(UsageError, match="no other number of workers and no other batch size"):
            next(iter(second))
        return
    found = chain.from_iterable(taken + ids_of(second))
    assert [*found] == [*chain.from_iterable(expected_ids(pictures, **ONE_EPOCH))]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_state_of_other_records_is_refused(pictures: str, num_workers: int) -> None:
    """One worker: torch waits 5 seconds for each worker of a failed loader."""
    first = stateful(pictures, num_workers, shuffle=True)
    next(iter(first))
    second = stateful(pictures, num_workers, shuffle=True, seed=1)
    second.load_state_dict(first.state_dict())
    with pytest.raises(UsageError, match="seed=0"):
        next(iter(second))


@pytest.mark.long
def test_bad_records_are_left_out_in_workers(pictures: str, tmp_path: Path) -> None:
    damaged, name = copy_with_bad_record(pictures, tmp_path)
    with pytest.raises(BadRecordError, match="max_bad_records=0"):
        list(load(read(damaged, epochs=1).torch()))
    in_worker = "(?s)Caught BadRecordError in DataLoader worker.*max_bad_records=0"
    failing = iter(load(read(damaged, epochs=1).torch(), 2))
    with pytest.raises(BadRecordError, match=in_worker):
        list(failing)
    # The error keeps the iterator in a cycle, whose collection closes the queues first: each worker
    # would wait for 5 seconds before it sees that it is not needed.
    failing._shutdown_workers()
    found = ids_of(load(read(damaged, max_bad_records=1, epochs=1).torch(), 2))
    whole = expected_ids(pictures, epochs=1)
    assert found == [[other for other in ids if other != name] for ids in whole]


def test_a_reader_without_an_end_has_no_length(pictures: str) -> None:
    loader = load(read(pictures).torch())
    with pytest.raises(TypeError, match="no end"):
        len(loader)
    assert len(list(islice(loader, 20))) == 20


@pytest.mark.long
def test_the_example_resumes_exactly(
    digits: str, tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_path(str(EXAMPLES / "train_torch.py"))["main"]

    def output_of(*args: str) -> str:
        monkeypatch.setattr(sys, "argv", ["train_torch.py", digits, "--epochs=2", *args])
        main()
        return capsys.readouterr().out

    checkpoint, digest = f"--checkpoint={tmp_path / 'run.pt'}", "[0-9a-f]{64}"
    undisturbed = output_of()
    stopped = output_of(checkpoint, "--stop-after=60", "--workers=2")
    assert stopped == "stopped after step 60 of 88, in epoch 1\n"
    assert output_of(checkpoint) == f"resumed after step 60 of 88\n{undisturbed}"
    accuracy = r"test accuracy 0\.[89]\d{3} on 169 images"
    assert re.fullmatch(rf"records {digest}\nweights {digest}\n{accuracy}\n", undisturbed)
    with pytest.raises(SystemExit, match="2"):
        output_of("--stop-after=3")
    assert "--stop-after needs --checkpoint" in capsys.readouterr().err
