"""`sw.Reader`: every record once, in an order that hosts share and that a state continues."""

from __future__ import annotations

import json
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardwright as sw
from shardwright.errors import UsageError
from shardwright.format.index import read_index
from tests.support.random_tests import examples
from tests.support.readers import global_batches, hosts, ids_of, take


@pytest.fixture(scope="session")
def train(zoo: Path) -> str:
    return str(zoo)


@pytest.fixture(scope="session")
def stored(train: str) -> list[str]:
    """The ids of the split train, in stored order."""
    return all_ids(train)


def all_ids(dataset: str, split: str = "train") -> list[str]:
    return ids_of(sw.Reader(dataset, split, global_batch_size=4, epochs=1))


def test_batches_hold_the_content_of_the_shards(zoo: Path, zoo_images: Path) -> None:
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


def test_stored_order_is_that_of_the_shards(train: str, stored: list[str]) -> None:
    dataset = sw.open(train)
    names = dataset.shard_names("train")
    indexes = [read_index(dataset.root, name, ["id"])["id"].to_pylist() for name in names]
    assert [name for ids in indexes for name in ids] == stored
    for split, wanted in (
        ("train[3:11]", stored[3:11]),
        ("train[20:]+train[:2]", stored[20:] + stored[:2]),
    ):
        assert ids_of(sw.Reader(train, split, global_batch_size=3, epochs=1)) == wanted


@pytest.mark.parametrize("window", [None, 1, 2, 100])
def test_shuffled_epochs(train: str, stored: list[str], window: int | None) -> None:
    def ids(**more: int) -> list[str]:
        options = {"global_batch_size": 4, "shuffle": True, "window": window, "epochs": 3, **more}
        return ids_of(sw.Reader(train, remainder="keep", **options))  # type: ignore[arg-type]

    first, size = ids(), len(stored)
    epochs = [first[start : start + size] for start in range(0, len(first), size)]
    assert [sorted(epoch) for epoch in epochs] == [sorted(stored)] * 3
    assert len({tuple(epoch) for epoch in [stored, *epochs]}) == 4
    assert ids() == first
    assert ids(seed=1) != first


OPTIONS = st.fixed_dictionaries({
    "global_batch_size": st.sampled_from([2, 6, 12]), "shuffle": st.booleans(), "seed": st.just(3),
    "epochs": st.integers(1, 3), "remainder": st.sampled_from(["drop", "keep", "pad", "carry"]),
    "features": st.just(["id"]),
})  # fmt: skip


@pytest.mark.long
@examples(10)
@given(OPTIONS, st.data())
def test_any_hosts(train: str, stored: list[str], options: Any, data: st.DataObject) -> None:
    """Every record is read once, wherever reading stops and on however many hosts it continues."""
    batch, epochs = options["global_batch_size"], options["epochs"]
    undisturbed = global_batches(hosts(train, 1, **options))
    batches: list[list[str]] = []
    state = None
    while len(batches) < len(undisturbed):
        host_count = data.draw(st.sampled_from([n for n in (1, 2, 3, 6) if batch % n == 0]))
        steps = data.draw(st.integers(1, len(undisturbed) - len(batches)))
        readers = hosts(train, host_count, state=state, **options)
        batches += global_batches(readers, steps)
        states = [reader.state() for reader in readers]
        assert all(found == states[0] for found in states)
        state = json.loads(json.dumps(states[0]))
    assert batches == undisturbed
    counts = [sum(name == wanted for ids in batches for name in ids) for wanted in stored]
    if options["remainder"] == "drop":
        assert sum(counts) == len(stored) // batch * batch * epochs
        assert max(counts) <= epochs
    else:
        assert counts == [epochs] * len(stored)


def test_a_reader_reads_again_and_seeks(train: str) -> None:
    reader = sw.Reader(train, global_batch_size=4, epochs=1)
    whole = ids_of(reader)
    size = reader.num_records
    assert ids_of(reader) == whole, "without shuffle, a reader at its end reads the same again"
    assert ids_of(take(reader, 2)) == whole[:8]
    assert (reader.state()["position"], reader.epoch) == (2 * size + 8, 2)
    assert ids_of(reader) == whole, "one that was left is over"
    reader.go_to(4)
    assert ids_of(take(reader, 1)) == whole[4:8]
    assert ids_of([reader.batch_at(0)]) == whole[:4]
    assert reader.state()["position"] == 8, "batch_at does not move it"
    for position in (-1, 2**62, 2**64):
        for give in (reader.go_to, reader.batch_at):
            with pytest.raises(UsageError, match=f"position={position} must be"):
                give(position)
    assert reader.state()["position"] == 8, "nor does a position that is refused"


