"""`--transform`: a user's function on every record, its results and its mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import shardwright as sw
from shardwright.errors import UsageError
from shardwright.pipelines.options.build import parse_options
from shardwright.transforms.user_code import Record, UserTransform
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import (
    hashes_of,
    manifest_of,
    png_of,
    record_ids,
    rejects_of,
    write_table,
)
from tests.support.judge import judge

MODULE = "tests.support.user_transforms"
Records = dict[str, dict[str, Any]]
Rejects = dict[str, tuple[str, str]]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for number in range(4):
        (tmp_path / f"{number}.png").write_bytes(png_of(5 * number))
    Image.fromarray(np.full((8, 8), 3, np.uint8)).save(tmp_path / "mask.png")
    rows = [
        {"path": f"{n}.png", "label": "cat" if n % 2 else "dog", "age": n, "mask": "mask.png"}
        for n in range(4)
    ]
    return write_table(tmp_path / "t.jsonl", rows)


def rejects_in(output: Path) -> Rejects:
    """(reason, detail) by id."""
    return {row["id"]: (row["reason"], row["detail"]) for row in rejects_of(output)}


def run(table: Path, *functions: str, options: tuple[str, ...] = ()) -> tuple[Records, Rejects]:
    """Build, verify and read; the records by id, and the rejects."""
    output = table.parent / "out"
    names = [arg for name in functions for arg in ("--transform", f"{MODULE}:{name}")]
    assert build(table, output, "--max-reject-fraction", "1", *names, *options) == 0
    assert judge(str(output)).faults == ()
    examples = sw.load(str(output), decode=False)
    return {example["id"].numpy().decode(): example for example in examples}, rejects_in(output)


def pixels_of(data: bytes) -> np.ndarray:
    return tf.io.decode_image(data, channels=3).numpy()


def test_one_record_for_one(table: Path) -> None:
    """Labels go by name. Without the functions, the settings are others: refused."""
    records, rejects = run(table, "add_one", "add_one", "relabel")
    ages = {image_id: int(record["age"]) for image_id, record in records.items()}
    assert ages == {f"{n}.png": n + 2 for n in range(4)}
    assert records["2.png"]["image"].numpy() == png_of(10)
    assert not rejects
    out = table.parent / "out"
    assert sw.open(str(out)).class_counts("train") == {"cat": 0, "dog": 4}
    before = hashes_of(out)
    assert build(table, out) == 1
    settings = manifest_of(out)["settings"]["transforms"]
    names = ("add_one", "add_one", "relabel")
    assert [each["function"] for each in settings] == [f"{MODULE}:{name}" for name in names]
    assert hashes_of(out) == before


def test_records_without_images(tmp_path: Path) -> None:
    rows = [{"id": str(n), "label": "cat" if n % 2 else "dog", "age": n} for n in range(4)]
    table = write_table(tmp_path / "t.jsonl", rows)
    records, rejects = run(table, "add_one", options=("--schema", "records"))
    assert {image_id: int(record["age"]) for image_id, record in records.items()} == {
        str(n): n + 1 for n in range(4)
    }
    assert not rejects


def test_several_for_one(table: Path) -> None:
    records, rejects = run(table, "tiles")
    assert sorted(records) == [f"{n}.png#{part}" for n in range(4) for part in range(2)]
    halves = [pixels_of(records[f"1.png#{part}"]["image"].numpy()) for part in range(2)]
    assert (np.concatenate(halves, axis=1) == pixels_of(png_of(5))).all()
    assert sw.open(str(table.parent / "out")).num_records == 8
    assert not rejects


@pytest.mark.long
def test_one_after_another(table: Path) -> None:
    records, rejects = run(table, "odd_ages_only", "named_tiles", "tiles")
    assert len(records) == 8
    assert "3.png/b#1" in records
    told = f"{MODULE}:odd_ages_only returned no record"
    assert rejects == {f"{n}.png": ("transform", told) for n in (0, 2)}


@pytest.mark.long
def test_further_pictures(table: Path) -> None:
    records, rejects = run(table, "mirror", options=("--schema", "segmentation"))
    assert not rejects
    assert (pixels_of(records["0.png"]["image"].numpy()) == pixels_of(png_of(0))[:, ::-1]).all()
    assert pixels_of(records["0.png"]["segmentation_mask"].numpy()).max() == 0


@pytest.mark.long
def test_mistakes_cost_the_record_alone(table: Path) -> None:
    """Each row gets the function of `MISTAKES` at its age; the first one makes none."""
    expected = {
        "1.png": ("transform", "a_mistake failed: ZeroDivisionError: division by zero"),
        "2.png": ("unknown_label", "returned the label 'yak', which is not a known class name"),
        "3.png": ("bad_value", "returned 'old' for feature 'age', which is int64"),
        "4.png": ("bad_value", "returned None for feature 'age', which is int64: it is missing"),
        "5.png": ("transform", "returned the id 'elsewhere', which must begin with '5.png'"),
        "6.png": ("transform", "returned equal ids"),
        "7.png": ("transform", "tests.support.user_transforms:a_mistake"),
        "8.png": ("bad_value", "[height, width, 1, 3 or 4], got [4, 4, 3] of float64"),
        "9.png": ("not_an_image", "b'no image'"),
        "10.png": ("transform", "SystemExit: 3"),
        "11.png": ("transform", "returned the feature 'new', which the dataset does not have"),
        "12.png": ("transform", "KeyboardInterrupt: "),
    }
    for number in range(13):
        (table.parent / f"{number}.png").write_bytes(png_of(number))
    rows = [{"path": f"{n}.png", "label": "dog", "age": n} for n in range(13)]
    records, rejects = run(write_table(table, rows), "a_mistake")
    assert list(records) == ["0.png"]
    assert rejects.keys() == expected.keys()
    for image_id, (reason, detail) in expected.items():
        assert rejects[image_id][0] == reason
        assert detail in rejects[image_id][1]


@pytest.mark.parametrize(("spec", "message"), [
    (MODULE, "is not a function; expected package.module:function"),
    ("no.such:thing", "could not import no.such: ModuleNotFoundError: No module named 'no'"),
    (f"{MODULE}:nothing", "tests.support.user_transforms has no function 'nothing'"),
    (f"{MODULE}:MISTAKES", "has no function 'MISTAKES'"),
])  # fmt: skip
def test_wrong_names(
    table: Path, capsys: pytest.CaptureFixture[str], spec: str, message: str
) -> None:
    assert build(table, table.parent / "out", "--transform", spec) == 2
    assert message in capsys.readouterr().err


FILE = """
from dataclasses import dataclass
from helper_beside import SUFFIX

