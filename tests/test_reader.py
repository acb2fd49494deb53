"""`sw.Reader`: every record exactly once, in an order that any number of hosts share, goes on from a state, and never changes."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shardwright as sw
from shardwright.errors import UsageError
from tests.readers import global_batches, hosts, ids_of, take

REMAINDERS = ("drop", "keep", "pad", "carry")


@pytest.fixture(scope="module")
def train(zoo: Path) -> str:
    return str(zoo)


def all_ids(dataset: str, split: str = "train") -> list[str]:
    return ids_of(sw.Reader(dataset, split, global_batch_size=4, epochs=1))


def test_batches_hold_what_the_shards_hold(zoo: Path, zoo_images: Path) -> None:
    reader = sw.Reader(str(zoo), "all", global_batch_size=4, epochs=1)

    seen = {}
    for batch in reader:
        assert set(batch) == {"image", "id", "label"}
        for name, image, label in zip(batch["id"], batch["image"], batch["label"], strict=True):
            seen[name] = (image, reader.class_names[label])

    assert len(seen) == reader.num_records == sw.open(str(zoo)).num_records
    for name, (image, label) in seen.items():
        assert image == (zoo_images / name).read_bytes()
        assert label == name.split("/")[0]


def test_stored_order_is_that_of_the_shards(train: str) -> None:
    manifest = sw.open(train)
    from shardwright.index import read_index

    stored = [
        name
        for shard in manifest.shard_names("train")
        for name in read_index(manifest.root, shard, ["id"])["id"].to_pylist()
    ]

    assert all_ids(train) == stored
    assert ids_of(sw.Reader(train, "train[3:11]", global_batch_size=3, epochs=1)) == stored[3:11]
    assert (
        ids_of(sw.Reader(train, "train[20:]+train[:2]", global_batch_size=3, epochs=1))
        == stored[20:] + stored[:2]
    )


@pytest.mark.parametrize("window", [None, 1, 2, 100])
def test_shuffled_epochs_are_permutations_each_another_one(train: str, window: int | None) -> None:
    stored = all_ids(train)
    reader = sw.Reader(
        train, global_batch_size=4, shuffle=True, window=window, epochs=3, remainder="keep"
    )

    ids = ids_of(reader)

    epochs = [ids[start : start + len(stored)] for start in range(0, len(ids), len(stored))]
    assert len(epochs) == 3
    assert all(sorted(epoch) == sorted(stored) for epoch in epochs)
    assert len({tuple(epoch) for epoch in [stored, *epochs]}) == 4
    again = sw.Reader(
        train, global_batch_size=4, shuffle=True, window=window, epochs=3, remainder="keep"
    )
    assert ids_of(again) == ids
    other = sw.Reader(
        train, global_batch_size=4, shuffle=True, window=window, epochs=3, remainder="keep", seed=1
    )
    assert ids_of(other) != ids


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    data=st.data(),
    remainder=st.sampled_from(REMAINDERS),
    shuffle=st.booleans(),
    batch=st.sampled_from([2, 6, 12]),
    epochs=st.integers(1, 3),
)
def test_any_hosts_stopped_anywhere_give_every_record_exactly_once(
    train: str, data: st.DataObject, remainder: str, shuffle: bool, batch: int, epochs: int
) -> None:
    options: dict[str, Any] = {
        "global_batch_size": batch,
        "shuffle": shuffle,
        "seed": 3,
        "epochs": epochs,
        "remainder": remainder,
        "features": ["id"],
    }
    undisturbed = global_batches(hosts(train, 1, **options))

    batches: list[list[str]] = []
    state = None
    while len(batches) < len(undisturbed):
        host_count = data.draw(
            st.sampled_from([count for count in (1, 2, 3, 6) if batch % count == 0])
        )
        steps = data.draw(st.integers(1, len(undisturbed) - len(batches)))
        readers = hosts(train, host_count, state=state, **options)
        batches += global_batches(readers, steps)
        states = [reader.state() for reader in readers]
        assert all(found == states[0] for found in states)
        state = json.loads(json.dumps(states[0]))

    assert batches == undisturbed
    num_records = len(all_ids(train))
    counts = [sum(name == wanted for ids in batches for name in ids) for wanted in all_ids(train)]
    if remainder == "drop":
        assert sum(counts) == num_records // batch * batch * epochs
        assert max(counts) <= epochs
    else:
        assert counts == [epochs] * num_records


def test_padded_batches_have_one_shape_and_a_mask(train: str) -> None:
    readers = hosts(train, 2, global_batch_size=8, remainder="pad", epochs=1, image=sw.EvalImage(8))
    num_records = readers[0].num_records
    assert num_records % 8, "or nothing would be padded"

    batches = [list(reader) for reader in readers]

    assert [len(found) for found in batches] == [readers[0].steps_per_epoch] * 2
    masked = 0
    for batch in batches[0] + batches[1]:
        assert batch["image"].shape == (4, 8, 8, 3)
        assert batch["mask"].dtype == np.bool_
        assert not batch["image"][~batch["mask"]].any()
        assert not batch["label"][~batch["mask"]].any()
        assert all(name == "" for name in batch["id"][~batch["mask"]])
        masked += int((~batch["mask"]).sum())
    assert masked == -num_records % 8
    assert readers[0].element_spec["image"] == ((4, 8, 8, 3), np.dtype(np.uint8))
    assert readers[0].element_spec["mask"] == ((4,), np.dtype(np.bool_))


def test_going_on_and_starting_anew(train: str) -> None:
    reader = sw.Reader(train, global_batch_size=4, epochs=1)
    whole = ids_of(reader)

    assert ids_of(reader) == whole, "a reader at its end starts anew"
    first = ids_of(take(reader, 2))
    assert first == whole[:8]
    assert reader.state()["position"] == 8
    assert ids_of(reader) == whole[8:], "one that was left goes on"
    reader.go_to(4)
    assert ids_of(take(reader, 1)) == whole[4:8]
    assert ids_of([reader.batch_at(0)]) == whole[:4]
    assert reader.state()["position"] == 8, "looking elsewhere does not move it"
    with pytest.raises(IndexError, match="at or after the end"):
        reader.batch_at(reader.num_records)


def test_a_state_of_other_records_is_refused(train: str) -> None:
    state = sw.Reader(train, global_batch_size=4, shuffle=True).state()

    for options, why in (
        ({"split": "test"}, "other records"),
        ({"split": "train[:20]"}, "other records"),
        ({"where": pc.field("label") == 0, "remainder": "keep"}, "other records"),
        ({"seed": 5}, "seed=0, and the reader has seed=5"),
        ({"shuffle": False}, "shuffle=True, and the reader has shuffle=False"),
        ({"window": 1}, "window=3, and the reader has window=1"),
    ):
        with pytest.raises(UsageError, match=why):
            sw.Reader(train, **{"global_batch_size": 4, "shuffle": True, "state": state, **options})


def test_augmentation_is_the_same_on_any_number_of_hosts_and_after_a_stop(train: str) -> None:
    options: dict[str, Any] = {
        "global_batch_size": 4,
        "shuffle": True,
        "image": sw.TrainImage(16),
        "epochs": 2,
    }
    whole = [batch["image"] for batch in sw.Reader(train, **options)]

    pair = hosts(train, 2, **options)
    halves = [
        np.concatenate(both)
        for both in zip(*([batch["image"] for batch in reader] for reader in pair), strict=True)
    ]
    stopped = sw.Reader(train, **options)
    take(stopped, 9)
    rest = [batch["image"] for batch in sw.Reader(train, state=stopped.state(), **options)]

    np.testing.assert_array_equal(whole, halves)
    np.testing.assert_array_equal(whole[9:], rest)
    threads = [batch["image"] for batch in sw.Reader(train, threads=3, prefetch=5, **options)]
    np.testing.assert_array_equal(whole, threads)


def test_the_same_record_is_cut_differently_in_another_epoch(train: str) -> None:
    reader = sw.Reader(
        train, global_batch_size=1, epochs=2, image=sw.TrainImage(16), features=["image"]
    )
    images = [batch["image"][0] for batch in reader]

    half = len(images) // 2
    assert (
        sum(np.array_equal(a, b) for a, b in zip(images[:half], images[half:], strict=True))
        < half / 4
    )


def test_conditions_choose_by_the_index_alone(train: str) -> None:
    label = sw.open(train).class_names.index("bee")
    wanted = [name for name in all_ids(train) if name.startswith("bee/")]

    by_expression = sw.Reader(
        train, global_batch_size=2, epochs=1, where=pc.field("label") == label
    )
    by_function = sw.Reader(
        train, global_batch_size=2, epochs=1, where=lambda rows: rows["label"].to_numpy() == label
    )

    assert 0 < by_expression.num_records == len(wanted) < len(all_ids(train))
    assert ids_of(by_expression) == ids_of(by_function) == wanted
    assert by_expression.state() == by_function.state()
    shuffled = sw.Reader(
        train,
        global_batch_size=2,
        epochs=1,
        shuffle=True,
        remainder="keep",
        where=pc.field("label") == label,
    )
    assert sorted(ids_of(shuffled)) == sorted(wanted)
    for where, why in (
        (pc.field("label") == 99, "keeps none of"),
        (pc.field("no_such") == 1, "cannot be evaluated on an index, whose columns are id, offset"),
        ("label == 1", "must be an Arrow expression, such as"),
        (lambda rows: [1] * len(rows), "must give one bool for each"),
    ):
        with pytest.raises(UsageError, match=why):
            sw.Reader(train, global_batch_size=2, where=where)


def test_only_what_is_wanted_is_given_in_the_order_it_was_asked_for(train: str) -> None:
    batch = next(iter(sw.Reader(train, global_batch_size=3, features=["label", "image"])))
    one_hot = next(iter(sw.Reader(train, global_batch_size=3, features={"label": sw.OneHot()})))

    assert list(batch) == ["label", "image"]
    assert list(one_hot) == ["label"]
    np.testing.assert_array_equal(one_hot["label"].argmax(axis=1), batch["label"])
    with pytest.raises(UsageError, match="'pixels' is not in"):
        sw.Reader(train, global_batch_size=3, features=["pixels"])
    with pytest.raises(UsageError, match="needs the image: add 'image' to features="):
        sw.Reader(train, global_batch_size=3, features=["label"], image=sw.EvalImage(8))


def _ids_in_child(reader: sw.Reader, queue: Any) -> None:
    queue.put(ids_of(reader))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_readers_go_on_in_other_processes(train: str, method: str) -> None:
    reader = sw.Reader(
        train, global_batch_size=4, shuffle=True, epochs=1, image=sw.EvalImage(400), prefetch=5
    )
    whole = ids_of(reader)
    take(reader, 2)

    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=_ids_in_child, args=(reader, queue))
    child.start()

    assert queue.get(timeout=60) == whole[8:]
    child.join(timeout=60)
    assert ids_of(pickle.loads(pickle.dumps(reader))) == whole[8:] == ids_of(reader)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"global_batch_size": 0}, "global_batch_size=0 must be a whole number, 1 or more"),
        (
            {"global_batch_size": 4, "host_count": 3},
            "global_batch_size=4 must be a multiple of host_count=3",
        ),
        (
            {"global_batch_size": 4, "host_count": 2, "host_index": 2},
            "host_index=2 must be below host_count=2",
        ),
        ({"global_batch_size": 1000, "shuffle": True}, "fewer than global_batch_size=1000"),
        (
            {"global_batch_size": 4, "remainder": "wrap"},
            "remainder='wrap' must be one of 'drop', 'keep', 'pad', 'carry'",
        ),
        ({"global_batch_size": 4, "window": 2}, "give shuffle=True, or leave window out"),
        (
            {"global_batch_size": 4, "shuffle": True, "window": 0},
            "window=0 must be a whole number, 1 or more",
        ),
        ({"global_batch_size": 4, "seed": None}, "seed=None must be a whole number"),
        ({"global_batch_size": 4, "epochs": 0}, "epochs=0 must be"),
        ({"global_batch_size": 4, "image": 224}, r"image=224 must be sw.TrainImage\(...\)"),
        ({"global_batch_size": 4, "features": "label"}, "features='label' must be a list"),
        ({"global_batch_size": 4, "features": {"label": 1}}, "an encoding is one of"),
        (
            {"global_batch_size": 4, "split": "valid"},
            "split 'valid' is not in zoo, which has test, train",
        ),
        ({"global_batch_size": 4, "split": "train[5:5]"}, "has no records"),
        ({"global_batch_size": 4, "max_bad_records": -1}, "max_bad_records=-1 must be"),
        ({"global_batch_size": 4, "state": {"position": 3}}, "state has version None"),
        (
            {"global_batch_size": 4, "sampling": "balanced"},
            r"sampling='balanced' must be sw.ClassBalanced\(\)",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_arguments_name_the_value_the_rule_and_the_fix(
    train: str, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        sw.Reader(train, **options)


def test_lengths(train: str) -> None:
    size = len(all_ids(train))
    reader = sw.Reader(train, global_batch_size=4, epochs=2, remainder="keep")

    assert (reader.num_records, reader.steps_per_epoch, len(reader)) == (
        size,
        -(-size // 4),
        2 * -(-size // 4),
    )
    assert (reader.num_classes, reader.class_names) == (3, sw.open(train).class_names)
    with pytest.raises(TypeError, match="has no end"):
        len(sw.Reader(train, global_batch_size=4))


def test_a_split_in_memory(zoo: Path) -> None:
    dataset = sw.open(str(zoo))
    columns = dataset.to_numpy("test", image=sw.EvalImage(8))

    assert columns["image"].shape == (dataset.splits["test"].num_records, 8, 8, 3)
    assert list(columns["id"]) == all_ids(str(zoo), "test")
    assert dataset.num_classes == 3
    assert sum(dataset.class_counts("test").values()) == dataset.splits["test"].num_records
    with pytest.raises(
        UsageError, match=r"the images of 'train' take .* in memory, more than max_bytes=1kB"
    ):
        dataset.to_numpy("train", max_bytes="1kB")


def test_readers_that_are_dropped_leave_no_file_open(train: str) -> None:
    """Only files of this dataset count: those of other tests in this process may be closed meanwhile."""

    def count_open() -> int:
        gc.collect()
        links = (os.path.realpath(link.path) for link in os.scandir("/proc/self/fd"))
        return sum(link.startswith(train) for link in links)

    before = count_open()
    kept = sw.Reader(train, global_batch_size=4, shuffle=True)
    take(kept, 3)
    assert count_open() > before  # so what follows can fail
    del kept
    for _ in range(5):
        take(sw.Reader(train, global_batch_size=4, shuffle=True), 3)

    deadline = time.monotonic() + 20  # what was begun ahead is ended by other threads
    while count_open() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert count_open() <= before
