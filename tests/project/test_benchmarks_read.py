"""The reading benchmark: small runs of it, the formats it makes, and its timing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.benchmark_scripts import BENCHMARKS, load, peers_here
from tests.support.random_tests import examples

ORDERS = ("sequential", "shuffled")


def batches_of(size: int) -> Iterator[np.ndarray]:
    while True:
        yield np.zeros((size, 1), np.uint8)


@examples(5)  # each looks through /proc
@given(size=st.integers(1, 70), warm_up=st.integers(0, 100), items=st.integers(1, 300))
def test_whole_batches_are_timed_and_no_fewer_than_asked_for(
    size: int, warm_up: int, items: int
) -> None:
    taken = 0

    def counted() -> Iterator[np.ndarray]:
        nonlocal taken
        for batch in batches_of(size):
            taken += size
            yield batch

    found = load("read_feeds").time_batches(counted(), warm_up_items=warm_up, items=items)
    assert items <= found["items"] < items + size
    assert warm_up + items <= taken < warm_up + items + 2 * size
    assert len(found["times"]) == 7
    assert found["times"] == sorted(found["times"])


def test_a_run_by_time_ends_after_it() -> None:
    found = load("read_feeds").time_batches(batches_of(4), warm_up_items=0, items=0, seconds=0.3)
    assert found["wall_s"] >= 0.3
    assert found["items"] > 4
    assert found["times"][-1] - found["times"][0] == pytest.approx(found["wall_s"])


def test_a_run_has_a_batch_however_short_it_is() -> None:
    found = load("read_feeds").time_batches(batches_of(4), warm_up_items=0, items=0, seconds=1e-9)
    assert found["items"] == 4


@pytest.mark.parametrize(
    ("shape", "dtype", "good"),
    [
        ((8, 224, 224, 3), "uint8", True),
        ((8, 3, 224, 224), "uint8", True),
        ((5, 224, 224, 3), "uint8", True),
        ((9, 224, 224, 3), "uint8", False),
        ((0, 224, 224, 3), "uint8", False),
        ((8, 224, 224, 3), "float32", False),
        ((8, 224, 256, 3), "uint8", False),
        ((8,), "uint8", False),
    ],
)
def test_other_work_than_the_images_of_a_batch_is_refused(
    shape: tuple[int, ...], dtype: str, good: bool
) -> None:
    refused = pytest.raises(SystemExit, match="not uint8 of at most 8 images of 224x224")
    with nullcontext() if good else refused:
        load("read_feeds").check_images(np.zeros(shape, dtype), 8)


@pytest.mark.parametrize(
    ("size", "count", "good"), [(80_000, 8, True), (80_000, 9, False), (10, 8, False)]
)
def test_records_that_hold_no_images_are_refused(size: int, count: int, good: bool) -> None:
    batch = np.array([bytes(size)] * count, object)
    with nullcontext() if good else pytest.raises(SystemExit, match=f"record of {size} bytes"):
        load("read_feeds").check_records(batch, 8)


@given(image=st.binary(max_size=50), label=st.integers(0, 2**40))
def test_what_is_packed_is_unpacked(image: bytes, label: int) -> None:
    feeds = load("read_feeds")
    assert feeds.unpack(feeds.pack(image, label)) == (image, label)


def test_the_formats_hold_the_photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from array_record.python.array_record_data_source import ArrayRecordDataSource
    from webdataset import WebDataset

    read_data, feeds = load("read_data"), load("read_feeds")
    peers_here(tmp_path / "peers")
    monkeypatch.setattr(load("environments"), "FOLDER", tmp_path / "peers")
    data = read_data.make_data(tmp_path, 16, ["grain", "webdataset"])
    photos = sorted((path.read_bytes(), label) for path, label in feeds.labelled(data / "photos"))
    assert len({image for image, _ in photos}) == 16
    records = ArrayRecordDataSource(sorted(map(str, data.glob("array_record/*.arrayrecord"))))
    assert sorted(map(feeds.unpack, records.__getitems__(range(len(records))))) == photos
    tars = sorted(map(str, data.glob("tars/*.tar")))
    samples = WebDataset(tars, shardshuffle=False)
    assert len(tars) > 4
    assert sorted((sample["jpg"], int(sample["cls"])) for sample in samples) == photos
    made = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    assert read_data.make_data(tmp_path, 16, ["grain", "webdataset"]) == data
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == made


@given(height=st.integers(1, 600), width=st.integers(1, 600), seed=st.integers(0, 2**32 - 1))
def test_a_drawn_crop_is_inside_the_image(height: int, width: int, seed: int) -> None:
    top, left, high, wide = load("read_systems")._draw_crop(
        height, width, np.random.default_rng(seed)
    )
    assert 0 <= top < top + high <= height
    assert 0 <= left < left + wide <= width


def test_each_round_runs_every_case_and_starts_with_another() -> None:
    read = load("read")
    cases = read.cases_of("feed", ["reader", "tf.data", "keras"])
    both = [(name, order) for name in ("reader", "tf.data") for order in ORDERS]
    assert [case[1:] for case in cases] == [*both, ("keras", "shuffled")]
    rounds = [load("page").turned(cases, number) for number in range(3)]
    assert all(sorted(found) == sorted(cases) for found in rounds)
    assert len({found[0] for found in rounds}) == 3


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ("--parts memory", ["### RSS in MB over 1 s", "--dir DIR`"]),
        pytest.param(
            "--parts feed,memory --systems grain",
            ["| grain, shuffled |", "| reader, shuffled |", "### RSS in MB over 1 s"],
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_small_run_fills_its_tables(tmp_path: Path, words: str, lines: list[str]) -> None:
    script = [sys.executable, str(BENCHMARKS / "read.py"), "--quick", *words.split()]
    command = [*script, "--dir", str(tmp_path)]
    env = {**os.environ, **peers_here(tmp_path / "peers")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=env)
    assert done.returncode == 0, done.stderr
    assert [line for line in lines if line not in done.stdout] == []
    assert str(tmp_path) not in done.stdout


@pytest.mark.long
def test_a_small_run_on_simulated_cores(tmp_path: Path) -> None:
    sizes = "--rounds 1 --photos 80 --batch-size 8 --seconds 0.2 --warm-up 16 --no-check"
    script = [sys.executable, str(BENCHMARKS / "scale.py"), "--cases", "processes=2,tf.data,grain"]
    command = [*script, *sizes.split(), "--dir", str(tmp_path)]
    env = {**os.environ, **peers_here(tmp_path / "peers")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=env)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^\| (processes=2|tf.data|grain) \| [1-9]", done.stdout, re.MULTILINE)
    assert "at least 40,000 images/s" in done.stdout


def test_the_best_number_of_processes_counts() -> None:
    scale = load("scale")
    rates = {"reader": [9e4], "processes=2": [3e4, 2e4, 5e4], "processes=4": [4e4, 3.9e4, 5e4]}
    runs = {
        (case,): [scale.Run(rate, 50.0, 2.5, 10**9) for rate in of] for case, of in rates.items()
    }
    packed = {"batch_size": 256, "photos": 9, "runs": load("raw_results").pack(runs)}
    found = scale.unpack(json.loads(json.dumps(packed)))
    assert [check[1:] for check in scale.targets(found)] == [
        ("40,000 (39,000-50,000)", True),
        ("2.5 (2.5-2.5)", True),
    ]
    assert all("processes=4" in check.text for check in scale.targets(found))
    assert "| reader | 90,000 | 50 | 2.5 | 1.00 |" in scale.render(found, ["- line"])
    assert scale.targets({"runs": {("reader",): []}}) == []


@pytest.mark.long
def test_a_small_run_of_photographs_with_boxes(tmp_path: Path) -> None:
    """Without torch's loaders, which the environment of these tests lacks."""
    sizes = "--rounds 1 --photos 16 --batch-size 4 --seconds 0.2 --warm-up 8 --no-check"
    script = [sys.executable, str(BENCHMARKS / "detection.py"), "--loaders", "reader,tf.data"]
    command = [*script, *sizes.split(), "--dir", str(tmp_path)]
    env = {**os.environ, **peers_here(tmp_path / "peers")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=env)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^\| reader \| [1-9]", done.stdout, re.MULTILINE)
    assert len(re.findall(r"^\| tf.data, .* \| [1-9]", done.stdout, re.MULTILINE)) == 4
    assert "| reader with boxes at least 2.2x the best of torch | - | - |" in done.stdout


