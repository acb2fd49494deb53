"""Images of each kind through `sw.Reader`: crops, boxes, several views of an image, and masks."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tensorflow as tf

import shardwright as sw
from shardwright.errors import UsageError
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source
from shardwright.reader.examples import ExampleSource
from tests.support.readers import check_equal, hosts, take
from tests.support.trainer_datasets import pictures_fixture, scenes_fixture  # noqa: F401

MASK, BOX = "segmentation_mask", "objects/bbox"
SCHEMA = ExampleSchema((
    Feature("image", FeatureKind.IMAGE, Source.IMAGE),
    Feature("id", FeatureKind.TEXT, Source.ID),
    Feature(MASK, FeatureKind.MASK),
    Feature("depth", FeatureKind.MASK, dtype="uint16", default=""),
    Feature(BOX, FeatureKind.BOX, shape=(None, 4), sequence="objects"),
))  # fmt: skip
VIEWS = sw.MultiCrop(sw.TrainImage(12), sw.TrainImage(12), sw.TrainImage((6, 8), dtype="float32"))
BOTH, NAMES = [MASK, "depth"], ["image_0", "image_1", "image_2"]


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 images of a bright rectangle, whose pixels have the number 7 in the mask."""
    rng = np.random.default_rng(0)
    records = []
    for number in range(12):
        height, width = (int(side) for side in rng.integers(40, 80, 2))
        (top, left), (bottom, right) = rng.integers(0, 20, 2), rng.integers(30, 40, 2)
        mask = np.zeros((height, width), np.uint8)
        mask[top:bottom, left:right] = 7
        image = np.repeat((mask > 0)[..., None], 3, axis=2).astype(np.uint8) * 255
        box = [top / height, left / width, bottom / height, right / width]
        depth = mask.astype(np.uint16) * 1000 if number else ""
        record = {"id": f"{number:02d}", "image": image, MASK: mask, "depth": depth, BOX: [box]}
        records.append(record)
    root = tmp_path_factory.mktemp("masked") / "out"
    sw.write(records, root, schema=SCHEMA)
    return root


def read(dataset: str | Path, image: Any, **options: Any) -> sw.Reader:
    return sw.Reader(dataset, **{"global_batch_size": 4, "epochs": 1, "image": image, **options})


KINDS: dict[str, tuple[str, Any, list[str]]] = {
    "one crop": ("pictures", sw.TrainImage(16), ["image"]),
    "several": ("pictures", VIEWS, NAMES),
    "boxes": ("scenes", sw.TrainImage(32, boxes=BOX), ["image", BOX]),
    "padded boxes": (
        "scenes", sw.TrainImage(32, boxes=sw.Boxes(BOX, max_boxes=2)), ["image", BOX]
    ),
    "masks": ("masked", sw.TrainImage(32, masks=BOTH, boxes=BOX), ["image", MASK]),
    "of any size": ("masked", sw.DecodedImage(masks=BOTH, boxes=BOX), ["image", MASK]),
}  # fmt: skip


