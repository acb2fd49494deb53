"""Tables of many columns: a time that grows as they do, and a limit."""

from __future__ import annotations

import csv
import json
import math
import pickle
import re
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from shardwright.errors import UsageError
from shardwright.format.features import Feature
from shardwright.format.manifest import json_bytes
from shardwright.schemas.ready import image_classification
from shardwright.transforms.features.rows import settle_references
from shardwright.transforms.inputs import columns
from shardwright.transforms.inputs.columns import extra_feature
from tests.support.helpers import rows_of
from tests.support.listings import detect, list_source


def write_table(path: Path, names: Sequence[str]) -> Path:
    """Write a table of one image, with the number of each further column as its value."""
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(path.parent / "a.png")
    row = {"image": "a.png"} | {name: number for number, name in enumerate(names)}
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([row]), path)
    elif path.suffix == ".jsonl":
        path.write_text(json.dumps(row) + "\n")
    else:
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([row.keys(), row.values()])
    return path


@pytest.mark.long
def test_thousands_of_columns(tmp_path: Path) -> None:
    seconds_for(tmp_path, 10)  # imports
    few, many = (seconds_for(tmp_path, number) for number in (1000, 8000))
    # Up to 11 times as long, where steps for the pairs of columns take 40 times as long.
    assert many < 25 * few


def seconds_for(folder: Path, number: int) -> float:
    """Return the seconds of the processor for a table with so many columns."""
    names = [f"c{index}" for index in range(number)]
    path = write_table(folder / f"{number}.csv", names)
    start = time.process_time()
    source = detect(str(path))
    features = tuple(extra_feature(each, pa.int64()) for each in names)
    schema = image_classification(extras=features)
    [row] = [
        row for batch in list_source(source) for row in rows_of(settle_references(batch, schema))
    ]
    assert [row[f"x/{each}"] for each in names] == list(range(number))
    return time.process_time() - start


def test_a_schema_is_pickled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = image_classification()
    packed = pickle.dumps(schema)
    monkeypatch.setattr(Feature, "__reduce__", None)  # every step of a graph has the schema
    assert pickle.loads(packed) == schema
    assert pickle.dumps(schema) == packed


def test_files_are_indented_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    content = {"a": [{"b": 1.5e300, "c": [], "d": {}, "e": "\u00e9\ud800\n"}, [None, True]], "f": 1}
    expected = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    number = json.dumps({"a": math.nan}, indent=1) + "\n"
    assert json_bytes({"a": math.nan}) == number.encode()
    monkeypatch.setattr(json.encoder, "_make_iterencode", None)  # the encoder in Python
    assert json_bytes(content) == expected.encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet"])
def test_too_many_columns(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MAX_COLUMNS", 1500)
    path = write_table(tmp_path / name, [f"c{number}" for number in range(1500)])
    message = rf"{re.escape(str(path))} has 1,501 columns, more than the 1,500 allowed: store"
    with pytest.raises(UsageError, match=message):
        detect(str(path))


def test_a_message_lists_the_first_columns(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", [f"c{number}" for number in range(300)])
    with pytest.raises(UsageError, match=r"'c97', 'c98' and 201 more$"):
        detect(str(path), columns={"label": "klass"})
