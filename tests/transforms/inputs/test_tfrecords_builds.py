"""Builds from TFRecord files of this project, of TFDS and of TensorFlow Model Garden."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from shardwright.errors import UsageError
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source, VocabularyRule
from tests.support.build_helpers import (
    CLASSES,
    hashes_of,
    make_images,
    manifest_of,
    png_of,
    record_ids,
    shards_of,
    write_table,
)
from tests.support.build_helpers import (
    build_without_beam as build,
)
from tests.support.helpers import make_files, rows_of
from tests.support.listings import list_source
from tests.support.tfrecord_makers import example, examples_of, source_of, write_records

# Otherwise a dataset of this project is copied (tests/builds/test_copied_datasets.py).
AS_RECORDS = ("--input-format", "tfrecord")
Examples = dict[bytes, tuple[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of this project's own, with splits and columns."""
    root = tmp_path_factory.mktemp("made")
    make_images(root / "in", 30)
    rows = [
        {
            "path": f"in/{CLASSES[n % 3]}/{n:04d}.png", "label": CLASSES[n % 3], "n": n,
            "split": "train" if n % 5 else "test", "price": n / 3, "text": "é" * n,
            "sizes": list(range(n % 4)),
        }
        for n in range(30)
    ]  # fmt: skip
    table = write_table(root / "t.jsonl", rows)
    assert build(table, root / "birds", "--records-per-shard", "8") == 0
    return root / "birds"


@pytest.fixture(scope="module")
def before(made: Path) -> Examples:
    return examples_of(made)


def test_a_dataset_of_this_project(made: Path, before: Examples, tmp_path: Path) -> None:
    again = tmp_path / "again"
    assert build(made, again, *AS_RECORDS, "--records-per-shard", "5", "--seed", "7") == 0
    assert examples_of(again) == before
    assert len(before) == 30
    assert record_ids(again) != record_ids(made)
    old, new = (manifest_of(root)["schema"] for root in (made, again))
    assert new["class_names"] == old["class_names"] == sorted(CLASSES)
    names = [[feature["name"] for feature in schema["features"]] for schema in (old, new)]
    assert names[0] == names[1]


def test_new_splits_and_encodings(made: Path, before: Examples, tmp_path: Path) -> None:
    assert build(made, tmp_path / "again", "--split", "a=0.5,b=0.5", "--encode", "jpeg") == 0
    after = examples_of(tmp_path / "again")
    assert {split for split, _ in after.values()} == {"a", "b"}
    assert after.keys() == before.keys()
    for key, (_, features) in after.items():
        (image,) = features["image"]
        assert image.startswith(b"\xff\xd8")
        assert features == before[key][1] | {"image": [image]}


def test_shards_that_the_manifest_does_not_name_are_left_out(made: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(made, tmp_path / "copy"))
    shutil.copy(shards_of(copy)[0], copy / "birds-train.tfrecord-00000-of-00099")
    assert len(rows_of(list_source(source_of(copy)))) == 30
    (copy / "manifest.json").unlink()
    message = "copy holds an unfinished build of shardwright: run its command again first"
    with pytest.raises(UsageError, match=message):
        source_of(copy)


def every_kind(root: Path) -> Path:
    """Build a dataset with a feature of every kind, some without a value in some records."""
    kind = FeatureKind
    rows = []
    for n in range(9):
        make_files(root, f"{n}.png", data=png_of(5 * n))
        Image.new("L", (8, 8), n).save(root / f"m{n}.png")
        rows.append({
            "image": f"{n}.png", "label": "ab"[n % 2], "mask": f"m{n}.png" if n % 3 else "",
            "kind": "xyz"[n % 3], "tags": ["t", "u"][: n % 3], "words": "the cat " * n + "sat",
            "tokens": "a dog barks"[: n + 3], "box": [[0, 0.1, 0.5, 1]] * (n % 3),
            "vector": [[n / 7, 2]], "small": n, "flags": [True, False],
            "maybe": None if n % 2 else n,
        })  # fmt: skip
    features = (
        Feature("image", kind.IMAGE, Source.IMAGE), Feature("id", kind.TEXT, Source.ID),
        Feature("label", kind.CLASS_LABEL, Source.LABEL),
        Feature("picture", kind.MASK, column="mask", default=""),
        Feature("kind", kind.CLASS_LABEL), Feature("tags", kind.MULTI_LABEL),
        Feature("words", kind.BAG_OF_WORDS, vocabulary=VocabularyRule()),
        Feature("tokens", kind.TOKENS, vocabulary=VocabularyRule()),
        Feature("box", kind.BOX, shape=(None, 4)), Feature("vector", kind.TENSOR, shape=(1, 2)),
        Feature("small", kind.INT64, dtype="uint8"), Feature("maybe", kind.INT64, default=-5),
        Feature("flags", kind.INT64, dtype="bool", shape=(2,)),
    )  # fmt: skip
    schema, table = root / "schema.json", write_table(root / "t.jsonl", rows)
    schema.write_text(json.dumps(ExampleSchema(features).to_json()))
    options = ("--schema", schema, "--split", "train=0.5,test=0.5")
    assert build(table, root / "birds", *options) == 0
    return root / "birds"


