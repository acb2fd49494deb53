"""`Reader.torch(map_style=True)`: examples by number, for torch's own samplers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset
from torch.utils.data.distributed import DistributedSampler

import shardwright as sw
from shardwright.errors import BadExampleError, UsageError
from shardwright.reader.encodings import Text
from tests.bad_records import copy_with_bad_record

NUM_RECORDS = 61


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


def stored(dataset: str, **options: Any) -> list[dict[str, Any]]:
    """The rows of a reader that does not shuffle."""
    batches = read(dataset, epochs=1, **options)
    return [
        {name: column[row] for name, column in batch.items()}
        for batch in batches
        for row in range(len(batch["id"]))
    ]


def test_an_example_is_a_row_of_the_unshuffled_reader(pictures: str) -> None:
    examples = read(pictures, shuffle=True, remainder="pad").torch(map_style=True)

    assert len(examples) == NUM_RECORDS
    for number, row in enumerate(stored(pictures)):
        example = examples[number]
        assert set(example) == {"image", "label", "id"}
        assert (example["id"], example["label"].dtype, int(example["label"])) == (
            row["id"],
            torch.int64,
            row["label"],
        )
        np.testing.assert_array_equal(example["image"].numpy(), row["image"].transpose(2, 0, 1))
    assert examples[-1]["id"] == examples[NUM_RECORDS - 1]["id"]
    for number in (NUM_RECORDS, -NUM_RECORDS - 1):
        with pytest.raises(IndexError, match="of 61"):
            examples[number]


def test_every_kind_of_feature(pictures: str) -> None:
    features = {
        "caption": Text(),
        "count": None,
        "ratio": None,
        "boxes": sw.Dense(3),
        "tags": None,
        "image": None,
    }
    examples = read(pictures, features=features, image=None).torch(map_style=True)

    example = examples[5]

    number = round(float(example["ratio"]) * 4)
    assert example["caption"] == f"Bild {number}: schön"
    assert (example["count"].dtype, int(example["count"])) == (torch.int64, 2**40 + number)
    assert example["ratio"].dtype == torch.float32
    assert example["boxes"].tolist() == ([number] * (number % 3) + [0, 0, 0])[:3]
    assert example["tags"] == [f"tag{tag}".encode() for tag in range(number % 4)]
    assert example["image"].startswith(b"\x89PNG")


def test_sparse_is_a_form_of_batches(pictures: str) -> None:
    with pytest.raises(UsageError, match=r"feature 'boxes': Sparse\(\) is a form of batches"):
        read(pictures, features={"boxes": sw.Sparse()}, image=None).torch(map_style=True)


@pytest.mark.parametrize(("num_workers", "context"), [(0, None), (2, "fork"), (1, "spawn")])
def test_data_loader_shuffles_and_collates(
    pictures: str, num_workers: int, context: str | None
) -> None:
    examples = read(pictures).torch(map_style=True)
    loader = DataLoader(
        examples,
        batch_size=16,
        shuffle=True,
        num_workers=num_workers,
        multiprocessing_context=context,
    )

    batches = list(loader)

    assert [tuple(batch["image"].shape) for batch in batches] == [(16, 3, 8, 8)] * 3 + [
        (13, 3, 8, 8)
    ]
    ids = [name for batch in batches for name in batch["id"]]
    by_id = {row["id"]: row for row in stored(pictures)}
    assert ids != list(by_id)
    assert sorted(ids) == sorted(by_id)
    for batch in batches:
        for row, name in enumerate(batch["id"]):
            np.testing.assert_array_equal(
                batch["image"][row].numpy(), by_id[name]["image"].transpose(2, 0, 1)
            )


def test_distributed_sampler_divides_the_records(pictures: str) -> None:
    examples = read(pictures, features=["id"], image=None).torch(map_style=True)
    ids = []
    for rank in range(3):
        sampler: DistributedSampler[Any] = DistributedSampler(
            examples, num_replicas=3, rank=rank, drop_last=True
        )
        ids += [
            name
            for batch in DataLoader(examples, batch_size=4, sampler=sampler)
            for name in batch["id"]
        ]

    assert len(ids) == len(set(ids)) == 60


def test_a_subset(pictures: str) -> None:
    examples = read(pictures).torch(map_style=True)

    found = next(iter(DataLoader(Subset(examples, [7, 3, 60]), batch_size=3)))["id"]

    assert found == [stored(pictures)[number]["id"] for number in (7, 3, 60)]


@pytest.mark.parametrize(("num_workers", "persistent"), [(0, False), (1, False), (1, True)])
def test_each_epoch_draws_its_own_crops(pictures: str, num_workers: int, persistent: bool) -> None:
    examples = read(pictures).torch(map_style=True)
    loader = DataLoader(
        examples, batch_size=64, num_workers=num_workers, persistent_workers=persistent
    )
    images = []
    for epoch in (0, 1, 0):
        examples.set_epoch(epoch)
        images += [batch["image"] for batch in loader]

    both = list(read(pictures, global_batch_size=61, epochs=2))
    assert not torch.equal(images[0], images[1])
    for image, epoch in zip(images, (0, 1, 0), strict=True):
        np.testing.assert_array_equal(image.numpy(), both[epoch]["image"].transpose(0, 3, 1, 2))


def test_a_selection_is_numbered_anew(pictures: str) -> None:
    from pyarrow import compute as pc

    options: dict[str, Any] = {"where": pc.field("width") >= 26, "split": "train[10:]"}
    examples = read(pictures, **options).torch(map_style=True)
    rows = stored(pictures, **options)

    assert 0 < len(examples) == len(rows) < 51
    assert [examples[number]["id"] for number in range(len(examples))] == [
        row["id"] for row in rows
    ]


def test_a_bad_record_is_named(pictures: str, tmp_path: Any) -> None:
    damaged, name = copy_with_bad_record(pictures, tmp_path)
    examples = read(damaged, max_bad_records=5).torch(map_style=True)

    with pytest.raises(
        BadExampleError, match=r"record 4 at byte .*cannot be left out by max_bad_records.*where="
    ):
        examples[4]
    with pytest.raises(BadExampleError, match="record 4 at byte"):
        list(DataLoader(examples, batch_size=8, num_workers=1))
    assert (
        len({examples[number]["id"] for number in range(NUM_RECORDS) if number != 4} - {name})
        == NUM_RECORDS - 1
    )
