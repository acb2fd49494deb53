"""`Reader.grain()` and `grain_source()`: batches and examples for Grain, with its checkpoints."""

from __future__ import annotations

import pickle
import shutil
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
from shardwright.errors import BadExampleError, ChangedError, UsageError
from shardwright.reader.encodings import Text
from tests.support.bad_records import copy_with_bad_record
from tests.support.small_datasets import build, write_class_folders
from tests.support.trainer_datasets import NUM_PICTURES, move, pictures_fixture, read, rows_of  # noqa: F401


def assert_same(example: dict[str, Any], row: dict[str, Any]) -> None:
    assert example.keys() == row.keys()
    for name, value in row.items():
        np.testing.assert_array_equal(example[name], value)


@pytest.mark.long
def test_an_item_is_a_row_of_the_unshuffled_reader(pictures: str) -> None:
    source = read(pictures, shuffle=True, remainder="pad").grain_source()
    rows = rows_of(pictures)

    assert isinstance(source, RandomAccessDataSource)
    assert len(source) == len(rows) == NUM_PICTURES
    for number, row in enumerate(rows):
        assert_same(source[number], row)
    assert_same(source[np.int64(-1)], rows[-1])
    assert_same(source[-NUM_PICTURES], rows[0])
    assert source[NUM_PICTURES]["id"] == rows[0]["id"], "of the second epoch, as Grain counts"
    image, label = source[0]["image"], source[0]["label"]
    assert (image.dtype, image.shape, label.dtype) == (np.uint8, (8, 8, 3), np.int64)
    for number in (NUM_PICTURES, -NUM_PICTURES - 1):
        with pytest.raises(IndexError, match=f"record {number} of 61 is out of range"):
            source._source.examples([number])


def test_every_kind_of_feature(pictures: str) -> None:
    names = ("count", "ratio", "boxes", "tags", "id", "image")
    features = {"caption": Text(), "label": sw.OneHot(), **dict.fromkeys(names)}
    options: dict[str, Any] = {"features": features, "image": sw.DecodedImage()}
    source = read(pictures, **options).grain_source()
    for number, row in enumerate(rows_of(pictures, **options)[:9]):
        assert_same(source[number], row)
    assert source[0]["caption"].startswith("Bild ")
    assert source[0]["image"].shape[2] == 3


def test_a_selection_is_numbered_anew(pictures: str) -> None:
    options: dict[str, Any] = {"where": pc.field("width") >= 26, "split": "train[10:]"}
    source, rows = read(pictures, **options).grain_source(), rows_of(pictures, **options)
    assert 0 < len(source) == len(rows) < 51
    assert [source[number]["id"] for number in range(len(source))] == [row["id"] for row in rows]


def test_many_threads_get_the_same(pictures: str) -> None:
    source, rows = read(pictures).grain_source(), rows_of(pictures)
    pairs = np.random.default_rng(0).integers(0, NUM_PICTURES, (150, 2)).tolist()
    with ThreadPoolExecutor(8) as pool:
        for numbers, found in zip(pairs, pool.map(source._getitems, pairs), strict=True):
            for number, example in zip(numbers, found, strict=True):
                assert_same(example, rows[number])
    assert source._getitems([]) == []