@pytest.mark.long
def test_every_kind_of_feature_stays_what_it_is(tmp_path: Path) -> None:
    made, again = every_kind(tmp_path), tmp_path / "again"
    assert build(made, again, *AS_RECORDS, "--records-per-shard", "2") == 0
    before = examples_of(made)
    assert examples_of(again) == before
    assert len(before) == 9
    old, new = (manifest_of(root)["schema"]["vocabularies"] for root in (made, again))
    assert new == {name: old[name] for name in ("kind", "tags")}
    copy = tmp_path / "copy"
    assert build(made, copy, "--name", "birds") == 0
    assert hashes_of(copy) == hashes_of(made)
    assert manifest_of(copy)["schema"] == manifest_of(made)["schema"]


def test_model_garden_records(tmp_path: Path) -> None:
    """Read ImageNet as Model Garden's `create_tf_record.py` writes it: labels from 1, and boxes."""
    records = [
        example(
            image__encoded=png_of(n), image__format=b"PNG", image__height=8, image__width=8,
            image__class__label=n % 2 + 1, image__class__text=b"cat",
            image__filename=b"n_%d.png" % n, image__object__bbox__xmin=[0.25] * n,
        )
        for n in range(6)
    ]  # fmt: skip
    write_records(tmp_path / "in" / "train-00000-of-00001", records)
    assert build(tmp_path / "in", tmp_path / "out") == 0
    found = examples_of(tmp_path / "out", "image/filename")
    assert sorted(found) == [b"n_%d.png" % n for n in range(6)]
    split, features = found[b"n_3.png"]
    assert split == "train"
    assert features.items() >= {
        "image/encoded": [png_of(3)], "image/object/bbox/xmin": [0.25] * 3, "image/height": [8],
        "image/class/label": [2], "image/class/text": [b"2"], "label_text": [b"cat"],
    }.items()  # fmt: skip
    assert manifest_of(tmp_path / "out")["schema"]["class_names"] == ["0", "1", "2"]


def write_tfds(folder: Path) -> Path:
    """Write a dataset by TFDS itself."""
    import numpy as np
    import tensorflow_datasets as tfds

    class Birds(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]
        VERSION = tfds.core.Version("1.0.0")

        def _info(self) -> Any:
            of = tfds.features
            boxes = {"bbox": of.BBoxFeature(), "label": of.ClassLabel(names=["beak", "wing"])}
            features = {
                "image": of.Image(), "label": of.ClassLabel(names=["owl", "ape", "emu"]),
                "objects": of.Sequence(boxes), "text": of.Text(),
                "small": of.Tensor(shape=(2,), dtype=np.uint8),
            }  # fmt: skip
            return self.dataset_info_from_configs(features=of.FeaturesDict(features))

        def _split_generators(self, _: Any) -> Any:
            return {"train": self._generate_examples(0, 6), "test": self._generate_examples(6, 9)}

        def _generate_examples(self, start: int, stop: int) -> Iterator[Any]:
            box = tfds.features.BBox(ymin=0.0, xmin=0.25, ymax=0.5, xmax=1.0)
            for n in range(start, stop):
                image = make_files(folder, f"{n}.png", data=png_of(n)) / f"{n}.png"
                objects = [{"bbox": box, "label": "wing"}] * (n % 3)
                values = {"text": f"é{n}", "small": [n, 255], "objects": objects}
                yield n, {"image": str(image), "label": n % 3, **values}

    builder = Birds(data_dir=str(folder / "tfds"))
    builder.download_and_prepare()
    return Path(builder.data_dir)


@pytest.mark.long
def test_a_dataset_of_tfds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # TFDS leaves a folder there
    written = write_tfds(tmp_path)
    source = source_of(written)
    assert {f.name: (f.kind, f.shape, f.sequence) for f in source.features} == {
        "objects/bbox": (FeatureKind.BOX, (None, 4), "objects"),
        "objects/label": (FeatureKind.CLASS_LABEL, (None,), "objects"),
        "text": (FeatureKind.TEXT, (), ""),
        "small": (FeatureKind.INT64, (2,), ""),
    }
    assert source.class_names == ("owl", "ape", "emu")
    assert build(written, tmp_path / "out") == 0
    found = examples_of(tmp_path / "out", "text")
    assert len(found) == 9
    assert {split for split, _ in found.values()} == {"train", "test"}
    split, features = found["é5".encode()]
    assert split == "train"
    assert features.items() >= {
        "label": [2], "objects/label": [1, 1], "objects/bbox": [0.0, 0.25, 0.5, 1.0] * 2,
        "small": [5, 255], "image": [png_of(5)],
    }.items()  # fmt: skip
