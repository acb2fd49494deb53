"""Datasets that grow: builds of additions in this process."""

from __future__ import annotations

from pathlib import Path

from shardwright.format.manifest import Manifest, read_manifest
from shardwright.pipelines.commands.append import build_additions, prepare_append
from shardwright.pipelines.job.build import BuildJob, prepare_job
from shardwright.pipelines.options.build import parse_options
from shardwright.storage.folder import Folder
from shardwright.transforms.versions.additions import Additions
from tests.support.build_helpers import index_of, png_of

GENERATION = "generations/00001"
HALVES = "--split train=0.5,test=0.5"
ROUGH = "--max-reject-fraction 0.9"


def job_of(images: object, output: Path, options: str = "") -> BuildJob:
    return prepare_job(parse_options([str(images), str(output), *options.split()]))


def append_job(images: object, output: Path, options: str = "") -> BuildJob:
    found = parse_options([str(images), str(output), *options.split()])
    return prepare_append(found, manifest_of(output), GENERATION)


def added_by(job: BuildJob) -> Additions:
    """Build the additions of a job in this process."""
    additions = build_additions(job)
    assert additions is not None
    return additions


def manifest_of(root: Path) -> Manifest:
    return read_manifest(Folder(str(root)))


def add_images(root: Path, *numbers: int) -> None:
    """Write images of the class cat; those that are there stay untouched."""
    for number in numbers:
        (root / "cat" / f"{number:04d}.png").write_bytes(png_of(number))


def splits_of(root: Path) -> dict[str, str]:
    """Return id -> split of every record."""
    return {
        one: name.partition("-")[0]
        for name, table in index_of(root).items()
        for one in table["id"].to_pylist()
    }
