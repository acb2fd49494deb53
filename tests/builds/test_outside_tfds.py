"""TFDS as a judge: it reads what is built, and would have written the same metadata files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

import shardwright as sw
from tests.support import small_datasets as small
from tests.support.small_datasets import BUILDS, NUM_IMAGES, Datasets, datasets_fixture  # noqa: F401


def tfds_examples(dataset: str, **options: Any) -> Iterator[dict[str, Any]]:
    for split in tfds.builder_from_directory(dataset).as_dataset(**options).values():
        yield from split.as_numpy_iterator()


def flatten(nested: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        path = prefix + name
        flat |= flatten(value, f"{path}/") if isinstance(value, dict) else {path: value}
    return flat


@pytest.mark.long_but_first
@pytest.mark.parametrize("name", [name for name in BUILDS if name != "mixed"])
def test_tfds_reads_every_feature_as_we_do(datasets: Datasets, name: str) -> None:
    info = tfds.builder_from_directory(datasets[name]).info
    id_name = "image/filename" if name == "garden" else "id"
    theirs = {flat[id_name]: flat for flat in map(flatten, tfds_examples(datasets[name]))}
    ours = {flat[id_name]: flat for flat in sw.load(datasets[name], "all").as_numpy_iterator()}

    assert theirs.keys() == ours.keys()
    assert len(ours) == info.splits.total_num_examples == sw.open(datasets[name]).num_records
    for image_id, example in ours.items():
        assert example.keys() == theirs[image_id].keys()
        for key, value in example.items():
            np.testing.assert_array_equal(theirs[image_id][key], value, f"{image_id} {key}")
    assert info.supervised_keys == (None if name in ("garden", "unlabeled") else ("image", "label"))


@pytest.mark.long
def test_tfds_reads_kept_gif_and_webp_images_undecoded(datasets: Datasets) -> None:
    """TFDS decodes these two to [1, height, width, 3], which its own Image feature then refuses."""
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"expected \[\?,\?,3\] but got \[1,"):
        list(tfds_examples(datasets["mixed"]))
    decoders = {"image": tfds.decode.SkipDecoding()}
    examples = list(tfds_examples(datasets["mixed"], decoders=decoders))
    assert len(examples) == NUM_IMAGES
    for example in examples:
        assert example["image"] == (datasets.folders / example["id"].decode()).read_bytes()


def test_tfds_sees_the_splits_and_shards_of_the_manifest(datasets: Datasets) -> None:
    manifest = sw.open(datasets["stills"])
    info = tfds.builder_from_directory(datasets["stills"]).info
    assert (info.name, str(info.version)) == ("stills", "1.0.0")
    assert set(info.splits) == set(manifest.splits) == {"train", "validation", "test"}
    for name, split in manifest.splits.items():
        assert info.splits[name].shard_lengths == [shard.num_records for shard in split.shards]
        shards = [shard.shard for shard in manifest.shard_names(name)]
        assert [Path(path).name for path in info.splits[name].filenames] == shards


def test_tfds_slices_and_supervised_pairs_agree_with_ours(datasets: Datasets) -> None:
    builder = tfds.builder_from_directory(datasets["stills"])
    config = tfds.ReadConfig(interleave_cycle_length=1)  # shard after shard
    theirs = builder.as_dataset("train", as_supervised=True, read_config=config)
    ours = list(sw.load(datasets["stills"], as_supervised=True).as_numpy_iterator())

    assert len(ours) == builder.info.splits["train"].num_examples
    for (image, label), pair in zip(ours, theirs.as_numpy_iterator(), strict=True):
        np.testing.assert_array_equal(image, pair[0])
        assert label == pair[1]
    assert len(builder.as_dataset("train[:4]")) == 4
    with pytest.raises(ValueError, match="does not support a supervised structure"):
        tfds.builder_from_directory(datasets["garden"]).as_dataset("train", as_supervised=True)


def features_of(name: str) -> tfds.features.FeaturesDict:
    """Return what a TFDS user would declare for the same examples."""
    f = tfds.features
    label = f.ClassLabel(names=sorted(small.CLASSES))
    stored = (small.RAW_HEIGHT, small.RAW_WIDTH, 3)
    images = {
        "raw": f.Tensor(shape=stored, dtype=np.uint8, encoding=f.Encoding.BYTES),
        "jpeg": f.Image(shape=stored, encoding_format="jpeg"),
        "png": f.Image(encoding_format="png"),
        "lossless": f.Image(shape=stored, encoding_format="png"),
    }
    integer, real, text = f.Scalar(np.int64), f.Scalar(np.float32), f.Scalar(np.str_)
    if name == "garden":
        image = {"encoded": f.Image(), "filename": f.Text(), "format": f.Text()}
        image |= {"class": {"label": label, "text": f.Text()}, "height": integer, "width": integer}
        return f.FeaturesDict({"image": image})
    features = {"image": images.get(name, f.Image()), "id": f.Text(), "label": label}
    if name == "unlabeled":
        del features["label"]
    if name == "tabled":
        features |= {"count": integer, "good": integer, "ratio": real, "caption": text}
        lists = {"boxes": integer, "scores": real, "tags": text}
        features |= {column: f.Sequence(scalar) for column, scalar in lists.items()}
    return f.FeaturesDict(features)


@pytest.mark.long_but_first
@pytest.mark.parametrize("name", list(BUILDS))
def test_features_json_and_labels_are_what_tfds_writes(
    datasets: Datasets, tmp_path: Path, name: str
) -> None:
    features_of(name).save_config(str(tmp_path))

    def metadata(folder: Path) -> tuple[Any, dict[str, bytes]]:
        labels = {path.name: path.read_bytes() for path in folder.glob("*.labels.txt")}
        return json.loads((folder / "features.json").read_text()), labels

    assert metadata(Path(datasets[name])) == metadata(tmp_path)


class Stills(tfds.core.GeneratorBasedBuilder):
    """A TFDS builder of the same name and examples as the dataset "stills"."""

    VERSION = tfds.core.Version("1.0.0")

    def __init__(self, data_dir: Path, splits: dict[str, list[dict[str, Any]]]) -> None:
        self._splits = splits
        super().__init__(data_dir=str(data_dir))

    def _info(self) -> tfds.core.DatasetInfo:
        options = {"features": features_of("stills"), "supervised_keys": ("image", "label")}
        return tfds.core.DatasetInfo(builder=self, **options)

    def _split_generators(self, _: tfds.download.DownloadManager) -> dict[str, Iterator[Any]]:
        return {name: self._generate_examples(examples) for name, examples in self._splits.items()}

    def _generate_examples(self, examples: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
        for example in examples:
            yield example["id"], example


def test_dataset_info_json_is_what_tfds_writes(
    datasets: Datasets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # TFDS would ask Google's server for it, and leave a temporary folder.
    monkeypatch.setattr(tfds.core.DatasetInfo, "initialize_from_bucket", lambda _: None)
    dataset = datasets["stills"]
    splits: dict[str, Any] = {name: [] for name in sw.open(dataset).splits}
    for name, examples in splits.items():
        for example in sw.load(dataset, name, decode=False).as_numpy_iterator():
            path = example["id"].decode()
            examples.append({**example, "id": path, "image": datasets.stills / path})
    builder = Stills(tmp_path, splits)
    builder.download_and_prepare()

    theirs = json.loads((Path(builder.data_dir) / "dataset_info.json").read_text())
    ours = json.loads((Path(dataset) / "dataset_info.json").read_text())

    assert theirs.pop("moduleName") == __name__
    for info in (ours, theirs):
        info["splits"] = {split["name"]: split for split in info["splits"]}
    for name, split in theirs["splits"].items():
        # TFDS chose one shard for so few bytes; the sum and the bytes of the examples are the same.
        lengths = ours["splits"][name].pop("shardLengths")
        assert [str(sum(map(int, lengths)))] == split.pop("shardLengths")
    assert ours == theirs
    files = [Path(folder).glob("*.tfrecord-*") for folder in (builder.data_dir, dataset)]
    first, second = ({path.name.split(".")[0] for path in paths} for paths in files)
    assert first == second
