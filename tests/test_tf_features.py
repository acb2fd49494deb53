"""Every kind of feature in tf.data: as `tf.io.parse_example` gives it by the dataset's own spec, and as `sw.load` does."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from schemas.image_classification import image_classification
from shardwright.read_plan import ReadPlan
from shardwright.reader.corpus import Corpus
from shardwright.schema import ExampleSchema, Feature, FeatureKind
from shardwright.trainers.tf_examples import ExampleMaker
from shardwright.trainers.tf_features import decode_picture, parsing_spec, resize_picture

K = FeatureKind
PIXELS = np.arange(24, dtype=np.uint8).reshape(4, 6) * 10
EYE = np.eye(2, dtype=np.float32)
FEATURES = (
    Feature("age", K.INT64, dtype="uint8"),
    Feature("matrix", K.FLOAT32, shape=(2, 2)),
    Feature("scores", K.FLOAT32, shape=(None,)),
    Feature("objects/bbox", K.BOX, shape=(None, 4), sequence="objects"),
    Feature("objects/label", K.CLASS_LABEL, shape=(None,), sequence="objects"),
    Feature("tags", K.MULTI_LABEL),
    Feature("words", K.BAG_OF_WORDS, keys=("w/i", "w/n")),
    Feature("tensor", K.TENSOR, shape=(2, 2), dtype="float32"),
    Feature("ragged", K.TENSOR, shape=(None, 2), dtype="float32"),
    Feature("mask", K.MASK),
)
SCHEMA = ExampleSchema(
    image_classification(extras=FEATURES).with_class_names(("a",)).features,
    ("a",),
    {"words": ("x", "y", "z"), "tags": ("p", "q")},
)


def png(pixels: np.ndarray) -> bytes:
    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def serialized(tensor: np.ndarray) -> bytes:
    data: bytes = tf.io.serialize_tensor(tensor).numpy()
    return data


def example_of(record: dict[str, list[Any]]) -> bytes:
    """Of the kinds that the schema says, also where there are no values."""
    example = tf.train.Example()
    for stored in (stored for feature in SCHEMA.features for stored in feature.stored):
        values = example.features.feature[stored.key]
        kind = {"int64": values.int64_list, "float": values.float_list, "bytes": values.bytes_list}[
            stored.told_kind
        ]
        kind.SetInParent()
        kind.value.extend(record[stored.key])
    data: bytes = example.SerializeToString()
    return data


RECORDS: list[dict[str, list[Any]]] = [
    {
        "image": [png(np.stack([PIXELS] * 3, -1))], "id": [b"1"], "label": [0], "age": [255], "matrix": [1.0, 2.0, 3.0, 4.0],
        "scores": [0.5], "objects/bbox": [0.0, 0.0, 0.5, 1.0, 0.25, 0.25, 1.0, 1.0], "objects/label": [1, 0], "tags": [0, 1],
        "w/i": [0, 2], "w/n": [1.0, 3.0], "tensor": [serialized(EYE)], "ragged": [serialized(EYE)], "mask": [png(PIXELS)],
    },
    {
        "image": [png(np.stack([PIXELS] * 3, -1))], "id": [b"2"], "label": [0], "age": [0], "matrix": [0.0] * 4,
        "scores": [], "objects/bbox": [], "objects/label": [], "tags": [],
        "w/i": [], "w/n": [], "tensor": [serialized(2 * EYE)], "ragged": [serialized(EYE[:1])], "mask": [png(PIXELS)],
    },
]  # fmt: skip


def maker(**options: Any) -> ExampleMaker:
    plan = ReadPlan(
        Corpus((), (0, 0), SCHEMA), SCHEMA.features, SCHEMA.image, options.pop("image_shape", None)
    )
    return ExampleMaker(plan, SCHEMA.features, **{"decode": True, "image_size": None, **options})


def records() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices([example_of(record) for record in RECORDS])


def as_lists(value: Any) -> Any:
    if isinstance(value, tf.SparseTensor):
        return tf.sparse.to_dense(value).numpy().tolist()
    plain = value.to_list() if isinstance(value, tf.RaggedTensor) else value.numpy()
    return plain.tolist() if hasattr(plain, "tolist") else plain


BATCH = {
    "id": [b"1", b"2"], "label": [0, 0], "age": [255, 0], "matrix": [[[1, 2], [3, 4]], [[0, 0], [0, 0]]], "scores": [[0.5], []],
    "objects/bbox": [[[0, 0, 0.5, 1], [0.25, 0.25, 1, 1]], []], "objects/label": [[1, 0], []], "tags": [[0, 1], []],
    "words": [[1, 0, 3], [0, 0, 0]],
}  # fmt: skip
DECODED = {
    "tensor": [EYE.tolist(), (2 * EYE).tolist()],
    "ragged": [EYE.tolist(), [[1, 0]]],
    "mask": [PIXELS[..., None].tolist()] * 2,
}


def test_by_the_dataset_s_own_spec() -> None:
    parsed = tf.io.parse_example([example_of(record) for record in RECORDS], parsing_spec(SCHEMA))
    assert parsed.keys() == {feature.name for feature in SCHEMA.features}
    assert {name: as_lists(parsed[name]) for name in BATCH} == BATCH
    assert (
        tf.io.parse_tensor(parsed["tensor"][1], tf.float32).numpy().tolist() == (2 * EYE).tolist()
    )


def test_a_spec_of_some_features() -> None:
    assert list(parsing_spec(SCHEMA, ["age", "words"])) == ["age", "words"]


@pytest.mark.parametrize("decode", [True, False])
def test_batches(decode: bool) -> None:
    """With and without decoding they come by different ways, and are the same."""
    (batch,) = maker(decode=decode, image_shape=(4, 6, 3) if decode else None).make(
        records(), 2, drop_remainder=False
    )
    assert {name: as_lists(batch[name]) for name in BATCH} == BATCH
    if decode:
        assert {name: as_lists(batch[name]) for name in DECODED} == DECODED
        assert as_lists(batch["image"])[0] == np.stack([PIXELS] * 3, -1).tolist()
    else:
        assert as_lists(batch["mask"]) == [record["mask"][0] for record in RECORDS]


def test_single_examples() -> None:
    first, second = maker().make(records(), None, drop_remainder=False)
    assert {name: as_lists(first[name]) for name in BATCH} == {
        name: values[0] for name, values in BATCH.items()
    }
    assert {name: as_lists(second[name]) for name in DECODED} == {
        name: values[1] for name, values in DECODED.items()
    }
    assert second["objects/bbox"].shape == (0, 4)


def test_masks_are_resized_without_mixing() -> None:
    (batch,) = maker(image_size=(8, 3)).make(records(), 2, drop_remainder=False)
    assert batch["mask"].shape[1:] == (8, 3, 1)
    assert set(batch["mask"].numpy().ravel()) <= set(PIXELS.ravel())
    assert batch["image"].shape[1:] == (8, 3, 3)


def test_pictures_keep_their_dtype_and_channels() -> None:
    """Floats from 0 to 1 are not rounded when they are resized, and a gray picture that is declared so stays gray."""
    pixels = np.full((4, 4, 3), 0.25, np.float32)
    floats = Feature("image", K.IMAGE, encoding="tensor", dtype="float32")
    resized = resize_picture(decode_picture(floats, tf.constant(serialized(pixels))), (2, 2))
    assert resized.dtype == tf.float32
    np.testing.assert_allclose(resized.numpy(), np.full((2, 2, 3), 0.25), rtol=1e-6)
    gray = decode_picture(
        Feature("image", K.IMAGE, encoding="png", shape=(4, 6, 1)), tf.constant(png(PIXELS))
    )
    assert gray.numpy().tolist() == PIXELS[..., None].tolist()
