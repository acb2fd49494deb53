"""Fixtures of several test files. Nothing heavy is imported before a test asks for it."""

from __future__ import annotations

import importlib
import multiprocessing.util
import os
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

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


# Part of why a test is skipped for want of a server (tests/servers/processes.py).
NO_SERVER = "is not built: run `make servers`"
# pytest's own folders, what multiprocessing and TensorFlow remove when a process ends, and what
# Python compiles of TensorFlow's generated files.
_ALLOWED = ("pytest-of-", "pymp-", "__autograph_generated_file", "__pycache__")


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "run the long tests, and property tests with many examples from a new seed"
    parser.addoption("--long", action="store_true", help=text)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Set the temporary folder and the seed of this run: xdist's workers inherit the variables."""
    if not is_worker(config):
        tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="shardwright-tests-")
    if config.getoption("--long"):
        os.environ[random_tests.LONG] = "1"
        os.environ.setdefault(random_tests.SEED, str(secrets.randbits(32)))
        config.option.hypothesis_seed = os.environ[random_tests.SEED]
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
    repeat = f"; repeat with {random_tests.SEED}" if random_tests.is_long() else ", fixed"
    terminalreporter.write_line(f"random seed: {random_tests.seed()}{repeat}")


@pytest.hookimpl(trylast=True)  # Hypothesis marks its tests in this hook, too
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of this run: with `--long`, the long and the random ones; else the others."""
    is_long = random_tests.is_long()
    if "apache_beam" in sys.modules and not is_long:
        importlib.import_module("tests.support.quick_beam")

    def is_wanted(item: pytest.Item) -> bool:
        if item.get_closest_marker("long"):
            return is_long
        has_seed = "rng" in getattr(item, "fixturenames", ())
        return not is_long or has_seed or item.get_closest_marker("hypothesis") is not None

    config.hook.pytest_deselected(items=[item for item in items if not is_wanted(item)])
    items[:] = [item for item in items if is_wanted(item)]


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
