"""The benchmarks' raw results, and the pages that are rendered from them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.support.benchmark_scripts import BENCHMARKS, load


@pytest.fixture(autouse=True)
def _scripts_find_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def made_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Keep a plan that failed its first target in `tmp_path`."""
    raw_results, usage = load("raw_results"), load("measure").Usage
    monkeypatch.setattr(raw_results, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["plan.py", "--dir", "/secret", "--rows", "7"])
    about = raw_results.circumstances(tmp_path, 1)
    run = usage(26.0, 25.0, 10**9, 10**9, Path("/secret/stdout"))
    result = raw_results.Result("plan", about, raw_results.pack({(7,): [run]}))
    result.save()
    return result


def test_raw_results_are_kept_with_their_circumstances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = made_result(tmp_path, monkeypatch)
    assert load("raw_results").load_all() == [result]
    assert "/secret" not in (tmp_path / "plan.json").read_text()
    text = load("plan").render(load("plan").unpack(result.raw), result.lines)
    assert "`python benchmarks/plan.py --dir DIR --rows 7`; 1 round; " in text
    assert "| 7 | 0 | 26.0 | 25.0 | 1.00 | 1.00 |" in text


def test_a_result_older_than_its_code_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = made_result(tmp_path, monkeypatch)
    stale = load("raw_results").STALE
    assert not result.is_stale
    assert stale not in "".join(result.lines)
    result.about["sources"]["transforms"] = "another"
    assert result.is_stale
    assert stale in result.lines[0]


def test_all_targets_are_in_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_result(tmp_path, monkeypatch)
    tables = load("tables")
    found = tables.targets_table(tables.load_all())
    assert "| plan | plan of 7 rows: at most 25 s | 26.0 s | **FAIL** |" in found
    assert "| plan | plan of 7 rows: at most 1.3 GB | 1.00 GB | PASS |" in found
    assert "| build | all | no raw results yet | - |" in found


def test_the_pages_are_what_the_raw_results_render_to() -> None:
    """Except for the sentence on changed code, which appears at the next rendering."""
    tables, stale = load("tables"), load("raw_results").STALE
    for path, text in tables.rendered(tables.load_all()).items():
        found = path.read_text()
        assert found.replace(stale, "") == text.replace(stale, ""), f"{path}: make bench-tables"


def test_every_section_of_a_page_has_its_place() -> None:
    for path, sections in load("summaries").PAGES.items():
        places = re.findall(r"<!-- (\w+):start -->", path.read_text())
        assert places == list(sections)


def test_every_benchmark_that_needs_no_gpu_is_part_of_bench_all() -> None:
    makefile = (ROOT / "Makefile").read_text()
    listed = re.search(r"^BENCHMARKS := (.+)$", makefile, re.MULTILINE)
    assert listed is not None
    assert sorted([*listed[1].split(), "gpu_feed"]) == sorted(load("tables").REPORTS)


def usages(*walls: float) -> list[Any]:
    return [load("measure").Usage(wall_s, wall_s, 10**9, 5 * 10**8) for wall_s in walls]


