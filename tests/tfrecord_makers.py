"""TFRecord files for tests, written by TensorFlow, and what is found in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.arguments import ROLES
from shardwright.example import parse_example
from shardwright.records import scan_records
from shardwright.storage import Folder
from tests.build_helpers import png_of, shards_of
from transforms.inputs.detection import detect_source
from transforms.inputs.source import InputSource

NONE: dict[str, str | None] = dict.fromkeys(ROLES)


def example(**features: Any) -> bytes:
    """A tf.Example as TensorFlow writes it; `__` in a name stands for `/`."""
    import tensorflow as tf

    def one(value: Any) -> tf.train.Feature:
        values = value if isinstance(value, list) else [value]
        if values and isinstance(values[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        if values and isinstance(values[0], int):
            return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))

    named = {name.replace("__", "/"): one(value) for name, value in features.items()}
    return bytes(tf.train.Example(features=tf.train.Features(feature=named)).SerializeToString())


def write_records(path: Path, records: Sequence[bytes], compression: str = "") -> Path:
    """A file as TensorFlow's own writer makes it."""
    import tensorflow as tf

    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(
        str(path), tf.io.TFRecordOptions(compression_type=compression)
    ) as writer:
        for record in records:
            writer.write(record)
    return path


def pictures(number: int, start: int = 0) -> list[bytes]:
    return [example(image=png_of(index), label=index % 3) for index in range(start, start + number)]


def source_of(uri: Path | str, spool: Path | None = None, **columns: str) -> InputSource:
    return detect_source(
        str(uri), {**NONE, **columns}, spool=None if spool is None else Folder(str(spool))
    )


def read_back(rows: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """The bytes that references point to."""
    found = []
    for row in rows:
        with open(row["uri"], "rb") as file:
            file.seek(row["offset"])
            found.append(file.read(row["num_bytes"]))
    return found


def examples_of(root: Path, key: str = "id") -> dict[bytes, tuple[str, dict[str, Any]]]:
    """id -> (split, features) of every record of a dataset."""
    found = {}
    for path in shards_of(root):
        with path.open("rb") as file:
            for record in scan_records(file):
                features = parse_example(record.data)
                found[features[key][0]] = (path.name.split(".")[0].rpartition("-")[2], features)
    return found


def sequence_example() -> bytes:
    import tensorflow as tf

    image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[png_of(1)]))
    lists = tf.train.FeatureLists(feature_list={"frames": tf.train.FeatureList(feature=[image])})
    made = tf.train.SequenceExample(
        context=tf.train.Features(feature={"image": image}), feature_lists=lists
    )
    return bytes(made.SerializeToString())
