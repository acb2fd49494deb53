"""`Reader.grain()`: a random-access source for Grain's datasets, loaders and their checkpoints."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
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
from tests.support.bad_records import copy_with_bad_record
from tests.support.trainer_datasets import NUM_PICTURES, move, pictures_fixture, read, rows_of  # noqa: F401


def assert_same(example: dict[str, Any], row: dict[str, Any]) -> None:
    assert example.keys() == row.keys()
    for name, value in row.items():
        np.testing.assert_array_equal(example[name], value)


def test_an_item_is_a_row_of_the_unshuffled_reader(pictures: str) -> None:
    source = read(pictures, shuffle=True, remainder="pad", sampling=sw.ClassBalanced()).grain()
    rows = rows_of(pictures)

    assert isinstance(source, RandomAccessDataSource)
    assert len(source) == len(rows) == NUM_PICTURES
    for number, row in enumerate(rows):
        assert_same(source[number], row)
    assert_same(source[np.int64(-1)], rows[-1])
    assert_same(source[-NUM_PICTURES], rows[0])
    image, label = source[0]["image"], source[0]["label"]
    assert (image.dtype, image.shape, label.dtype) == (np.uint8, (8, 8, 3), np.int64)
    for number in (NUM_PICTURES, -NUM_PICTURES - 1):
        with pytest.raises(IndexError, match=f"record {number} of 61 is out of range"):
            source[number]


def test_every_kind_of_feature(pictures: str) -> None:
    names = ("count", "ratio", "boxes", "tags", "id", "image")
    features = {"caption": Text(), "label": sw.OneHot(), **dict.fromkeys(names)}
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


def test_many_threads_get_the_same(pictures: str) -> None:
    source, rows = read(pictures).grain(), rows_of(pictures)
    pairs = np.random.default_rng(0).integers(0, NUM_PICTURES, (150, 2)).tolist()
    with ThreadPoolExecutor(8) as pool:
        for numbers, found in zip(pairs, pool.map(source.examples, pairs), strict=True):
            for number, example in zip(numbers, found, strict=True):
                assert_same(example, rows[number])
    assert source.examples([]) == []


def test_draws_decide_the_random_part_of_an_image(pictures: str) -> None:
    source, other_seed = read(pictures).grain(), read(pictures, seed=1).grain()
    first_epoch = next(iter(read(pictures, global_batch_size=NUM_PICTURES)))["image"]

    def same(first: Any, second: Any) -> bool:
        return np.array_equal(first["image"], second["image"])

    np.testing.assert_array_equal(source.example(7)["image"], first_epoch[7])
    first, second, again = (source.example(7, draw=draw) for draw in (1, 2, 1))
    assert (same(first, second), same(first, again)) == (False, True)
    assert not same(source.example(7, epoch=1), source.example(7))
    assert not same(other_seed[7], source[7])


def test_repr_changes_with_the_examples_only(pictures: str, tmp_path: Path) -> None:
    """Grain compares it when it restores a checkpoint."""
    others: list[dict[str, Any]] = [
        {"seed": 1},
        {"image": sw.TrainImage(9)},
        {"features": ["image", "id"]},
        {"features": {"image": None, "label": sw.OneHot(), "id": None}},
        {"split": "train[1:]"},
        {"where": pc.field("width") >= 26},
    ]
    moved = read(move(pictures, tmp_path), global_batch_size=3, shuffle=True, threads=1)
    source = read(pictures).grain()
    copy = pickle.loads(pickle.dumps(source))
    assert_same(copy[3], source[3])
    assert repr(moved.grain()) == repr(copy) == repr(source)
    names = [repr(read(pictures, **options).grain()) for options in ({}, *others)]
    assert len(set(names)) == 7


def test_map_dataset_shuffles_batches_and_reads_in_processes(pictures: str) -> None:
    rows = rows_of(pictures)
    dataset = grain.MapDataset.source(read(pictures).grain()).shuffle(seed=4).batch(10)

    here = list(dataset)
    ids = [str(name) for batch in here for name in batch["id"]]
    by_id = {row["id"]: row["image"] for row in rows}
    assert sorted(ids) == sorted(by_id)
    assert ids != list(by_id)
    pixels = np.concatenate([batch["image"] for batch in here])
    np.testing.assert_array_equal(pixels, [by_id[name] for name in ids])

    flags.FLAGS.mark_as_parsed()  # Grain's processes require it
    workers = grain.multiprocessing.MultiprocessingOptions(num_workers=2)
    for batch, other in zip(here, dataset.to_iter_dataset().mp_prefetch(workers), strict=True):
        assert_same(other, batch)


def test_grain_may_draw_anew_in_each_epoch(pictures: str) -> None:
    source = read(pictures).grain()

    def draw(number: int, rng: np.random.Generator) -> dict[str, Any]:
        return source.example(number, draw=int(rng.integers(2**63)))

    dataset = grain.MapDataset.range(len(source)).seed(5).repeat(2).random_map(draw)
    first, again, second = dataset[3], dataset[3], dataset[3 + NUM_PICTURES]

    assert_same(first, again)
    assert first["id"] == second["id"]
    assert not np.array_equal(first["image"], second["image"])


def load(dataset: str, **options: Any) -> grain.DataLoader:
    source = read(dataset, **options).grain()
    sampler = grain.samplers.IndexSampler(len(source), shuffle=True, num_epochs=1, seed=2)
    batch = [grain.transforms.Batch(7)]
    return grain.DataLoader(data_source=source, sampler=sampler, operations=batch, worker_count=0)


def test_data_loader_restores_its_checkpoint(pictures: str, tmp_path: Path) -> None:
    whole = [list(batch["id"]) for batch in load(pictures)]
    assert sorted(chain(*whole)) == sorted(row["id"] for row in rows_of(pictures))
    iterator = iter(load(pictures))
    taken = [list(next(iterator)["id"]) for _ in range(3)]
    state = iterator.get_state()

    restored = iter(load(move(pictures, tmp_path)))
    restored.set_state(state)
    assert taken + [list(batch["id"]) for batch in restored] == whole
    with pytest.raises(ValueError, match="ExampleSource"):
        iter(load(pictures, image=sw.TrainImage(9))).set_state(state)


def test_a_bad_record_is_named(pictures: str, tmp_path: Path) -> None:
    damaged, name = copy_with_bad_record(pictures, tmp_path)
    source = read(damaged, max_bad_records=5).grain()
    message = "record 4 at byte .*max_bad_records does not skip.*where="
    with pytest.raises(BadExampleError, match=message):
        source[4]
    assert name not in {source[number]["id"] for number in range(NUM_PICTURES) if number != 4}


def test_sparse_is_a_form_of_batches(pictures: str) -> None:
    with pytest.raises(UsageError, match=r"feature 'boxes': Sparse\(\) needs a batch"):
        read(pictures, features={"boxes": sw.Sparse()}, image=None).grain()
