"""`--runner DirectRunner`: Beam decides whether it is Prism, and nothing in a build may rule Prism out; without it, the build goes on."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability import prism_runner

from pipelines import networks
from pipelines.graphs import build_graph
from pipelines.job import prepare_job
from pipelines.local_plan import plan_locally
from pipelines.options import parse_options
from pipelines.stock_build import stock_graph
from tests.build_helpers import build, hashes_of, make_images

LABELS = "image,label\n" + "".join(f"{number:04d},{'ab'[number % 2]}\n" for number in range(12))


class PrismChosenError(BaseException):
    """Stands for Prism's run: no Exception, which Beam would answer by another runner."""


@pytest.fixture
def images(tmp_path: Path) -> Path:
    (tmp_path / "labels.csv").write_text(LABELS)
    return make_images(tmp_path / "in", 12, names=("",))


def chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object) -> None:
        raise PrismChosenError

    monkeypatch.setattr(prism_runner.PrismRunner, "run_pipeline", run)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--split", "train=0.5,test=0.5", "--encode", "jpeg", "--check", "decode"),
        (
            "--split",
            "test=3,train=rest",
            "--stratify",
            "--duplicates",
            "reject",
            "--labels",
            "labels.csv",
            "--labels-key",
            "stem",
        ),
        ("--transform", "tests.user_transforms:tiles", "--threads", "1"),
        ("--writer", "beam", "--shard-count", "2"),
    ],
    ids=" ".join,
)
def test_no_transform_rules_prism_out(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Sequence[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    job = prepare_job(
        parse_options([str(images), str(tmp_path / "out"), *options, "--runner=DirectRunner"])
    )
    pipeline = beam.Pipeline(options=PipelineOptions(job.options.all_beam_args))
    if job.options.writer == "beam":
        stock_graph(pipeline, job, planned=plan_locally(job).layout.cuts)
    else:
        build_graph(pipeline, job)
    chosen(monkeypatch)
    with pytest.raises(PrismChosenError):
        pipeline.run()


def test_the_check_is_one_that_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen(monkeypatch)
    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=DirectRunner"]))
    _ = pipeline | beam.Create([1]) | beam.Map(abs).with_exception_handling()
    pipeline.run().wait_until_finish()


@pytest.fixture
def silent_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a firewall that drops packets is like: connections are made, and nothing ever comes."""
    monkeypatch.setattr(prism_runner.PrismJobServer, "BIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(networks, "_FETCH_SECONDS", 0.5)
    server = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{server.getsockname()[1]}"
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, address)
    yield
    server.close()


@pytest.mark.usefixtures("silent_proxy")
def test_a_build_goes_on_without_prism(images: Path, tmp_path: Path) -> None:
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
    assert "error: Prism could not be fetched (" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("runner", ["PrismRunner", "DirectRunner"])
def test_a_prism_that_is_not_there(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], runner: str
) -> None:
    assert (
        build(
            images,
            tmp_path / "out",
            "--runner",
            runner,
            "--prism_location",
            str(tmp_path / "prism"),
        )
        == 2
    )
    assert (
        f"--prism_location {tmp_path / 'prism'}: there is no such file" in capsys.readouterr().err
    )
