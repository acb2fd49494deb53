"""Builds from TFRecord files: of this project, of TFDS, of TensorFlow Model Garden; local and in stores."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from shardwright.errors import UsageError
from shardwright.schema import ExampleSchema, Feature, FeatureKind, Source, VocabularyRule
from tests.buckets import Bucket
from tests.build_helpers import (
    CLASSES,
    build,
    make_images,
    manifest_of,
    png_of,
    reasons_of,
    record_ids,
    rejects_of,
    shards_of,
    write_table,
)
from tests.helpers import make_files, rows_of
from tests.tfrecord_makers import example, examples_of, pictures, source_of, write_records
from transforms.inputs.detection import list_source


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of this project's own, with splits and columns."""
    root = tmp_path_factory.mktemp("made")
    images = make_images(root / "in", 30)
    rows = [
        {
            "path": f"in/{CLASSES[n % 3]}/{n:04d}.png", "label": CLASSES[n % 3], "split": "test" if n % 5 == 0 else "train", "n": n,
            "price": n / 3, "text": "é" * n, "sizes": list(range(n % 4)),
        }
        for n in range(30)
    ]  # fmt: skip
    assert images.is_dir()
    assert (
        build(write_table(root / "t.jsonl", rows), root / "birds", "--records-per-shard", "8") == 0
    )
    return root


def test_a_dataset_of_this_project_is_sharded_anew(made: Path, tmp_path: Path) -> None:
    assert build(made / "birds", tmp_path / "again", "--records-per-shard", "5", "--seed", "7") == 0
    before, after = examples_of(made / "birds"), examples_of(tmp_path / "again")
    assert after == before
    assert len(after) == 30
    assert record_ids(tmp_path / "again") != record_ids(made / "birds")
    schemas = [manifest_of(root)["schema"] for root in (made / "birds", tmp_path / "again")]
    assert schemas[0]["class_names"] == schemas[1]["class_names"] == sorted(CLASSES)
    assert [feature["name"] for feature in schemas[0]["features"]] == [
        feature["name"] for feature in schemas[1]["features"]
    ]


def every_kind(root: Path) -> Path:
    """A dataset with a feature of every kind, some of them without a value in some records."""
    kind = FeatureKind
    rows = []
    for n in range(9):
        make_files(root, f"{n}.png", data=png_of(n))
        Image.new("L", (8, 8), n).save(root / f"m{n}.png")
        rows.append(
            {
                "image": f"{n}.png",
                "label": "ab"[n % 2],
                "mask": f"m{n}.png" if n % 3 else "",
                "kind": "xyz"[n % 3],
                "tags": ["t", "u"][: n % 3],
                "words": "the cat " * n + "sat",
                "tokens": "a dog barks"[: n + 3],
                "box": [[0, 0.1, 0.5, 1]] * (n % 3),
                "vector": [[n / 7, 2]],
                "small": n,
                "flags": [True, False],
                "maybe": None if n % 2 else n,
            }
        )
    features = (
        Feature("image", kind.IMAGE, Source.IMAGE),
        Feature("id", kind.TEXT, Source.ID),
        Feature("label", kind.CLASS_LABEL, Source.LABEL),
        Feature("picture", kind.MASK, column="mask", default=""),
        Feature("kind", kind.CLASS_LABEL),
        Feature("tags", kind.MULTI_LABEL),
        Feature("words", kind.BAG_OF_WORDS, vocabulary=VocabularyRule()),
        Feature("tokens", kind.TOKENS, vocabulary=VocabularyRule()),
        Feature("box", kind.BOX, shape=(None, 4)),
        Feature("vector", kind.TENSOR, shape=(1, 2)),
        Feature("small", kind.INT64, dtype="uint8"),
        Feature("flags", kind.INT64, dtype="bool", shape=(2,)),
        Feature("maybe", kind.INT64, default=-5),
    )
    (root / "schema.json").write_text(json.dumps(ExampleSchema(features).to_json()))
    assert (
        build(
            write_table(root / "t.jsonl", rows),
            root / "birds",
            "--schema",
            root / "schema.json",
            "--split",
            "train=0.5,test=0.5",
        )
        == 0
    )
    return root / "birds"


