"""Distributions: built from a clean tree, checked as an index would, run in empty environments."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.engines.engine_builds import LOCAL, OPTIONS, ROOT, shard_digests

HOME = ROOT / ".engines" / "packaging"
TOOLS = HOME / "tools" / "bin" / "python"
UV = ROOT / ".uv" / "bin" / "uv"
HERE = "{}.{}".format(*sys.version_info)
PACKAGES = ("pipelines", "schemas", "shardwright", "transforms")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Only builds, or only one kind of trainer, may bring these.
NOT_IN_BASE = {
    *("apache-beam", "tensorflow", "tfx-bsl", "tensorflow-metadata", "torch", "jax", "pandas"),
    *("pillow", "opencv-python-headless"),
}
READ = """
import sys
import shardwright as sw
reader = sw.Reader(sys.argv[1], "train", global_batch_size=4, image=sw.EvalImage(16))
print(next(iter(reader))["image"].shape)
"""
INSTALL_S, RUN_S = 1500, 300
BUILT = pytest.mark.skipif(not TOOLS.exists(), reason="no build and twine: make test-packaging")
pytestmark = [BUILT, pytest.mark.timeout(INSTALL_S + RUN_S)]


def run(*command: str | Path, cwd: Path, timeout: float = RUN_S, code: int = 0) -> str:
    """Return the output of a command that must exit with `code`; it does not see this checkout."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV")
    ended = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name not in hidden},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    told = f"{command} ended with {ended.returncode}:\n{ended.stdout[-8000:]}"
    assert ended.returncode == code, told
    return ended.stdout


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
        command = (TOOLS, "-m", "pip", "--python", self.path, *arguments)
        return run(*command, cwd=self.cwd, timeout=INSTALL_S)

    def install(self, requirement: str, *, version: str = HERE) -> None:
        """Install at the versions the tests ran with: no new release of an index fails them."""
        locked = ROOT / "constraints" / f"python{version}.txt"
        tested = ("--constraint", locked) if locked.exists() else ()
        command = (UV, "pip", "install", "--quiet", "--python", self.path, *tested, requirement)
        run(*command, cwd=self.cwd, timeout=INSTALL_S)

    def installed(self) -> set[str]:
        lines = self.pip("list", "--format=freeze").splitlines()
        return {line.partition("==")[0].lower() for line in lines}


def make_environment(name: str, cwd: Path, python: str | Path = sys.executable) -> Environment:
    """Make an empty environment; not even pip is in it."""
    path = HOME / name
    cwd.mkdir()
    run(python, "-m", "venv", "--clear", "--without-pip", path, cwd=cwd)
    return Environment(path, cwd)


