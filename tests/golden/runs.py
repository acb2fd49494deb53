"""Hash what every operation publishes, for every input format and three encodings.

Each input of tests/support/input_forms.py has two broken pictures more, and later one picture is
gone, one is changed and two are new. In one OUTPUT: build, damage and repair, overwrite with
another seed, append, compact, erase: in this process, for all three encodings. With the first
encoding, a Beam graph builds and appends, too; of the first input, it also overwrites and compacts.
It must publish the same. Only a dataset's own files count, so a receipt of `erase` does not.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa

from shardwright.format.versions import read_version
from shardwright.pipelines.commands import compact, erase, repair
from shardwright.pipelines.commands.append import append_version, prepare_version
from shardwright.pipelines.job.build import BuildJob, prepare_job
from shardwright.pipelines.job.graph import build_graph
from shardwright.pipelines.local.build import build_here
from shardwright.pipelines.local.references import LocalReferences
from shardwright.pipelines.options.build import parse_options
from shardwright.pipelines.runners.run import run_pipeline
from shardwright.storage.folder import Folder
from shardwright.transforms.reject_files import unpack_rejects
from tests.golden.masks import mask_text, state_of
from tests.support import quick_beam  # noqa: F401 - Beam is quicker with it
from tests.support.build_helpers import files_below, png_of, record_ids, shards_of
from tests.support.input_forms import FORMS, PICTURES, SIDE, Form, Picture, Pictures
from tests.support.repairs import flip

ENCODINGS: Mapping[str, tuple[str, ...]] = {
    "keep": (),
    "jpeg": ("--encode=jpeg", "--signals", "--near-duplicates=report"),
    "raw": ("--encode=raw", "--resize=6x6", "--duplicates=drop"),
}
_GRAPHS = ("build", "overwrite", "append", "compact")
_GRAPHS_OF_MOST = ("build", "append")  # of all inputs but the first
_OPTIONS = ("--name=golden", "--records-per-shard=4")
_BROKEN = (
    Picture("train", "cat", "broken.png", b"\x89PNG\r\n\x1a\n and nothing else"),
    Picture("test", "dog", "empty.png", b""),
)
BEFORE: Pictures = (*PICTURES, *_BROKEN)
AFTER: Pictures = (
    PICTURES[0],
    PICTURES[2]._replace(data=png_of(100, side=SIDE)),
    *PICTURES[3:],
    Picture("train", "cat", "8.png", png_of(40, side=SIDE)),
    Picture("test", "dog", "9.png", PICTURES[3].data),  # a duplicate in another split
    *_BROKEN,
)


def references(place: Path) -> Iterator[str]:
    """Yield the columns of each input's references, and references and rejects, as planned."""
    for form in FORMS:
        root = place / form.name
        with contextlib.redirect_stderr(io.StringIO()):  # of the dataset that is an input
            words = _arguments(form, "keep", root, BEFORE)
        listed = LocalReferences(prepare_job(parse_options(words)))
        rows = pa.Table.from_batches(listed.batches())
        listed.rejects.pack()
        rejects = map(unpack_rejects, listed.rejects.packed)
        yield f"{form.name}: {', '.join(f'{each.name} {each.type}' for each in rows.schema)}"
        for row in sorted(map(str, (*rows.to_pylist(), *chain(*(t.to_pylist() for t in rejects))))):
            yield mask_text(row, root)
        shutil.rmtree(root)


def hashes(place: Path) -> Iterator[str]:
    """Yield a line for each file that an operation writes or removes; runs below `place`."""
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for lines in pool.map(partial(_lines_of, place=place), range(len(FORMS))):
            yield from lines


def _lines_of(number: int, place: Path) -> list[str]:
    form, lines = FORMS[number], []
    for encoding in ENCODINGS:
        here = _lines(form, encoding, place)
        lines += here
        if encoding == "keep":
            graphs = _GRAPHS if number == 0 else _GRAPHS_OF_MOST
            by_graph = _lines(form, encoding, place, graphs)
            other = {line for line in here if line.split()[2] in graphs} ^ {
                line for line in by_graph if line.split()[2] in graphs
            }
            lines += [f"{line} {'not' if line in here else 'only'} by a graph" for line in other]
    return lines