def test_every_kind_of_feature_stays_what_it_is(tmp_path: Path) -> None:
    made = every_kind(tmp_path)
    assert build(made, tmp_path / "again", "--records-per-shard", "2") == 0
    before, after = examples_of(made), examples_of(tmp_path / "again")
    assert after == before
    assert len(after) == 9
    vocabularies = [
        manifest_of(root)["schema"]["vocabularies"] for root in (made, tmp_path / "again")
    ]
    assert vocabularies[1] == {name: vocabularies[0][name] for name in ("kind", "tags")}


def test_splits_are_drawn_anew_where_that_is_asked(made: Path, tmp_path: Path) -> None:
    assert build(made / "birds", tmp_path / "again", "--split", "a=0.5,b=0.5") == 0
    before, after = examples_of(made / "birds"), examples_of(tmp_path / "again")
    assert {split for split, _ in after.values()} == {"a", "b"}
    assert {key: value for key, (_, value) in after.items()} == {
        key: value for key, (_, value) in before.items()
    }


def test_images_may_be_encoded_anew(made: Path, tmp_path: Path) -> None:
    assert build(made / "birds", tmp_path / "again", "--encode", "jpeg") == 0
    assert all(
        features["image"][0].startswith(b"\xff\xd8")
        for _, features in examples_of(tmp_path / "again").values()
    )


def test_shards_that_the_manifest_does_not_name_are_left_out(made: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(made / "birds", tmp_path / "copy"))
    shutil.copy(shards_of(copy)[0], copy / "birds-train.tfrecord-00000-of-00099")
    assert len(rows_of(list_source(source_of(copy)))) == 30
    (copy / "manifest.json").unlink()
    with pytest.raises(
        UsageError,
        match="copy holds an unfinished build of shardwright: run its command again first",
    ):
        source_of(copy)


def test_model_garden_records(tmp_path: Path) -> None:
    """As `create_tf_record.py` of TensorFlow's models writes ImageNet, whose labels begin with 1, and boxes."""
    records = [
        example(
            image__encoded=png_of(index), image__format=b"PNG", image__height=8, image__width=8, image__class__label=index % 2 + 1,
            image__class__text=b"cat", image__filename=b"n_%d.png" % index, image__object__bbox__xmin=[0.25] * index,
        )
        for index in range(6)
    ]  # fmt: skip
    write_records(tmp_path / "in" / "train-00000-of-00001", records)
    assert build(tmp_path / "in", tmp_path / "out") == 0
    found = examples_of(tmp_path / "out", "image/filename")
    assert sorted(found) == [b"n_%d.png" % index for index in range(6)]
    split, features = found[b"n_3.png"]
    assert split == "train"
    assert features["image/encoded"] == [png_of(3)]
    assert features["image/object/bbox/xmin"] == [0.25] * 3
    assert features["label_text"] == [b"cat"]
    assert features["image/height"] == [8]
    assert (features["image/class/label"], features["image/class/text"]) == ([2], [b"2"])
    assert manifest_of(tmp_path / "out")["schema"]["class_names"] == ["0", "1", "2"]


