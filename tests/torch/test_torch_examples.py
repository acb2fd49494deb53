"""`Reader.torch(map_style=True)`: examples by number, for torch's own samplers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import shardwright as sw
from shardwright.errors import BadExampleError
from shardwright.reader.encodings import Text
from tests.support.bad_records import copy_with_bad_record
from tests.support.trainer_datasets import NUM_PICTURES, read, rows_of

CENTER = sw.EvalImage(8)


def test_an_example_is_a_row_of_the_unshuffled_reader(pictures: str) -> None:
    examples = read(pictures, shuffle=True, remainder="pad", image=CENTER).torch(map_style=True)
    rows = rows_of(pictures, image=CENTER)

    assert len(examples) == len(rows) == NUM_PICTURES
    for number, row in enumerate(rows):
        example = examples[number]
        assert example.keys() == {"image", "label", "id"}
        assert (example["id"], int(example["label"])) == (row["id"], row["label"])
        assert example["label"].dtype == torch.int64
        np.testing.assert_array_equal(example["image"].numpy(), row["image"].transpose(2, 0, 1))
    assert examples[-1]["id"] == examples[NUM_PICTURES - 1]["id"]
    for number in (NUM_PICTURES, -NUM_PICTURES - 1):
        with pytest.raises(IndexError, match="of 61"):
            examples[number]


def test_every_kind_of_feature(pictures: str) -> None:
    features = {"caption": Text(), "boxes": sw.Dense(3)}
    features |= dict.fromkeys(("count", "ratio", "tags", "image"))
    example = read(pictures, features=features, image=None).torch(map_style=True)[5]

    number = round(float(example["ratio"]) * 4)
    assert example["caption"] == f"Bild {number}: schön"
    assert (example["count"].dtype, int(example["count"])) == (torch.int64, 2**40 + number)
    assert example["ratio"].dtype == torch.float32
    assert example["boxes"].tolist() == ([number] * (number % 3) + [0, 0, 0])[:3]
    assert example["tags"] == [f"tag{tag}".encode() for tag in range(number % 4)]
    assert example["image"].startswith(b"\x89PNG")


class ThreadCounts(Dataset[int]):
    """The number of threads that decode each example."""

    def __init__(self, examples: Any) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, number: int) -> int:
        self.examples[number]
        return int(self.examples._source._engine.threads)


def test_workers_share_the_threads_in_every_batch(pictures: str) -> None:
    examples = read(pictures, image=CENTER, threads=4).torch(map_style=True)
    loader = DataLoader(ThreadCounts(examples), 4, num_workers=2)
    assert {count for batch in loader for count in batch.tolist()} == {2}


@pytest.mark.parametrize(
    ("num_workers", "context"),
    [(0, None), (2, "fork"), pytest.param(1, "spawn", marks=pytest.mark.long)],
)
def test_data_loader_shuffles_and_collates(
    pictures: str, num_workers: int, context: str | None
) -> None:
    examples = read(pictures, image=CENTER).torch(map_style=True)
    options: dict[str, Any] = {"num_workers": num_workers, "multiprocessing_context": context}
    generator = torch.Generator().manual_seed(0)
    batches = list(DataLoader(examples, 16, shuffle=True, generator=generator, **options))

    assert [tuple(batch["image"].shape[1:]) for batch in batches] == [(3, 8, 8)] * 4
    assert [len(batch["image"]) for batch in batches] == [16, 16, 16, 13]
    ids = [name for batch in batches for name in batch["id"]]
    by_id = {row["id"]: row["image"].transpose(2, 0, 1) for row in rows_of(pictures, image=CENTER)}
    assert ids != list(by_id)
    assert sorted(ids) == sorted(by_id)
    images = torch.cat([batch["image"] for batch in batches])
    np.testing.assert_array_equal(images.numpy(), [by_id[name] for name in ids])


def test_distributed_sampler_divides_the_records(pictures: str) -> None:
    examples, ids = read(pictures, features=["id"], image=None).torch(map_style=True), []
    for rank in range(3):
        sampler = DistributedSampler(examples, num_replicas=3, rank=rank, drop_last=True)
        loader = DataLoader(examples, batch_size=4, sampler=sampler)
        ids += [name for batch in loader for name in batch["id"]]
    assert len(ids) == len(set(ids)) == 60


@pytest.mark.parametrize(("num_workers", "persistent"), [(0, False), (1, False), (1, True)])
def test_each_reading_draws_its_own_crops(
    pictures: str, num_workers: int, persistent: bool
) -> None:
    """By torch's seed, as its own transforms."""

    def crops() -> list[torch.Tensor]:
        torch.manual_seed(7)
        examples = read(pictures).torch(map_style=True)
        loader = DataLoader(examples, 64, num_workers=num_workers, persistent_workers=persistent)
        return [batch["image"] for _ in range(2) for batch in loader]

    one, two = crops(), crops()
    assert not torch.equal(one[0], one[1])
    assert all(map(torch.equal, one, two))


def test_a_bad_record_is_named(pictures: str, tmp_path: Path) -> None:
    damaged, name = copy_with_bad_record(pictures, tmp_path)
    examples = read(damaged, max_bad_records=5).torch(map_style=True)
    message = "record 4 at byte .*max_bad_records does not skip.*where="
    with pytest.raises(BadExampleError, match=message):
        examples[4]
    with pytest.raises(BadExampleError, match="record 4 at byte"):
        list(DataLoader(examples, batch_size=8, num_workers=1))
    others = {examples[number]["id"] for number in range(NUM_PICTURES) if number != 4}
    assert len(others - {name}) == NUM_PICTURES - 1
