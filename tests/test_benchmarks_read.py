"""The reading benchmark: it runs as a whole on small data, its formats hold the photos, and its figures follow from the runs."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
ORDERS = ("sequential", "shuffled")


@pytest.fixture(autouse=True)
def _scripts_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def load(name: str) -> ModuleType:
    return importlib.import_module(name)


def run_script(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=240)


def made_results(feed: dict[tuple[str, str], list[float]], **parts: Any) -> Any:
    """Runs of one second each: `feed` in images per second by round, `raw` likewise, `first` and `rss` of the other parts."""
    report = load("read_report")
    results = {}
    for part, rates in (("feed", feed), ("raw", parts.get("raw", {}))):
        for (name, order), values in rates.items():
            runs = [report.Run(int(value), 1.0, 2.0, 0.5, 10**9, (10**8,) * 6) for value in values]
            results[report.Case(part, name, order)] = runs
    for (name, order), seconds in parts.get("first", {}).items():
        results[report.Case("start", name, order)] = [
            report.Run(0, 0.0, 0.0, value, 10**8) for value in seconds
        ]
    if rss := parts.get("rss"):
        results[report.Case("memory", "reader", "shuffled")] = [
            report.Run(1000, 60.0, 100.0, 0.5, max(rss), rss)
        ]
    return results


def rates(
    tf_data: float, reader_tf: float, reader: float, peer: float
) -> dict[tuple[str, str], list[float]]:
    """Both orders alike, in three rounds on a machine that is twice as fast in the last."""
    made = {"tf.data": tf_data, "reader.tf_data": reader_tf, "reader": reader}
    found = {
        (name, order): [rate, rate, 2 * rate] for name, rate in made.items() for order in ORDERS
    }
    others = {
        (name, "shuffled"): [rate, rate, 2 * rate]
        for name, rate in {"grain": peer, "torch": peer / 2}.items()
    }
    return {**found, **others}


@pytest.mark.parametrize(
    ("speeds", "passed"),
    [
        ((1000, 1000, 1100, 900), [True] * 6),
        ((1000, 970, 1100, 900), [True] * 6),
        ((1000, 969, 1100, 900), [False, True, True, True, True, True]),
        ((1000, 949, 1099, 900), [False, False, False, False, True, True]),
        ((1000, 1000, 1100, 1050), [True, True, True, True, True, False]),
        ((1000, 1000, 1100, 1100), [True, True, True, True, False, False]),
    ],
    ids=["all met", "within noise", "below noise", "all slow", "a peer between", "a peer as fast"],
)
def test_speeds_are_held_against_the_tuned_pipeline_and_the_nearest_peer(
    speeds: tuple[int, ...], passed: list[bool]
) -> None:
    report = load("read_report")
    found = report.targets(made_results(rates(*speeds)))
    assert [target.passed for target in found[:6]] == passed
    assert [target.passed for target in found[6:]] == [None] * 6
    assert (
        "x grain's; not measured: keras, grain-simplejpeg, webdataset, streaming, litdata"
        in found[4].found
    )


def test_ratios_are_of_the_same_round() -> None:
    report = load("read_report")
    feed = {
        ("reader", "shuffled"): [100, 300, 500],
        ("tf.data", "shuffled"): [100, 200, 250],
        ("tf.data", "sequential"): [1, 1],
    }
    results = made_results(feed)
    ours = report.Case("feed", "reader", "shuffled")
    assert report.ratios(results, ours, report.Case("feed", "tf.data", "shuffled")) == [
        1.0,
        1.5,
        2.0,
    ]
    assert report.ratios(results, ours, report.Case("feed", "tf.data", "sequential")) == []
    assert report.ratios(results, ours, report.Case("feed", "keras", "shuffled")) == []


@pytest.mark.parametrize(
    ("raw", "first", "rss", "passed"),
    [
        ((900, 600), 2.99, 105, [True, True, True, True]),
        ((899, 600), 3.0, 105, [False, True, False, True]),
        ((900, 599), 1.0, 106, [True, False, True, False]),
    ],
)
def test_records_start_and_memory_have_their_limits(
    raw: tuple[int, int], first: float, rss: int, passed: list[bool]
) -> None:
    report = load("read_report")
    reading = {("tfrecord", "sequential"): [1000] * 3}
    reading |= {
        (name, order): [rate] * 3
        for name in ("reader", "load")
        for order, rate in zip(ORDERS, raw, strict=True)
    }
    starts = {("reader", "shuffled"): [0.5, 0.5, 0.5], ("load", "shuffled"): [0.5, first, 0.5]}
    grown = (10**8, 10**8, 10**8, 10**8, rss * 10**6, rss * 10**6)
    results = made_results({}, raw=reading, first=starts, rss=grown)
    found = report.targets(results)[6:]
    assert [target.passed for target in (*found[:2], *found[4:])] == passed
    assert found[:2] != found[2:4]
    assert found[4].found == f"{first:.2f} s (load, shuffled)"


def test_the_page_has_every_figure() -> None:
    report = load("read_report")
    raw = {("tfrecord", "sequential"): [20_000], ("reader", "shuffled"): [15_000]}
    results = made_results(
        rates(1000, 950, 1234, 900), raw=raw, first={("load", "shuffled"): [1.5]}, rss=(10**8,) * 6
    )
    page = report.render(
        results,
        report.targets(results),
        ["- Machine"],
        tuned={"slow": 1.0, "fast": 2.0},
        chosen="fast",
        shards=10_000,
    )
    for line in (
        "| reader, shuffled | 1,234 (1,234-2,468) | 1.23 (1.23-1.23) | 617 | 0.50 (0.50-0.50) | 1,000 | 100 / 100 / 100 |",
        "| fast | 2 |\n| slow | 1 |",
        "| reader, shuffled | 15,000 | 0.75 | 7,500 |",
        "10,000 shards of 4 tiny images\n\n| loader | seconds | peak RSS MB |\n| --- | ---: | ---: |\n| load, shuffled | 1.50 | 100 |",
        "RSS in MB over 60 s",
        "That pipeline's variant: fast.",
        "| reader.tf_data, sequential, at least 1x the tuned tf.data pipeline, less 3% for noise | 0.95 (0.95-0.95)x | **FAIL** |",
    ):
        assert line in page


def test_memory_samples_are_put_to_their_times() -> None:
    mean_between = load("read_report").mean_between
    samples = [(0.0, 10), (1.0, 20), (2.0, 30), (9.0, 100)]
    assert mean_between(samples, [0.0, 1.0, 2.0, 4.0]) == (15, 25, 30)
    assert mean_between(samples, [4.0, 5.0, 7.0]) == (30, 100)
    assert mean_between(samples, []) == mean_between([], [0.0, 1.0]) == ()


def batches_of(size: int) -> Iterator[np.ndarray]:
    while True:
        yield np.zeros((size, 1), np.uint8)


@settings(max_examples=30, deadline=None)  # each looks through /proc
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
    assert 0.3 <= found["wall_s"] < 2
    assert found["items"] > 4
    assert found["times"][-1] - found["times"][0] == pytest.approx(found["wall_s"])


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
def test_a_loader_that_does_other_work_is_refused(
    shape: tuple[int, ...], dtype: str, good: bool
) -> None:
    check = load("read_feeds").check_images
    if good:
        check(np.zeros(shape, dtype), 8)
    else:
        with pytest.raises(SystemExit, match="not uint8 of at most 8 images of 224x224"):
            check(np.zeros(shape, dtype), 8)


@pytest.mark.parametrize(
    ("size", "count", "good"), [(80_000, 8, True), (80_000, 9, False), (10, 8, False)]
)
def test_records_that_hold_no_images_are_refused(size: int, count: int, good: bool) -> None:
    batch = np.array([bytes(size)] * count, object)
    if good:
        load("read_feeds").check_records(batch, 8)
    else:
        with pytest.raises(SystemExit, match=f"first record of {size} bytes"):
            load("read_feeds").check_records(batch, 8)


@given(image=st.binary(max_size=50), label=st.integers(0, 2**40))
def test_what_is_packed_is_unpacked(image: bytes, label: int) -> None:
    data = load("read_data")
    assert data.unpack(data.pack(image, label)) == (image, label)


def test_the_formats_hold_the_photos(tmp_path: Path) -> None:
    from array_record.python.array_record_data_source import ArrayRecordDataSource
    from webdataset import WebDataset

    read_data = load("read_data")
    data = read_data.make_data(tmp_path, 16, ["grain", "webdataset"], Path("no-python"))
    photos = sorted(
        (path.read_bytes(), label) for path, label in read_data.labelled(data / "photos")
    )
    assert len({image for image, _ in photos}) == 16
    records = ArrayRecordDataSource(sorted(map(str, data.glob("array_record/*.arrayrecord"))))
    assert sorted(map(read_data.unpack, records.__getitems__(range(len(records))))) == photos
    tars = sorted(map(str, data.glob("tars/*.tar")))
    assert len(tars) > 4
    assert (
        sorted(
            (sample["jpg"], int(sample["cls"])) for sample in WebDataset(tars, shardshuffle=False)
        )
        == photos
    )
    made = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    assert read_data.make_data(tmp_path, 16, ["grain", "webdataset"], Path("no-python")) == data
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
    assert [case[1:] for case in cases] == [
        ("reader", "sequential"),
        ("reader", "shuffled"),
        ("tf.data", "sequential"),
        ("tf.data", "shuffled"),
        ("keras", "shuffled"),
    ]
    rounds = [read.turned(cases, number, 3) for number in range(3)]
    assert all(sorted(found) == sorted(cases) for found in rounds)
    assert len({found[0] for found in rounds}) == 3


def test_a_small_run_fills_its_tables(tmp_path: Path) -> None:
    words = ["--quick", "--parts", "feed,memory", "--systems", "grain", "--dir", str(tmp_path)]
    done = run_script(str(BENCHMARKS / "read.py"), *words)
    assert done.returncode == 0, done.stderr
    for line in (
        "| grain, shuffled |",
        "| reader, shuffled |",
        "### RSS in MB over 1 s",
        "--dir DIR`",
    ):
        assert line in done.stdout
    assert str(tmp_path) not in done.stdout


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (
            ["--systems", "reader,pytorch"],
            2,
            "unknown ['pytorch']; choose from reader, reader.tf_data, load, tf.data, keras",
        ),
        (["--parts", "feeds"], 2, "unknown ['feeds']; choose from feed, raw, start, memory"),
        (
            ["--systems", "reader,torch,litdata", "--torch-python", "no/python"],
            1,
            "--torch-python no/python: not there, and torch, litdata need it; `make .torch/.peers` makes it, "
            "or leave them out: --systems reader",
        ),
    ],
)
def test_odd_arguments_are_told(words: list[str], status: int, message: str) -> None:
    done = run_script(str(BENCHMARKS / "read.py"), *words)
    assert (done.returncode, message in done.stderr) == (status, True), done.stderr


def test_the_shown_command_tells_no_path() -> None:
    assert load("read").shown(
        ["--quick", "--torch-python", "/somewhere/bin/python", "--write"]
    ) == [*("--quick", "--torch-python", "PYTHON", "--write")]


def test_what_torch_lacks_is_left_out_and_told() -> None:
    line, missing = load("read").look_at_torch(
        Path(sys.executable), ["reader", "webdataset", "streaming"]
    )
    assert missing == ["streaming"]
    assert "webdataset 1." in line
    assert line.endswith("not installed, so left out: streaming")


def test_a_gpus_feeds_are_held_against_synthetic_images() -> None:
    gpu_feed = load("gpu_feed")
    rates = {"synthetic": [100.0, 200.0, 400.0], "reader": [100.0, 190.0, 200.0]}
    assert gpu_feed.ratios(rates) == {"reader": 0.95}
    done = run_script(str(BENCHMARKS / "gpu_feed.py"), "--dataset", "nowhere")
    assert done.returncode == 1
    assert "torch" in done.stderr
    assert "Traceback" not in done.stderr
