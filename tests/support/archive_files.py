"""Archives for tests, and the records that a build made of them."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from shardwright.format.manifest import read_manifest
from shardwright.storage.folder import Folder
from shardwright.transforms.write.image_reads import ImageLocation, read_local_image
from tests.support.helpers import TINY_PNG
from tests.support.tfrecord_makers import features_of

TAR_MODES = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.bz2": "w:bz2", ".txz": "w:xz"}


def pack_tar(
    path: Path,
    files: Mapping[str, bytes],
    mode: str = "w",
    links: Mapping[str, tuple[bytes, str]] | None = None,
    **options: object,
) -> Path:
    """Write a tar of these files, in their order, then links: name -> (type, target)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode, **options) as tar:  # type: ignore[call-overload]
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
    """Write a zip of these files, in their order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def png(number: int) -> bytes:
    """Return a tiny image that is like no other."""
    return TINY_PNG + number.to_bytes(4, "big")


def files_below(root: Path) -> dict[str, bytes]:
    """Return the content of each file by its relative path."""
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def built_records(dataset: Path) -> list[tuple[str, str, bytes]]:
    """Return (split, class name, image bytes) of every record, sorted."""
    names = read_manifest(Folder(str(dataset))).schema.class_names
    return sorted(
        (split, names[features["label"][0]], features["image"][0])
        for split, features in features_of(dataset)
    )


def read_row(row: Mapping[str, object]) -> bytes:
    """Return the image that a row refers to."""
    return read_local_image(ImageLocation(row["uri"], row["offset"], row["num_bytes"], row["etag"]))  # type: ignore[arg-type]
