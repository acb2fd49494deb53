"""Mistakes of new users that cost a stack trace, a silent loss or a useless message once."""

from __future__ import annotations

import io
import json
import re
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import BuildError, UsageError
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, VocabularyRule
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import make_images, manifest_of, png_of
from tests.support.listings import detect


def make_tar(path: Path, name: str = "a/1.png") -> None:
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(png_of(0))
        archive.addfile(member, io.BytesIO(png_of(0)))


def test_a_wildcard_of_several_kinds_takes_none_in_silence(tmp_path: Path) -> None:
    make_tar(tmp_path / "x.tar")
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a/2.png", png_of(2))
    told = "x.* matches files of several kinds, such as x.tar and x.zip: use a wildcard"
    with pytest.raises(UsageError, match=re.escape(told)):
        detect(f"{tmp_path}/x.*", {})


def test_files_beside_tars_do_not_hide_them(tmp_path: Path) -> None:
    make_tar(tmp_path / "x.tar")
    (tmp_path / "x.txt").write_text("x.tar")
    assert "tar archive" in detect(f"{tmp_path}/x.*", {}).description
    (tmp_path / "x.txt").unlink()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text("x")
    assert "tar archive" in detect(str(tmp_path), {}).description


@pytest.mark.parametrize("pattern", ["none-*.tar", "in/*"])
def test_a_wildcard_that_matches_nothing(tmp_path: Path, pattern: str) -> None:
    make_images(tmp_path / "in", 2)
    told = "matches no file of a known format: check its spelling; for images, give their folder"
    with pytest.raises(UsageError, match=told) as caught:
        detect(f"{tmp_path}/{pattern}", {})
    assert len(str(caught.value)) < 300


def test_class_folders_beside_a_tar_are_not_lost(tmp_path: Path) -> None:
    make_images(tmp_path / "in", 4)
    make_tar(tmp_path / "in" / "old.tar")
    assert build(tmp_path / "in", tmp_path / "out", "--max-reject-fraction", "1") == 0
    manifest = manifest_of(tmp_path / "out")
    assert manifest["splits"]["train"]["num_records"] == 4, manifest["splits"]
    assert "other_file" in json.dumps(manifest)


def test_a_vocabulary_rule_that_learns_something_else() -> None:
    wrong = {"max_size": (0, -1, "5"), "min_count": (0, True), "token_pattern": (3, "")}
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(UsageError, match=f"a vocabulary's {name} must be "):
                VocabularyRule(**{name: value})


@pytest.mark.parametrize("shape", ["3", (-3,), (0,), ("3",), (2.0,), (True,)])
def test_a_shape_that_is_none(shape: Any) -> None:
    told = r"feature 't' has the shape .*; sizes must be whole numbers of at least 1, or"
    with pytest.raises(UsageError, match=told):
        ExampleSchema((Feature("t", FeatureKind.TENSOR, shape=shape, dtype="float32"),))


@pytest.mark.parametrize(
    ("end", "closed"),
    [
        ('b.png,"two\n', False),
        ('b.png,"two\nc.png,three\nd.png,four\n', False),
        ('b.png,"two\nc.png,three', False),
        ('b.png,"two\nlines"', True),
        ('b.png,"two\nlines"\n\n', True),
        ('b.png,"two\n"\n', True),
        ('b.png,5" nail\n', True),
    ],
)
def test_a_quote_that_is_never_closed_costs_no_rows_in_silence(
    tmp_path: Path, end: str, closed: bool
) -> None:
    (tmp_path / "t.csv").write_text(f"path,note\na.png,one\n{end}", "utf-8")
    if closed:
        detect(str(tmp_path / "t.csv"), {})
        return
    told = r"t.csv: unexpected end of data, in the row that ends in line \d: close its quotes"
    with pytest.raises(BuildError, match=told):
        detect(str(tmp_path / "t.csv"), {})


def test_labels_whose_rows_go_by_a_column_called_stem(tmp_path: Path) -> None:
    source, table = make_images(tmp_path / "in", 3, names=("x",)), tmp_path / "l.csv"
    table.write_text("stem,label\n0000,dog\n0001,cat\n0002,dog\n", "utf-8")
    assert build(source, tmp_path / "out", "--labels", table, "--labels-key", "stem") == 0
    assert (tmp_path / "out" / "label.labels.txt").read_text("utf-8").split() == ["cat", "dog"]


def test_a_schema_that_contradicts_itself_is_told_without_python_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_images(tmp_path / "in", 1)
    schema = "SCHEMA = ExampleSchema((Feature('', FeatureKind.TEXT),))\n"
    (tmp_path / "s.py").write_text(f"from shardwright.format.schema import *\n{schema}", "utf-8")
    assert build(tmp_path / "in", tmp_path / "out", "--schema", tmp_path / "s.py") == 2
    assert "s.py: a feature of kind text must have a name" in capsys.readouterr().err
