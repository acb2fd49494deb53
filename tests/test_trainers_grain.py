"""`Reader.grain()`: a random-access source that Grain's own datasets and loaders take, in their order, with their checkpoints."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grain
import numpy as np
import pyarrow.compute as pc
import pytest
from absl import flags
from grain.sources import RandomAccessDataSource

import shardwright as sw
from shardwright.errors import BadExampleError, UsageError
from shardwright.reader.encodings import Text
from tests import trainer_datasets
from tests.bad_records import copy_with_bad_record

NUM_RECORDS = trainer_datasets.NUM_PICTURES


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(trainer_datasets.pictures(tmp_path_factory))


def read(dataset: str, **options: Any) -> sw.Reader:
    return sw.Reader(
        dataset,
        **{
            "global_batch_size": 8,
            "image": sw.TrainImage(8),
            "features": ["image", "label", "id"],
            **options,
        },
    )


def rows_of(dataset: str, **options: Any) -> list[dict[str, Any]]:
    """The rows of a reader that does not shuffle."""
    batches = read(dataset, epochs=1, **options)
    return [
        {name: column[row] for name, column in batch.items()}
        for batch in batches
        for row in range(len(batch["id"]))
    ]


def assert_same(example: dict[str, Any], row: dict[str, Any]) -> None:
    assert example.keys() == row.keys()
    for name, value in row.items():
        np.testing.assert_array_equal(example[name], value)


def test_an_item_is_a_row_of_the_unshuffled_reader(pictures: str) -> None:
    source = read(pictures, shuffle=True, remainder="pad", sampling=sw.ClassBalanced()).grain()
    rows = rows_of(pictures)

    assert isinstance(source, RandomAccessDataSource)
    assert len(source) == len(rows) == NUM_RECORDS
    for number, row in enumerate(rows):
        assert_same(source[number], row)
    assert_same(source[np.int64(-1)], rows[-1])
    assert (source[0]["image"].dtype, source[0]["image"].shape, source[0]["label"].dtype) == (
        np.uint8,
        (8, 8, 3),
        np.int64,
    )
    for number in (NUM_RECORDS, -NUM_RECORDS - 1):
        with pytest.raises(IndexError, match="of 61"):
            source[number]


def test_every_kind_of_feature(pictures: str) -> None:
    features = {
        "caption": Text(),
        "count": None,
        "ratio": None,
        "boxes": None,
        "tags": None,
        "label": sw.OneHot(),
        "id": None,
        "image": None,
    }
    options: dict[str, Any] = {"features": features, "image": sw.DecodedImage()}
    source = read(pictures, **options).grain()

    for number, row in enumerate(rows_of(pictures, **options)[:9]):
        assert_same(source[number], row)
    assert source[0]["caption"].startswith("Bild ")
    assert source[0]["image"].shape[2] == 3


def test_a_selection_is_numbered_anew(pictures: str) -> None:
    options: dict[str, Any] = {"where": pc.field("width") >= 26, "split": "train[10:]"}
    source, rows = read(pictures, **options).grain(), rows_of(pictures, **options)

    assert 0 < len(source) == len(rows) < 51
    assert [source[number]["id"] for number in range(len(source))] == [row["id"] for row in rows]


def test_many_threads_get_what_one_gets(pictures: str) -> None:
    source, rows = read(pictures).grain(), rows_of(pictures)
    numbers = [int(number) for number in np.random.default_rng(0).integers(0, NUM_RECORDS, 300)]

    with ThreadPoolExecutor(8) as pool:
        for number, example in zip(numbers, pool.map(source.__getitem__, numbers), strict=True):
            assert_same(example, rows[number])


def test_several_at_once_are_the_same(pictures: str) -> None:
    source = read(pictures).grain()

    for example, number in zip(source.examples([5, 60, 0, 5]), (5, 60, 0, 5), strict=True):
        assert_same(example, source[number])
    assert source.examples([]) == []


def test_draws_decide_the_random_part_of_an_image(pictures: str) -> None:
    source = read(pictures).grain()
    second_epoch = next(iter(read(pictures, global_batch_size=NUM_RECORDS, state=None, epochs=2)))

    np.testing.assert_array_equal(source.example(7)["image"], second_epoch["image"][7])
    images = [source.example(7, draw=draw)["image"] for draw in (1, 2, 1)]
    assert not np.array_equal(images[0], images[1])
    np.testing.assert_array_equal(images[0], images[2])
    assert not np.array_equal(source.example(7, epoch=1)["image"], source.example(7)["image"])
    other_seed = read(pictures, seed=1).grain()
    assert not np.array_equal(other_seed[7]["image"], source[7]["image"])


def test_a_copy_gives_the_same(pictures: str) -> None:
    source = read(pictures).grain()
    copy = pickle.loads(pickle.dumps(source))

    assert (repr(copy), len(copy)) == (repr(source), NUM_RECORDS)
    assert_same(copy[3], source[3])


OTHERS: dict[str, dict[str, Any]] = {
    "seed": {"seed": 1},
    "image": {"image": sw.TrainImage(9)},
    "features": {"features": ["image", "id"]},
    "encoding": {"features": {"image": None, "label": sw.OneHot(), "id": None}},
    "split": {"split": "train[1:]"},
    "where": {"where": pc.field("width") >= 26},
}


@pytest.mark.parametrize("options", OTHERS.values(), ids=OTHERS)
def test_its_name_tells_what_it_gives(
    pictures: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """Grain compares the names of sources when it restores a checkpoint; where a dataset lies makes no difference."""
    moved = trainer_datasets.move(pictures, tmp_path)
    name = repr(read(pictures).grain())

    assert repr(read(moved, global_batch_size=3, shuffle=True, threads=1).grain()) == name
    assert repr(read(pictures, **options).grain()) != name


def test_map_dataset_shuffles_batches_and_reads_in_processes(pictures: str) -> None:
    source, rows = read(pictures).grain(), rows_of(pictures)
    dataset = grain.MapDataset.source(source).shuffle(seed=4).batch(10)
    by_id = {row["id"]: row for row in rows}

    here = list(dataset)
    ids = [str(name) for batch in here for name in batch["id"]]
    assert sorted(ids) == sorted(by_id)
    assert ids != list(by_id)
    for batch in here:
        for row, name in enumerate(batch["id"]):
            np.testing.assert_array_equal(batch["image"][row], by_id[str(name)]["image"])

    flags.FLAGS.mark_as_parsed()  # which Grain's processes ask for
    elsewhere = list(
        dataset.to_iter_dataset().mp_prefetch(
            grain.multiprocessing.MultiprocessingOptions(num_workers=2)
        )
    )
    assert [list(batch["id"]) for batch in elsewhere] == [list(batch["id"]) for batch in here]
    for first, second in zip(here, elsewhere, strict=True):
        np.testing.assert_array_equal(first["image"], second["image"])


def test_grain_draws_anew_in_each_epoch_where_it_is_told_to(pictures: str) -> None:
    source = read(pictures).grain()

    def draw(number: int, rng: np.random.Generator) -> dict[str, Any]:
        return source.example(number, draw=int(rng.integers(2**63)))

    dataset = grain.MapDataset.range(len(source)).seed(5).repeat(2).random_map(draw)

    first, again, second = dataset[3], dataset[3], dataset[3 + NUM_RECORDS]
    assert_same(first, again)
    assert first["id"] == second["id"]
    assert not np.array_equal(first["image"], second["image"])


def load(dataset: str, **options: Any) -> grain.DataLoader:
    source = read(dataset, **options).grain()
    sampler = grain.samplers.IndexSampler(len(source), shuffle=True, num_epochs=1, seed=2)
    return grain.DataLoader(
        data_source=source, sampler=sampler, operations=[grain.transforms.Batch(7)], worker_count=0
    )


def test_data_loader_restores_its_checkpoint(pictures: str, tmp_path: Path) -> None:
    whole = [list(batch["id"]) for batch in load(pictures)]
    assert sorted(name for ids in whole for name in ids) == sorted(
        row["id"] for row in rows_of(pictures)
    )
    iterator = iter(load(pictures))
    taken = [list(next(iterator)["id"]) for _ in range(3)]
    state = iterator.get_state()

    moved = trainer_datasets.move(pictures, tmp_path)
    restored = iter(load(moved))
    restored.set_state(state)
    assert taken + [list(batch["id"]) for batch in restored] == whole

    other = iter(load(pictures, image=sw.TrainImage(9)))
    with pytest.raises(ValueError, match="ExampleSource"):
        other.set_state(state)


def test_a_bad_record_is_named(pictures: str, tmp_path: Path) -> None:
    damaged, name = copy_with_bad_record(pictures, tmp_path)
    source = read(damaged, max_bad_records=5).grain()

    with pytest.raises(
        BadExampleError, match=r"record 4 at byte .*cannot be left out by max_bad_records.*where="
    ):
        source[4]
    assert name not in {source[number]["id"] for number in range(NUM_RECORDS) if number != 4}


def test_sparse_is_a_form_of_batches(pictures: str) -> None:
    with pytest.raises(UsageError, match=r"feature 'boxes': Sparse\(\) is a form of batches"):
        read(pictures, features={"boxes": sw.Sparse()}, image=None).grain()
