"""Ids that the messages of rejects name."""

from __future__ import annotations

import pytest

from shardwright.transforms.erasure.wanted_ids import HashedIds, WantedIds, hash_of, named_by
from shardwright.transforms.rejects import Reject, RejectReason


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("IDX4.jpg", "a line of t.csv has 4 fields where 2 are expected: 'IDX4.jpg,c,extra,more'"),
        ("a b.jpg", "a line of t.tsv has 3 fields where 2 are expected: 'c\\ta b.jpg\\tmore'"),
        ("it's.jpg", 'a line of t.csv has 3 fields where 2 are expected: "c,it\'s.jpg,more"'),
        ("a/4.jpg", "an item of images is {'id': 4, 'file_name': 'a/4.jpg', 'licen...; an image"),
        ("a/4.jpg", 'a line of t.csv: \'{"file_name": "a/4.jpg", "x": 1}\''),
        ("a/4.jpg", "two images have the id 17: a/4.jpg is kept"),
        ("a/4.jpg", "same bytes as 'a/4.jpg'"),
    ],
)
def test_a_message_that_names_an_id(name: str, detail: str) -> None:
    reject = Reject("", "t.csv", RejectReason.BAD_VALUE, detail)
    for ids in (WantedIds([name]), HashedIds("salt", [hash_of("salt", name)])):
        assert named_by(reject, ids, is_made=False) == {name: (name,)}
    assert not named_by(reject, WantedIds(["4.jpg", "IDX4", "c,", "has"]), is_made=False)
