"""Who may import whom: read off the source, and tried in processes of their own."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardwright.manifest import read_manifest
from shardwright.storage import Folder

ROOT = Path(__file__).parent.parent
PACKAGES = ("shardwright", "schemas", "transforms", "pipelines")
OUTSIDE = ("tests", "benchmarks", "examples", "deploy")
# One public PTransform each, named by what it does; they may not import one another.
VERBS = {
    "assign_splits", "clear_output", "drop_duplicates", "encode_features", "estimate_sizes", "join_labels", "list_images", "plan_shards",
    "publish", "write_shards", "write_stock",
}  # fmt: skip
BEAM_HELPERS = {
    "routing",
    "metrics",
}  # what verb files share; it imports Beam, so no noun file may import it
READER_PACKAGES = {"numpy", "pyarrow", "obstore", "google_crc32c", "google", "PIL"}
# The stores' own clients are optional, slow to import, and asked only for what obstore cannot do: in functions of these files.
PEER_FILES = {"storage/credentials.py", "storage/peers.py"}
PEER_PACKAGES = {"boto3", "botocore", "requests"}
HEAVY = (
    "tensorflow keras jax torch grain cv2 simplejpeg apache_beam tfx_bsl pipelines transforms schemas pandas fsspec boto3 botocore "
    "requests google.auth google.cloud.storage http.client"
)
STORAGE_MAY_IMPORT = {"errors", "naming", "storage"}  # of the rest of the package
# The trainers' own libraries: in files that are imported when one of them is asked for.
TRAINER_PACKAGES = {"tensorflow", "keras", "jax", "torch", "grain"}
TRAINER_FILES = ("tfdata.py", "trainers/")
DEVICE_FILES = {"doctor.py"}  # looks, in functions, which accelerator is there
NOUN_PACKAGES = READER_PACKAGES | {
    "shardwright",
    "schemas",
    "transforms",
    "tfx_bsl",
    "tensorflow_metadata",
}


def modules_of(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports_of(path: Path) -> Iterator[str]:
    """Full names of all modules a file imports, at its top, in functions, or for type checking."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports_at_once(path: Path) -> Iterator[str]:
    """Full names of the modules that a file imports when it is imported itself."""
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            module = [] if isinstance(statement, ast.Import) else [statement.module]
            yield from (".".join([*filter(None, module), alias.name]) for alias in statement.names)


def name_of(path: Path) -> str:
    """A file's path in its package."""
    return "/".join(path.relative_to(ROOT).parts[1:])


def is_trainer_file(path: Path) -> bool:
    """Whether a file of `shardwright` may import TensorFlow and its like."""
    return name_of(path).startswith(TRAINER_FILES)


def strangers(path: Path, allowed: set[str]) -> list[str]:
    known = allowed | sys.stdlib_module_names
    return sorted(name for name in set(imports_of(path)) if name.partition(".")[0] not in known)


def transform_imports(path: Path) -> set[str]:
    """Which files of `transforms` a file imports."""
    return {name.split(".")[1] for name in imports_of(path) if name.startswith("transforms.")}


def test_the_lists_name_files_that_are_there() -> None:
    there = {path.stem for path in modules_of("transforms")}
    assert there >= VERBS | BEAM_HELPERS
    assert all((ROOT / package / "__init__.py").exists() for package in PACKAGES)


@pytest.mark.parametrize("path", modules_of("shardwright"), ids=name_of)
def test_the_reader_stands_alone(path: Path) -> None:
    allowed = READER_PACKAGES | {"shardwright"}
    adapter = TRAINER_PACKAGES if is_trainer_file(path) or name_of(path) in DEVICE_FILES else set()
    peers = PEER_PACKAGES if name_of(path) in PEER_FILES else set()
    assert strangers(path, allowed | adapter | peers) == []


@pytest.mark.parametrize("path", modules_of("shardwright"), ids=name_of)
def test_trainers_are_imported_when_they_are_asked_for(path: Path) -> None:
    if not is_trainer_file(path):
        found = [
            name
            for name in imports_at_once(path)
            if name.startswith(("shardwright.trainers", "shardwright.tfdata"))
        ]
        assert found == []
        assert [
            name for name in imports_at_once(path) if name.partition(".")[0] in TRAINER_PACKAGES
        ] == []


