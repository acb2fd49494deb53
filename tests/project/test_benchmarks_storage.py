"""The storage benchmark: small runs of it, its clients, and figures computed from runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.servers.processes import BINARIES
from tests.support.benchmark_scripts import BENCHMARKS, load, peers_here, through_json

READERS = (
    *("s3 shardwright", "s3 obstore-threads", "s3 boto3-threads"),
    *("gs shardwright", "gs google-threads", "gs gcsfs"),
)
TABLES = {
    "list": ["| boto3-paginator, one folder | 100 |", "| shardwright, one folder | 1,000 |"],
    "read": [*(f"| {name} | 30 |" for name in READERS), "The proxy with 1 ms added passes"],
    "upload": ["| s3 boto3-transfer | 0 |", "| gs google-resumable | 0 |"],
}
report, clients = load("storage_report"), load("storage_clients")


@pytest.mark.long
@pytest.mark.parametrize(
    "parts", ["list", *(pytest.param(part, marks=pytest.mark.long) for part in ("read", "upload"))]
)
def test_a_small_run_fills_its_tables(tmp_path: Path, parts: str) -> None:
    for name in ("versitygw", "gcs-server", "latency-proxy"):
        if not os.access(BINARIES / name, os.X_OK):
            pytest.skip(f"{name} is not built: run `make servers` (it needs Go)")
    words = ["--quick", "--no-beam", "--parts", parts, "--msec", "30", "--dir", str(tmp_path)]
    command = [sys.executable, str(BENCHMARKS / "storage.py"), *words]
    env = {**os.environ, **peers_here(tmp_path / "peers")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=env)
    assert done.returncode == 0, done.stderr
    assert [line for line in TABLES[parts] if line not in done.stdout] == []
    assert str(tmp_path) not in done.stdout
    assert not (tmp_path / "stores").exists()


def made_results(ours: float, boto3: float, beam: float, server_s: float) -> Any:
    """Builds of 1,000 and 3,000 images; their slopes are these rates, our client uses 1.2 cores."""
    results = report.Results()
    rates = {"shardwright": ours, "boto3-loop": boto3, "beam-stock": beam}
    for output in ("folder", "S3"):
        for name, rate in rates.items():
            for size in (1000, 3000):
                seconds = size / rate
                cpu = (4 + 1.2 * seconds, 0, 400_000_000, server_s * seconds, 0.1 * seconds)
                results.add(("build", output, name, size), report.Run(size, 5 + seconds, *cpu))
    return results


@pytest.mark.parametrize(
    ("rates", "passed"),
    [
        ((1600.0, 400.0, 160.0, 0.6), [True, True, True]),
        ((1599.0, 400.0, 160.0, 0.6), [False, False, True]),
        ((1600.0, 100.0, 2.0, 0.3), [True, True, False]),
    ],
    ids=["all met", "too slow", "waiting"],
)
def test_builds_are_compared_by_their_slopes(
    rates: tuple[float, float, float, float], passed: list[bool]
) -> None:
    results = made_results(*rates)
    results.cores = 2
    found = report.targets(results)
    assert [target.passed for target in found] == [*passed, *passed, True]
    assert found[0].found.endswith(f"x ({rates[0]:,.0f} against {rates[2]:,.1f}/s)")


def test_the_bound_by_cpu_is_that_of_all_processes_together() -> None:
    results = made_results(1000.0, 400.0, 160.0, 0.6)
    results.cores = 2
    row = "| shardwright to S3 | 1,200 | 600 | 100 | 1,900 | 1,053 | 2.63x |"
    assert row in report.render(results, [])
    assert report.targets(results)[1].found.endswith("; bound by CPU: 2.63x")


def test_listings_and_uploads_are_compared_round_by_round() -> None:
    results = report.Results()
    upload, listing = ("upload", 0, "s3"), ("list", "one folder")
    for ours_s, theirs_s in ((1.0, 1.5), (2.0, 1.9), (1.0, 1.1)):
        results.add((*upload, "shardwright"), report.Run(1, ours_s, 0.2, 60_000_000, 10**8))
        results.add((*upload, "boto3-transfer"), report.Run(1, theirs_s, 0.4, 120_000_000, 10**8))
    results.add((*listing, "shardwright"), report.Run(200_000, 6.0, 2.0, 65_000_000, 10**8))
    results.add((*listing, "boto3-paginator"), report.Run(200_000, 30.0, 25.0, 1_000_000, 10**8))
    found = {target.text: (target.found, target.passed) for target in report.targets(results)}
    assert list(found.values()) == [
        ("1.10 (0.95-1.50)x", True),
        ("60 MB", True),
        ("12.5x", True),
        ("65 MB for 200,000 keys", False),
    ]
    read = through_json(report, results)
    assert report.targets(read) == report.targets(results)
    assert "| shardwright, one folder | 200,000 | 6.0 |" in report.render(read, [])


def test_a_client_that_reads_other_bytes_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps([{"key": "a", "num_bytes": 3, "etag": ""}]))
    short = {"s3": {"short": lambda _: lambda found: 2 * len(found)}}
    monkeypatch.setattr(clients, "READERS", short)
    args = clients.argparse.Namespace(rows=rows)
    with pytest.raises(SystemExit, match="short read 2 bytes of 3"):
        clients.run_read("short", clients.Place("s3", "bucket", {}), args)


def test_the_measured_stream_gives_its_bytes_once_and_again_after_a_seek() -> None:
    chunks = list(clients._chunks(1_000_001))
    assert sum(len(piece) for chunk in chunks for piece in chunk) == 1_000_001
    stream = clients._Stream(300_000)
    first = stream.readall()
    assert (len(first), stream.tell(), stream.seek(0), stream.tell()) == (300_000, 300_000, 0, 0)
    assert stream.readall() == first