def pythons_here() -> dict[str, Path]:
    """Return the other supported Pythons of this machine, on PATH or of pyenv, by version."""
    found = {}
    for version in ("3.11", "3.12", "3.13", "3.14"):
        of_pyenv = (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python")
        on_path = shutil.which(f"python{version}")
        # A command of pyenv may be there for a Python that is not chosen, and then ends with 127.
        for path in (*of_pyenv, *([Path(on_path)] if on_path else [])):
            if version != HERE and not subprocess.run([path, "-c", ""], check=False).returncode:
                found[version] = path
    return found


PYTHONS = pythons_here()
EXTENSION = "shardwright/images/_region"


def files_of_the_tree() -> list[str]:
    """Files of a clone, once new ones are committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if os.path.lexists(ROOT / name)]


def sources() -> set[str]:
    """Return the files to install; the application's folders are packages of shardwright."""
    names = [
        name if name.startswith("shardwright/") else f"shardwright/{name}"
        for name in files_of_the_tree()
        if name.startswith(tuple(f"{package}/" for package in PACKAGES))
    ]
    return {name for name in names if name.endswith((".py", "py.typed", ".css", ".js", ".toml"))}


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel, the wheel made from the sdist."""
    tree = tmp_path_factory.mktemp("packaging") / "tree"
    for name in files_of_the_tree():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name, follow_symlinks=False)
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
    """The wheel with [build] and [reader], by pip at the newest versions, as users install it."""
    environment = make_environment("build", tmp_path_factory.mktemp("builder") / "elsewhere")
    environment.pip("install", "--quiet", "--no-compile", f"{distributions[1]}[build,reader]")
    return environment


def test_an_index_would_take_them(distributions: tuple[Path, Path]) -> None:
    check = ("-m", "twine", "--no-color", "check", "--strict")
    told = run(TOOLS, *check, *distributions, cwd=distributions[0].parent)
    assert told.count("PASSED") == 2


def test_the_sdist_is_what_a_checkout_stages(distributions: tuple[Path, Path]) -> None:
    """--setup_file of the unpacked sdist finds all that it needs; tests stay out."""
    with tarfile.open(distributions[0]) as archive:
        files = [member.name for member in archive.getmembers() if member.isfile()]
    names = {name.partition("/")[2] for name in files}
    project = {"setup.py", "pyproject.toml", "README.md", "LICENSE"}
    extension = {f"{EXTENSION}/region.c", f"{EXTENSION}/jpeg62.h"}
    assert names >= {*sources(), *project, *extension, "deploy/worker-requirements.txt"}
    folders = {name.split("/")[0] for name in names if "/" in name}
    assert folders <= {"shardwright", "deploy", "shardwright.egg-info"}


def test_the_wheel_is_all_packages_and_nothing_else(distributions: tuple[Path, Path]) -> None:
    """setup.py lists packages by name: a forgotten one would be missing on users' machines only."""
    with zipfile.ZipFile(distributions[1]) as archive:
        names = archive.namelist()
    found = {name for name in names if ".dist-info" not in name.split("/")[0]}
    assert found == {*sources(), f"{EXTENSION}.abi3.so"}


def test_the_version_is_in_one_place(distributions: tuple[Path, Path], base: Environment) -> None:
    version = PROJECT["version"]
    sdist, wheel = (path.name for path in distributions)
    assert sdist == f"shardwright-{version}.tar.gz"
    assert re.fullmatch(rf"shardwright-{version}-cp311-abi3-\w+\.whl", wheel), "of all Pythons"
    assert base.shardwright("--version") == f"shardwright {version}\n"
    assert base.python("-c", "import shardwright as sw; print(sw.__version__)") == f"{version}\n"
    holders = ["pyproject.toml", "setup.py", "deploy/Dockerfile", *sources()]
    found = [name for name in holders if f'"{version}"' in (ROOT / name).read_text()]
    assert found == ["pyproject.toml"]


def test_a_reader_needs_neither_beam_nor_tensorflow(
    distributions: tuple[Path, Path], base: Environment, local_dataset: Path
) -> None:
    """First the base install, which looks at datasets; then [reader] on top, which reads them."""
    assert not base.installed() & NOT_IN_BASE
    assert "sound" in base.shardwright("verify", local_dataset)
    assert "engine" in base.shardwright("inspect", local_dataset)
    assert "0 pictures" in base.shardwright("report", local_dataset, "-o", "page.html")
    assert "pip install 'shardwright[build]'" in base.shardwright("build", "in", "out", code=1)
    base.install(f"{distributions[1]}[reader]")
    assert base.installed() & NOT_IN_BASE == {"opencv-python-headless", "pillow"}
    assert base.python("-c", READ, local_dataset) == "(4, 16, 16, 3)\n"


def test_a_build_from_another_folder(
    builder: Environment, engine_images: Path, local_dataset: Path
) -> None:
    """The command, and the module that schedulers run, make the bytes of this checkout."""
    builder.pip("check")
    options = (*OPTIONS, *LOCAL)
    builder.shardwright("build", engine_images, "out", *options)
    assert builder.python("-c", READ, "out") == "(4, 16, 16, 3)\n"
    module = ("-m", "shardwright.pipelines.commands.build")
    builder.python(*module, "--input", engine_images, "--output", "again", *options)
    assert "sound" in builder.shardwright("verify", "out")
    found = [shard_digests(builder.cwd / name) for name in ("out", "again")]
    assert found == [shard_digests(local_dataset)] * 2


@pytest.mark.parametrize("version", PYTHONS)
def test_other_pythons_build_the_same_bytes(
    distributions: tuple[Path, Path],
    engine_images: Path,
    local_dataset: Path,
    tmp_path: Path,
    version: str,
) -> None:
    """At the locked versions; Python 3.14 has no lock and no tfx-bsl, and encodes in Python."""
    environment = make_environment(f"python{version}", tmp_path / "elsewhere", PYTHONS[version])
    environment.install(f"{distributions[1]}[build,reader]", version=version)
    assert ("tfx-bsl" in environment.installed()) == (version != "3.14")
    environment.shardwright("build", engine_images, "out", *OPTIONS, *LOCAL)
    assert "sound" in environment.shardwright("verify", "out")
    assert shard_digests(environment.cwd / "out") == shard_digests(local_dataset)
    assert environment.python("-c", READ, "out") == "(4, 16, 16, 3)\n"


def test_the_installed_package_says_how_dataflow_gets_it(builder: Environment) -> None:
    """There is no setup.py beside an installed package: an image, or a checkout's."""
    places = ("gs://raw/photos", "gs://training/photos", "--temp_location=gs://b/t")
    job = ("--runner=DataflowRunner", "--project=p", "--region=us-central1")
    told = builder.shardwright("build", *places, *job, code=2)
    assert "give --sdk_container_image" in told
    assert "--setup_file" in told