@pytest.mark.parametrize("path", modules_of("shardwright"), ids=name_of)
def test_the_stores_own_clients_are_imported_when_they_are_needed(path: Path) -> None:
    found = [
        name
        for name in imports_at_once(path)
        if name.partition(".")[0] in PEER_PACKAGES | {"google", "http"}
    ]
    assert [name for name in found if not name.startswith("google.protobuf.")] == []


@pytest.mark.parametrize(
    "path", [path for package in PACKAGES for path in modules_of(package)], ids=name_of
)
def test_only_storage_knows_the_storage_client(path: Path) -> None:
    """One seam: what is not below it asks `Folder`, and a change of client changes nothing else."""
    if path.parent != ROOT / "shardwright" / "storage":
        assert [
            name
            for name in imports_of(path)
            if name.partition(".")[0] in {"obstore", *PEER_PACKAGES}
        ] == []
        return
    ours = [name for name in imports_of(path) if name.startswith("shardwright.")]
    assert [name for name in ours if name.split(".")[1] not in STORAGE_MAY_IMPORT] == []


def test_the_command_names_no_application() -> None:
    texts = {
        node.value
        for node in ast.walk(ast.parse((ROOT / "shardwright" / "cli.py").read_text()))
        if isinstance(node, ast.Constant)
    }
    assert not [
        text
        for text in texts
        if isinstance(text, str) and any(f"{name}." in text for name in PACKAGES[1:])
    ]


@pytest.mark.parametrize("path", modules_of("schemas"), ids=lambda path: path.stem)
def test_schemas_are_declarations(path: Path) -> None:
    assert strangers(path, {"shardwright", "schemas"}) == []
    assert {name for name in imports_of(path) if name.startswith("shardwright.")} <= {
        name for name in imports_of(path) if name.startswith("shardwright.schema.")
    }


@pytest.mark.parametrize("path", modules_of("transforms"), ids=name_of)
def test_transforms(path: Path) -> None:
    beam = path.stem in VERBS | BEAM_HELPERS
    assert strangers(path, NOUN_PACKAGES | ({"apache_beam"} if beam else set())) == []
    if not beam:
        assert transform_imports(path) & (VERBS | BEAM_HELPERS) == set(), (
            "a noun file must import without Beam"
        )
    else:
        assert transform_imports(path) & VERBS == set(), (
            "verb files are put together by pipelines only"
        )


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_that_is_shipped_imports_what_is_not(package: str) -> None:
    imports = [(path.name, name) for path in modules_of(package) for name in imports_of(path)]
    assert [found for found in imports if found[1].partition(".")[0] in OUTSIDE] == []


def test_only_setup_ships_these_packages() -> None:
    """What a wheel holds is an allow-list: each package is on it, and nothing of the rest is."""
    calls = (
        node
        for node in ast.walk(ast.parse((ROOT / "setup.py").read_text()))
        if isinstance(node, ast.Call)
    )
    (listed,) = (
        keyword.value for call in calls for keyword in call.keywords if keyword.arg == "packages"
    )
    there = [
        path.parent.relative_to(ROOT)
        for package in PACKAGES
        for path in (ROOT / package).rglob("__init__.py")
    ]
    assert sorted(ast.literal_eval(listed)) == sorted(".".join(path.parts) for path in there)
    assert not any(
        (ROOT / folder / "__init__.py").exists() for folder in OUTSIDE if folder != "tests"
    )


def test_the_extras_that_messages_name_are_there() -> None:
    """The base install brings the storage client; what messages advise to install can be installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[<>=\[;]", requirement)[0] for requirement in project["dependencies"]}
    assert needed >= {"obstore", "pyarrow", "numpy", "google-crc32c", "protobuf"}
    assert needed.isdisjoint({"boto3", "requests", "google-auth", "tensorflow", "apache-beam"})
    named = {
        name
        for path in modules_of("shardwright")
        for name in re.findall(r"shardwright\[(\w+)\]", path.read_text())
    }
    assert {"aws", "gcp", "build"} <= named <= set(project["optional-dependencies"])


LOADED = """
import sys
loaded = sorted(set(sys.modules) & set(sys.argv[1].split()))
assert not loaded, loaded
"""


def run_python(code: str, *args: str, cwd: Path | None = None) -> str:
    """Run code in a fresh interpreter; where `cwd` is given its folders come first on the path."""
    env = {**os.environ, "PYTHONPATH": str(cwd)} if cwd else dict(os.environ)
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=env,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_package_is_light() -> None:
    run_python(f"import shardwright\n{LOADED}", HEAVY)


def test_help_and_local_places_are_light() -> None:
    """Nothing of a store's is loaded by who asks for none, and not even a store's address needs more before it is opened."""
    code = """
