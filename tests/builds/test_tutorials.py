"""Each capability of the tutorials in docs/tutorials.md, judged by another parser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from keras.applications.imagenet_utils import preprocess_input
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import LabelBinarizer

import shardwright as sw
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source, VocabularyRule
from shardwright.pipelines.commands import plan as plan_command
from tests.support.archive_files import pack_zip
from tests.support.build_helpers import make_images, png_of, write_table
from tests.support.helpers import write_schema
from tests.support.small_datasets import Datasets, build, datasets_fixture, pixels_of  # noqa: F401

WIDTH, HEIGHT = 10, 6


def records_of(dataset: str | Path, spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the records by id, parsed by TensorFlow alone with the spec and the id."""
    spec = {"id": tf.io.FixedLenFeature([], tf.string), **spec}
    shards = sorted(map(str, Path(dataset).glob("*.tfrecord-*")))
    parsed = (tf.io.parse_single_example(one, spec) for one in tf.data.TFRecordDataset(shards))
    return {one.pop("id").numpy().decode(): one for one in parsed}


STRING = tf.io.FixedLenFeature([], tf.string)


@pytest.mark.long_but_first
def test_decode_raw(datasets: Datasets, tmp_path: Path) -> None:
    """`tf.io.decode_raw` gives the pixels; so do TFDS, `sw.load` and `sw.Reader`."""
    size = ("--encode", "raw", "--resize", f"{WIDTH}x{HEIGHT}")
    out = build(datasets.root / "flat", tmp_path / "out", *size)
    wanted = {path.name: pixels_of(path) for path in (datasets.root / "flat").glob("*.png")}
    found = {
        name: tf.reshape(tf.io.decode_raw(record["image"], tf.uint8), (HEIGHT, WIDTH, 3))
        for name, record in records_of(out, {"image": STRING}).items()
    }
    assert found.keys() == wanted.keys()
    for name, image in wanted.items():
        np.testing.assert_array_equal(found[name], image)
    pixels = sw.DecodedImage((HEIGHT, WIDTH))
    reader = sw.Reader(out, "train", global_batch_size=6, epochs=1, image=pixels)
    (batch,) = reader
    for other in (
        tfds.builder_from_directory(out).as_dataset(split="train").as_numpy_iterator(),
        sw.load(out, "train").as_numpy_iterator(),
        [
            {"id": name.encode(), "image": image}
            for name, image in zip(batch["id"], batch["image"], strict=True)
        ],
    ):
        examples = {example["id"].decode(): example["image"] for example in other}
        assert examples.keys() == found.keys()
        for name, image in examples.items():
            assert image.dtype == np.uint8
            np.testing.assert_array_equal(image, found[name])


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the dataset of a table with a column of each type, and of texts as bags of words."""
    root = tmp_path_factory.mktemp("typed")
    make_images(root, len(ROWS), names=("in",))
    columns = [*ROWS[0]]
    rows = [{**row, "image": f"in/{number:04d}.png"} for number, row in enumerate(ROWS)]
    features = [Feature(name, KINDS[name], **LISTS.get(name, {})) for name in columns]
    words = Feature(
        "words", FeatureKind.BAG_OF_WORDS, column="text", dtype="int64", vocabulary=VocabularyRule()
    )
    schema = ExampleSchema((
        Feature("image", FeatureKind.IMAGE, Source.IMAGE),
        Feature("id", FeatureKind.TEXT, Source.ID),
        Feature("label", FeatureKind.CLASS_LABEL, Source.LABEL), *features, words,
    ))  # fmt: skip
    own = write_schema(root / "schema.json", schema)
    labelled = [{**row, "label": LABELS[number]} for number, row in enumerate(rows)]
    return build(
        write_table(root / "t.jsonl", labelled), root / "out", "--schema", str(own)
    )  # fmt: skip


LABELS = ["dog", "cat", "dog", "ape"]
TEXTS = ["one two two", "", "two three", "one one one"]
ROWS: list[dict[str, Any]] = [
    {"flag": number % 2 == 0, "count": -(2**40) * number, "ratio": number / 4, "text": text,
     "sizes": [number] * number, "scores": [0.5, float(number)], "tags": ["a", "b"][: number % 3]}
    for number, text in enumerate(TEXTS)
]  # fmt: skip
KINDS = {
    "flag": FeatureKind.INT64, "count": FeatureKind.INT64, "ratio": FeatureKind.FLOAT32,
    "text": FeatureKind.TEXT, "sizes": FeatureKind.INT64, "scores": FeatureKind.FLOAT32,
    "tags": FeatureKind.BYTES,
}  # fmt: skip
LISTS: dict[str, Any] = {
    "flag": {"dtype": "bool"}, "sizes": {"shape": (None,)}, "scores": {"shape": (2,)},
    "tags": {"shape": (None,)},
}  # fmt: skip


def test_feature_helpers_of_every_type(typed: str) -> None:
    """The types are those of `_bytes_feature`, `_float_feature` and `_int64_feature`."""
    spec = {
        "flag": tf.io.FixedLenFeature([], tf.int64), "count": tf.io.FixedLenFeature([], tf.int64),
        "ratio": tf.io.FixedLenFeature([], tf.float32), "text": STRING,
        "sizes": tf.io.VarLenFeature(tf.int64), "scores": tf.io.FixedLenFeature([2], tf.float32),
        "tags": tf.io.VarLenFeature(tf.string),
    }  # fmt: skip
    found = records_of(typed, spec)
    for number, row in enumerate(ROWS):
        record = found[f"in/{number:04d}.png"]
        for name, value in row.items():
            read = record[name]
            read = tf.sparse.to_dense(read) if isinstance(read, tf.SparseTensor) else read
            wanted = np.array(value)
            wanted = np.char.encode(wanted) if wanted.dtype.kind == "U" else wanted
            assert np.asarray(read).tolist() == wanted.tolist(), name


def test_a_sparse_bag_of_words_is_count_vectorizer_s(typed: str) -> None:
    """A plain spec of int64 parses it; its vocabulary is saved with the data."""
    spec = {name: tf.io.VarLenFeature(tf.int64) for name in ("words/indices", "words/values")}
    vectorizer = CountVectorizer().fit(TEXTS)
    wanted = vectorizer.transform(TEXTS).toarray()
    dataset = sw.open(typed)
    assert list(dataset.vocabulary("words")) == vectorizer.get_feature_names_out().tolist()
    assert (Path(typed) / "words.vocab.txt").read_text().split() == [*dataset.vocabulary("words")]
    for name, record in records_of(typed, spec).items():
        counts = np.zeros(wanted.shape[1], np.int64)
        counts[record["words/indices"].values] = record["words/values"].values
        assert (counts == wanted[int(name[3:7])]).all()
    reader = sw.Reader(
        typed, global_batch_size=4, epochs=1, features={"id": None, "words": sw.Dense()}
    )
    (batch,) = reader
    assert batch["words"].dtype == np.int64
    assert (batch["words"] == wanted[[int(name[3:7]) for name in batch["id"]]]).all()


def test_class_names_and_the_label_binarizer(typed: str) -> None:
    binarizer = LabelBinarizer().fit(LABELS)
    label = tfds.builder_from_directory(typed).info.features["label"]
    assert label.names == binarizer.classes_.tolist() == list(sw.open(typed).class_names)
    found = records_of(typed, {"label": tf.io.FixedLenFeature([], tf.int64)})
    assert {name: label.names[record["label"]] for name, record in found.items()} == {
        f"in/{number:04d}.png": name for number, name in enumerate(LABELS)
    }
    features = {"id": None, "label": sw.OneHot()}
    (batch,) = sw.Reader(typed, global_batch_size=4, epochs=1, features=features)
    wanted = binarizer.transform([LABELS[int(name[3:7])] for name in batch["id"]])
    assert (batch["label"] == wanted).all()


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of 2,100 images of one pixel without labels."""
    root, pixel = tmp_path_factory.mktemp("many"), png_of(0, side=1)
    for number in range(2100):
        (root / f"{number}.png").write_bytes(pixel)
    return root