def test_the_best_case_of_each_peer_counts() -> None:
    detection = load("detection")
    rates = {
        "reader": [20, 21, 30],
        "torch, Pillow": [8, 8, 8],
        "torch, torchvision": [10, 10, 10],
        "tf.data, AUTOTUNE": [15, 15, 20],
    }
    runs = {(case,): [detection.Run(rate, 9.5, 10**9) for rate in of] for case, of in rates.items()}
    packed = {"batch_size": 16, "photos": 9, "photo_kb": 320.4}
    packed["runs"] = load("raw_results").pack(runs)
    found = detection.unpack(json.loads(json.dumps(packed)))
    assert [check[1:] for check in detection.targets(found)] == [
        ("2.10 (2.00-3.00)x (torch, torchvision)", False),
        ("1.40 (1.33-1.50)x (tf.data, AUTOTUNE)", True),
    ]
    text = detection.render(found, ["- line"])
    assert "| reader | 21 (20-30) | 9.5 (9.5-9.5) | 1.00 |" in text
    assert "from 9 photographs of 320 KB" in text
    assert [check.passed for check in detection.targets({"runs": {("reader",): []}})] == [None] * 2


@pytest.mark.parametrize(
    ("script", "words", "told"),
    [
        (
            "read",
            "--systems reader,pytorch",
            "unknown ['pytorch']; choose from reader, reader.exact",
        ),
        (
            "read",
            "--parts feeds",
            "unknown ['feeds']; choose from feed, raw, random, start, memory",
        ),
        (
            "read",
            "--systems reader,torch,litdata --parts feed",
            "litdata, torch: no environment in nowhere/: run `make peer-litdata peer-torch`",
        ),
        (
            "storage",
            "--parts read,lists",
            "unknown ['lists']; choose from read, build, upload, list",
        ),
        ("gpu_feed", "--dataset nowhere", "run this with torch and torchvision"),
    ],
)
def test_wrong_options(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    script: str,
    words: str,
    told: str,
) -> None:
    monkeypatch.setattr(sys, "argv", [script, *words.split()])
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(load("environments"), "FOLDER", Path("nowhere"))
    with pytest.raises(SystemExit) as left:
        load(script).main()
    assert told in f"{left.value.code} {capsys.readouterr().err}"


