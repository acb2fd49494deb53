"""`sw.load`: it equals the source and `sw.Reader`, and a saved iterator goes on exactly."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import shardwright as sw
from shardwright.errors import NotADatasetError, UsageError
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind
from shardwright.schemas.ready import image_classification
from shardwright.trainers.tf_epochs import NUM_NUMBERED, epoch_of, epoch_tokens
from shardwright.trainers.tf_parsing import parsing_spec
from tests.servers.fault_proxy import FaultProxy
from tests.servers.store_server import StoreServer
from tests.support import small_datasets as small
from tests.support.cached_datasets import behind, put_folder
from tests.support.readers import ids_of
from tests.support.small_datasets import ROWS_BY_ID, Datasets, datasets_fixture, tensor_ids  # noqa: F401

SIZE: dict[str, Any] = {"image_size": (16, 20)}
STORED_SIZE = (small.RAW_HEIGHT, small.RAW_WIDTH, 3)
K = FeatureKind


def test_every_source_image_comes_once_with_its_pixels_and_label(datasets: Datasets) -> None:
    names = sw.open(datasets["mixed"]).schema.class_names
    found = {}
    for example in sw.load(datasets["mixed"], "all").as_numpy_iterator():
        path = datasets.folders / example["id"].decode()
        np.testing.assert_array_equal(example["image"], small.pixels_of(path), str(path))
        found[path] = names[example["label"]]
    assert found == {path: path.parent.name for path in datasets.folders.rglob("*.*")}


@pytest.mark.parametrize(
    ("name", "options", "shape"),
    [
        ("mixed", {}, (None, None, 3)),
        ("mixed", SIZE, (16, 20, 3)),
        ("mixed", {"image_size": [16, 20], "batch_size": 4}, (None, 16, 20, 3)),
        ("mixed", {**SIZE, "batch_size": 4, "drop_remainder": True}, (4, 16, 20, 3)),
        ("mixed", {**SIZE, "batch_size": 4, "repeat": True, "shuffle": True}, (4, 16, 20, 3)),
        ("raw", {"batch_size": 4, "drop_remainder": True}, (4, *STORED_SIZE)),
        ("jpeg", {"batch_size": 4}, (None, *STORED_SIZE)),
        ("tabled", {"batch_size": 4}, (None, 6, 10, 3)),  # they happen to be of one size
        ("mixed", {"image": sw.TrainImage((7, 9))}, (7, 9, 3)),
        ("mixed", {"image": sw.EvalImage(8), "batch_size": 4}, (None, 8, 8, 3)),
    ],
    ids=str,
)
def test_shapes_are_static_where_the_size_is_known(
    datasets: Datasets, name: str, options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    ds = sw.load(datasets[name], "all", as_supervised=True, **options)
    images, labels = next(iter(ds))
    assert ds.element_spec == (tf.TensorSpec(shape, tf.uint8), tf.TensorSpec(shape[:-3], tf.int64))
    assert ds.element_spec[0].is_compatible_with(images)
    assert labels.shape == images.shape[:-3]


def plain(value: Any) -> Any:
    """Return NumPy values as Python's, texts as str."""
    value = np.asarray(value).tolist()
    if isinstance(value, list):
        return [plain(part) for part in value]
    return value.decode() if isinstance(value, bytes) else value


def test_table_columns_come_with_their_types(datasets: Datasets) -> None:
    ds = sw.load(datasets["tabled"], "all")
    assert {name: (spec.dtype, tuple(spec.shape)) for name, spec in ds.element_spec.items()} == {
        "image": (tf.uint8, (6, 10, 3)),
        "id": (tf.string, ()),
        "label": (tf.int64, ()),
        "count": (tf.int64, ()),
        "good": (tf.int64, ()),
        "ratio": (tf.float32, ()),
        "caption": (tf.string, ()),
        "boxes": (tf.int64, (None,)),
        "scores": (tf.float32, (None,)),
        "tags": (tf.string, (None,)),
    }
    names = sw.open(datasets["tabled"]).schema.class_names
    examples = {example["id"].decode(): example for example in ds.as_numpy_iterator()}
    assert examples.keys() == ROWS_BY_ID.keys()
    for path, row in ROWS_BY_ID.items():
        found = {name: plain(value) for name, value in examples[path].items() if name != "image"}
        wanted = {**row, "id": path, "label": names.index(str(row["label"]))}
        assert found == {name: wanted[name] for name in wanted if name not in ("path", "split")}


def test_lists_of_a_batch_are_ragged(datasets: Datasets) -> None:
    (batch,) = sw.load(datasets["tabled"], "train", batch_size=5, drop_remainder=True)
    rows = [ROWS_BY_ID[path.decode()] for path in batch["id"].numpy()]
    assert batch["boxes"].to_list() == [row["boxes"] for row in rows]
    assert batch["count"].shape == (5,)


