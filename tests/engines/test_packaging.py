"""Distributions as a user gets them: built from a clean tree, checked as an index would, and run from empty environments."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.engines.engine_builds import LOCAL, OPTIONS, ROOT, shard_digests

HOME = ROOT / ".engines" / "packaging"
TOOLS = HOME / "tools" / "bin" / "python"
PACKAGES = ("pipelines", "schemas", "shardwright", "transforms")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# What only builds, or only one kind of trainer, may bring.
NOT_IN_BASE = {
    "apache-beam",
    "tensorflow",
    "tfx-bsl",
    "tensorflow-metadata",
    "torch",
    "jax",
    "pandas",
    "pillow",
    "opencv-python-headless",
}
READ = """
import sys
import shardwright as sw
reader = sw.Reader(sys.argv[1], "train", global_batch_size=4, image=sw.EvalImage(16))
print(next(iter(reader))["image"].shape)
"""
INSTALL_S, RUN_S = 1500, 300
pytestmark = [
    pytest.mark.skipif(
        not TOOLS.exists(), reason="build and twine are not installed: make test-packaging"
    ),
    pytest.mark.timeout(INSTALL_S + RUN_S),
]


def run(*command: str | Path, cwd: Path, timeout: float = RUN_S, code: int = 0) -> str:
    """What a command printed; nothing of this checkout is on its path, and it fails the test with its output if it ends otherwise."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    ended = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert ended.returncode == code, (
        f"{command} ended with {ended.returncode}:\n{ended.stdout[-3000:]}\n{ended.stderr[-5000:]}"
    )
    return ended.stdout + ended.stderr


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and an empty folder in which its programs are started."""

    path: Path
    cwd: Path

    def python(self, *arguments: str | Path) -> str:
        return run(self.path / "bin" / "python", *arguments, cwd=self.cwd)

    def shardwright(self, *arguments: str | Path, code: int = 0) -> str:
        return run(self.path / "bin" / "shardwright", *arguments, cwd=self.cwd, code=code)

    def pip(self, *arguments: str | Path) -> str:
        return run(
            TOOLS, "-m", "pip", "--python", self.path, *arguments, cwd=self.cwd, timeout=INSTALL_S
        )

    def install(self, requirement: str) -> None:
        """At the versions the tests ran with, so that an index's new release does not fail them."""
        self.pip(
            "install",
            "--quiet",
            "--no-compile",
            "--constraint",
            ROOT / "constraints.txt",
            requirement,
        )

    def installed(self) -> set[str]:
        return {
            line.partition("==")[0].lower()
            for line in self.pip("list", "--format=freeze").splitlines()
        }


def make_environment(name: str, cwd: Path) -> Environment:
    """An empty environment; not even pip is in it."""
    path = HOME / name
    venv.create(path, clear=True, symlinks=True)
    cwd.mkdir()
    return Environment(path, cwd)


def files_of_the_tree() -> list[str]:
    """What a clone has, or will have once what is new is committed."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def sources() -> set[str]:
    return {
        name
        for name in files_of_the_tree()
        if name.split("/")[0] in PACKAGES and name.endswith((".py", "py.typed"))
    }


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel, the wheel made from the sdist."""
    tree = tmp_path_factory.mktemp("packaging") / "tree"
    for name in files_of_the_tree():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    run(TOOLS, "-m", "build", "--outdir", tree.parent / "dist", tree, cwd=tree.parent)
    [sdist] = (tree.parent / "dist").glob("*.tar.gz")
    [wheel] = (tree.parent / "dist").glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="session")
