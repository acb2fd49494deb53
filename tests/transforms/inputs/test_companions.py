"""Companions of images: which files bear an image's name, which images are masks, in any size."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.transforms.inputs.file_rules import find_companions, probes
from shardwright.transforms.inputs.folder_contents import _first_names
from tests.support import detection_makers as det
from tests.support.buckets import Bucket
from tests.support.helpers import TINY_PNG
from tests.support.listings import detect


@pytest.mark.parametrize(("paths", "named", "masks"), [
    (["a.jpg", "a.txt", "b.txt"], ["a.txt"], []),
    (["images/t/a.jpg", "labels/t/a.txt", "labels/v/a.txt"], ["labels/t/a.txt"], []),
    (["x/JPEGImages/a.b.jpg", "x/Annotations/a.b.xml"], ["x/Annotations/a.b.xml"], []),
    (["a.jpg", "a.jpg.json", "README.md"], ["a.jpg.json"], []),
    (["images/a.jpg", "masks/a.png"], [], ["masks/a.png"]),
    (["train/images/a.jpg", "train/masks/a_mask.png"], [], ["train/masks/a_mask.png"]),
    (["b/1.png", "b/1_mask.png", "m/2.png"], [], ["b/1_mask.png"]),
    # Class folders with the same names of files, and classes of masks.
    (["cat/1.png", "dog/1.png"], [], []),
    (["mask/1.png", "no_mask/1.png"], [], []),
    (["with_mask/1.png", "2_mask.png"], [], []),
])  # fmt: skip
def test_files_with_the_name_of_an_image(
    paths: Sequence[str], named: Sequence[str], masks: Sequence[str]
) -> None:
    found = find_companions(paths, is_whole=True)
    assert [path for each in found.named.values() for path in each] == named
    assert found.masks == masks
    everything = [*found.images, *named, *found.others]
    assert sorted(everything) == sorted(paths)


@given(st.lists(st.integers(0, 9999), max_size=5000, unique=True), st.randoms())
def test_the_first_names_do_not_depend_on_the_order(numbers: list[int], random: object) -> None:
    names = [f"{number:04d}.{('txt', 'png')[number % 2]}" for number in numbers]
    first = _first_names(names)
    random.shuffle(names)  # type: ignore[attr-defined]
    assert _first_names(names) == first
    for ending in ("txt", "png"):
        all_of = sorted(name for name in names if name.endswith(ending))
        assert [name for name in first[0] if name.endswith(ending)] == all_of[:1000]


@given(st.integers(0, 10_000))
def test_few_files_are_read(number: int) -> None:
    read = probes([str(place) for place in range(number)])
    assert min(number, 32) <= len(read) <= 64


@pytest.mark.long
def test_labels_beyond_the_first_page_of_a_store(s3_bucket: Bucket) -> None:
    """A listing begins with the images, and background images have no boxes."""
    xml = det.voc_xml([]).encode()
    s3_bucket.fill([f"in/data/{number:04d}.png" for number in range(1100)], TINY_PNG)
    s3_bucket.fill([f"in/labels/{number:04d}.xml" for number in range(1100)], xml)
    source = detect(f"{s3_bucket.uri}/in", {}, storage=s3_bucket.options())
    assert source.name == "voc"