def test_single_examples_have_bags_masks_and_tensors_of_their_own(tmp_path: Path) -> None:
    """Of images and masks of different sizes, from more batches than one."""
    more = (
        Feature("words", K.BAG_OF_WORDS, names=("xx", "yy", "zz")),
        Feature("mask", K.MASK),
        Feature("vector", K.TENSOR, shape=(2,), dtype="float32"),
    )
    records = [
        {
            "id": str(number),
            "image": tf.io.encode_png(np.full((4 + number % 3, 5, 3), number, np.uint8)).numpy(),
            "label": "a",
            "words": " ".join(["xx", "zz", "zz"][: number % 4]),
            "mask": tf.io.encode_png(np.full((4 + number % 3, 5, 1), number % 7, np.uint8)).numpy(),
            "vector": [number, 1.0],
        }
        for number in range(70)
    ]
    sw.write(records, str(tmp_path / "out"), schema=image_classification(extras=more))
    ds = sw.load(tmp_path / "out")
    assert ds.element_spec["words"].shape == (3,)
    found = {int(example["id"].numpy()): example for example in ds}
    assert sorted(found) == list(range(70))
    for number, example in found.items():
        height, words = 4 + number % 3, ["xx", "zz", "zz"][: number % 4]
        assert (example["image"].numpy() == np.full((height, 5, 3), number)).all()
        assert (example["mask"].numpy() == np.full((height, 5, 1), number % 7)).all()
        counts = tf.sparse.to_dense(example["words"]).numpy().tolist()
        assert counts == [words.count(word) for word in ("xx", "yy", "zz")]
        assert example["vector"].numpy().tolist() == [number, 1.0]
    (batch,) = sw.load(tmp_path / "out", batch_size=70, image_size=(8, 8))
    assert (batch["mask"].shape, batch["words"].shape) == ((70, 8, 8, 1), (70, 3))


def test_features_are_chosen_and_images_left_as_bytes(datasets: Datasets) -> None:
    picked = sw.load(datasets["mixed"], features=["label", "id"])
    assert list(picked.element_spec) == ["label", "id"]
    for batch in sw.load(datasets["mixed"], "all", decode=False, batch_size=8).as_numpy_iterator():
        for name, data in zip(batch["id"], batch["image"], strict=True):
            assert data == (datasets.folders / name.decode()).read_bytes()


PARTS = ["train", "train[:30%]", "train[2:]+test", "validation"]
ORDERS: list[dict[str, Any]] = [
    {},
    {"shuffle": True},
    {"shuffle": True, "seed": 2**80, "window": 2},
    {"shuffle": True, "repeat": True},
]


