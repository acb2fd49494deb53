"""Finished shards, gathered: in parts of any size and order, the same manifest."""

from __future__ import annotations

import itertools
import json
import pickle
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from shardwright.format.contents import FileContent
from shardwright.format.index import ShardSummary
from shardwright.format.naming import ShardName
from shardwright.transforms.publish.publication import make_manifest
from shardwright.transforms.publish.written_shards import WrittenShards
from tests.transforms.publish.test_publication import CLEARANCE, make_publication

SUMMARIES = [
    ShardSummary(
        ShardName("pets", split, index, 4),
        *(index + 1, 300, index, f"digest {index}", {"corrupt": index} if index else {}),
        stats={
            "labels": {str(7 * index): 1, "2": index + 1},
            "formats": {"png": index + 1},
            "width": {"min": 9 - index, "max": 9, "sum": 20, "count": index + 1},
        },
        sidecar=FileContent(70 + index, index),
        reject_file=FileContent(index, 2 * index) if index else None,
    )
    for split in ("test", "train")
    for index in range(4)
]


@given(order=st.permutations(SUMMARIES), cuts=st.lists(st.integers(0, len(SUMMARIES)), max_size=4))
def test_parts_gather_to_the_same_manifest(order: list[ShardSummary], cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(order)]
    gathered = WrittenShards()
    for start, stop in itertools.pairwise(ends):
        gathered.add_all(pickle.loads(pickle.dumps(WrittenShards(order[start:stop]))))
    publication, whole = make_publication(Path("/out")), WrittenShards(SUMMARIES)
    texts = [
        json.dumps(make_manifest(publication, shards, CLEARANCE).to_json())
        for shards in (gathered, whole)
    ]
    assert texts[0] == texts[1]
    assert gathered.files == whole.files
    assert len(whole.files) == 6


def test_counts_of_classes_are_held_once_for_all_shards() -> None:
    """A hundred shards of a thousand classes each pickle to little more than one."""
    labels = {str(label): 1 for label in range(1000)}
    shards = [
        replace(SUMMARIES[0], name=ShardName("pets", "train", index, 100), stats={"labels": labels})
        for index in range(100)
    ]
    one, all_ = (len(pickle.dumps(WrittenShards(some))) for some in (shards[:1], shards))
    assert all_ < 3 * one
