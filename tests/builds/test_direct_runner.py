"""`--runner DirectRunner`: no build rules out Prism, and a build works without it."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability import prism_runner

from shardwright.pipelines.commands.stock_writer import stock_graph
from shardwright.pipelines.job.build import prepare_job
from shardwright.pipelines.job.graph import build_graph
from shardwright.pipelines.local.build import plan_locally
from shardwright.pipelines.options.build import parse_options
from shardwright.pipelines.runners import run as running
from tests.support.build_helpers import build, hashes_of, make_images

LABELS = "image,label\n" + "".join(f"{number:04d},{'ab'[number % 2]}\n" for number in range(12))
STRATIFIED = ("--split", "test=3,train=rest", "--stratify", "--duplicates", "reject")


class PrismChosenError(BaseException):
    """Stands for Prism's run: no Exception, because Beam then takes another runner."""


@pytest.fixture
def images(tmp_path: Path) -> Path:
    (tmp_path / "labels.csv").write_text(LABELS)
    return make_images(tmp_path / "in", 12, names=("",))


def make_prism_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object) -> None:
        raise PrismChosenError

    monkeypatch.setattr(prism_runner.PrismRunner, "run_pipeline", run)


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--split", "train=0.5,test=0.5", "--encode", "jpeg", "--check", "decode"),
        (*STRATIFIED, "--labels", "labels.csv", "--labels-key", "stem"),
        ("--transform", "tests.support.user_transforms:tiles", "--threads", "1"),
        ("--writer", "beam", "--shard-count", "2"),
    ],
    ids=" ".join,
)
def test_no_transform_rules_prism_out(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Sequence[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    argv = [str(images), str(tmp_path / "out"), *options, "--runner=DirectRunner"]
    job = prepare_job(parse_options(argv))
    pipeline = beam.Pipeline(options=PipelineOptions(job.options.all_beam_args))
    if job.options.writer == "beam":
        stock_graph(pipeline, job, planned=plan_locally(job).shards.layout.cuts)
    else:
        build_graph(pipeline, job)
    make_prism_raise(monkeypatch)
    with pytest.raises(PrismChosenError):
        pipeline.run()


def test_some_transforms_rule_prism_out(monkeypatch: pytest.MonkeyPatch) -> None:
    make_prism_raise(monkeypatch)
    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=DirectRunner"]))
    _ = pipeline | beam.Create([1]) | beam.Map(abs).with_exception_handling()
    pipeline.run().wait_until_finish()


@pytest.fixture
def silent_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A firewall that drops packets: connections are made, and nothing ever comes."""
    monkeypatch.setattr(prism_runner.PrismJobServer, "BIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(running, "_FETCH_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        for name in ("https_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{server.getsockname()[1]}")
        yield


@pytest.mark.long
@pytest.mark.usefixtures("silent_proxy")
def test_a_build_works_without_prism(images: Path, tmp_path: Path) -> None:
    before = socket.getdefaulttimeout()
    assert build(images, tmp_path / "local", "--name", "same") == 0
    assert build(images, tmp_path / "out", "--name", "same", "--runner", "DirectRunner") == 0
    assert hashes_of(tmp_path / "out") == hashes_of(tmp_path / "local")
    assert socket.getdefaulttimeout() == before


@pytest.mark.usefixtures("silent_proxy")
def test_prism_by_name_that_cannot_be_fetched(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(images, tmp_path / "out", "--runner", "PrismRunner") == 1
    assert "error: could not download Prism (" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("runner", ["PrismRunner", "DirectRunner"])
def test_a_missing_prism(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], runner: str
) -> None:
    prism = tmp_path / "prism"
    options = ("--runner", runner, "--prism_location", prism)
    assert build(images, tmp_path / "out", *options) == 2
    assert f"--prism_location {prism} does not exist" in capsys.readouterr().err