# Each part and each order singly and in batches, but not every pair.
@pytest.mark.parametrize(
    ("split", "order", "batch_size"),
    [
        (split, ORDERS[(number + step) % len(ORDERS)], size)
        for number, split in enumerate(PARTS)
        for step, size in enumerate((None, 5))
    ],
    ids=str,
)
def test_records_come_in_the_readers_order(
    datasets: Datasets, split: str, order: dict[str, Any], batch_size: int | None
) -> None:
    """Two epochs: by iterating twice, by `repeat(2)` and by `repeat=True`."""
    more = {**order, "features": ["id"]}
    is_endless = more.pop("repeat", False)
    reader = datasets.read(split=split, **more, epochs=2, remainder="keep")
    wanted, size = ids_of(reader), reader.num_records
    ds = sw.load(datasets["mixed"], split, batch_size=batch_size, repeat=is_endless, **more)
    if is_endless:
        assert ds.cardinality() == tf.data.INFINITE_CARDINALITY
        full = 2 * size if batch_size is None else 2 * size // batch_size
        assert tensor_ids(ds.take(full)) == wanted[: full * (batch_size or 1)]
        return
    assert len(ds) == (size if batch_size is None else -(-size // batch_size))
    assert tensor_ids(ds) + tensor_ids(ds.prefetch(1)) == wanted
    again = sw.load(datasets["mixed"], split, batch_size=batch_size, **more)
    assert tensor_ids(again.repeat(2)) == wanted


@pytest.mark.parametrize(
    "image", [sw.TrainImage((7, 9)), sw.MultiCrop(sw.TrainImage(8), sw.EvalImage(6))], ids=str
)
def test_crops_are_those_of_a_reader(datasets: Datasets, image: Any) -> None:
    """Others in the second epoch, and as they are in single examples."""
    options = {"image": image, "seed": 3, "shuffle": True, "features": ["image", "label"]}
    reader = datasets.read(**options, epochs=1, remainder="keep")
    ds, single = (
        sw.load(datasets["mixed"], "all", batch_size=size, **options) for size in (4, None)
    )
    examples = single.repeat(2).as_numpy_iterator()
    for _ in range(2):
        for wanted, found in zip(reader, ds.as_numpy_iterator(), strict=True):
            assert list(found) == list(wanted)
            rows = list(islice(examples, len(found["label"])))
            for name, column in wanted.items():
                np.testing.assert_array_equal(found[name], column)
                np.testing.assert_array_equal([row[name] for row in rows], column)


@pytest.mark.parametrize(
    ("taken", "following", "arguments"),
    [
        (12, 9, {}),
        (7, 13, {"repeat": True, "shuffle": True}),
        (3, 3, {**SIZE, "shuffle": True, "window": 2, "batch_size": 4}),
        (7, 5, {"image": sw.TrainImage(8), "shuffle": True, "repeat": True, "batch_size": 4}),
        (5, 6, {"decode": False, "batch_size": 7, "repeat": True}),
        (12, 9, {"max_bad_records": 3}),
    ],
    ids=str,
)
def test_goes_on_exactly_and_the_checkpoint_is_small(
    datasets: Datasets, tmp_path: Path, taken: int, following: int, arguments: dict[str, Any]
) -> None:
    def read(iterator: Any, count: int) -> list[list[bytes]]:
        """Return the ids and the pixels of some batches or examples."""
        return [
            [tf.io.serialize_tensor(each[name]).numpy() for name in ("id", "image")]
            for each in islice(iterator, count)
        ]

    iterator = iter(sw.load(datasets["mixed"], "all", **arguments))
    before = read(iterator, taken)
    path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "saved"))
    expected = read(iterator, following)

    again = iter(sw.load(datasets["mixed"], "all", **arguments))
    tf.train.Checkpoint(iterator=again).restore(path).assert_consumed()
    assert read(again, following) == expected
    assert (len(before), len(expected)) == (taken, following)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 20_000


def test_a_dataset_in_a_store(datasets: Datasets, s3_server: StoreServer, tmp_path: Path) -> None:
    """Exactly the local one, through a cache; saved in mid-epoch."""
    root = put_folder(s3_server, datasets["raw"])
    more: dict[str, Any] = {"shuffle": True, "window": 2, "split": "all"}
    local = tensor_ids(sw.load(datasets["raw"], **more).repeat(2))
    more |= {"storage_options": root.options, "cache": tmp_path}
    iterator = iter(sw.load(root.uri, **more).repeat(2))
    ids = [next(iterator)["id"].numpy().decode() for _ in range(30)]
    path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "saved"))
    again = iter(sw.load(root.uri, **more).repeat(2))
    tf.train.Checkpoint(iterator=again).restore(path)
    assert ids + [each["id"].numpy().decode() for each in again] == local


def test_opening_takes_the_requests_of_a_reader(
    datasets: Datasets, s3_server: StoreServer, tmp_path: Path
) -> None:
    """So the manifest is read once."""
    counts = []
    for number, open_it in enumerate((sw.Reader, sw.load)):
        with FaultProxy(s3_server.endpoint) as proxy:
            root = behind(put_folder(s3_server, datasets["raw"]), proxy)
            more = {"storage_options": root.options, "cache": tmp_path / str(number)}
            open_it(root.uri, batch_size=4, **more)
            counts.append(proxy.num_requests)
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"batch_size": 4}, "batch_size needs images of one size"),
        ({"decode": False, "image_size": (4, 4)}, "give one of them"),
        ({"image": sw.TrainImage(8), **SIZE}, "give one of them"),
        ({"image": sw.TrainImage(8), "decode": False}, "give one of them"),
        ({"image": "TrainImage"}, "must be sw.TrainImage"),
        ({"image_size": (0, 4)}, "size must be"),
        ({"features": ["nothing"]}, "feature 'nothing'"),
        ({"features": ["id"], "as_supervised": True}, "needs an image and a label"),
        ({"split": "train[3:3]"}, "has no records"),
        ({"split": "valid"}, "valid"),
        ({"seed": None, "shuffle": True}, "seed=None must be a whole number"),
        ({**SIZE, "batch_size": 0}, "batch_size=0"),
        ({"window": 2}, "needs shuffle=True"),
    ],
    ids=str,
)
def test_what_cannot_be_loaded_is_refused(
    datasets: Datasets, arguments: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        sw.load(datasets["mixed"], **arguments)


def test_a_folder_that_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(NotADatasetError):
        sw.load(tmp_path)


READ_ALL = """
import sys
import shardwright as sw
# TensorFlow warns once a process of its own matters.
next(iter(sw.load(sys.argv[1], batch_size=4, image_size=(8, 8))))
print("READ", file=sys.stderr, flush=True)
list(sw.load(sys.argv[1], batch_size=4, image_size=(8, 8), shuffle=True))
list(sw.load(sys.argv[1]))
next(iter(sw.load(sys.argv[1], as_supervised=True)))
"""


@pytest.mark.long
def test_prints_nothing(datasets: Datasets) -> None:
    """In a process of its own, which ends in the middle of a reading: TensorFlow may log others."""
    command = [sys.executable, "-c", READ_ALL, datasets["mixed"]]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=280)
    assert done.stdout == ""
    assert done.stderr.partition("READ\n")[1:] == ("READ\n", "")