def test_a_gpus_feeds_are_held_against_synthetic_images() -> None:
    gpu_feed = load("gpu_feed")
    rates = {
        ("no model", "reader"): [500.0, 600.0, 700.0],
        ("eager", "synthetic"): [100.0, 200.0, 400.0],
        ("eager", "reader"): [100.0, 150.0, 200.0],
        ("eager", "workers"): [100.0, 190.0, 200.0],
        ("eager", "processes"): [100.0, 196.0, 200.0],
    }
    runs = {case: [gpu_feed.Run(rate, 2.5, 0.125) for rate in of] for case, of in rates.items()}
    packed = {"batch_size": 256, "workers": 8, "records": 400}
    packed["runs"] = load("raw_results").pack(runs)
    found = gpu_feed.unpack(json.loads(json.dumps(packed)))
    assert [(check.found, check.passed) for check in gpu_feed.targets(found)] == [
        ("0.950 (0.500-1.000)x", False),
        ("0.980 (0.500-1.000)x", True),
    ]  # none of `reader`, which uses half of the cores
    text = gpu_feed.render(found, ["- line"])
    assert "| no model, reader | 600 (500-700) |  | 2.5 (2.5-2.5) | 12.5% (12.5%-12.5%) |" in text
    assert "| eager, reader | 150 (100-200) | 0.750 (0.500-1.000) |" in text