@pytest.mark.parametrize(
    ("epochs", "remainder"), [(1, "drop"), (1, "keep"), (1, "pad"), (2, "drop"), (3, "carry")]
)
def test_iterating_again_reads_the_next_epochs(train: str, epochs: int, remainder: str) -> None:
    """Two passes are those of one reader with twice the epochs, with their orders and crops."""
    options: Any = {"shuffle": True, "image": sw.TrainImage(4), "remainder": remainder}
    options["global_batch_size"] = 5
    reader = sw.Reader(train, epochs=epochs, **options)
    passes, states = [], []
    for _ in range(2):
        passes.append(list(reader))
        states.append(reader.state())
    assert [state["epoch"] for state in states] == [epochs, 2 * epochs]
    assert [len(batches) for batches in passes] == [len(reader)] * 2
    assert ids_of(passes[0]) != ids_of(passes[1])
    far = sw.Reader(train, **options, state=states[0], epochs=2 * epochs)
    for batch, wanted in zip(passes[1], far, strict=True):
        np.testing.assert_array_equal(batch["image"], wanted["image"])
        assert list(batch["id"]) == list(wanted["id"])


def test_the_loop_of_several_epochs_resumes_anywhere(train: str) -> None:
    """The README's loop: stopped after each batch in turn, also the last one of an epoch."""
    options: Any = {"batch_size": 16, "shuffle": True, "epochs": 1}

    def train_on(reader: sw.Reader, stop_after: int | None = None) -> list[str]:
        found: list[str] = []
        for _ in range(reader.epoch, 3):
            for number, batch in enumerate(reader, len(found) // 16 + 1):
                found += batch["id"].tolist()
                if number == stop_after:
                    return found
        return found

    whole = train_on(sw.Reader(train, **options))
    steps = sw.Reader(train, **options).steps_per_epoch
    assert len(whole) == 3 * steps * 16
    for stop_after in range(1, 3 * steps):
        stopped = sw.Reader(train, **options)
        found = train_on(stopped, stop_after)
        resumed = sw.Reader(train, **options, state=json.loads(json.dumps(stopped.state())))
        assert found + train_on(resumed) == whole, stop_after


@pytest.mark.parametrize(("options", "why"), [
    ({"split": "train[:20]"}, "other records"),
    ({"where": pc.field("label") == 0, "remainder": "keep"}, "other records"),
    ({"window": 1}, "window=3, but the reader has window=1"),
], ids=["part", "where", "window"])  # fmt: skip
def test_a_state_of_other_records_is_rejected(train: str, options: Any, why: str) -> None:
    state = sw.Reader(train, global_batch_size=4, shuffle=True).state()
    with pytest.raises(UsageError, match=why):
        sw.Reader(train, **{"global_batch_size": 4, "shuffle": True, "state": state, **options})


def test_conditions_select_by_the_index_alone(train: str, stored: list[str]) -> None:
    label = sw.open(train).class_names.index("bee")
    wanted = [name for name in stored if name.startswith("bee/")]

    def reader(where: Any, **more: Any) -> sw.Reader:
        return sw.Reader(train, global_batch_size=2, epochs=1, where=where, **more)

    by_label, by_id = reader(pc.field("label") == label), reader(pc.field("id").isin(wanted))
    assert 0 < by_label.num_records == len(wanted) < len(stored)
    assert ids_of(by_label) == ids_of(by_id) == wanted
    assert by_label.state() == by_id.state()
    shuffled = reader(pc.field("label") == label, shuffle=True, remainder="keep")
    assert sorted(ids_of(shuffled)) == sorted(wanted)
    first, second = (pc.field("id") == name for name in wanted[:2])
    with pytest.raises(UsageError, match="this state is of other records"):
        reader(second, state=reader(first).state())
    for where, why in (
        (pc.field("label") == 99, "keeps none of"),
        (pc.field("no_such") == 1, "cannot be evaluated on the index, which has the columns id"),
        ("label == 1", "must be an Arrow expression, such as"),
        (lambda rows: [True] * len(rows), "must be an Arrow expression, such as"),
    ):
        with pytest.raises(UsageError, match=why):
            reader(where)


def test_features_are_given_in_the_order_of_the_argument(train: str) -> None:
    batch = next(iter(sw.Reader(train, global_batch_size=3, features=["label", "image"])))
    one_hot = next(iter(sw.Reader(train, global_batch_size=3, features={"label": sw.OneHot()})))
    assert (list(batch), list(one_hot)) == (["label", "image"], ["label"])
    np.testing.assert_array_equal(one_hot["label"].argmax(axis=1), batch["label"])


def _ids_in_child(reader: sw.Reader, queue: Any) -> None:
    queue.put(ids_of(reader))


@pytest.mark.long
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_readers_begin_in_other_processes_where_they_would_here(train: str, method: str) -> None:
    options: Any = {"shuffle": True, "image": sw.EvalImage(400), "prefetch": 5}
    reader = sw.Reader(train, global_batch_size=4, epochs=1, **options)
    whole = ids_of(reader)
    reader.go_to(8)
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=_ids_in_child, args=(reader, queue))
    child.start()
    assert queue.get(timeout=60) == whole[8:]
    child.join(timeout=60)
    assert ids_of(pickle.loads(pickle.dumps(reader))) == whole[8:] == ids_of(reader)


