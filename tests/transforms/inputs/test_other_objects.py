"""Objects without an image's name: how many are read, and that no image is lost in silence."""

from __future__ import annotations

import pytest

from shardwright.storage.options import NO_OPTIONS
from shardwright.transforms.inputs.file_rules import Problem, magic_problem
from shardwright.transforms.inputs.folders.folder_files import EVERY, SAMPLE, OtherObjects
from shardwright.transforms.inputs.image_rows import ImageRow
from shardwright.transforms.rejects import RejectReason
from tests.support.helpers import TINY_PNG

NOT_READ = f"not read: none of {SAMPLE:,} objects ending in .foo is an image"


class _InMemory(OtherObjects):
    """Objects whose bytes are at hand: an image for keys with "image" in them."""

    def __init__(self) -> None:
        super().__init__("s3://b", NO_OPTIONS)
        self.keys_read: list[str] = []

    def _problem_of(self, key: str) -> Problem | None:
        self.keys_read.append(key)
        return magic_problem(TINY_PNG if "image" in key else b"other bytes!")


def look(others: OtherObjects, keys: list[str]) -> list[Problem | None]:
    page = [(ImageRow(key, f"s3://b/{key}", 12, "e"), None) for key in keys]
    return [problem for _, problem in others.look(page)]


def test_known_extensions_are_never_read() -> None:
    others = _InMemory()
    problems = look(others, ["image.txt", "a.b/image.JSON", "image.png"])
    found = [problem and problem[0] for problem in problems]
    assert found == [RejectReason.OTHER_FILE, RejectReason.OTHER_FILE, None]
    assert others.keys_read == []
    assert list(others.unread_images("s3://b/in")) == []


@pytest.mark.parametrize("extension", ["foo", ""])
def test_an_unknown_extension_is_decided_by_a_sample(extension: str) -> None:
    others, ending = _InMemory(), f".{extension}" if extension else ""
    for page in range(11):
        problems = look(others, [f"{page:02d}/{number:04d}{ending}" for number in range(SAMPLE)])
        assert None not in problems
    assert SAMPLE < len(others.keys_read) < SAMPLE + 2 * 10 * SAMPLE // EVERY
    assert list(others.unread_images("s3://b/in")) == []


def test_all_are_read_where_the_sample_has_an_image() -> None:
    others = _InMemory()
    look(others, ["image.foo", *(f"{number}.foo" for number in range(SAMPLE - 1))])
    assert None not in look(others, [f"{number}.foo" for number in range(SAMPLE)])
    assert len(others.keys_read) == 2 * SAMPLE


def test_images_after_unread_objects_make_the_listing_incomplete() -> None:
    others = _InMemory()
    look(others, [f"{number:04d}.foo" for number in range(SAMPLE)])
    problems = look(others, [f"image {number}.foo" for number in range(1000)])
    unread = [problem for problem in problems if problem]
    assert set(unread) == {(RejectReason.OTHER_FILE, NOT_READ)}
    (reject,) = others.unread_images("s3://b/in")
    assert (reject.uri, reject.reason) == ("s3://b/in", RejectReason.INCOMPLETE)
    told = f"{len(unread)} objects ending in .foo were not read"
    assert reject.detail.startswith(told)
    assert reject.detail.endswith(f"; readable before that: {1000 - len(unread)} records")
    assert None not in [*look(others, ["late.foo"])]
    assert others.keys_read[-1] == "late.foo"
