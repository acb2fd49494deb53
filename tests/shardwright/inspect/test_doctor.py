"""`shardwright doctor`: its measurements, the limit, and its report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardwright as sw
from shardwright.inspect import doctor
from shardwright.inspect.cli import main
from shardwright.inspect.doctor import Diagnosis, advice, diagnose, format_diagnosis


def diagnosis(**changes: Any) -> Diagnosis:
    values = {
        "images_per_sec": 1600.0, "undecoded_per_sec": 9000.0, "cores": 2, "cores_busy": 2.0,
        "threads": 2, "image_side": 224, "stored_pixels": 256.0 * 256, "stored_bytes": 80_000.0,
        "is_remote": False,
    }  # fmt: skip
    return Diagnosis(**(values | changes))


@pytest.mark.parametrize(("changes", "limit", "text"), [
    ({}, "decoding",
     "--encode raw --resize 224x224, which needs no decoding but 150.5 kB per image instead of"),
    ({"cores": 16}, "decoding", "with processes=8, as one process uses 2 of these 16 cores;"),
    ({"stored_pixels": 4000.0 * 3000}, "decoding",
     "stored with 183.1 times the pixels of 256x256: build with --encode jpeg"),
    ({"undecoded_per_sec": 3100.0}, "reading", "copy the dataset to a faster disk"),
    ({"undecoded_per_sec": 3100.0, "is_remote": True}, "download",
     "raise cache_bytes= until the cache holds the whole dataset"),
])  # fmt: skip
def test_advice(changes: Any, limit: str, text: str) -> None:
    found = diagnosis(**changes)

    assert found.limited_by == limit
    assert text in advice(found)


def test_rates_and_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    found = diagnosis(images_per_sec=1200.0, cores_busy=1.5)

    assert found.images_per_sec_per_core == 800
    monkeypatch.setattr(doctor, "part_decoder_fix", str)
    report = format_diagnosis(found)
    assert "1,200 images/s, 1.5 cores busy, 800 images/s per core" in report
    assert "9,000 images/s without decoding" in report
    assert "limited by: decoding" in report
    assert "other programs used the remaining cores" in report
    assert "JPEGs can" not in report
    monkeypatch.setattr(doctor, "part_decoder_fix", lambda: "install a C compiler")
    assert "JPEGs can be decoded faster: install a C compiler" in format_diagnosis(found)


def test_it_measures_a_dataset(zoo: Path) -> None:
    found = diagnose(str(zoo), "train", image_side=32, seconds=0.1)

    assert min(found.images_per_sec, found.undecoded_per_sec, found.cores_busy) > 0
    assert 0 < found.stored_pixels < 9 * 20
    assert not found.is_remote


def test_it_measures_a_dataset_with_boxes(tmp_path: Path) -> None:
    boxes = {
        f"objects/{name}": [value] for name, value in {"bbox": [0.0] * 4, "label": "a"}.items()
    }
    records = [{"image": np.zeros((8, 8, 3), np.uint8), **boxes} for _ in range(2)]
    sw.write(records, str(tmp_path / "out"), schema="detection")
    assert diagnose(str(tmp_path / "out"), "train", image_side=4, seconds=0.1).images_per_sec


def test_the_command(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--seconds", "0.1", "--image-size", "32"]
    assert main(["doctor", str(zoo), *options]) == 0
    text = capsys.readouterr().out
    assert "the one change to make" in text

    assert main(["doctor", str(zoo), *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["limited_by"] in ("reading", "decoding")
    assert found["images_per_sec"] > 0

    assert main(["doctor", str(zoo / "nothing"), *options]) == 2
    assert "is not a shardwright dataset" in capsys.readouterr().err
    assert main(["doctor", str(zoo), "--seconds", "0"]) == 2
    assert "--seconds must be above 0, got 0" in capsys.readouterr().err
