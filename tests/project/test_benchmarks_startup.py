"""The benchmark of start-up: its files, and its verdicts."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from tests.support.benchmark_scripts import load


def test_tiny_files_are_different_images(tmp_path: Path) -> None:
    startup = load("startup")
    root = startup.make_tiny_files(tmp_path, 3)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    assert [path.stat().st_size for path in files] == [140] * 3
    assert len({path.read_bytes() for path in files}) == 3
    assert {Image.open(path).size for path in files} == {(1, 1)}
    assert startup.make_tiny_files(tmp_path, 3) == root


def test_a_case_is_judged_by_its_median(tmp_path: Path) -> None:
    startup, usage = load("startup"), load("measure").Usage
    runs = [usage(wall, 0, 0, 0, tmp_path) for wall in (1.0, 9.0, 1.4)]
    cases = [startup.Case("fast", 1.5, runs), startup.Case("slow", 1.3, runs)]
    cases.append(startup.Case("find", None, runs))
    assert [check.passed for check in startup.targets(cases)] == [True, False]
    runs_by_name = load("raw_results").pack({("help",): runs, ("tiny-again",): runs[1:2]})
    read = startup.unpack({"photos": 0, "tiny": 9, "runs": runs_by_name})
    assert [len(case.usages) for case in read] == [3, 0, 0, 1, 0]
