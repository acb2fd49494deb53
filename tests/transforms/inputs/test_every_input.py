"""Every input format, on disk and in stores: the same pictures are the same records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from tests.support.build_helpers import build, stamps_of
from tests.support.input_forms import CLASSES, FORMS, PICTURES, Form
from tests.support.judge import judge
from tests.support.store_places import STORES, Kind, Place, Places
from tests.support.tfrecord_makers import features_of

Found = set[tuple[str, str, bytes]]  # split, class name, the image's bytes
# Each format in one store, and each store with half of them; with --long, all in both.
PAIRS = [
    pytest.param(form, kind, marks=[] if number % 2 == place else [pytest.mark.long])
    for number, form in enumerate(FORMS)
    for place, kind in enumerate(STORES)
]


def wanted(form: Form) -> Found:
    return {(p.split if form.states_splits else "train", p.label, p.data) for p in PICTURES}


def found_in(root: Path, form: Form) -> Found:
    dataset = sw.open(str(root))
    assert not list(judge(str(root)).faults)
    return {
        (split, _class_of(dataset, form, features), features["image"][0])
        for split, features in features_of(root)
    }


def _class_of(dataset: sw.Dataset, form: Form, features: dict[str, Any]) -> str:
    if form.label == "objects":
        assert features["objects/bbox"] == pytest.approx([0, 0, 0.5, 1], abs=1e-6)
        (label,) = features["objects/label"]
        return dataset.vocabulary("objects/label")[label]
    assert dataset.class_names == CLASSES
    return dataset.class_names[features["label"][0]]


def build_form(form: Form, source: Place, output: Path) -> int:
    options = [option.replace("{root}", str(source)) for option in form.options]
    return build(source.at(form.input), output, *options, *source.args)


@pytest.mark.long_but_first
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_on_disk(form: Form, tmp_path: Path) -> None:
    form.write(tmp_path / "data")
    source, output = Place(str(tmp_path / "data")), tmp_path / "out"
    assert build_form(form, source, output) == 0
    assert found_in(output, form) == wanted(form)
    stamps = stamps_of(output)
    assert build_form(form, source, output) == 0  # up to date
    assert stamps_of(output) == stamps


@pytest.mark.long_but_first
@pytest.mark.parametrize(("form", "kind"), PAIRS, ids=str)
def test_in_stores(form: Form, kind: Kind, places: Places, tmp_path: Path) -> None:
    form.write(tmp_path / "data")
    source = places.make(kind).fill(tmp_path / "data")
    assert build_form(form, source, tmp_path / "out") == 0
    assert found_in(tmp_path / "out", form) == wanted(form)
