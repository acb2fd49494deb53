"""What strangers typed and got a stack trace, a silent loss or a useless message for."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import BuildError, UsageError
from shardwright.schema import ExampleSchema, Feature, FeatureKind, VocabularyRule
from tests.build_helpers import build, make_images, png_of
from transforms.inputs.detection import detect_source


def make_tar(path: Path, *names: str) -> None:
    with tarfile.open(path, "w") as archive:
        for number, name in enumerate(names):
            member = tarfile.TarInfo(name)
            member.size = len(png_of(number))
            archive.addfile(member, io.BytesIO(png_of(number)))


def test_a_wildcard_of_several_kinds_takes_none_in_silence(tmp_path: Path) -> None:
    make_tar(tmp_path / "x.tar", "a/1.png")
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a/2.png", png_of(2))
    with pytest.raises(
        UsageError,
        match=r"x\.\* matches files of several kinds, such as x.tar and x.zip: write a wildcard",
    ):
        detect_source(f"{tmp_path}/x.*", {})


def test_a_list_beside_the_shards_does_not_hinder_a_wildcard(tmp_path: Path) -> None:
    make_tar(tmp_path / "x.tar", "a/1.png")
    (tmp_path / "x.txt").write_text("x.tar")
    assert "tar archive" in detect_source(f"{tmp_path}/x.*", {}).describe()


@pytest.mark.parametrize("pattern", ["none-*.tar", "in/*"])
def test_a_wildcard_that_matches_nothing_is_told_in_one_line(tmp_path: Path, pattern: str) -> None:
    make_images(tmp_path / "in", 2)
    with pytest.raises(
        UsageError,
        match="matches no file of a known form: see how it is spelled; of images, give the folder",
    ) as caught:
        detect_source(f"{tmp_path}/{pattern}", {})
    assert len(str(caught.value)) < 300


def test_class_folders_beside_a_tar_are_not_lost(tmp_path: Path) -> None:
    make_images(tmp_path / "in", 4)
    make_tar(tmp_path / "in" / "old.tar", "a/1.png")
    assert build(tmp_path / "in", tmp_path / "out", "--max-reject-fraction", "1") == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text("utf-8"))
    assert manifest["splits"]["train"]["num_records"] == 4, manifest["splits"]
    assert "other_file" in json.dumps(manifest)


def test_tars_beside_folders_without_images_are_still_tars(tmp_path: Path) -> None:
    make_tar(tmp_path / "x.tar", "a/1.png")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text("x")
    assert "tar archive" in detect_source(str(tmp_path), {}).describe()


def test_a_runner_that_beam_does_not_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_images(tmp_path / "in", 1)
    assert build(tmp_path / "in", tmp_path / "out", "--runner", "Foo") == 2
    told = capsys.readouterr().err
    assert "Beam refuses its options: Unexpected pipeline runner: Foo" in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    "rule",
    [
        {"max_size": 0},
        {"max_size": -1},
        {"max_size": "5"},
        {"min_count": 0},
        {"min_count": True},
        {"token_pattern": 3},
        {"token_pattern": ""},
    ],
)
def test_a_vocabulary_rule_that_learns_something_else(rule: dict[str, Any]) -> None:
    (name,) = rule
    with pytest.raises(UsageError, match=f"a vocabulary's {name} is "):
        VocabularyRule(**rule)


@pytest.mark.parametrize("shape", ["3", (-3,), (0,), ("3",), (2.0,), (True,)])
def test_a_shape_that_is_none(shape: Any) -> None:
    with pytest.raises(
        UsageError,
        match=r"feature 't' has the shape .*; its sizes are whole numbers from 1, or None for any",
    ):
        ExampleSchema((Feature("t", FeatureKind.TENSOR, shape=shape, dtype="float32"),))


def test_a_feature_without_a_name() -> None:
    with pytest.raises(UsageError, match="a feature of kind text has no name"):
        ExampleSchema((Feature("", FeatureKind.TEXT, column="w"),))


def test_counts_without_a_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_images(tmp_path / "in", 1)
    assert build(tmp_path / "in", tmp_path / "out", "--split", "train=3,test=4") == 2
    assert (
        "exact numbers need a split that gets the rest, as in test=5000,train=rest"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "end", ['b.png,"two\n', 'b.png,"two\nc.png,three\nd.png,four\n', 'b.png,"two\nc.png,three']
)
def test_a_quote_that_is_never_closed_costs_no_rows_in_silence(tmp_path: Path, end: str) -> None:
    (tmp_path / "t.csv").write_text(f"path,note\na.png,one\n{end}", "utf-8")
    with pytest.raises(BuildError, match=r"t.csv has a quote before 'two.* that is never closed"):
        detect_source(str(tmp_path / "t.csv"), {})


@pytest.mark.parametrize(
    "end", ['b.png,"two\nlines"', 'b.png,"two\nlines"\n\n', 'b.png,"two\n"\n', 'b.png,5" nail\n']
)
def test_quotes_that_are_closed_are_read(tmp_path: Path, end: str) -> None:
    (tmp_path / "t.csv").write_text(f"path,note\na.png,one\n{end}", "utf-8")
    detect_source(str(tmp_path / "t.csv"), {})


def test_labels_whose_rows_go_by_a_column_called_stem(tmp_path: Path) -> None:
    make_images(tmp_path / "in", 3, names=("x",))
    (tmp_path / "l.csv").write_text("stem,label\n0000,dog\n0001,cat\n0002,dog\n", "utf-8")
    assert (
        build(
            tmp_path / "in",
            tmp_path / "out",
            "--labels",
            tmp_path / "l.csv",
            "--labels-key",
            "stem",
        )
        == 0
    )
    assert (tmp_path / "out" / "label.labels.txt").read_text("utf-8").split() == ["cat", "dog"]


def test_what_a_schema_contradicts_is_told_without_python_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_images(tmp_path / "in", 1)
    (tmp_path / "s.py").write_text(
        "from shardwright.schema import *\nSCHEMA = ExampleSchema((Feature('', FeatureKind.TEXT),))\n",
        "utf-8",
    )
    assert build(tmp_path / "in", tmp_path / "out", "--schema", tmp_path / "s.py") == 2
    assert "s.py: a feature of kind text has no name: name it" in capsys.readouterr().err


CODE = """
def leave(record):
    raise SystemExit(3)


def more(record):
    return record.replace(features={**record.features, "new": 1})
"""


@pytest.mark.parametrize(
    ("function", "detail"),
    [("leave", "SystemExit: 3"), ("more", "gave the feature 'new', which the dataset has not")],
)
def test_what_users_code_does_wrong_costs_records_and_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    function: str,
    detail: str,
) -> None:
    make_images(tmp_path / "in", 1)
    (tmp_path / "outsiders_code.py").write_text(CODE, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert (
        build(tmp_path / "in", tmp_path / "out", "--transform", f"outsiders_code:{function}") == 1
    )
    told = capsys.readouterr().err
    assert detail in told
    assert "Traceback" not in told