@pytest.mark.parametrize(("dataset", "image", "names"), KINDS.values(), ids=KINDS)
def test_batches_are_the_same_everywhere(
    request: pytest.FixtureRequest, dataset: str, image: Any, names: list[str]
) -> None:
    """On any hosts, after any stop, in processes and threads; a row has an example's content."""
    folder = request.getfixturevalue(dataset)
    features = ["id", "image", "label"] if dataset == "pictures" else None
    options: dict[str, Any] = {
        "global_batch_size": 8, "image": image, "shuffle": True, "seed": 3, "epochs": 2,
        "remainder": "pad", "features": features,
    }  # fmt: skip
    reader = sw.Reader(folder, **options)
    whole = list(reader)
    of_hosts = zip(*map(list, hosts(folder, 2, **options)), strict=True)
    check_equal(
        ({n: np.concatenate([one[n], two[n]]) for n in one} for one, two in of_hosts), whole
    )
    check_equal(sw.Reader(folder, **options, threads=3, prefetch=5), whole)
    begun = sw.Reader(folder, **options)
    take(begun, 2)
    resumed = sw.Reader(folder, **options, state=begun.state(), processes=1)
    with pickle.loads(pickle.dumps(resumed)) as moved:
        check_equal(moved, whole[2:])
    first, later = whole[0][names[0]], whole[len(whole) // 2][names[0]]
    assert first[0].shape != later[0].shape or not np.array_equal(first, later)
    for batch in whole:
        for name, (shape, dtype) in reader.element_spec.items():
            assert (batch[name].shape, batch[name].dtype) == (shape, dtype)
        for name in names:
            assert not any(value.any() for value in batch[name][~batch["mask"]])
    source = ExampleSource(reader.options)
    for batch in take(sw.Reader(folder, **options | {"shuffle": False}), 1):
        for row in range(8):
            for name in names:
                np.testing.assert_array_equal(source.examples([row])[0][name], batch[name][row])


@pytest.mark.parametrize("image", [
    sw.TrainImage(32, masks=BOTH, boxes=BOX), sw.EvalImage((24, 40), masks=BOTH, boxes=BOX),
    sw.DecodedImage(64, masks=BOTH, boxes=BOX), sw.DecodedImage(masks=BOTH, boxes=BOX),
], ids=str)  # fmt: skip
def test_masks_are_those_that_the_image_shows(masked: Path, image: Any) -> None:
    reader = read(masked, image, shuffle=True, epochs=3)
    for batch in reader:
        for row, pixels in enumerate(batch["image"]):
            mask, depth = batch[MASK][row], batch["depth"][row]
            assert (mask.shape, mask.dtype) == ((*pixels.shape[:2], 1), np.uint8)
            assert set(np.unique(mask)) <= {0, 7}
            bright = pixels[..., :1] > 127
            assert ((mask > 0) == bright).mean() > 0.9
            assert depth.dtype == np.uint16
            if batch["id"][row] == "00":  # a mask that the record lacks
                assert not depth.any()
                assert len(depth) == (0 if image.shape[0] is None else len(pixels))
            else:
                np.testing.assert_array_equal(depth, mask.astype(np.uint16) * 1000)
            for box in batch[BOX][row].round().astype(int):
                inside = mask[box[1] : box[3], box[0] : box[2]]
                assert inside.size == 0 or (inside > 0).mean() > 0.8


def test_masks_in_tf_data_and_keras(masked: Path) -> None:
    options: dict[str, Any] = {"features": ["image", MASK]}
    image = sw.TrainImage(32, masks=MASK)
    pairs = read(masked, image, **options).tf_data(as_supervised=True)
    assert pairs.element_spec[1] == tf.TensorSpec([4, 32, 32, 1], tf.uint8)
    data = read(masked, image, **options).keras()
    for wanted, (_, mask), (_, given) in zip(
        read(masked, image, **options), pairs, data, strict=True
    ):
        np.testing.assert_array_equal(mask, wanted[MASK])
        np.testing.assert_array_equal(given, wanted[MASK])
    whole = sw.DecodedImage(masks=MASK)
    for found, wanted in zip(
        read(masked, whole, **options).tf_data(), read(masked, whole, **options), strict=True
    ):
        for row, mask in enumerate(wanted[MASK]):
            np.testing.assert_array_equal(found[MASK][row].to_tensor(), mask)


@pytest.mark.parametrize(("image", "message"), [
    (sw.TrainImage(8), "but .*segmentation_mask, depth.* would stay as stored: name lists"),
    (sw.TrainImage(8, boxes=BOX, masks="depth"), "but segmentation_mask would stay as stored: "),
    (sw.TrainImage(8, masks="mask"), r"masks='mask' is not a mask that is read; those are seg"),
    (sw.DecodedImage(masks=BOX), "masks='objects/bbox' is not a mask"),
], ids=str)  # fmt: skip
def test_invalid_masks(masked: Path, image: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(masked, image)


def test_masks_need_names() -> None:
    with pytest.raises(UsageError, match=r"masks=3 must be the name of a feature, or a list of"):
        sw.TrainImage(8, masks=3)  # type: ignore[arg-type]


OPTIONS: dict[str, Any] = {
    "features": ["id", "image", "label"], "shuffle": True, "image": VIEWS, "remainder": "pad",
    "epochs": 1,
}  # fmt: skip


@pytest.mark.long
def test_a_batch_has_each_crop_in_the_place_of_the_image(pictures: str) -> None:
    reader, alone = read(pictures, **OPTIONS), read(pictures, **OPTIONS | {"image": VIEWS.crops[0]})
    rows = reader.options.global_batch_size
    assert list(reader.element_spec) == ["id", *NAMES, "label", "mask"]
    assert reader.element_spec["image_2"] == ((rows, 6, 8, 3), np.float32)
    for batch, other in zip(reader, alone, strict=True):
        assert list(batch) == ["id", *NAMES, "label", "mask"]
        assert all(batch[name].ctypes.data % 64 == 0 for name in NAMES)
        np.testing.assert_array_equal(batch["image_0"], other["image"])
        assert not np.array_equal(batch["image_0"], batch["image_1"])
        for name in NAMES:
            assert batch[name][batch["mask"]].any(axis=(1, 2, 3)).all()


def test_a_split_in_memory(pictures: str) -> None:
    dataset = sw.open(pictures)
    arrays = dataset.to_numpy("train", image=VIEWS, max_bytes="8MB")
    num_bytes = sum(arrays[name].nbytes for name in NAMES)
    with pytest.raises(UsageError, match=r"take .* in memory, more than max_bytes"):
        dataset.to_numpy("train", image=VIEWS, max_bytes=num_bytes - 1)
    assert dataset.to_numpy("train", image=VIEWS, max_bytes=num_bytes).keys() == arrays.keys()


@pytest.mark.long
def test_frameworks_get_all_crops(pictures: str) -> None:
    expected = list(read(pictures, **OPTIONS))

    def reader(**options: Any) -> sw.Reader:
        return read(pictures, **OPTIONS | options)

    dataset = reader().tf_data()
    assert dataset.element_spec["image_2"].shape[1:] == (6, 8, 3)
    for made in (dataset, reader().jax(), reader().grain()):
        for batch, wanted in zip(made, expected, strict=True):
            assert batch.keys() == wanted.keys()
            for name in NAMES:
                np.testing.assert_array_equal(batch[name], wanted[name])
    assert isinstance(next(iter(reader().jax()))["image_1"], jax.Array)
    supervised = reader().tf_data(as_supervised=True)
    for made in (supervised, reader().keras()):
        for (images, labels, _), wanted in zip(made, expected, strict=True):
            assert list(images) == NAMES
            np.testing.assert_array_equal(images["image_1"], wanted["image_1"])
            np.testing.assert_array_equal(labels, wanted["label"])
    ragged = reader(image=sw.MultiCrop(sw.TrainImage(4), sw.DecodedImage())).tf_data()
    assert isinstance(ragged.element_spec["image_1"], tf.RaggedTensorSpec)
    assert next(iter(ragged))["image_1"][0].to_tensor().shape[2] == 3


def test_names_and_features_that_do_not_fit(pictures: str, scenes: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"sw\.MultiCrop\(\.\.\.\), or None for bytes"):
        read(pictures, image=224)
    with pytest.raises(UsageError, match="needs the image: add 'image' to features="):
        read(pictures, image=VIEWS, features=["label"])
    stay = "MultiCrop crops the image, but objects/bbox would stay as stored: leave it out"
    with pytest.raises(UsageError, match=stay):
        read(scenes, image=VIEWS, features=None)
    pixels = np.zeros((8, 8, 3), np.uint8)
    sw.write([{"image": pixels, "image_1": 3}] * 4, tmp_path / "named")
    with pytest.raises(UsageError, match="MultiCrop names a crop 'image_1', and so is a feature"):
        read(str(tmp_path / "named"), image=VIEWS, features=None)
    only = read(str(tmp_path / "named"), image=VIEWS, features=["image"], epochs=1)
    assert list(next(iter(only))) == NAMES
