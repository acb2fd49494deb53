"""DAGs that build on the Airflow worker, run by Airflow on real images."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.engines.airflow.airflow_runs import DAY, PER_DATE, SECONDS, Airflow, files_of, verify
from tests.engines.engine_builds import shard_digests
from tests.engines.engine_images import make_engine_images

VARIANTS = ("bash", "beam")
OPTIONS = {"records-per-shard": 9, "stratify": True}
CONF = {"split": "train=0.7,test=0.3", "shard_size": None, "options": OPTIONS}


@pytest.fixture(scope="module")
def datasets(airflow: Airflow, images: Path) -> dict[str, tuple[Path, str]]:
    """A run of each variant: its dataset and its log; not to be changed."""
    built = {}
    for variant in VARIANTS:
        output = airflow.folder / f"out {variant}"
        conf = {**CONF, "input": str(images), "output": f"{output}/{PER_DATE}"}
        built[variant] = (output / DAY, airflow.run(f"shardwright_{variant}", conf))
    return built


@pytest.fixture
def hanging_store() -> Iterator[socket.socket]:
    """The loopback address of a store that takes connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(SECONDS)
        yield server


@contextmanager
def webhook() -> Iterator[tuple[str, list[Any]]]:
    """Yield a server's address, and what was posted to it."""
    posted: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/alerts", posted
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_run_builds_a_sound_dataset(
    datasets: dict[str, tuple[Path, str]], airflow: Airflow, variant: str
) -> None:
    dataset, log = datasets[variant]
    verify(dataset)
    manifest = json.loads((dataset / "manifest.json").read_text())
    assert sum(split["num_records"] for split in manifest["splits"].values()) == 60
    assert f"report: {dataset}/report.html" in log
    assert (dataset / "report.html").is_file()
    for name, split in manifest["splits"].items():
        shards = f"{len(split['shards'])} shards, {split['num_bytes']} bytes"
        assert f"{name}: {split['num_records']} records in {shards}" in log
    assert not list(airflow.folder.rglob("INJECTED"))


def test_both_variants_write_the_same_bytes(datasets: dict[str, tuple[Path, str]]) -> None:
    assert shard_digests(datasets["bash"][0]) == shard_digests(datasets["beam"][0])
    assert len(shard_digests(datasets["bash"][0])) > 10


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_second_run_of_a_date_changes_nothing(
    datasets: dict[str, tuple[Path, str]], airflow: Airflow, images: Path, variant: str
) -> None:
    dataset, _ = datasets[variant]
    before = files_of(dataset)
    conf = {**CONF, "input": str(images), "output": f"{dataset.parent}/{PER_DATE}"}
    assert "up to date" in airflow.run(f"shardwright_{variant}", conf)
    assert files_of(dataset) == before


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_bad_input_fails_the_task_with_its_reason(
    airflow: Airflow, tmp_path: Path, variant: str
) -> None:
    conf = {**CONF, "input": str(tmp_path / "nowhere"), "output": str(tmp_path / "out")}
    once = airflow.once(tmp_path / "dags") if variant == "beam" else {}  # a try takes seconds
    tries = 1 if once else 3
    with webhook() as (address, posted):
        alert = {"AIRFLOW_VAR_SHARDWRIGHT_ALERT_URL": address}
        log = airflow.run(f"shardwright_{variant}", conf, code=1, **alert, **once)
    reasons = [line for line in log.splitlines() if "shardwright: error: " in line]
    assert len(reasons) == tries
    assert all(str(tmp_path / "nowhere") in reason for reason in reasons)
    (text,) = (message["text"] for message in posted)
    assert f"shardwright_{variant} " in text
    assert f"task build failed at try {tries}: " in text
    assert text in log
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_retry_goes_on_where_the_killed_try_stopped(airflow: Airflow, tmp_path: Path) -> None:
    images, output = make_engine_images(tmp_path / "images", 400), tmp_path / "out"
    options = {"records-per-shard": 1, "threads": 1}
    places = {"input": str(images), "output": str(output)}
    run = airflow.start("shardwright_bash", {**places, "shard_size": None, "options": options})
    try:
        finished = kill_in_the_middle(run, output)
    finally:
        ended = run.wait()
    assert ended.code == 0, ended.log[-8000:]
    assert "non-zero exit code" in ended.log
    after = files_of(output)
    assert 0 < len(finished) < 400
    assert {name: after[name] for name in finished} == finished
    verify(output)


def kill_in_the_middle(run: Any, dataset: Path) -> dict[str, tuple[int, int]]:
    """Kill the build when some of its shards are finished; gives those: the ones with a sidecar."""
    while len(list(dataset.glob("index/*.parquet"))) < 3:
        assert run.process.poll() is None, run.log.read_text()[-8000:]
        time.sleep(0.005)
    for process in run.builds():
        process.kill()
        process.wait(10)
    numbers = tuple(path.stem.rpartition("train-")[2] for path in dataset.glob("index/*.parquet"))
    return {name: stamp for name, stamp in files_of(dataset).items() if name.endswith(numbers)}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_task_out_of_time_stops_its_build(
    airflow: Airflow, hanging_store: socket.socket, tmp_path: Path, variant: str
) -> None:
    endpoint = f"http://127.0.0.1:{hanging_store.getsockname()[1]}"
    storage = [f"endpoint={endpoint}", "region=none", "anonymous=true", "deadline=900"]
    options = {"storage-option": storage}
    conf = {"input": "s3://bucket/photos", "output": str(tmp_path / "out"), "options": options}
    run = airflow.start(f"shardwright_{variant}", conf, **airflow.once(tmp_path / "dags"))
    try:
        with hanging_store.accept()[0]:  # the build is running, and waits
            (build,) = run.builds()
            run.process.send_signal(signal.SIGALRM)  # as Airflow's clock does
            wait_for_end(build, 120)
    finally:
        ended = run.wait()
    assert ended.code == 1
    assert "AirflowTaskTimeout" in ended.log


def wait_for_end(process: psutil.Process, seconds: float) -> None:
    """Wait until a process has ended; its parent need not have taken notice."""
    deadline = time.monotonic() + seconds
    with suppress(psutil.NoSuchProcess):
        while process.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, f"still running: {process.cmdline()}"
            time.sleep(0.1)
