"""The benchmark of runners: speeds, other bytes, failures, missing engines, a server's memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.benchmark_scripts import load, through_json

CHILD = "import sys, time; data = b'x' * 100_000_000; print('ready', flush=True); time.sleep(60)"


report = load("runners_report")


def results_of(seconds: dict[str, tuple[float, float]], digest: str = "same") -> Any:
    """Two rounds of each runner: (seconds of 8 photos, of all)."""
    works = [
        report.Work(report.START, Path(), 8, ()),
        report.Work("photos", Path(), 1000, ("--shard-size", "20MB")),
    ]
    results = report.Results(works)
    for runner, (first, whole) in seconds.items():
        for _ in range(2):
            results.add(runner, report.START, report.Run(first, first, 10**9, "eight"))
            results.add(runner, "photos", report.Run(whole, 2 * whole, 2 * 10**9, digest))
    return results


def test_speeds_and_ratios() -> None:
    results = results_of({report.THREADS: (4.0, 14.0), report.PROCESSES: (10.0, 30.0)})
    photos = results.works[1]
    assert report.ratios(results, report.PROCESSES, photos) == [0.5, 0.5]
    assert report.ratios(results, report.PROCESSES, photos, of="cpu_s") == [24 / 50, 24 / 50]
    text = report.render(results, ["- machine"])
    assert f"| {report.THREADS} | 4.0 | yes | 71 | 2.00 |" in text
    assert f"| {report.PROCESSES}: speed | 0.50 (0.50-0.50)x |" in text
    passed = [check.passed for check in report.targets(results)]
    assert passed == [True, True, False]
    read = through_json(report, results)
    assert report.render(read, []) == report.render(results, [])


def test_what_went_wrong_is_told() -> None:
    results = results_of({report.THREADS: (4.0, 14.0), "Prism": (5.0, 15.0)})
    results.miss(["Flink-2"], "make test-flink")
    assert report.targets(results)[0].passed
    results.add("Prism", "photos", report.Run(15.0, 15.0, 10**9, "other"))
    assert not report.targets(results)[0].passed
    results.fail("Flink-4", "photos", "exit code 1: shardwright build\nmore")
    assert not report.targets(results)[1].passed
    text = report.render(through_json(report, results), [])
    assert "| Prism | 5.0 | **no** | 67 | 2.00 |" in text
    assert "| Flink-2 | not installed: `make test-flink` |" in text
    assert "| Flink-4 |  | **failed** |" in text
    assert text.endswith("- Flink-4, photos: failed: exit code 1: shardwright build")


def test_one_sha256_for_all_shards(tmp_path: Path) -> None:
    for name in ("a.tfrecord-00001-of-00002", "a.tfrecord-00000-of-00002", "manifest.json"):
        (tmp_path / name).write_text(name)
    command = ["sh", "-c", "sha256sum *.tfrecord-* | sha256sum"]
    wanted = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert load("runners").digest(tmp_path) == wanted.stdout.split()[0]


def test_a_servers_children_count() -> None:
    measure = load("measure")
    shell = ["sh", "-c", f'"{sys.executable}" -c "{CHILD}" & wait']
    server = subprocess.Popen(shell, start_new_session=True, stdout=subprocess.PIPE)
    servers = measure.Servers([server.pid])
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        assert 100e6 < servers.rss_bytes() < 200e6
    finally:
        for pid in servers.pids():
            os.kill(pid, signal.SIGKILL)
        server.communicate()
