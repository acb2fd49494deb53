"""A stranger's JSON: any value in any place of any file is read, or is an error of this project."""

from __future__ import annotations

import json
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import shardwright as sw
from shardwright.errors import NotADatasetError, ShardwrightError
from shardwright.format import naming
from shardwright.format.manifest import seal, time_text
from shardwright.format.pins import add_pin
from shardwright.format.versions import generation_folders
from shardwright.inspect.build_scan import scan_build
from shardwright.inspect.describe import inspect_command
from shardwright.inspect.diff import diff_command
from shardwright.inspect.show import show_command
from shardwright.inspect.stats import stats_command
from shardwright.inspect.verify import verify_command
from shardwright.inspect.versions import log_command, pin_command
from shardwright.pipelines.commands import collect
from shardwright.report.command import report_command
from shardwright.storage.folder import Folder
from shardwright.transforms.erasure.receipt import Receipt, read_receipt, write_receipt
from shardwright.transforms.output_state import OutputRequest, check_output
from tests.support.growing import Grown, Source

VALUES = [None, True, -1, 2**70, 1.5, "x", [], {}]
NUM_CASES = 60
RECEIPT = "receipt.json"
TEXTS = [
    *(b"[]", b"3", b"{", b"\xef\xbb\xbf{}", b"\xff\xfe", b"[" * 100_000, b'{"a": 1, "a": 2}'),
    *(b'{"version": NaN}', b'{"version": 1e400}', b'{"version": ' + b"9" * 5000 + b"}", b""),
]


class Foreign(NamedTuple):
    """A dataset that has grown, all of whose JSON files may be edited."""

    grown: Grown
    source: Source
    files: dict[str, bytes]

    @property
    def at(self) -> Path:
        return Path(self.grown.root.uri)


