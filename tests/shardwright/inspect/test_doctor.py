"""`shardwright doctor`: its measurements, the limiting stage, and its report."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardwright as sw
from shardwright.inspect.cli import main
from shardwright.inspect.doctor import (
    STAGES,
    Diagnosis,
    advice,
    diagnose,
    format_diagnosis,
    limiting_stage,
    parse_target,
    training_reader,
)


def diagnosis(**changes: Any) -> Diagnosis:
    stages = {"read": 0.05, "parse": 0.01, "decode": 1.0, "augment": 0.1, "batch": 0.02}
    values = {
        "stage_msec": stages | changes.pop("stages", {}),
        "images_per_sec": 1600.0, "cores": 2, "cores_busy": 2.0, "threads": 2, "image_side": 224,
        "part_decoder": "shardwright", "part_decoder_fix": "",
        "stored_pixels": 256.0 * 256, "stored_bytes": 80_000.0, "is_remote": False,
        "num_records": 3200,
    }  # fmt: skip
    return Diagnosis(**(values | changes))


@pytest.mark.parametrize(("changes", "target", "stage", "text"), [
    ({}, None, "decode",
     "--encode raw --resize 224x224, which needs no decoding but 150.5 kB per image instead of"),
    ({}, 3200, "decode", "use more cores, 4 for 3,200 images/s"),
    ({"cores": 16}, None, "decode", "with processes=8, as one process uses 2 of these 16 cores;"),
    ({"cores": 4}, 3200, "decode", "with processes=2, as one process uses 2 of these 4 cores;"),
    ({"cores": 3}, 3200, "decode", "use more cores, 4 for 3,200 images/s"),
    ({}, 1500, "decode", "None: 1,600 images/s meets the target of 1,500"),
    ({"stored_pixels": 4000.0 * 3000}, None, "decode",
     "stored with 183.1 times the pixels of 256x256: build with --encode jpeg"),
    ({"stages": {"read": 3.0}}, None, "read", "copy the dataset to a faster disk"),
    ({"stages": {"read": 3.0}, "is_remote": True}, None, "read",
     "raise cache_bytes= until the cache holds the whole dataset"),
    ({"stages": {"parse": 3.0}}, None, "parse", "features=['image', 'label']"),
    ({"stages": {"batch": 3.0}}, None, "batch", "memory bandwidth"),
])  # fmt: skip
def test_advice(changes: Any, target: float | None, stage: str, text: str) -> None:
    found = diagnosis(**changes)

    assert limiting_stage(found) == stage
    assert text in advice(found, target)


def test_rates_and_cores() -> None:
    found = diagnosis(images_per_sec=1200.0, cores_busy=1.5)

    assert found.images_per_sec_per_core == 800
    assert found.cores_for(1786) == pytest.approx(2.2325)
    report = format_diagnosis(found, 1786)
    assert "1,200 images/s, 1.5 cores busy, 800 images/s per core" in report
    assert "1,786 images/s need 3 such cores" in report
    assert "other programs used the remaining cores" in report
    assert "decode          1.000    85%   <- limits" in report
    assert "JPEGs can" not in report
    slow = diagnosis(part_decoder="none", part_decoder_fix="install a C compiler")
    assert "JPEGs can be decoded faster: install a C compiler" in format_diagnosis(slow, None)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "", "x8"])
def test_no_targets(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"must be images/s above 0"):
        parse_target(text)


def test_it_measures_a_dataset(zoo: Path) -> None:
    with training_reader(str(zoo), image_side=32, batch_size=4) as reader:
        found = diagnose(reader, seconds=0.1)

    assert tuple(found.stage_msec) == STAGES
    assert all(msec >= 0 for msec in found.stage_msec.values())
    assert found.stage_msec["read"] > 0
    assert found.images_per_sec > 0
    assert found.num_records >= 4
    assert 0 < found.stored_pixels < 9 * 20
    assert not found.is_remote


def test_it_measures_a_dataset_with_boxes(tmp_path: Path) -> None:
    boxes = {
        f"objects/{name}": [value] for name, value in {"bbox": [0.0] * 4, "label": "a"}.items()
    }
    records = [{"image": np.zeros((8, 8, 3), np.uint8), **boxes} for _ in range(2)]
    sw.write(records, str(tmp_path / "out"), schema="detection")
    with training_reader(str(tmp_path / "out"), image_side=4, batch_size=2) as reader:
        assert "objects/bbox" not in reader.element_spec
        assert diagnose(reader, seconds=0.1).num_records


def test_the_command(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--seconds", "0.1", "--image-size", "32", "--batch-size", "4", "--target", "1e9"]
    assert main(["doctor", str(zoo), *options]) == 0
    text = capsys.readouterr().out
    assert "the one change to make" in text
    assert "1,000,000,000 images/s need" in text

    assert main(["doctor", str(zoo), *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["limited_by"] in STAGES
    assert set(found["stage_msec"]) == set(STAGES)

    assert main(["doctor", str(zoo / "nothing"), *options]) == 2
    assert "is not a shardwright dataset" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["doctor", str(zoo), "--target", "0"])
    assert stopped.value.code == 2
