"""`shardwright diff`: new, gone and changed records, classes, schema and drift of two datasets."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import shardwright as sw
from shardwright.fail_on import Measured
from shardwright.inspect import diff
from shardwright.inspect.cli import main
from shardwright.inspect.record_changes import number_drift, share_drift
from shardwright.storage.folder import Folder

CLASSES = ("ape", "bee", "cat")


class Day(NamedTuple):
    old: str
    new: str
    other_schema: str


def picture(seed: int, width: int = 8) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 255, (6, width, 3), np.uint8)
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, "png")
    return buffer.getvalue()


def record(number: int, **changes: Any) -> dict[str, Any]:
    known = {
        "id": f"r{number:02d}",
        "image": picture(number),
        "label": CLASSES[number % 2],
        "split": "test" if number % 5 == 0 else "train",
    }
    return known | changes


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Day:
    root = tmp_path_factory.mktemp("diff")
    old = [record(number) for number in range(20)]
    new = [
        record(1, image=picture(1, width=9)),
        record(2, label="bee"),
        record(3, split="test"),
        record(4, image=picture(99), label="cat", split="test"),
        *old[5:18],
        *(record(number, label="cat") for number in range(30, 34)),
    ]
    for name, rows in (("old", old), ("new", new)):
        sw.write(rows, str(root / name), records_per_shard=4)
    plain = [{"id": row["id"], "weight": number} for number, row in enumerate(old)]
    sw.write(plain, str(root / "plain"))
    return Day(*(str(root / name) for name in ("old", "new", "plain")))


@pytest.fixture(scope="module")
def told(day: Day) -> Mapping[str, Any]:
    return diff_json(day.old, day.new)


def diff_json(old: str, new: str) -> Any:
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["diff", old, new, "--json"]) == 0
    return json.loads(out.getvalue())


def test_records(told: Mapping[str, Any]) -> None:
    counts = {"same": 13, "new": 4, "gone": 3, "changed": 2, "relabeled": 2, "moved": 2}
    assert told["records"] == counts | {"reannotated": 0}
    assert {name: sorted(ids) for name, ids in told["examples"].items()} == {
        "new": ["r30", "r31", "r32", "r33"],
        "gone": ["r00", "r18", "r19"],
        "changed": ["r01", "r04"],
        "relabeled": ["r02", "r04"],
        "moved": ["r03", "r04"],
    }


def test_classes_and_splits(told: Mapping[str, Any]) -> None:
    assert told["classes"] == {"added": ["cat"], "removed": [], "renumbered": {}}
    assert told["class_counts"] == {"ape": [10, 6], "bee": [10, 10], "cat": [0, 5]}
    assert told["splits"]["train"]["records"] == [16, 15]
    assert told["splits"]["test"]["records"] == [4, 6]
    assert told["schema"] == {"added": [], "removed": [], "changed": []}


def test_drift(told: Mapping[str, Any]) -> None:
    assert told["drift"]["classes"] == pytest.approx(5 / 21)
    assert told["drift"]["width"] == pytest.approx(1 / 21)
    assert told["drift"]["height"] == 0


def test_a_dataset_and_itself(day: Day) -> None:
    told = diff_json(day.old, day.old)
    assert told["records"] == {"same": 20, **dict.fromkeys(told["examples"], 0)} | {
        "new": 0, "gone": 0, "changed": 0, "relabeled": 0, "reannotated": 0, "moved": 0
    }  # fmt: skip
    assert told["features"] == {}
    assert set(told["drift"].values()) == {0.0}


def test_another_schema(day: Day) -> None:
    told = diff_json(day.old, day.other_schema)
    assert [feature["name"] for feature in told["schema"]["added"]] == ["weight"]
    assert {feature["name"] for feature in told["schema"]["removed"]} == {"image", "label"}
    assert told["records"]["changed"] == 20  # each had an image
    assert told["drift"] == {}


def test_corrected_features_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"id": str(n), "image": picture(n), "caption": f"of {n}", "weight": n / 4, "kinds": ["a"]}
        for n in range(9)
    ]
    corrected = [dict(row) for row in rows]
    corrected[2] |= {"caption": "of two", "weight": 7.5}
    corrected[5] |= {"weight": 8.5}
    corrected[6] |= {"image": picture(60)}
    corrected.append({**rows[0], "id": "9", "kinds": ["A"]})  # the classes get other numbers
    for name, made in (("old", rows), ("new", corrected)):
        sw.write(made, str(tmp_path / name), records_per_shard=4)
    places = [str(tmp_path / name) for name in ("old", "new")]
    told = diff_json(*places)
    assert told["records"] == {
        "same": 6, "new": 1, "gone": 0, "changed": 1, "relabeled": 0, "reannotated": 2, "moved": 0
    }  # fmt: skip
    assert sorted(told["examples"]["reannotated"]) == ["2", "5"]
    assert told["features"] == {"caption": 1, "weight": 2}
    assert main(["diff", *places, "--fail-on", "reannotated>10%"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "features that differ in 2 reannotated records" in lines
    assert "  caption        1" in lines


def test_text(day: Day, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", day.old, day.new]) == 0
    told = capsys.readouterr().out
    for line in (
        "  same              13",
        "  cat         0    5               0.2381",
        "  class  added   cat",
        "  classes       0.2381",
    ):
        assert line in told.splitlines(), told


def test_ids_as_csv(day: Day, tmp_path: Path) -> None:
    path = tmp_path / "ids.csv"
    assert main(["diff", day.old, day.new, "--ids", str(path)]) == 0
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 13
    assert {"change": "gone", "split": "test", "id": "r00"} in rows
    assert {"change": "moved", "split": "test", "id": "r03"} in rows


@pytest.mark.parametrize(
    ("limits", "code", "message"),
    [
        ("drift>0.5,gone>3,rejects>0", 0, ""),
        ("gone>2,new>5", 1, "shardwright: --fail-on gone>2: 3\n"),
        ("gone>10%", 1, "shardwright: --fail-on gone>10%: 15%\n"),
        ("drift>0.2", 1, "shardwright: --fail-on drift>0.2: 0.2381\n"),
    ],
)
def test_limits(
    day: Day, limits: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", day.old, day.new, "--fail-on", limits]) == code
    assert capsys.readouterr().err == message


def test_rejects_without_a_fault_do_not_count(day: Day) -> None:
    old, new = (diff.OpenedDataset.at(Folder(root)) for root in (day.old, day.new))
    found = diff.compare(old, new)
    counted = replace(new.manifest, rejects={"dropped_duplicate": 5, "corrupt": 2})
    of_all = 2 + new.manifest.num_records
    assert diff.measured_values(found, counted)["rejects"] == Measured(2, of_all)


@pytest.mark.parametrize(
    ("options", "code", "hint"),
    [
        (["--fail-on", "speed>1"], 2, "the names are drift, new, gone"),
        (["--ids", "/nowhere/ids.csv"], 1, "--ids /nowhere/ids.csv cannot be written"),
    ],
)
def test_wrong_use(
    day: Day, options: list[str], code: int, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", day.old, day.new, *options]) == code
    assert hint in capsys.readouterr().err


def test_no_dataset(day: Day, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", day.old, str(tmp_path)]) == 2
    assert "is not a shardwright dataset" in capsys.readouterr().err


COUNTS = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 50), min_size=1)
SAMPLES = st.lists(st.integers(0, 9), min_size=1).map(np.array)


@given(COUNTS, COUNTS)
def test_drift_of_shares_is_a_distance(old: dict[str, int], new: dict[str, int]) -> None:
    found = share_drift(old, new)
    assert found is not None
    assert 0 <= found <= 1 + 1e-9
    assert found == pytest.approx(share_drift(new, old))
    assert share_drift(old, {name: 3 * count for name, count in old.items()}) == pytest.approx(0)
    assert (found == pytest.approx(1)) == (not set(old) & set(new))


@given(SAMPLES, SAMPLES)
def test_drift_of_numbers_is_scipys(old: np.ndarray, new: np.ndarray) -> None:
    from scipy.stats import ks_2samp

    assert number_drift(old, new) == pytest.approx(ks_2samp(old, new).statistic)


def test_drift_of_nothing_is_none() -> None:
    assert share_drift({}, {"a": 1}) is None
    assert number_drift(np.array([], np.int64), np.array([1])) is None