import shardwright as sw
from shardwright.cli import main
from shardwright.errors import ShardwrightError
assert main(["--help"]) == 0
for place in (".", "ftp://host/x"):
    try:
        sw.open(place)
    except ShardwrightError as error:
        print(error)
"""
    assert "ftp:// addresses are not read or written" in run_python(code + LOADED, HEAVY)


def test_every_file_of_the_reader_imports_lightly() -> None:
    light = [path for path in modules_of("shardwright") if not is_trainer_file(path)]
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in light
    ]
    imports = "\n".join(f"import {name}" for name in names)
    run_python(f"{imports}\n{LOADED}", HEAVY)


def test_noun_files_import_neither_beam_nor_tensorflow() -> None:
    nouns = [path for path in modules_of("transforms") if path.stem not in VERBS | BEAM_HELPERS]
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in nouns
    ]
    imports = "\n".join(f"import {name}" for name in names)
    run_python(f"{imports}\n{LOADED}", "tensorflow apache_beam pipelines")


ENCODE = """
import pyarrow as pa
from shardwright.example import parse_example
from shardwright.schema import ExampleSchema, Feature, FeatureKind, Source
from transforms.writing.examples import ExampleEncoder
from transforms.images.kinds import ImageInfo
from transforms.writing import shard_writing
from transforms.references import LABEL_INDEX

schema = ExampleSchema((Feature("image", FeatureKind.IMAGE, Source.IMAGE), Feature("id", FeatureKind.TEXT, Source.ID),
                        Feature("label", FeatureKind.CLASS_LABEL, Source.LABEL)), ("a", "b"))
encoder = ExampleEncoder(schema)
rows = pa.RecordBatch.from_pydict({"id": ["x", "y"], LABEL_INDEX: [0, 1]})
framed = encoder.frame(encoder.encode_known(rows), [b"", b""], [b"one", b"three"])
content = b"".join(framed.pieces)
second = content[framed.lengths[0] + 12 : -4]
assert parse_example(second) == {"id": [b"y"], "label": [1], "image": [b"three"]}, parse_example(second)
"""


def test_encoding_needs_neither_tensorflow_nor_beam() -> None:
    run_python(ENCODE + LOADED, "tensorflow apache_beam")


@pytest.fixture
def decoys(tmp_path: Path) -> Path:
    """A trainer's working folder that has folders named like the application's, which break when they are imported."""
    for package in PACKAGES[1:]:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(
            f"raise RuntimeError('the decoy {package} was imported')\n"
        )
    return tmp_path


@pytest.mark.parametrize("package", PACKAGES[1:])
def test_the_decoys_come_first(package: str, decoys: Path) -> None:
    code = f"try:\n    import {package}\nexcept RuntimeError as error:\n    print(error)"
    assert run_python(code, cwd=decoys) == f"the decoy {package} was imported\n"


LOOK = """
import sys
import shardwright as sw
from shardwright.cli import main
manifest = sw.open(sys.argv[1])
for args in (["verify", sys.argv[1]], ["inspect", sys.argv[1]], ["show", sys.argv[1], "0"], ["--help"]):
    assert main(args) == 0, args
print(manifest.num_records)
"""


def test_a_dataset_is_opened_and_verified_beside_decoys(decoys: Path, zoo: Path) -> None:
    assert run_python(LOOK, str(zoo), cwd=decoys).endswith("\n36\n")


def test_a_dataset_is_read_beside_decoys(decoys: Path, zoo: Path) -> None:
    code = "import sys, shardwright as sw\nprint(sum(1 for example in sw.load(sys.argv[1], 'train')))\n"
    num_records = read_manifest(Folder(str(zoo))).splits["train"].num_records
    assert run_python(code, str(zoo), cwd=decoys) == f"{num_records}\n"