def files_of(dataset: str) -> dict[str, int]:
    """Return the number of records of each file, as plain tf.data counts them."""
    paths = sorted(Path(dataset).glob("*.tfrecord-*"))
    return {
        path.name: sum(1 for _ in tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
        for path in paths
    }


@pytest.mark.long
def test_1024_unlabeled_images_a_file(many: Path, tmp_path: Path) -> None:
    out = build(many, tmp_path / "out", "--records-per-shard", "1024")
    assert list(files_of(out).values()) == [1024, 1024, 52]
    record = next(iter(tf.data.TFRecordDataset(sorted(map(str, Path(out).glob("*.tfrecord-*"))))))
    example = tf.train.Example.FromString(record.numpy())
    assert set(example.features.feature) == {"id", "image"}
    (image,) = example.features.feature["image"].bytes_list.value
    assert tf.io.decode_image(image).shape == (1, 1, 3)


@pytest.mark.long
def test_shards_for_the_hosts_of_a_tpu(many: Path, tmp_path: Path) -> None:
    """Each of 8 hosts reads an equal number of files, with as many records but for one a file."""
    out = build(many, tmp_path / "out", "--shard-count", "12", "--shard-count-multiple-of", "8")
    counts = files_of(out)
    assert (len(counts), sum(counts.values())) == (16, 2100)
    assert set(counts.values()) == {131, 132}
    files = tf.data.Dataset.list_files(f"{out}/*.tfrecord-*", shuffle=False)
    hosts = [files.shard(8, host).interleave(tf.data.TFRecordDataset) for host in range(8)]
    rows = [sum(1 for _ in host.as_numpy_iterator()) for host in hosts]
    assert max(rows) - min(rows) <= 2


def test_files_of_100_to_200_mb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan of a table with sizes needs no images: 4 GB in 27 files. A real build follows."""
    rows = "".join(f"{number}.jpg,{90_000 + number % 7 * 10_000}\n" for number in range(33_000))
    (tmp_path / "t.csv").write_text(f"path,bytes\n{rows}")
    options = ["--size-column", "bytes", "--shard-size", "150MB", "--json"]
    given = [str(tmp_path / "t.csv"), str(tmp_path / "out"), *options]
    assert plan_command.main(given) == 0
    plan = json.loads(capsys.readouterr().out)
    assert 100e6 < plan["num_bytes"] / plan["num_shards"] < 200e6
    assert plan["num_records"] == 33_000


@pytest.mark.long
def test_files_of_1_to_2_mb_hold_every_image(tmp_path: Path) -> None:
    """The case above, built: all sizes are a hundredth, so that it takes seconds and no gigabytes.

    TensorFlow's own parser reads the files; only their names and lengths are looked at besides.
    """
    images = {f"{number}.png": png_of(number, side=20 + number % 40) for number in range(900)}
    pack_zip(tmp_path / "photos.zip", images)
    out = build(tmp_path / "photos.zip", tmp_path / "out", "--shard-size", "1500kB")
    sizes = [path.stat().st_size for path in Path(out).glob("*.tfrecord-*")]
    assert len(sizes) > 2
    assert 1e6 < min(sizes) <= max(sizes) < 2e6
    found = records_of(out, {"image": STRING})
    assert sorted(one["image"].numpy() for one in found.values()) == sorted(images.values())


IMAGE = sw.DecodedImage(8)


def in_memory(dataset: str) -> dict[str, Any]:
    arrays = sw.open(dataset).to_numpy(image=IMAGE)
    return {"x": arrays["image"], "y": arrays["label"], "batch_size": 4}


def as_sequence(dataset: str) -> dict[str, Any]:
    return {"x": sw.Reader(dataset, global_batch_size=4, epochs=1, image=IMAGE).keras()}


def as_generator(dataset: str) -> dict[str, Any]:
    batches = sw.Reader(dataset, global_batch_size=4, image=IMAGE)
    return {"x": ((batch["image"], batch["label"]) for batch in batches), "steps_per_epoch": 1}


@pytest.mark.parametrize("form", [in_memory, as_sequence, as_generator])
def test_training_forms(typed: str, form: Any) -> None:
    """They train on the same batch: the loss is the same."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(3)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, run_eagerly=True)
    given = form(typed)
    arrays = in_memory(typed)
    wanted = float(loss(arrays["y"], model(arrays["x"])))
    history = model.fit(**given, epochs=1, shuffle=False, verbose=0)
    assert history.history["loss"] == pytest.approx([wanted], rel=1e-5)


def test_channel_means_in_bgr(typed: str) -> None:
    images = in_memory(typed)["x"]
    wanted = preprocess_input(images.astype(np.float32), mode="caffe")
    np.testing.assert_allclose(sw.normalizer("caffe", "numpy")(images), wanted, atol=1e-4)