@pytest.fixture(scope="module")
def tfds_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set written by TFDS itself."""
    import numpy as np
    import tensorflow_datasets as tfds

    class Birds(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]
        VERSION = tfds.core.Version("1.0.0")

        def _info(self) -> Any:
            boxes = {
                "bbox": tfds.features.BBoxFeature(),
                "label": tfds.features.ClassLabel(names=["beak", "wing"]),
            }
            features = {
                "image": tfds.features.Image(),
                "label": tfds.features.ClassLabel(names=["owl", "ape", "emu"]),
                "objects": tfds.features.Sequence(boxes),
                "text": tfds.features.Text(),
                "small": tfds.features.Tensor(shape=(2,), dtype=np.uint8),
            }
            return self.dataset_info_from_configs(features=tfds.features.FeaturesDict(features))

        def _split_generators(self, _: Any) -> Any:
            return {"train": self._generate_examples(0, 6), "test": self._generate_examples(6, 9)}

        def _generate_examples(self, start: int, stop: int) -> Iterator[Any]:
            for index in range(start, stop):
                path = work / f"{index}.png"
                path.write_bytes(png_of(index))
                box = tfds.features.BBox(ymin=0.0, xmin=0.25, ymax=0.5, xmax=1.0)
                objects = [{"bbox": box, "label": "wing"}] * (index % 3)
                image = str(path)
                yield (
                    index,
                    {
                        "image": image,
                        "label": index % 3,
                        "objects": objects,
                        "text": f"é{index}",
                        "small": [index, 255],
                    },
                )

    work = tmp_path_factory.mktemp("pictures")
    builder = Birds(data_dir=str(tmp_path_factory.mktemp("tfds")))
    builder.download_and_prepare()
    return Path(builder.data_dir)


def test_a_data_set_of_tfds(tfds_folder: Path, tmp_path: Path) -> None:
    source = source_of(tfds_folder)
    kinds = {
        feature.name: (feature.kind, feature.shape, feature.sequence) for feature in source.features
    }
    assert kinds == {
        "objects/bbox": (FeatureKind.BOX, (None, 4), "objects"),
        "objects/label": (FeatureKind.CLASS_LABEL, (None,), "objects"),
        "text": (FeatureKind.TEXT, (), ""),
        "small": (FeatureKind.INT64, (2,), ""),
    }
    assert source.class_names == ("owl", "ape", "emu")
    assert build(tfds_folder, tmp_path / "out") == 0
    found = examples_of(tmp_path / "out")
    assert len(found) == 9
    by_text = {
        features["text"][0].decode(): (split, features) for split, features in found.values()
    }
    split, features = by_text["é5"]
    assert (split, features["label"], features["objects/label"], features["small"]) == (
        "train",
        [2],
        [1, 1],
        [5, 255],
    )
    assert features["objects/bbox"] == [0.0, 0.25, 0.5, 1.0] * 2
    assert features["image"] == [png_of(5)]
    assert {split for split, _ in by_text.values()} == {"train", "test"}


def test_the_same_pictures_as_class_folders(tmp_path: Path) -> None:
    images = make_images(tmp_path / "in", 12)
    records = [example(image=png_of(n), label=CLASSES[n % 3].encode()) for n in range(12)]
    write_records(tmp_path / "records" / "x.tfrecord", records, "GZIP")
    assert build(images, tmp_path / "a") == 0
    assert build(tmp_path / "records", tmp_path / "b") == 0
    found = [
        sorted((f["image"][0], f["label"][0]) for _, f in examples_of(root).values())
        for root in (tmp_path / "a", tmp_path / "b")
    ]
    assert found[0] == found[1]
    assert (
        manifest_of(tmp_path / "a")["schema"]["class_names"]
        == manifest_of(tmp_path / "b")["schema"]["class_names"]
    )


def test_rejects_of_a_build(tmp_path: Path) -> None:
    path = write_records(tmp_path / "in" / "train.tfrecord", pictures(10))
    path.write_bytes(path.read_bytes()[:-3])
    assert build(tmp_path / "in", tmp_path / "out", "--max-reject-fraction", "0.2") == 0
    assert reasons_of(tmp_path / "out") == {"train.tfrecord#9": "truncated"}
    assert len(rejects_of(tmp_path / "out")) == 1


def remote_build(bucket: Bucket, tmp_path: Path, compression: str) -> dict[bytes, Any]:
    path = write_records(tmp_path / "x.tfrecord", pictures(4), compression)
    for split in ("train", "test"):
        bucket.put(f"in/x-{split}.tfrecord-00000-of-00001", path.read_bytes())
    bucket.put("in/label.labels.txt", b"a\nb\nc\n")
    options = [
        part
        for key, value in bucket.server.options.items()
        for part in ("--storage-option", f"{key}={value}")
    ]
    assert build(f"{bucket.uri}/in", tmp_path / "out", *options) == 0
    found = examples_of(tmp_path / "out")
    assert sorted(found) == sorted(
        f"x-{split}.tfrecord-00000-of-00001#{n}".encode()
        for split in ("train", "test")
        for n in range(4)
    )
    assert all(features["image"] == [png_of(int(key[-1:]))] for key, (_, features) in found.items())
    return found


def test_s3(s3_bucket: Bucket, tmp_path: Path) -> None:
    remote_build(s3_bucket, tmp_path, "")


def test_gcs(gcs_bucket: Bucket, tmp_path: Path) -> None:
    remote_build(gcs_bucket, tmp_path, "GZIP")