@dataclass
class Rename:
    suffix: str

def augment(record):
    return record.replace(id=record.id + Rename(SUFFIX).suffix)
"""


@pytest.mark.long
@pytest.mark.parametrize("name", ["transforms", "shardwright"])
def test_a_file_may_have_the_name_of_our_package(
    table: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder of the user's with such files, which come first on the path."""
    home = table.parent / "home"
    home.mkdir()
    (home / f"{name}.py").write_text(FILE)
    (home / "helper_beside.py").write_text("SUFFIX = '!'\n")
    monkeypatch.chdir(home)
    monkeypatch.syspath_prepend(str(home))
    out = table.parent / "by-path"
    assert build(table, out, "--transform", f"./{name}.py:augment") == 0
    assert sorted(record_ids(out)) == [f"{n}.png!" for n in range(4)]
    capsys.readouterr()
    code = build(table, table.parent / "by-name", "--transform", f"{name}:augment")
    advice = f"give the path of your file instead, such as --transform ./{name}.py:FUNCTION"
    assert (code, advice in capsys.readouterr().err) == (
        (2, True) if name == "shardwright" else (0, False)
    )


def test_a_file_elsewhere_makes_the_same_dataset(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        code = "def same(record):\n    return record\n"
        (tmp_path / folder / "mine.py").write_text(code)
    found = [UserTransform.find(f"{tmp_path}/{folder}/mine.py:same") for folder in ("one", "two")]
    assert found[0].spec == found[1].spec == "mine.py:same"
    assert found[0].digest == found[1].digest


def test_a_changed_file_runs_as_its_digest_says(tmp_path: Path) -> None:
    """As in a notebook, where one process builds, edits and builds again."""
    file, record = tmp_path / "mine.py", Record("a.png", b"image")
    digests = set()
    for label in ("cat", "dog"):
        file.write_text(f"def label(record):\n    return record.replace(label={label!r})\n")
        found = UserTransform.find(f"{file}:label")
        assert found.apply(record) == [record.replace(label=label)]
        digests.add(found.digest)
    assert len(digests) == 2


@pytest.mark.parametrize(("spec", "told"), [
    ("nowhere.py:f", "there is no file .*nowhere.py"),
    ("opens.py:f", "could not import .*opens.py: FileNotFoundError: .* 'absent.json'"),
    ("half.py:f", "could not import .*half.py: SyntaxError: "),
    ("mine.py:g", "mine.py has no function 'g'"),
    ("mine.py", "expected package.module:function or path/to/file.py:function"),
])  # fmt: skip
def test_files_without_the_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, told: str
) -> None:
    (tmp_path / "mine.py").write_text("x = 1\n")
    (tmp_path / "opens.py").write_text("open('absent.json')\n")
    (tmp_path / "half.py").write_text("def f(record:\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=told):
        UserTransform.find(spec)


def test_workers_elsewhere_lack_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def same(record):\n    return record\n")
    flags = ["--runner=PortableRunner", "--job_endpoint=localhost:1"]
    places = ["s3://a/b", "s3://a/c", "--transform", f"{tmp_path}/mine.py:same", *flags]
    with pytest.raises(UsageError, match="stage that with --setup_file"):
        parse_options(places)
    assert parse_options([*places, "--shared-filesystem"]).transforms[0].path