def every_raw_result() -> dict[str, Any]:
    """Return made-up raw results of each benchmark that a summary needs."""
    pack, build, read = load("raw_results").pack, load("report"), load("read_report")
    storage = load("storage_report")
    seconds = {"tar": 4, "shardwright": 5, "tf-loop": 10, "webdataset": 20}
    builds = {
        (name, size * 40_000): usages(size * of) for name, of in seconds.items() for size in (1, 2)
    }
    builds |= {("beam-stock", 8): usages(5), ("beam-stock", 8008): usages(13)}
    feed = {
        "reader": 30,
        "reader.tf_data": 25,
        "tf.data": 20,
        "grain": 22,
        "keras": 5,
    }
    loaders = {
        read.Case("feed", name, "shuffled"): [read.Run(rate, 1.0, 1.0, 0.1, 10**9)]
        for name, rate in feed.items()
    }
    store = storage.Results()
    for name, of in (("shardwright", 1), ("boto3-loop", 5), ("beam-stock", 100)):
        for output in ("folder", "S3"):
            for size in (100, 200):
                run = storage.Run(size, size * of / 100, 1.0, 0, 10**8)
                store.add(("build", output, name, size), run)
    for name, cpu_s in (("shardwright", 1.5), ("boto3-paginator", 28)):
        store.add(("list", "100 folders", name), storage.Run(2000, 1.0, cpu_s, 0, 0))
        store.add(("list", "one folder", name), storage.Run(2000, 1.0, cpu_s, 0, 0))
    for name, wall_s in (("shardwright", 1.0), ("boto3-transfer", 1.2)):
        store.add(("upload", 0, "s3", name), storage.Run(1, wall_s, 1.0, 0, 0))
    encoders = (("Pillow", 10.0), ("shardwright", 9.0))
    rates = {
        f"{name}, {cores}": [rate] for name, rate in encoders for cores in ("one core", "all cores")
    }
    made = (("shardwright", 1), ("daft", 2), ("ray", 4))
    boxes = load("detection")
    boxed = {
        (case,): [boxes.Run({"reader": 60, "tf.data": 40}.get(loader, 15), 8.0, 10**9)]
        for case, (loader, _) in boxes.CASES.items()
    }
    return {
        "build": build.packed(build.Results(builds, {80_000: [3.0]})),
        "plan": pack({(5_000_000,): usages(20)}),
        "join": pack({(3_000_000, False): usages(20), (3_000_000, True): usages(50)}),
        "encode": {"rates": {"500 x 375": rates}, "peak_bytes": 1, "large": 1, "photos": 9},
        "peers": pack(
            {(name, size): usages(size * of / 100) for name, of in made for size in (50, 100)}
        ),
        "storage": storage.packed(store),
        "read": read.packed(read.Session(loaders, {}, "AUTOTUNE", 10)),
        "detection": {"runs": pack(boxed), "photos": 9, "batch_size": 4, "photo_kb": 9},
    }


LINES = {
    "performance.md": """
| **shardwright** | 8,000 | 0.80 | 8,000 |
80,000 files take 1.0 GB of memory at the peak, all processes together. Measured at commit
A plan of 5,000,000 rows takes 20 s and 1.0 GB (`make bench-plan`). Measured at commit
Joining 3,000,000 labels takes 1.0 GB and 30 s more than the plan without (`make bench-join`).
Re-encoding 500 x 375 photographs runs at 0.90 to 0.90 of one plain Pillow process per core
| Daft | 50 | 0.5 GB |
| 64 threads of boto3 and `tf.io.TFRecordWriter` | 20 | 20 |
Listing 2,000 objects takes 1.5 s of CPU; boto3's paginator takes 19 times as much.
A shard uploads at 1.20x
| **`sw.Reader`** | 30 | 1.50 | 1.0 GB |
- slope at least 0.9x tar's: 0.80x (8,000 against 10,000/s)""",
    "README.md": """
| Build 80,000 JPEGs, with start-up | 8,000 | 4,000 (a loop with `tf.io.TFRecordWriter`) | 2.00x |
| Build from S3 to S3 | 100 | 20 (64 threads of boto3 and `tf.io.TFRecordWriter`) | 5.00x |
| Decode, resize, write | 100 | 50 (Daft) | 2.00x |
| Read shuffled crops | 30 | 22 (Grain) | 1.36x |
| Read crops with their boxes | 60 | 40 (`tf.data`, the best of its variants) | 1.50x |""",
}


def test_every_table_is_rendered_from_raw_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw_results, tables = load("raw_results"), load("tables")
    monkeypatch.setattr(raw_results, "FOLDER", tmp_path)
    about = raw_results.circumstances(tmp_path, 1)
    for name, raw in every_raw_result().items():
        raw_results.Result(name, about, raw).save()
    pages = {path.name: text for path, text in tables.rendered(tables.load_all()).items()}
    for name, lines in LINES.items():
        assert [line for line in lines.strip().splitlines() if line not in pages[name]] == []
    assert "Printed at commit" not in pages["performance.md"]
    assert "## Peers" in pages["RESULTS.md"]
