"""Imports between packages: read off the source, and tried in processes of their own."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path

import pytest

from shardwright import transforms
from shardwright.format.manifest import read_manifest
from shardwright.storage.folder import Folder
from tests import ROOT
from tests.structure import module_name, num_tokens
from tests.support.build_helpers import make_images

APPLICATION = ("schemas", "transforms", "pipelines")
PACKAGES = ("shardwright", *APPLICATION)
OUTSIDE = ("tests", "benchmarks", "examples", "deploy")
# One public PTransform each, named by what it does; they may not import one another.
VERBS = {
    "assign_splits", "clear_output", "commit_version", "drop_duplicates",
    "encode_features",
    "find_changes", "find_near_duplicates", "join_labels", "list_images",
    "list_splits", "plan_shards", "publish_dataset", "write_shards", "write_stock",
}  # fmt: skip
# Verb files share these; they import Beam, so no noun file may import them.
BEAM_HELPERS = {"routing", "metrics"}
READER_PACKAGES = {"numpy", "pyarrow", "obstore", "google_crc32c", "google", "msgspec", "PIL"}
# The stores' own clients are optional and slow to import: only functions of these files ask them.
PEER_FILES = {"storage/credentials.py", "storage/gcs_peer.py", "storage/s3_peer.py"}
PEER_PACKAGES = {"boto3", "botocore", "requests"}
HEAVY = (
    "tensorflow keras jax torch grain cv2 simplejpeg apache_beam tfx_bsl shardwright.pipelines "
    "shardwright.transforms shardwright.schemas pandas fsspec boto3 botocore requests google.auth "
    "google.cloud.storage http.client"
)
# Of the rest of the package.
STORAGE_MAY_IMPORT = ("shardwright.errors", "shardwright.storage")
# The trainers' own libraries: in files that are imported when one of them is asked for.
TRAINER_PACKAGES = {"tensorflow", "keras", "jax", "torch", "grain"}
TRAINER_FILES = ("trainers/",)
NOUN_PACKAGES = READER_PACKAGES | {
    *("shardwright", "schemas", "transforms", "mmh3", "tfx_bsl", "tensorflow_metadata", "yaml")
}


def modules_of(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


READER = modules_of("shardwright")
SHIPPED = [path for package in PACKAGES for path in modules_of(package)]


def names_of(nodes: Iterable[ast.AST]) -> tuple[str, ...]:
    """Return the modules and members that these statements import; `schemas` is ours."""
    found: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    ours = tuple(f"shardwright.{package}." for package in APPLICATION)
    return tuple(
        name.removeprefix("shardwright.") if f"{name}.".startswith(ours) else name for name in found
    )


@cache
def imports_of(path: Path) -> tuple[str, ...]:
    """Everything a file imports: at its top, in functions, or for type checking."""
    return names_of(ast.walk(ast.parse(path.read_text())))


def imports_at_once(path: Path) -> tuple[str, ...]:
    """Everything that is imported with the file itself."""
    return names_of(ast.parse(path.read_text()).body)


def name_of(path: Path) -> str:
    """Return a file's path in its package."""
    return "/".join(path.relative_to(ROOT).parts[1:])


def is_trainer_file(path: Path) -> bool:
    """Tell if a file of `shardwright` may import TensorFlow and its like."""
    return name_of(path).startswith(TRAINER_FILES)


def within(names: Iterable[str], packages: Collection[str]) -> list[str]:
    """Return the names that are below one of these top-level packages."""
    return [name for name in names if name.partition(".")[0] in packages]


def strangers(path: Path, allowed: set[str]) -> list[tuple[str, str]]:
    """(file, import) of each import that is neither allowed nor the standard library's."""
    names = set(imports_of(path))
    known = within(names, allowed | sys.stdlib_module_names)
    return [(str(path), name) for name in sorted(names.difference(known))]


def test_the_lists_name_files_that_are_there() -> None:
    assert {path.stem for path in modules_of("transforms")} >= VERBS | BEAM_HELPERS
    assert {name_of(path) for path in READER} >= PEER_FILES
    assert all((ROOT / package / "__init__.py").exists() for package in PACKAGES)


