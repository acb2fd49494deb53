"""Fixtures of several test files. Nothing heavy is imported before a test asks for it."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing.util
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest

from tests.support import random_tests
from tests.support.buckets import bucket, gcs_bucket, moto_bucket, proxy, s3_bucket, s3_proxy  # noqa: F401
from tests.support.object_stores import gcs_server, moto_server, s3_server  # noqa: F401 - fixtures
from tests.support.store_places import places  # noqa: F401

# Beam makes hundreds of argument parsers a build, and each argument asks for the terminal's size
# and looks for translations: a sixth of a small build's time. Here the environment answers.
_SIZE = shutil.get_terminal_size()
os.environ.update({"COLUMNS": str(_SIZE.columns), "LINES": str(_SIZE.lines), "LANGUAGE": "C"})


# Seconds of rounds of a random test.
_SECONDS = pytest.StashKey[float]()
# Part of why a test is skipped for want of a server (tests/servers/processes.py).
NO_SERVER = "is not built: run `make servers`"
# pytest's own folders, what multiprocessing and TensorFlow remove when a process ends, what
# Python compiles of TensorFlow's generated files, and uv's locks.
_ALLOWED = ("pytest-of-", "pymp-", "__autograph_generated_file", "__pycache__", "uv-")


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "run the long tests, and the random ones from new seeds for --minutes"
    parser.addoption("--long", action="store_true", help=text)
    text = "minutes of the random tests of --long, all together; 0 for a round of each"
    parser.addoption("--minutes", type=float, default=0, help=text)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Set the temporary folder and the seed of this run: xdist's workers inherit the variables."""
    if not is_worker(config):
        tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="shardwright-tests-")
    if config.getoption("--long"):
        os.environ[random_tests.LONG] = "1"
        os.environ.setdefault(random_tests.SEED, str(secrets.randbits(32)))
    random_tests.load_profile()


def is_worker(config: pytest.Config) -> bool:
    """Return whether this process is one of xdist's, and not the one that was started."""
    return hasattr(config, "workerinput")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave nothing in the system's temporary folder."""
    if not is_worker(config):
        # Ends the fork server, whose socket is in the folder, as it would at exit: too late here.
        multiprocessing.util._exit_function()
        shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that left temporary files outside of pytest's own folders."""
    if is_worker(session.config):
        return
    left = [name for name in os.listdir(os.environ["TMPDIR"]) if not name.startswith(_ALLOWED)]
    if left:
        print(f"\nleft in the temporary folder: {', '.join(sorted(left))}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the seed: with it, a failed run can be repeated."""
    no_server = [
        report
        for report in terminalreporter.getreports("skipped")
        if NO_SERVER in str(report.longrepr)
    ]
    if no_server:
        terminalreporter.write_line(
            f"{len(no_server)} tests of S3 and GCS were skipped: their servers are built with Go, "
            "and there is no go here (https://go.dev/dl)"
        )
    _write_rounds(terminalreporter)


def _write_rounds(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many rounds the random tests ran, and how to repeat those that failed."""
    kind = "" if random_tests.SEED in os.environ else ", fixed"
    terminalreporter.write_line(f"random seed: {random_tests.seed()}{kind}")
    reports = [
        (report, dict(report.user_properties)["rounds"])
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if report.when == "call" and "rounds" in dict(report.user_properties)
    ]
    if not random_tests.is_long() or not reports:
        return
    rounds = sorted((len(seeds), report.nodeid) for report, seeds in reports)
    terminalreporter.write_line(
        f"{len(rounds):,} random tests ran {sum(number for number, _ in rounds):,} rounds; "
        f"{sum(number == 1 for number, _ in rounds)} of them one"
    )
    for number, name in (*rounds[:5], *rounds[-5:]) if len(rounds) > 10 else rounds:
        terminalreporter.write_line(f"  {number:6,} {name}")
    for report, seeds in reports:
        if report.outcome == "failed":
            terminalreporter.write_line(
                f"repeat with: {random_tests.SEED}={seeds[-1]} .venv/bin/python -m pytest --long "
                f"'{report.nodeid}'"
            )


@pytest.hookimpl(trylast=True)  # Hypothesis marks its tests in this hook, too
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of this run: with `--long`, the long and the random ones; else the others."""
    is_long = random_tests.is_long()
    if "apache_beam" in sys.modules:
        importlib.import_module("tests.support.quick_beam")
    begun: set[object] = set()

    def is_wanted(item: pytest.Item) -> bool:
        others = item.get_closest_marker("long_but_first") and item.obj in begun  # type: ignore[attr-defined]
        begun.add(getattr(item, "obj", item))
        if others or item.get_closest_marker("long"):
            return is_long
        return not is_long or random_tests.is_random(item)

    wanted = [is_wanted(item) for item in items]
    config.hook.pytest_deselected(
        items=[item for item, keep in zip(items, wanted, strict=True) if not keep]
    )
    items[:] = [item for item, keep in zip(items, wanted, strict=True) if keep]
    if is_long:
        _share_minutes(config, [item for item in items if random_tests.is_random(item)])


def _share_minutes(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each random test its seconds, and time to end its last round."""
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    in_all = config.getoption("--minutes") * 60 * processes
    weights = [random_tests.weight_of(item) for item in items]
    for item, weight in zip(items, weights, strict=True):
        item.stash[_SECONDS] = in_all * weight / sum(weights)
        item.add_marker(pytest.mark.timeout(900 + item.stash[_SECONDS]), append=False)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object:
    """Run the rounds of a random test; in `make test` pytest runs the only one."""
    if _SECONDS not in pyfuncitem.stash:
        return None
    seeds: list[int] = []
    pyfuncitem.user_properties.append(("rounds", seeds))
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    for seed in random_tests.seeds(pyfuncitem.stash[_SECONDS]):
        seeds.append(seed)
        if "rng" in pyfuncitem.funcargs:
            state = np.random.default_rng(seed).bit_generator.state
            pyfuncitem.funcargs["rng"].bit_generator.state = state
        with _round_folder(given, len(seeds)) as arguments:
            run = pyfuncitem.obj
            (hypothesis.seed(seed)(run) if hypothesis.is_hypothesis_test(run) else run)(**arguments)
    return True


@contextlib.contextmanager
def _round_folder(given: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """Give each round a temporary folder of its own, removed after it unless it fails."""
    if "tmp_path" not in given:
        yield given
        return
    folder = given["tmp_path"] / f"round{number}"
    folder.mkdir()
    yield {**given, "tmp_path": folder}
    shutil.rmtree(folder)


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers from the seed of this run, the same for every test."""
    return np.random.default_rng(random_tests.seed())


@pytest.fixture(scope="session")
def zoo_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders with 36 images, and one file that is none."""
    from tests.support.damage import write_images

    root = write_images(tmp_path_factory.mktemp("zoo") / "images")
    (root / "ape" / "empty.png").write_bytes(b"")
    return root


@pytest.fixture(scope="session")
def zoo(zoo_images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of those images, `zoo`: splits train and test, 10 records a shard. Read only."""
    from tests.support.damage import build

    options = (
        "--split",
        "train=0.8,test=0.2",
        "--records-per-shard",
        "10",
        "--max-reject-fraction",
        "0.5",
    )
    return build(zoo_images, tmp_path_factory.mktemp("built") / "zoo", *options)


@pytest.fixture
def dataset(zoo: Path, tmp_path: Path) -> Path:
    """A copy of `zoo` that a test may damage."""
    return Path(shutil.copytree(zoo, tmp_path / "copy"))
