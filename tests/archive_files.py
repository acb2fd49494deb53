"""Writing archives for tests, and reading what a build made of them."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from shardwright.manifest import read_manifest
from shardwright.storage import Folder
from tests.damage import read_features
from tests.helpers import TINY_PNG, rejects_of, rows_of
from transforms.inputs.detection import detect_source, list_source
from transforms.writing.image_reads import Place, read_local_image

Rows = list[dict[str, object]]
TAR_MODES = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.bz2": "w:bz2", ".txz": "w:xz"}


def pack_tar(
    path: Path,
    files: Mapping[str, bytes],
    mode: str = "w",
    links: Mapping[str, tuple[bytes, str]] | None = None,
) -> Path:
    """A tar of these files, in their order, then links: name -> (type, target)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for name, (kind, target) in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            tar.addfile(info)
    return path


def pack_zip(path: Path, files: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    """A zip of these files, in their order."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def png(number: int) -> bytes:
    """A tiny image that is like no other."""
    return TINY_PNG + number.to_bytes(4, "big")


def files_below(root: Path) -> dict[str, bytes]:
    """Relative path -> content."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def built_records(dataset: Path) -> list[tuple[str, str, bytes]]:
    """(split, class name, image bytes) of every record, sorted."""
    manifest = read_manifest(Folder(str(dataset)))
    names = manifest.schema.class_names
    found = []
    for split in manifest.splits:
        for shard in manifest.shard_names(split):
            for features in read_features(dataset, shard):
                label, image = features["label"][0], features["image"][0]
                assert isinstance(label, int)
                assert isinstance(image, bytes)
                found.append((split, names[label], image))
    return sorted(found)


def list_tar(
    path: Path | str, spool: Path | None = None, input_format: str | None = "tar"
) -> tuple[Rows, dict[str, str]]:
    """Rows, and reason by id, of INPUT."""
    source = detect_source(
        str(path), {}, input_format=input_format, spool=spool and Folder(str(spool))
    )
    parts = list(list_source(source))
    return rows_of(parts), {reject.id: str(reject.reason) for reject in rejects_of(parts)}


def read_row(row: Mapping[str, object]) -> bytes:
    return read_local_image(Place(row["uri"], row["offset"], row["num_bytes"], row["etag"]))  # type: ignore[arg-type]