def base(distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel alone."""
    environment = make_environment("base", tmp_path_factory.mktemp("base") / "elsewhere")
    environment.install(str(distributions[1]))
    return environment


@pytest.fixture(scope="session")
def builder(
    distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """The wheel with [build]."""
    environment = make_environment("build", tmp_path_factory.mktemp("builder") / "elsewhere")
    environment.install(f"{distributions[1]}[build]")
    return environment


def test_an_index_would_take_them(distributions: tuple[Path, Path]) -> None:
    told = run(
        TOOLS,
        "-m",
        "twine",
        "--no-color",
        "check",
        "--strict",
        *distributions,
        cwd=distributions[0].parent,
    )

    assert told.count("PASSED") == 2


def names_in(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        return {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}


def test_the_sdist_is_what_a_checkout_stages(distributions: tuple[Path, Path]) -> None:
    """--setup_file of the unpacked sdist finds all that it needs; tests, which workers do not, stay out."""
    names = names_in(distributions[0])

    assert names >= {
        *sources(),
        "setup.py",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "deploy/worker-requirements.txt",
    }
    assert top_level(names) <= {*PACKAGES, "deploy", "shardwright.egg-info"} | {
        name for name in names if "/" not in name
    }


def top_level(names: Iterable[str]) -> set[str]:
    return {name.split("/")[0] for name in names}


def test_the_wheel_is_all_packages_and_nothing_else(distributions: tuple[Path, Path]) -> None:
    """setup.py lists packages by name: one that it forgets would be missing from users' machines only."""
    with zipfile.ZipFile(distributions[1]) as archive:
        names = {
            name for name in archive.namelist() if not name.split("/")[0].endswith(".dist-info")
        }

    assert names == sources()


def test_the_version_is_in_one_place(distributions: tuple[Path, Path], base: Environment) -> None:
    version = PROJECT["version"]

    assert [path.name for path in distributions] == [
        f"shardwright-{version}.tar.gz",
        f"shardwright-{version}-py3-none-any.whl",
    ]
    assert base.shardwright("--version") == f"shardwright {version}\n"
    assert base.python("-c", "import shardwright as sw; print(sw.__version__)") == f"{version}\n"
    holders = [
        name
        for name in files_of_the_tree()
        if name in ("pyproject.toml", "setup.py", "deploy/Dockerfile") or name in sources()
    ]
    assert [name for name in holders if f'"{version}"' in (ROOT / name).read_text()] == [
        "pyproject.toml"
    ]


def test_a_reader_needs_neither_beam_nor_tensorflow(
    distributions: tuple[Path, Path], base: Environment, local_dataset: Path
) -> None:
    """First the base install, which looks at datasets; then [reader] on top, which reads them."""
    assert not base.installed() & NOT_IN_BASE
    assert "sound" in base.shardwright("verify", local_dataset)
    assert "engine" in base.shardwright("inspect", local_dataset)
    assert "pip install 'shardwright[build]'" in base.shardwright("build", "in", "out", code=1)

    base.install(f"{distributions[1]}[reader]")

    assert base.installed() & NOT_IN_BASE == {"opencv-python-headless"}
    assert base.python("-c", READ, local_dataset) == "(4, 16, 16, 3)\n"


def test_a_build_from_another_folder(
    builder: Environment, engine_images: Path, local_dataset: Path
) -> None:
    """By the command and by the module that schedulers run; the bytes are those that this checkout makes."""
    builder.pip("check")
    builder.shardwright("build", engine_images, "out", *OPTIONS, *LOCAL)
    builder.python(
        "-m",
        "pipelines.build_dataset",
        "--input",
        engine_images,
        "--output",
        "again",
        *OPTIONS,
        *LOCAL,
    )

    assert "sound" in builder.shardwright("verify", "out")
    assert (
        shard_digests(builder.cwd / "out")
        == shard_digests(builder.cwd / "again")
        == shard_digests(local_dataset)
    )


def test_the_installed_package_says_how_dataflow_gets_it(builder: Environment) -> None:
    """There is no setup.py beside an installed package: an image, or a checkout's."""
    told = builder.shardwright(
        "build", "gs://raw/photos", "gs://training/photos", "--runner=DataflowRunner", "--project=p", "--region=us-central1",
        "--temp_location=gs://b/t", code=2,
    )  # fmt: skip

    assert "give --sdk_container_image" in told
    assert "--setup_file" in told
