"""TFRecord files for tests, written by TensorFlow, and the records of a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from shardwright.format.example import parse_example
from shardwright.format.records import scan_records
from shardwright.storage.folder import Folder
from shardwright.transforms.inputs.columns import ROLE_COLUMNS
from shardwright.transforms.inputs.source import InputSource
from tests.support.build_helpers import png_of, shards_of
from tests.support.listings import detect

NONE: dict[str, str | None] = dict.fromkeys(ROLE_COLUMNS)


def example(**features: Any) -> bytes:
    """Return a tf.Example as TensorFlow writes it; `__` in a name stands for `/`."""
    import tensorflow as tf

    made = tf.train.Example()
    for name, value in features.items():
        values = value if isinstance(value, list) else [value]
        first = values[0] if values else b""
        kind = {float: "float_list", int: "int64_list"}.get(type(first), "bytes_list")
        feature = made.features.feature[name.replace("__", "/")]
        getattr(feature, kind).SetInParent()
        getattr(feature, kind).value.extend(values)
    return bytes(made.SerializeToString(deterministic=True))


def sequence_example() -> bytes:
    """Return a tf.SequenceExample of one image."""
    import tensorflow as tf

    made = tf.train.SequenceExample()
    frame = made.feature_lists.feature_list["frames"].feature.add()
    for feature in (made.context.feature["image"], frame):
        feature.bytes_list.value.append(png_of(1))
    return bytes(made.SerializeToString())


def write_records(path: Path, records: Sequence[bytes], compression: str = "") -> Path:
    """Write a file by TensorFlow's own writer."""
    import tensorflow as tf

    path.parent.mkdir(parents=True, exist_ok=True)
    options = tf.io.TFRecordOptions(compression_type=compression)
    with tf.io.TFRecordWriter(str(path), options) as writer:
        for record in records:
            writer.write(record)
    return path


def pictures(number: int, start: int = 0) -> list[bytes]:
    """Return examples of an image and a label."""
    return [example(image=png_of(index), label=index % 3) for index in range(start, start + number)]


def source_of(uri: Path | str, spool: Path | None = None, **columns: str) -> InputSource:
    """Return INPUT's source, with these columns named by options."""
    return detect(str(uri), {**NONE, **columns}, spool=spool and Folder(str(spool)))


def read_back(rows: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """Return the bytes that references point to."""
    found = []
    for row in rows:
        with open(row["uri"], "rb") as file:
            file.seek(row["offset"])
            found.append(file.read(row["num_bytes"]))
    return found


def features_of(root: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (split, features) of every record of a dataset."""
    for path in shards_of(root):
        split = path.name.split(".")[0].rpartition("-")[2]
        with path.open("rb") as file:
            yield from ((split, dict(parse_example(span.data))) for span in scan_records(file))


def examples_of(root: Path, key: str = "id") -> dict[bytes, tuple[str, dict[str, Any]]]:
    """Return (split, features) of every record of a dataset by its id."""
    return {features[key][0]: (split, features) for split, features in features_of(root)}


def records_of(root: Path) -> dict[str, dict[str, Any]]:
    """Return the features of every record of a dataset by its id."""
    return {features["id"][0].decode(): features for _, features in features_of(root)}