def test_the_reader_stands_alone() -> None:
    for path in READER:
        allowed = READER_PACKAGES | {"shardwright"}
        if is_trainer_file(path):
            allowed |= TRAINER_PACKAGES
        if name_of(path) in PEER_FILES:
            allowed |= PEER_PACKAGES
        assert strangers(path, allowed) == []


def test_trainers_and_clients_of_stores_are_imported_when_they_are_asked_for() -> None:
    for path in READER:
        names = imports_at_once(path)
        clients = within(names, PEER_PACKAGES | {"google", "http"})
        assert [name for name in clients if not name.startswith("google.protobuf.")] == [], path
        if not is_trainer_file(path):
            assert within(names, TRAINER_PACKAGES) == [], path
            own = ("shardwright.trainers",)
            assert [name for name in names if name.startswith(own)] == [], path


def test_only_storage_knows_the_storage_client() -> None:
    """Other code asks `Folder`: a change of client changes nothing else."""
    for path in SHIPPED:
        if path.parent != ROOT / "shardwright" / "storage":
            assert within(imports_of(path), {"obstore", *PEER_PACKAGES}) == [], path
        else:
            ours = within(imports_of(path), {"shardwright"})
            assert [name for name in ours if not name.startswith(STORAGE_MAY_IMPORT)] == [], path


def test_the_command_names_no_application() -> None:
    nodes = ast.walk(ast.parse((ROOT / "shardwright" / "inspect" / "cli.py").read_text()))
    texts = {str(node.value) for node in nodes if isinstance(node, ast.Constant)}
    applications = [f"{name}." for name in APPLICATION]
    assert [text for text in texts if any(name in text for name in applications)] == []


def test_schemas_are_declarations() -> None:
    for path in modules_of("schemas"):
        assert strangers(path, {"shardwright", "schemas"}) == []
        ours = within(imports_of(path), {"shardwright"})
        schema = "shardwright.format.schema."
        assert [name for name in ours if not name.startswith(schema)] == [], path


def test_noun_files_import_no_beam_and_verb_files_no_other_verb() -> None:
    with_beam = [path for path in modules_of("transforms") if path.stem in VERBS | BEAM_HELPERS]
    verbs = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in with_beam]
    for path in modules_of("transforms"):
        if path == ROOT / "transforms" / "__init__.py":  # lists the verbs, imported on first use
            assert within(imports_at_once(path), {"transforms", "apache_beam"}) == []
            continue
        allowed = NOUN_PACKAGES | ({"apache_beam"} if path in with_beam else set())
        assert strangers(path, allowed) == []
        ours = [name for name in imports_of(path) if name.startswith(tuple(verbs))]
        helpers = ("transforms.routing.", "transforms.metrics.") if path in with_beam else ()
        assert [name for name in ours if not name.startswith(helpers)] == [], path


def test_every_step_is_imported_from_its_package() -> None:
    missing = [name for name in transforms.__all__ if not callable(getattr(transforms, name))]
    assert missing == []
    assert set(dir(transforms)) >= {*transforms.__all__}
    with pytest.raises(AttributeError, match="has no attribute 'ReadMinds'"):
        _ = transforms.ReadMinds


def test_nothing_that_is_shipped_imports_what_is_not() -> None:
    for path in SHIPPED:
        assert within(imports_of(path), OUTSIDE) == [], path


def test_only_setup_ships_these_packages() -> None:
    """A wheel's allow-list: each package is on it, and nothing of the rest is."""
    setup = ast.parse((ROOT / "setup.py").read_text())
    calls = (node for node in ast.walk(setup) if isinstance(node, ast.Call))
    keywords = (keyword for call in calls for keyword in call.keywords)
    (listed,) = (keyword.value for keyword in keywords if keyword.arg == "packages")
    packages = [module_name(path, ROOT) for path in SHIPPED if path.name == "__init__.py"]
    assert sorted(ast.literal_eval(listed)) == sorted(packages)
    others = [ROOT / folder / "__init__.py" for folder in OUTSIDE if folder != "tests"]
    assert not any(path.exists() for path in others)