def _lines(form: Form, encoding: str, place: Path, graphs: Sequence[str] = ()) -> list[str]:
    """Return what has changed after each operation, or is left by an erasure, in one dataset.

    Args:
        form: INPUT.
        encoding: Key of `ENCODINGS`.
        place: A folder for INPUT and OUTPUT.
        graphs: Operations that run as a Beam graph; the last one of them ends the run.
    """
    root, lines = place / f"{form.name}-{encoding}", []
    before: dict[str, str] = {}
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for operation, _ in _operate(form, encoding, root, graphs):
            after = state_of(root / "out", root)
            # An erasure removes nearly all: what is left says more.
            known = {} if operation == "erase" else before
            changes = [
                f"{name} {after.get(name, 'gone')}"
                for name in sorted(known.keys() | after.keys())
                if known.get(name) != after.get(name)
            ]
            start = f"{form.name} {encoding} {operation}"
            lines += [f"{start} {change}" for change in changes or ["nothing changed"]]
            before = after
            if operation in graphs[-1:]:
                break
    shutil.rmtree(root)
    return lines


def _operate(
    form: Form, encoding: str, root: Path, graphs: Sequence[str]
) -> Iterator[tuple[str, object]]:
    """Yield each operation once it is done."""

    def run(operation: str, job: BuildJob) -> None:
        if operation in graphs:
            run_pipeline(build_graph, job)
        elif operation == "append":
            append_version(job, here=True)
        else:
            build_here(job)

    output, argv = root / "out", _arguments(form, encoding, root, BEFORE)
    yield "build", run("build", prepare_job(parse_options(argv)))
    for path in (shards_of(output)[0], *sorted(output.glob("index/*"))[1:], output / "stats.json"):
        flip(path)
    yield "repair", _check(repair.main([str(output)]))
    argv.append("--seed=1")
    yield (
        "overwrite",
        run("overwrite", prepare_job(parse_options([*argv, "--if-exists=overwrite"]))),
    )
    erased = max(record_ids(output))
    _write(form, root / "in", AFTER)
    yield "append", run("append", prepare_version(parse_options([*argv, "--if-exists=append"])))
    folder = Folder(str(output))
    base = read_version(folder)
    copy = compact.folder_for(folder, base, compact._token([]))
    run("compact", compact.prepare_copy(folder, base, copy, []))
    yield "compact", compact.commit_copy(folder, base, copy)
    (root / "ids.txt").write_text(f"{erased}\n")
    words = ["--ids", str(root / "ids.txt"), "--receipt", str(root / "receipt.json"), "--yes"]
    yield "erase", _check(erase.main([str(output), *words]))


def _arguments(form: Form, encoding: str, root: Path, pictures: Pictures) -> list[str]:
    """Write INPUT, and return the arguments of its build."""
    _write(form, root / "in", pictures)
    options = [each.format(root=root / "in") for each in form.options]
    if form.name == "coco" and encoding == "raw":
        options.append("--schema=detection")  # outlines in pixels refuse another size
    places = (str(root / "in" / form.input), str(root / "out"))
    return [*places, *_OPTIONS, *ENCODINGS[encoding], *options]


def _check(code: int) -> None:
    assert code == 0


def _write(form: Form, folder: Path, pictures: Pictures) -> None:
    """Write INPUT, or replace it; the time of a file tells only if its bytes have changed."""
    old = {name: path.read_bytes() for name, path in files_below(folder).items()}
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    form.write(folder, pictures)
    for name, path in files_below(folder).items():
        seconds = 10**9 + (bool(old) and old.get(name) != path.read_bytes())
        os.utime(path, (seconds, seconds))


RUNS: Mapping[str, Callable[[Path], Iterator[str]]] = {"references": references, "hashes": hashes}
