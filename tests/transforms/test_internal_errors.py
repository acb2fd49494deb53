"""Exceptions that nobody expected over one image."""

from __future__ import annotations

import re
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import BuildError, ImageFault, StorageError
from shardwright.transforms.internal_errors import fault_of
from shardwright.transforms.rejects import RejectReason
from shardwright.transforms.user_code import Record, UserTransform
from shardwright.transforms.write import stored_records, transformed_records
from tests.support.build_helpers import build, make_images, manifest_of, record_ids, rejects_of


def unchanged(record: Record) -> Record:
    """Return the record as it is (`--transform`)."""
    return record


CHANGE: dict[str, dict[str, Any]] = {}


def changed(record: Record) -> Record:
    """Return the record with the change that a test asks for."""
    return record.replace(**CHANGE["replace"])


class OddError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raised(error: Exception) -> ImageFault:
    try:
        raise error
    except Exception as caught:
        return fault_of(caught)


@pytest.mark.parametrize(("error", "said"), [
    (IndexError("index\nout of range"), "IndexError: index out of range"),
    (KeyError(), "KeyError"),
    (MemoryError("x" * 5000), f"MemoryError: {'x' * 287}"),
    (ValueError("\ud800"), r"ValueError: \ud800"),
    (OddError(), "tests.transforms.test_internal_errors.OddError: <exception str() failed>"),
])  # fmt: skip
def test_the_detail_names_type_message_and_line(error: Exception, said: str) -> None:
    fault = raised(error)
    assert fault.reason == RejectReason.INTERNAL_ERROR
    place = r" \(tests/transforms/test_internal_errors\.py:\d+ in raised\)"
    assert re.fullmatch(re.escape(said) + place, fault.what)


def test_an_image_fault_stays_itself() -> None:
    fault = ImageFault("cut", RejectReason.CORRUPT)
    assert raised(fault) is fault


@pytest.mark.parametrize("error", [StorageError("down"), BuildError("stop"), CancelledError()])
def test_errors_of_the_whole_build_pass(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        raised(error)
    assert caught.value is error


@pytest.mark.parametrize(("change", "problem"), [
    ({"id": 5}, "id of type int; expected str"),
    ({"image": "a.png"}, "image of type str; expected bytes | numpy.ndarray | None"),
    ({"label": ["a"]}, "label of type list; expected str | None"),
    ({"features": [1]}, "features of type list; expected dict"),
    ({"pictures": None}, "pictures of type NoneType; expected dict"),
    (
        {"pictures": {"mask": 3}},
        "pictures['mask'] of type int; expected bytes | numpy.ndarray | None",
    ),
])  # fmt: skip
def test_a_record_of_a_transform_has_the_stated_types(
    change: dict[str, Any], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = "tests.transforms.test_internal_errors:changed"
    monkeypatch.setitem(CHANGE, "replace", change)
    with pytest.raises(ImageFault) as caught:
        UserTransform(spec, "").apply(Record("a", b"x"))
    assert caught.value.reason == RejectReason.TRANSFORM
    assert caught.value.what == f"{spec} returned {problem}"


def break_store(monkeypatch: pytest.MonkeyPatch, module: object) -> None:
    """Make storing an image of 11 pixels' width raise what no code of ours raises."""
    store = stored_records.store_image

    def broken(data: bytes, *args: object, **kwargs: object) -> object:
        stored = store(data, *args, **kwargs)  # type: ignore[arg-type]
        if stored.info.width == 11:
            raise ZeroDivisionError("an image of 11 pixels")
        return stored

    monkeypatch.setattr(module, "store_image", broken)


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    "options",
    [
        ["--duplicates", "drop"],
        ["--encode", "jpeg", "--shard-size", "2kB"],  # sizes are estimated from a sample first
        ["--transform", "tests.transforms.test_internal_errors:unchanged", "--encode", "png"],
        ["--writer", "beam"],
    ],
)
def test_an_internal_error_is_a_reject(
    options: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    module = transformed_records if "--transform" in options else stored_records
    break_store(monkeypatch, module)
    source = make_images(tmp_path / "in", 15)  # widths 8 to 12
    argv = [source, tmp_path / "out", *options]
    assert build(*argv, "--max-reject-fraction", "0.2") == 0
    assert len(record_ids(tmp_path / "out")) == 12
    assert manifest_of(tmp_path / "out")["rejects"] == {"internal_error": 3}
    for reject in rejects_of(tmp_path / "out"):
        assert reject["reason"] == "internal_error"
        assert reject["detail"].startswith("ZeroDivisionError: an image of 11 pixels (")
        assert reject["detail"].endswith(" in broken)")
    advice = 'please report it with the line above (README.md, "Report a problem")'
    assert capfd.readouterr().err.count(advice) == 1
    assert build(*argv, "--if-exists", "overwrite", "--max-rejects", "2") == 1
    said = capfd.readouterr().err
    assert "3 of 15 inputs (20.00%) are rejects" in said
    assert said.count(advice) == 1
