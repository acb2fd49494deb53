"""Every form that INPUT may have, on disk and in stores: the same pictures are the same records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.example import parse_example
from shardwright.records import scan_records
from shardwright.verify import verify
from tests.build_helpers import build, stamps_of
from tests.input_forms import CLASSES, FORMS, PICTURES, Form
from tests.store_places import STORES, Kind, Place, Places

Found = set[tuple[str, str, bytes]]  # split, class name, the image's bytes


def wanted(form: Form) -> Found:
    names = dict(zip(CLASSES, form.classes, strict=True))
    return {
        (picture.split if form.states_splits else "train", names[picture.label], picture.data)
        for picture in PICTURES
    }


def found_in(root: Path, form: Form) -> Found:
    dataset = sw.open(str(root))
    assert not list(verify(str(root)).faults)
    return {
        (split, _class_of(dataset, form, features), features["image"][0])
        for split, features in _examples(dataset, root)
    }


def _examples(dataset: sw.Dataset, root: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for split in dataset.splits:
        for name in dataset.shard_names(split):
            with open(root / name.shard, "rb") as file:
                yield from ((split, parse_example(span.data)) for span in scan_records(file))


def _class_of(dataset: sw.Dataset, form: Form, features: dict[str, Any]) -> str:
    if form.label == "objects":
        assert features["objects/bbox"] == pytest.approx([0, 0, 0.5, 1], abs=1e-6)
        (label,) = features["objects/label"]
        return dataset.vocabulary("objects/label")[label]
    assert dataset.class_names == form.classes
    return dataset.class_names[features["label"][0]]


def build_form(form: Form, source: Place, output: Path) -> int:
    options = [option.replace("{root}", str(source)) for option in form.options]
    return build(source.at(form.input), output, *options, *source.args)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_on_disk(form: Form, tmp_path: Path) -> None:
    """And a second run finds nothing to do."""
    form.make(tmp_path / "data")
    source, output = Place(str(tmp_path / "data")), tmp_path / "out"
    assert build_form(form, source, output) == 0
    assert found_in(output, form) == wanted(form)
    stamps = stamps_of(output)
    assert build_form(form, source, output) == 0
    assert stamps_of(output) == stamps


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_in_stores(form: Form, kind: Kind, places: Places, tmp_path: Path) -> None:
    form.make(tmp_path / "data")
    source = places.make(kind).fill(tmp_path / "data")
    assert build_form(form, source, tmp_path / "out") == 0
    assert found_in(tmp_path / "out", form) == wanted(form)


def test_each_format_has_a_form() -> None:
    """What `--input-format` knows, and this table does not, is tested nowhere."""
    from transforms.inputs.detection import known_formats

    assert len(FORMS) >= len(known_formats())