def test_epochs_are_numbered_by_iteration_and_distinct_beyond_the_table() -> None:
    tokens, again = epoch_tokens(), epoch_tokens().repeat()
    assert [epoch_of(int(next(iter(tokens)))) for _ in range(3)] == [0, 1, 2]
    assert [epoch_of(int(token)) for token in tokens.repeat(2)] == [3, 4]
    count = NUM_NUMBERED + 50
    many = again.batch(count).take(1).get_single_element().numpy()
    numbers = [epoch_of(token) for token in many.tolist()]
    assert numbers[:NUM_NUMBERED] == list(range(NUM_NUMBERED))
    assert len(set(numbers)) == count
    assert min(numbers[NUM_NUMBERED:]) >= NUM_NUMBERED


FEATURES = (
    Feature("age", K.INT64, dtype="uint8"),
    Feature("matrix", K.FLOAT32, shape=(2, 2)),
    Feature("scores", K.FLOAT32, shape=(None,)),
    Feature("objects/bbox", K.BOX, shape=(None, 4), sequence="objects"),
    Feature("tags", K.MULTI_LABEL),
    Feature("words", K.BAG_OF_WORDS, dtype="int64", keys=("w/i", "w/n")),
    Feature("tensor", K.TENSOR, shape=(2, 2), dtype="float32"),
)
SCHEMA = ExampleSchema(
    image_classification(extras=FEATURES).with_class_names(("a",)).features,
    ("a",),
    {"words": ("x", "y", "z"), "tags": ("p", "q")},
)
BOXES = [[0, 0, 0.5, 1], [0.25, 0.25, 1, 1]]
EYE = np.eye(2, dtype=np.float32)
RECORDS: list[dict[str, Any]] = [
    {
        "image": [b"1"], "id": [b"1"], "label": [0], "age": [255], "matrix": [1, 2, 3, 4],
        "scores": [0.5], "objects/bbox": BOXES[0] + BOXES[1], "tags": [0, 1], "w/i": [0, 2],
        "w/n": [1, 3], "tensor": [tf.io.serialize_tensor(EYE).numpy()],
    },
    {
        "image": [b"2"], "id": [b"2"], "label": [0], "age": [0], "matrix": [0] * 4,
        "tensor": [tf.io.serialize_tensor(2 * EYE).numpy()],
    },
]  # fmt: skip


def example_of(record: dict[str, list[Any]]) -> bytes:
    """Return an example whose features have their kinds also where they have no values."""
    example = tf.train.Example()
    for stored in (stored for feature in SCHEMA.features for stored in feature.stored):
        values = getattr(example.features.feature[stored.key], f"{stored.told_kind}_list")
        values.SetInParent()
        values.value.extend(record.get(stored.key, []))
    return bytes(example.SerializeToString())


def test_tensorflow_parses_every_kind_of_feature_by_the_spec() -> None:
    parsed = tf.io.parse_example([example_of(record) for record in RECORDS], parsing_spec(SCHEMA))
    assert parsed.keys() == {feature.name for feature in SCHEMA.features}
    tensor = [tf.io.parse_tensor(each, tf.float32).numpy().tolist() for each in parsed["tensor"]]
    assert tensor == [EYE.tolist(), (2 * EYE).tolist()]
    assert tf.sparse.to_dense(parsed["words"]).numpy().tolist() == [[1, 0, 3], [0, 0, 0]]
    assert parsed["objects/bbox"].to_list() == [BOXES, []]
    assert (parsed["tags"].to_list(), parsed["scores"].to_list()) == ([[0, 1], []], [[0.5], []])
    assert parsed["matrix"].numpy().tolist() == [[[1, 2], [3, 4]], [[0, 0], [0, 0]]]
    assert (parsed["age"].numpy().tolist(), parsed["image"].numpy().tolist()) == (
        [255, 0],
        [b"1", b"2"],
    )