@pytest.fixture(scope="module", name="foreign")
def foreign_fixture(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    """A dataset with three versions, two splits that share an image, and all statistics."""
    folder = tmp_path_factory.mktemp("foreign")
    source = Source(folder / "images", captions=True)
    options = ("--records-per-shard", "3", "--name", "grown", "--signals", "--stratify")
    split = ("--split", "train=0.6,test=0.4", "--encode", "jpeg")
    grown = Grown(Folder(str(folder / "grown")), (*options, *split))
    source.change({f"{name}/{n}.png": n % 5 for n in range(8) for name in ("ant", "cat")})
    grown.append(source)
    source.change({"ant/0.png": None, "ant/9.png": 9})
    grown.append(source)
    source.change({"cat/11.png": 11})
    grown.append(source)
    add_pin(grown.root, "training", 2, "2999-12-31")
    receipt = Receipt.begin(grown.root.uri, ["ant/0.png"])
    receipt.found, receipt.ended = receipt.ids, time_text()
    receipt.versions, receipt.num_records = [1, 2], 3
    write_receipt(grown.root, RECEIPT, receipt)
    root = Path(grown.root.uri)
    files = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.json")}
    return Foreign(grown, source, files)


def places(content: Any, *, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value; of equal entries of a list, those of the first and the last."""
    yield before
    if isinstance(content, dict):
        for key, value in content.items():
            yield from places(value, before=(*before, key))
    elif isinstance(content, list):
        for number in {0, len(content) - 1} if content else ():
            yield from places(content[number], before=(*before, number))


def edited(data: bytes, path: tuple[Any, ...], value: object) -> bytes:
    """Return a file with another value at a place, sealed if it was."""
    content = json.loads(data)
    is_sealed = content.pop("checksum", None) is not None
    if not path:
        return json.dumps(value).encode()
    inside = content
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return seal(content) if is_sealed else json.dumps(content).encode()


def openings(foreign: Foreign) -> list[Callable[[], object]]:
    """Return what opens the files, or one of them, and does not read more."""
    root = foreign.grown.root
    at = root.uri
    builds = [root, *(root.below(name) for name in generation_folders(root))]
    return [
        lambda: [sw.open(at, version=number) for number in (1, 2, 3)],
        lambda: read_receipt(root, RECEIPT),
        *(partial(scan_build, folder, 0.0) for folder in builds),
        *(partial(check_output, OutputRequest(folder, {}, "resume")) for folder in builds),
        partial(log_command, [at]),
        partial(pin_command, [at]),
        partial(collect.main, [at, "--keep", "1"]),
    ]


def readers(foreign: Foreign, page: Path) -> list[Callable[[], object]]:
    """Return what reads more of a dataset."""
    at = foreign.grown.root.uri
    return [
        partial(verify_command, [at]),
        *(
            partial(command, [at, *words, "--version", version])
            for version in ("1", "3")
            for command, *words in ((inspect_command,), (stats_command,), (show_command, "0"))
        ),
        partial(diff_command, [at, at, "--version", "1"]),
        partial(report_command, [at, "-o", str(page)]),
        partial(read_all, at, 1),
        partial(read_all, at, 3),
        partial(foreign.grown.prepare, foreign.source),
    ]


def read_all(at: str, version: int) -> None:
    with sw.Reader(at, "train", global_batch_size=2, epochs=1, version=version) as reader:
        deque(reader, maxlen=0)


def fault_of(read: Callable[[], object]) -> str | None:
    """Return an error that is not of this project, or an exit code that no command documents."""
    try:
        code = read()
    except ShardwrightError:
        return None
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{error!r} in {place.filename}, line {place.lineno}"
    return None if type(code) is not int or code in (0, 1, 2) else f"exit code {code}"


@pytest.mark.long
@pytest.mark.weight(10)
def test_any_value_in_any_place(foreign: Foreign, rng: np.random.Generator, tmp_path: Path) -> None:
    names = sorted(foreign.files)
    paths = {name: list(places(json.loads(foreign.files[name]))) for name in names}
    faults = []
    for _ in range(NUM_CASES):
        name, value = names[rng.integers(len(names))], VALUES[rng.integers(len(VALUES))]
        path = paths[name][rng.integers(len(paths[name]))]
        (foreign.at / name).write_bytes(edited(foreign.files[name], path, value))
        further = readers(foreign, tmp_path / "page.html")
        reads = [*openings(foreign), further[rng.integers(len(further))]]
        faults += [(name, path, value, found) for read in reads if (found := fault_of(read))]
        (foreign.at / name).write_bytes(foreign.files[name])
    assert not faults, "\n".join(map(str, faults))


@pytest.mark.long_but_first
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_text_that_is_no_json_object(text: bytes, foreign: Foreign) -> None:
    for name, data in foreign.files.items():
        if name.startswith(naming.GENERATIONS_DIR):
            continue
        (foreign.at / name).write_bytes(text)
        faults = [found for read in openings(foreign) if (found := fault_of(read))]
        (foreign.at / name).write_bytes(data)
        assert not faults, f"{name}: {faults}"


@pytest.mark.parametrize(("path", "value", "what"), [
    ("history.version", "x", "$.history.version is 'x': expected int, got str"),
    ("history.version", True, "$.history.version is True: expected int, got bool"),
    ("history.version", 0, "$.history.version is 0: expected int >= 1"),
    ("history.version", None, "$.history.version is None: expected int, got null"),
    ("history.generations", "x", "$.history.generations is 'x': expected array, got str"),
    ("history.generations", [3], "$.history.generations[0] is 3: expected str, got int"),
    ("history.added", -1, "$.history.added is -1: expected int >= 0"),
    ("history.added", "3", "$.history.added is '3': expected int, got str"),
    ("history.removed", 1.5, "$.history.removed is 1.5: expected int, got float"),
    ("history.removed", [], "$.history.removed: expected int, got array"),
    ("history.operation", {}, "$.history.operation: expected str, got object"),
    ("history.created", 3, "$.history.created is 3: expected str, got int"),
    ("history", [], "$.history: expected object, got array"),
    ("provenance.command", ["ls"], "$.provenance.command: expected str, got array"),
    ("provenance.input", 3, "$.provenance.input is 3: expected str, got int"),
    ("provenance.packages", [], "$.provenance.packages: expected object, got array"),
    ("splits.train.stats.labels.0", 2**70, "$.splits[...].stats.labels[...]: "),
    ("splits.train.stats.width.count", 0, "$.splits[...].stats.width.count: expected int >="),
    ("rejects.corrupt", "many", "$.rejects[...]: expected int, got str"),
    ("settings.shards.num_records", "x", "$.settings.shards[...]: expected int, got"),
])  # fmt: skip
def test_the_error_names_the_place(path: str, value: object, what: str, foreign: Foreign) -> None:
    name = "versions/00002.json"
    data = edited(foreign.files[name], tuple(path.split(".")), value)
    (foreign.at / name).write_bytes(data)
    with pytest.raises(NotADatasetError) as caught:
        sw.open(foreign.grown.root.uri, version=2)
    (foreign.at / name).write_bytes(foreign.files[name])
    assert f"{foreign.at / name} is damaged ({what}" in str(caught.value)
