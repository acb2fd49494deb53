"""Each capability of the tutorials in docs/tutorials.md, judged by another parser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

import shardwright as sw
from tests.support.small_datasets import Datasets, build, datasets_fixture, pixels_of  # noqa: F401

TORCH = "0.485,0.456,0.406/0.229,0.224,0.225"
WIDTH, HEIGHT = 10, 6


def records_of(dataset: str | Path, spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the records by id, parsed by TensorFlow alone with the spec and the id."""
    spec = {"id": tf.io.FixedLenFeature([], tf.string), **spec}
    shards = sorted(map(str, Path(dataset).glob("*.tfrecord-*")))
    parsed = (tf.io.parse_single_example(one, spec) for one in tf.data.TFRecordDataset(shards))
    return {one.pop("id").numpy().decode(): one for one in parsed}


STRING = tf.io.FixedLenFeature([], tf.string)


@pytest.mark.parametrize(("options", "mean", "deviation"), [
    ((), None, None), (("float32",), 0, 1), (("float32", "--normalize", "-1..1"), 0.5, 0.5),
    (("float32", "--normalize", TORCH), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
])  # fmt: skip
def test_decode_raw(
    datasets: Datasets, tmp_path: Path, options: tuple[str, ...], mean: Any, deviation: Any
) -> None:
    """`tf.io.decode_raw` gives the pixels; so do TFDS, `sw.load` and `sw.Reader`."""
    dtype = tf.float32 if options else tf.uint8
    given = ("--tensor-dtype", *options) if options else ()
    size = ("--encode", "raw", "--resize", f"{WIDTH}x{HEIGHT}")
    out = build(datasets.root / "flat", tmp_path / "out", *size, *given)
    wanted = {path.name: pixels_of(path) for path in (datasets.root / "flat").glob("*.png")}
    if options:
        wanted = {name: (image / 255 - mean) / deviation for name, image in wanted.items()}
    found = {
        name: tf.reshape(tf.io.decode_raw(record["image"], dtype), (HEIGHT, WIDTH, 3))
        for name, record in records_of(out, {"image": STRING}).items()
    }
    assert found.keys() == wanted.keys()
    for name, image in wanted.items():
        np.testing.assert_allclose(found[name], image, atol=1e-6 if options else 0)
    reader = sw.Reader(out, "train", global_batch_size=6, epochs=1,
                       image=sw.DecodedImage((HEIGHT, WIDTH), dtype=dtype.name))  # fmt: skip
    (batch,) = reader
    for other in (
        tfds.builder_from_directory(out).as_dataset(split="train").as_numpy_iterator(),
        sw.load(out, "train", keep="images").as_numpy_iterator(),
        [
            {"id": name.encode(), "image": image}
            for name, image in zip(batch["id"], batch["image"], strict=True)
        ],
    ):
        examples = {example["id"].decode(): example["image"] for example in other}
        assert examples.keys() == found.keys()
        for name, image in examples.items():
            assert image.dtype == dtype.as_numpy_dtype
            np.testing.assert_array_equal(image, found[name])