@pytest.mark.parametrize(("options", "why"), [
    ({"global_batch_size": 0}, "global_batch_size=0 must be a whole number, at least 1"),
    ({"global_batch_size": None}, "give global_batch_size= or batch_size=, one of them, got neith"),
    ({"batch_size": 8}, "one of them, got 4 and 8"),
    ({"global_batch_size": None, "batch_size": 8, "host_count": 2},
     "batch_size=8 is for one host, but host_count=2: give global_batch_size=, the rows of"),
    ({"remainder": "wrap"}, "remainder='wrap' must be one of 'drop', 'keep', 'pad', 'carry'"),
    ({"window": 2}, "window=2 needs shuffle=True"),
    ({"shuffle": True, "window": 0}, "window=0 must be a whole number, at least 1"),
    ({"seed": None}, "seed=None must be a whole number"),
    ({"epochs": 0}, "epochs=0 must be"),
    ({"image": 224}, r"image=224 must be sw.TrainImage\(...\)"),
    ({"features": ["pixels"]}, "'pixels' is not in"),
    ({"features": ["label"], "image": sw.EvalImage(8)},
     "needs the image: add 'image' to features="),
    ({"split": "valid"}, "split 'valid' is not in zoo, which has test, train"),
    ({"split": "train[5:5]"}, "has no records"),
    ({"max_bad_records": -1}, "max_bad_records=-1 must be"),
    ({"state": {"position": 3}}, "state has version None"),
    ({"sampling": "balanced"}, r"sampling='balanced' must be sw.ClassBalanced\(\)"),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_invalid_arguments(train: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        sw.Reader(train, **{"global_batch_size": 4, **options})


@pytest.mark.parametrize("remainder", ["drop", "keep", "pad", "carry"])
def test_the_last_possible_positions_are_read(train: str, remainder: str) -> None:
    options: Any = {"global_batch_size": 4, "shuffle": True, "remainder": remainder}
    size = sw.Reader(train, **options).num_records
    epoch = 2**62 // size - 2
    state = sw.Reader(train, **options).state() | {"position": epoch * size, "epoch": epoch}
    assert len(set(ids_of(take(sw.Reader(train, **options, state=state), 2)))) == 8


def test_numbers_of_numpy_are_numbers(train: str) -> None:
    options: Any = {"batch_size": np.int64(4), "epochs": np.int32(1), "seed": np.uint8(3)}
    reader = sw.Reader(train, shuffle=True, threads=np.int64(1), **options)
    twin = sw.Reader(train, shuffle=True, batch_size=4, epochs=1, seed=3)
    assert ids_of(reader) == ids_of(twin)
    assert json.dumps(reader.state_after(np.int64(2))) == json.dumps(twin.state_after(2))
    with pytest.raises(UsageError, match="batch_size=True must be a whole number"):
        sw.Reader(train, batch_size=True)


def test_lengths(train: str, stored: list[str]) -> None:
    steps = -(-len(stored) // 4)
    reader = sw.Reader(train, global_batch_size=4, epochs=2, remainder="keep")
    found = (reader.num_records, reader.steps_per_epoch, len(reader))
    assert found == (len(stored), steps, 2 * steps)
    assert (reader.num_classes, reader.class_names) == (3, sw.open(train).class_names)
    with pytest.raises(TypeError, match="has no end"):
        len(sw.Reader(train, global_batch_size=4))


def test_a_split_in_memory(train: str) -> None:
    dataset = sw.open(train)
    columns = dataset.to_numpy("test", image=sw.EvalImage(8))
    num_records = dataset.splits["test"].num_records
    assert columns["image"].shape == (num_records, 8, 8, 3)
    assert list(columns["id"]) == all_ids(train, "test")
    assert dataset.num_classes == 3
    assert sum(dataset.class_counts("test").values()) == num_records
    what = r"the images of 'train' take .* in memory, more than max_bytes=1kB"
    with pytest.raises(UsageError, match=what):
        dataset.to_numpy("train", max_bytes="1kB")
