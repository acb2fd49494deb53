"""The files beside the shards are compared feature by feature, of every kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardwright.companion_check import check_companions
from shardwright.manifest import read_manifest
from shardwright.storage import Folder
from tests.feature_cases import MANIFEST, write_dataset


def faults_of(root: Path) -> list[tuple[str, str]]:
    return [(fault.file, fault.what) for fault in check_companions(Folder(str(root)), MANIFEST)]


def test_a_dataset_of_every_kind_is_sound(tmp_path: Path) -> None:
    assert faults_of(write_dataset(tmp_path)) == []
    assert read_manifest(Folder(str(tmp_path))) == MANIFEST


OBJECTS = ("objects", "sequence", "feature", "featuresDict", "features")


@pytest.mark.parametrize(
    ("path", "change", "what"),
    [
        (("crop", "boundingBox"), {"bboxFormat": "XYXY"}, 'feature \'crop\' is boundingBox {"bboxFormat": "XYXY"'),
        (("uint8", "tensor"), {"dtype": "int8"}, "feature 'uint8' is tensor {\"dtype\": \"int8\""),
        (("pose", "tensor", "shape"), {"dimensions": ["3", "2"]}, "feature 'pose' is tensor"),
        (("mask", "image", "shape"), {"dimensions": ["-1", "-1", "3"]}, "feature 'mask' is image"),
        (("left", "image"), {"encodingFormat": "jpeg"}, "feature 'left' is image"),
        (("raw", "tensor"), {"encoding": "none"}, "feature 'raw' is tensor"),
        (("scenes", "sequence", "feature", "classLabel"), {"numClasses": "3"},
         "feature 'scenes' is list of class_label of 3, the schema says list of class_label of 2"),
        (("three", "sequence"), {"length": "4"}, "is list of 4 class_label of 2, the schema says list of 3 class_label of 2"),
        ((*OBJECTS, "label", "classLabel"), {"numClasses": "9"},
         "feature 'objects/label' is class_label of 9 in list of objects, the schema says class_label of 2 in list of objects"),
        (("hands", "sequence"), {"length": "-1"}, " in list of hands, the schema says "),
        ((), {"extra": {"text": {}, "pythonClassName": "Text"}}, "feature 'extra' is text, the schema says that there is none"),
        ((), {"bag": {"text": {}}}, "feature 'bag/indices' is missing, the schema says list of tensor"),
    ],
)  # fmt: skip
def test_what_tfds_would_read_otherwise_is_named(
    path: tuple[str, ...], change: dict[str, Any], what: str, tmp_path: Path
) -> None:
    file = write_dataset(tmp_path) / "features.json"
    content = json.loads(file.read_text())
    node = content["featuresDict"]["features"]
    for part in path:
        node = node[part]
    node.update(change)
    file.write_text(json.dumps(content))
    found = faults_of(tmp_path)
    assert {name for name, _ in found} == {"features.json"}
    assert any(what in message for _, message in found), found


@pytest.mark.parametrize(
    ("name", "damage", "what"),
    [
        ("words.vocab.txt", Path.unlink, "the file is missing"),
        (
            "words.vocab.txt",
            lambda path: path.write_text("a\nb\n"),
            "it names 2 words that are not the 3 of the manifest",
        ),
        (
            "bag.vocab.txt",
            lambda path: path.write_text("a\nb\nc\nD\n"),
            "it names 4 words that are not the 4 of the manifest",
        ),
        ("objects-label.labels.txt", Path.unlink, "the file is missing"),
        (
            "scenes.labels.txt",
            lambda path: path.write_text("outdoor\nindoor\n"),
            "it names 2 classes that are not the 2 of the manifest",
        ),
        (
            "weather-sky.labels.txt",
            lambda path: path.write_bytes(b"\xff\n"),
            "the file cannot be read: ",
        ),
    ],
)
def test_names_and_words_that_are_others_are_named(
    name: str, damage: Callable[[Path], Any], what: str, tmp_path: Path
) -> None:
    damage(write_dataset(tmp_path) / name)
    ((file, message),) = faults_of(tmp_path)
    assert file == name
    assert message.startswith(what)
