"""Every kind of feature in tf.data, by `tf.io.parse_example` with our spec and by `sw.load`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from shardwright.format.schema import ExampleSchema, Feature, FeatureKind
from shardwright.reader.corpus import Corpus
from shardwright.schemas.image_classification import image_classification
from shardwright.tfdata.examples import ExampleMaker
from shardwright.tfdata.features import decode_picture, parsing_spec, resize_picture
from shardwright.tfdata.read_plan import ReadPlan
from tests.support.image_makers import saved

K = FeatureKind
PIXELS = np.arange(24, dtype=np.uint8).reshape(4, 6, 1) * 10
RGB = np.repeat(PIXELS, 3, -1)
EYE = np.eye(2, dtype=np.float32)
FEATURES = (
    Feature("age", K.INT64, dtype="uint8"),
    Feature("matrix", K.FLOAT32, shape=(2, 2)),
    Feature("scores", K.FLOAT32, shape=(None,)),
    Feature("objects/bbox", K.BOX, shape=(None, 4), sequence="objects"),
    Feature("objects/label", K.CLASS_LABEL, shape=(None,), sequence="objects"),
    Feature("tags", K.MULTI_LABEL),
    Feature("words", K.BAG_OF_WORDS, dtype="int64", keys=("w/i", "w/n")),
    Feature("tensor", K.TENSOR, shape=(2, 2), dtype="float32"),
    Feature("ragged", K.TENSOR, shape=(None, 2), dtype="float32"),
    Feature("mask", K.MASK),
)
SCHEMA = ExampleSchema(
    image_classification(extras=FEATURES).with_class_names(("a",)).features,
    ("a",),
    {"words": ("x", "y", "z"), "tags": ("p", "q")},
)


def png(pixels: np.ndarray) -> Any:
    """Encode [height, width, channels]."""
    return tf.io.encode_png(pixels).numpy()


def serialized(tensor: np.ndarray) -> Any:
    return tf.io.serialize_tensor(tensor).numpy()


def example_of(record: dict[str, list[Any]]) -> bytes:
    """Return an example whose features have their kinds also where they have no values."""
    example = tf.train.Example()
    for stored in (stored for feature in SCHEMA.features for stored in feature.stored):
        values = getattr(example.features.feature[stored.key], f"{stored.told_kind}_list")
        values.SetInParent()
        values.value.extend(record.get(stored.key, []))
    return bytes(example.SerializeToString())


BOXES = [[0, 0, 0.5, 1], [0.25, 0.25, 1, 1]]
RECORDS: list[dict[str, list[Any]]] = [
    {
        "image": [png(RGB)], "id": [b"1"], "label": [0], "age": [255], "matrix": [1, 2, 3, 4],
        "scores": [0.5], "objects/bbox": BOXES[0] + BOXES[1], "objects/label": [1, 0],
        "tags": [0, 1], "w/i": [0, 2], "w/n": [1, 3], "tensor": [serialized(EYE)],
        "ragged": [serialized(EYE)], "mask": [png(PIXELS)],
    },
    {
        "image": [png(RGB)], "id": [b"2"], "label": [0], "age": [0], "matrix": [0] * 4,
        "tensor": [serialized(2 * EYE)], "ragged": [serialized(EYE[:1])], "mask": [png(PIXELS)],
    },
]  # fmt: skip
EXAMPLES = [example_of(record) for record in RECORDS]


def make(batch_size: int | None = 2, *, image_shape: Any = None, **options: Any) -> tf.data.Dataset:
    plan = ReadPlan(Corpus((), (0, 0), SCHEMA), SCHEMA.features, SCHEMA.image, image_shape)
    maker = ExampleMaker(plan, SCHEMA.features, **{"decode": True, "image_size": None, **options})
    records = tf.data.Dataset.from_tensor_slices(EXAMPLES)
    return maker.make(records, batch_size, drop_remainder=False)


def as_lists(value: Any) -> Any:
    if isinstance(value, tf.SparseTensor):
        return tf.sparse.to_dense(value).numpy().tolist()
    plain = value.to_list() if isinstance(value, tf.RaggedTensor) else value.numpy()
    return plain.tolist() if hasattr(plain, "tolist") else plain


def lists_of(example: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: as_lists(example[name]) for name in names}


BATCH = {
    "id": [b"1", b"2"], "label": [0, 0], "age": [255, 0], "scores": [[0.5], []],
    "matrix": [[[1, 2], [3, 4]], [[0, 0], [0, 0]]], "objects/bbox": [BOXES, []],
    "objects/label": [[1, 0], []], "tags": [[0, 1], []], "words": [[1, 0, 3], [0, 0, 0]],
}  # fmt: skip
DECODED = {
    "tensor": [EYE.tolist(), (2 * EYE).tolist()],
    "ragged": [EYE.tolist(), [[1, 0]]],
    "mask": [PIXELS.tolist()] * 2,
}


def test_by_the_dataset_s_own_spec() -> None:
    parsed = tf.io.parse_example(EXAMPLES, parsing_spec(SCHEMA))
    assert parsed.keys() == {feature.name for feature in SCHEMA.features}
    assert lists_of(parsed, BATCH) == BATCH
    tensor = tf.io.parse_tensor(parsed["tensor"][1], tf.float32)
    assert tensor.numpy().tolist() == (2 * EYE).tolist()


@pytest.mark.long
def test_batches() -> None:
    (batch,), (encoded,) = make(image_shape=(4, 6, 3)), make(decode=False)
    assert lists_of(batch, BATCH | DECODED) == BATCH | DECODED
    assert as_lists(batch["image"]) == [RGB.tolist()] * 2
    assert lists_of(encoded, BATCH) == BATCH
    assert as_lists(encoded["mask"]) == [record["mask"][0] for record in RECORDS]
    for made in (batch, encoded):
        assert (made["age"].dtype, made["words"].dtype) == (tf.uint8, tf.int64)


@pytest.mark.long
def test_single_examples() -> None:
    wanted = BATCH | DECODED
    examples = list(make(None))
    for number, example in enumerate(examples):
        assert lists_of(example, wanted) == {name: wanted[name][number] for name in wanted}
    assert [example["objects/bbox"].shape for example in examples] == [(2, 4), (0, 4)]


def test_masks_are_resized_without_mixing() -> None:
    (batch,) = make(image_size=(8, 3))
    assert batch["mask"].shape[1:] == (8, 3, 1)
    assert set(batch["mask"].numpy().ravel()) <= set(PIXELS.ravel())
    assert batch["image"].shape[1:] == (8, 3, 3)


def test_masks_have_the_numbers_and_the_dtype_that_the_schema_states() -> None:
    wide = PIXELS.astype(np.uint16) * 300
    for dtype, pixels in (("uint16", wide), ("uint16", PIXELS), ("", PIXELS), ("uint8", PIXELS)):
        mask = decode_picture(Feature("mask", K.MASK, dtype=dtype), tf.constant(png(pixels)))
        assert mask.dtype == (dtype or "uint8")
        assert mask.numpy().tolist() == pixels.tolist()
    with pytest.raises(tf.errors.InvalidArgumentError, match="must give it the dtype 'uint16'"):
        decode_picture(Feature("mask", K.MASK), tf.constant(png(wide)))
    for mode in ("P", "RGB", "RGBA", "LA"):
        colored = saved(Image.fromarray(PIXELS[..., 0]).convert(mode), "PNG")
        with pytest.raises(tf.errors.InvalidArgumentError, match="a PNG that is not gray"):
            decode_picture(Feature("mask", K.MASK), tf.constant(colored))


def test_pictures_keep_their_dtype_and_channels() -> None:
    """Floats from 0 to 1 are not rounded when they are resized; a gray picture stays gray."""
    floats = Feature("image", K.IMAGE, encoding="tensor", dtype="float32")
    stored = serialized(np.full((4, 4, 3), 0.25, np.float32))
    resized = resize_picture(floats, decode_picture(floats, tf.constant(stored)), (2, 2))
    assert resized.dtype == tf.float32
    np.testing.assert_allclose(resized.numpy(), np.full((2, 2, 3), 0.25), rtol=1e-6)
    feature = Feature("image", K.IMAGE, encoding="png", shape=(4, 6, 1))
    gray = decode_picture(feature, tf.constant(png(PIXELS)))
    assert gray.numpy().tolist() == PIXELS.tolist()