def test_the_extras_that_messages_name_are_there() -> None:
    """The base install brings the storage client; advised extras can be installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[<>=\[;]", requirement)[0] for requirement in project["dependencies"]}
    assert needed >= {"obstore", "pyarrow", "numpy", "google-crc32c", "protobuf"}
    assert needed.isdisjoint({"boto3", "requests", "google-auth", "tensorflow", "apache-beam"})
    texts = "".join(path.read_text() for path in READER)
    named = set(re.findall(r"shardwright\[(\w+)\]", texts))
    assert {"aws", "gcp", "build"} <= named <= set(project["optional-dependencies"])


def core_files() -> set[Path]:
    """Return the files of the table in ARCHITECTURE.md."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    section = text.partition("## The core")[2].partition("\n## ")[0]
    found = set()
    for folder, names in re.findall(r"^\| `([\w/]+)/` \| (.*) \|$", section, re.MULTILINE):
        listed = {*names.split(", ")}
        there = {path for path in (ROOT / folder).glob("*.py") if path.name != "__init__.py"}
        chosen = {path for path in there if names == "all" or path.stem in listed}
        assert names == "all" or {path.stem for path in chosen} == listed, folder
        found |= chosen
    return found


def test_the_core_imports_nothing_optional_and_can_be_read_in_a_day() -> None:
    core = core_files()
    modules = {module_name(path, ROOT): path for path in SHIPPED if path.name != "__init__.py"}
    for path in core:
        names = [f"shardwright.{name}" for name in within(imports_of(path), APPLICATION)]
        for name in [*names, *imports_of(path)]:
            other = modules.get(name) or modules.get(name.rpartition(".")[0])
            assert other is None or other in core, f"{path} imports {other}"
    assert sum(num_tokens(path.read_text()) for path in core) <= 120_000


def test_tests_in_foreign_environments_import_nothing_of_the_project() -> None:
    """Airflow and the browser's driver have environments of their own, without our packages."""
    foreign = ("engines/airflow", "browser")
    waiting = [path for name in foreign for path in modules_of(f"tests/{name}")]
    waiting = [path for path in waiting if path.name != "pages.py"]  # runs in ours
    seen: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        names = imports_at_once(path)
        assert within(names, PACKAGES) == [], path
        paths = (ROOT.joinpath(*name.split(".")) for name in within(names, {"tests"}))
        found = (path if path.is_dir() else path.parent for path in paths)
        waiting += [path.with_suffix(".py") for path in found if path.with_suffix(".py").exists()]
    assert len(seen) > 10


LOADED = """
import sys
loaded = sorted(set(sys.modules) & set(sys.argv[1].split()))
assert not loaded, loaded
"""


