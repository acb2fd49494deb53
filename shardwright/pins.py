"""Pin versions of a dataset from Python: `sw.pin` and `sw.unpin`."""

from __future__ import annotations

import os
from collections.abc import Mapping

from shardwright.format.pins import Pin, add_pin, remove_pin
from shardwright.format.versions import LATEST, VersionKey
from shardwright.python_errors import PythonErrors
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions


@PythonErrors()
def pin(
    dataset: str | os.PathLike[str],
    name: str,
    *,
    version: VersionKey = LATEST,
    until: str | None = None,
    storage_options: Mapping[str, object] | StorageOptions | None = None,
) -> Pin:
    """Keep a version of a dataset from `shardwright gc`, and return the pin.

    A pin of the same version is renewed.

    Args:
        dataset: Its folder: a local path, `s3://BUCKET/PREFIX` or `gs://BUCKET/PREFIX`.
        name: A name that says who needs the version: letters, digits, - and _.
        version: The version: its number, a day such as "2026-11-22" (its last version), or
            "latest".
        until: The last day on which the pin holds, such as "2026-12-31", in UTC; None to hold until
            it is removed.
        storage_options: As `--storage-option`, such as {"endpoint": "http://minio:9000"}.

    Raises:
        NotADatasetError: The folder has no finished dataset.
        StorageError: The pin cannot be written, or the one of this name is damaged.
        UsageError: An argument is invalid, there is no such version or it is being removed, or the
            name is that of a pin of another version.
    """
    return add_pin(Folder.at(dataset, StorageOptions.of(storage_options)), name, version, until)


@PythonErrors()
def unpin(
    dataset: str | os.PathLike[str],
    name: str,
    *,
    storage_options: Mapping[str, object] | StorageOptions | None = None,
) -> None:
    """Remove a pin of a dataset.

    Args:
        dataset: Its folder.
        name: The name of the pin.
        storage_options: As in `pin`.

    Raises:
        StorageError: The pin cannot be removed.
        UsageError: There is no such pin.
    """
    remove_pin(Folder.at(dataset, StorageOptions.of(storage_options)), name)