def test_a_source_that_repeats_the_crops_is_told(
    pictures: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = read(pictures).grain_source()
    for _ in source.repeat(2):
        pass
    assert caplog.messages == [], "its own repeat() has other crops"
    source = read(pictures).grain_source()
    for _ in grain.MapDataset.source(source).repeat(3):
        pass
    assert [text[:24] for text in caplog.messages] == ["records come again with "]


def test_epoch_and_seed_decide_the_random_part_of_an_image(pictures: str) -> None:
    source, other_seed = read(pictures).grain_source(), read(pictures, seed=1).grain_source()
    first_epoch = next(iter(read(pictures, global_batch_size=NUM_PICTURES)))["image"]

    def same(first: Any, second: Any) -> bool:
        return np.array_equal(first["image"], second["image"])

    np.testing.assert_array_equal(source[7]["image"], first_epoch[7])
    later = source[7 + NUM_PICTURES]
    assert (same(source[7], later), same(source[7 + NUM_PICTURES], later)) == (False, True)
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
    source = read(pictures).grain_source()
    copy = pickle.loads(pickle.dumps(source))
    assert_same(copy[3], source[3])
    assert repr(moved.grain_source()) == repr(copy) == repr(source)
    names = [repr(read(pictures, **options).grain_source()) for options in ({}, *others)]
    assert len(set(names)) == 7


@pytest.mark.long
def test_map_dataset_shuffles_batches_and_reads_in_processes(pictures: str) -> None:
    rows = rows_of(pictures)
    dataset = read(pictures).grain_source().shuffle(seed=4).batch(10)

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


@pytest.mark.parametrize("shuffled", [False, True])
def test_crops_vary_by_epoch(pictures: str, shuffled: bool) -> None:
    """By default: an epoch of Grain's `repeat` is that of the reader."""
    source = read(pictures).grain_source()
    dataset = source.shuffle(seed=1).repeat(2) if shuffled else source.repeat(2)
    twice = [*dataset.batch(NUM_PICTURES)]
    batches = [batch["image"][np.argsort(batch["id"])] for batch in twice]
    reader = read(pictures, global_batch_size=NUM_PICTURES, epochs=1)
    for epoch, found in enumerate(batches):
        batch = next(iter(reader))
        np.testing.assert_array_equal(found, batch["image"][np.argsort(batch["id"])], str(epoch))
    assert not np.array_equal(*batches)


ONE_EPOCH: dict[str, Any] = {"shuffle": True, "epochs": 1, "remainder": "keep"}


def test_batches_are_the_readers_pass_by_pass(pictures: str) -> None:
    reader, twin = read(pictures, **ONE_EPOCH), read(pictures, **ONE_EPOCH)
    dataset = reader.grain()
    assert isinstance(dataset, grain.IterDataset)
    for _ in range(3):
        for batch, wanted in zip(dataset, twin, strict=True):
            assert_same(batch, wanted)
        assert reader.state_after() == twin.state()
    mapped = dataset.map(lambda batch: batch["id"].tolist())
    assert list(mapped) == [batch["id"].tolist() for batch in twin]


@pytest.mark.parametrize("num_taken", [0, 3, 8])
def test_grains_own_checkpoints_restore_an_iterator(
    pictures: str, tmp_path: Path, num_taken: int
) -> None:
    """Also at its end, and through a transformation."""

    def make() -> Any:
        dataset = read(pictures, **ONE_EPOCH).grain().map(lambda batch: batch["id"].tolist())
        return iter(dataset)

    iterator = make()
    whole = [batch["id"].tolist() for batch in read(pictures, **ONE_EPOCH)]
    assert [next(iterator) for _ in range(num_taken)] == whole[:num_taken]
    handler = grain.checkpoint.CheckpointHandler()
    handler.save(tmp_path, item=iterator)
    assert list(handler.restore(tmp_path, item=make())) == whole[num_taken:]
    assert list(iterator) == whole[num_taken:]


def test_a_grain_state_of_other_records_is_refused(pictures: str) -> None:
    state = iter(read(pictures, shuffle=True).grain()).get_state()
    with pytest.raises(UsageError, match="seed=0, but the reader has seed=1"):
        iter(read(pictures, shuffle=True, seed=1).grain()).set_state(state)


def test_worker_processes_of_grain_get_an_error(pictures: str) -> None:
    """Each of them would read all batches."""
    flags.FLAGS.mark_as_parsed()
    workers = grain.multiprocessing.MultiprocessingOptions(num_workers=1)
    with pytest.raises(Exception, match=r"leave mp_prefetch out, or read .* reader.grain_source"):
        next(iter(read(pictures).grain().mp_prefetch(workers)))


def load(dataset: str, **options: Any) -> grain.DataLoader:
    source = read(dataset, **options).grain_source()
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
    source = read(damaged, max_bad_records=5).grain_source()
    message = "record 4 at byte .*max_bad_records does not skip.*where="
    with pytest.raises(BadExampleError, match=message):
        source[4]
    assert name not in {source[number]["id"] for number in range(NUM_PICTURES) if number != 4}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"host_count": 2}, "host_count=2: leave it out, and divide the numbers by a sampler"),
        ({"sampling": sw.ClassBalanced()}, "sampling=.*: leave it out, and weigh the numbers"),
    ],
)
def test_an_order_that_numbers_do_not_have_is_refused(
    pictures: str, options: dict[str, Any], told: str
) -> None:
    reader = read(pictures, **options)
    with pytest.raises(UsageError, match=f"examples by number have no order .* has {told}"):
        reader.grain_source()


def test_a_mix_has_no_examples_by_number(pictures: str, tmp_path: Path) -> None:
    other = shutil.copytree(pictures, tmp_path / "other")
    mixed: Any = {pictures: 1, str(other): 2}
    with pytest.raises(UsageError, match="weights of 2 datasets: open one at a time"):
        read(mixed).grain_source()


def test_another_process_finds_the_same_dataset_or_none(
    pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From another working folder, too."""
    copy = shutil.copytree(pictures, tmp_path / "there" / "dataset")
    monkeypatch.chdir(tmp_path / "there")
    reader = read("dataset")
    source = pickle.dumps(reader.grain_source())
    monkeypatch.chdir(tmp_path)
    assert pickle.loads(source)[3]["id"] == reader.grain_source()[3]["id"]
    manifest = copy / "manifest.json"
    shutil.rmtree(copy)
    assert not manifest.exists()
    write_class_folders(tmp_path / "in")
    build(tmp_path / "in", copy)
    with pytest.raises(ChangedError, match="has changed since the reader was opened"):
        pickle.loads(source)[3]