def try_python(code: str, *args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter; where `cwd` is given its folders come first on the path."""
    env = {**os.environ, "PYTHONPATH": str(cwd)} if cwd else dict(os.environ)
    command = [sys.executable, "-c", code, *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=env)


def run_python(code: str, *args: str, cwd: Path | None = None) -> str:
    """Run code as `try_python`, and return what it printed."""
    done = try_python(code, *args, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def imports(paths: Iterable[Path]) -> str:
    """Code that imports these files."""
    return "".join(f"import {module_name(path, ROOT)}\n" for path in paths)


def test_help_local_places_and_every_file_of_the_reader_are_light() -> None:
    """Not even a store's address needs more before it is opened."""
    code = """
import shardwright as sw
from shardwright.inspect.cli import main
from shardwright.errors import ShardwrightError
assert main(["--help"]) == 0
for place in (".", "ftp://host/x"):
    try:
        sw.open(place)
    except ShardwrightError as error:
        print(error)
"""
    light = imports(path for path in READER if not is_trainer_file(path))
    told = run_python(f"{code}{LOADED}{light}{LOADED}", HEAVY)
    assert "ftp:// addresses are not supported" in told


ENCODE = """
import pyarrow as pa
from shardwright.schemas.ready import image_classification
from shardwright.transforms.references import LABEL_INDEX
from shardwright.transforms.write.examples import ExampleEncoder

encoder = ExampleEncoder(image_classification().with_class_names(("a", "b")))
rows = pa.RecordBatch.from_pydict({"id": ["x"], LABEL_INDEX: [0]})
assert b"one" in b"".join(encoder.frame(encoder.encode_known(rows), [b""], [b"one"], [0]).pieces)
"""


def test_encoding_and_noun_files_need_neither_tensorflow_nor_beam() -> None:
    nouns = [path for path in modules_of("transforms") if path.stem not in VERBS | BEAM_HELPERS]
    run_python(f"{ENCODE}{imports(nouns)}{LOADED}", "tensorflow apache_beam shardwright.pipelines")


MIXED = """
import importlib, sys
order, dataset = sys.argv[1].split(","), sys.argv[2]
for name in order:
    importlib.import_module(name)
import shardwright as sw
from shardwright.inspect.cli import main
sw.write([{"id": str(n), "number": n} for n in range(6)], dataset, schema="records")
for args in (["verify", dataset], ["inspect", dataset], ["show", dataset, "0"], ["--help"]):
    assert main(args) == 0, args
assert sum(1 for _ in sw.Reader(dataset, "train", global_batch_size=2, epochs=1)) == 3
assert sum(1 for _ in sw.load(dataset, "train")) == 6
import transforms, pipelines.mine, schemas.mine, tests.mine
mine = [transforms.WHOSE, pipelines.mine.WHOSE, schemas.mine.WHOSE, tests.mine.WHOSE]
assert mine == ["theirs"] * 4, mine
"""
THEIRS = """
WHOSE = "theirs"

def augment(record):
    return record.replace(id=record.id + "!")
"""
PLUG_IN = """
from shardwright.transforms.inputs.formats.folders import FolderSource
from transforms import WHOSE

class Theirs(FolderSource):
    summary = f"a folder of {WHOSE}"
    rank = 1
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's project, whose modules are named like the folders of this repository."""
    folder = tmp_path / "project"
    for package in ("pipelines", "schemas", "tests"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text("")
        (folder / package / "mine.py").write_text(THEIRS)
    (folder / "transforms.py").write_text(THEIRS)
    (folder / "pipelines" / "format.py").write_text(PLUG_IN)
    metadata = folder / "theirs-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: theirs\nVersion: 1\n")
    entry = "[shardwright.sources]\ntheirs = pipelines.format:Theirs\n"
    (metadata / "entry_points.txt").write_text(entry)
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    "order",
    [
        ("transforms", "pipelines", "schemas", "tests", "shardwright"),
        ("shardwright.pipelines.commands.write", "transforms", "schemas"),
        ("shardwright", "schemas.mine", "shardwright.transforms", "shardwright.schemas.ready"),
    ],
)
def test_a_project_has_modules_of_the_same_names(
    project: Path, tmp_path: Path, order: tuple[str, ...]
) -> None:
    run_python(MIXED, ",".join(order), str(tmp_path / "dataset"), cwd=project)


BUILD = """
import sys
from shardwright.inspect.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "running", [pytest.param("in_memory", marks=pytest.mark.long), "multi_processing"]
)
def test_a_build_runs_the_transforms_and_the_plug_in_of_a_project(
    project: Path, tmp_path: Path, running: str
) -> None:
    """Worker processes import the project's `transforms`, too."""
    make_images(tmp_path / "in", 6)
    mode = () if running == "in_memory" else (f"--direct_running_mode={running}",)
    args = ("build", str(tmp_path / "in"), str(tmp_path / "out"), *mode)
    theirs = ("--transform", "transforms:augment", "--input-format", "theirs")
    run_python(BUILD, *args, *theirs, cwd=project)
    found = read_manifest(Folder(str(tmp_path / "out")))
    assert found.num_records == 6
    assert found.settings["transforms"][0]["function"] == "transforms:augment"
