"""Let TFDS and globs fail on version 1 of a dataset that has grown, instead of reading it silently.

They read the files of DATASET itself, which are those of version 1. TFDS refuses a dataset whose
`dataset_info.json` says that it is blocked. A glob over the shards also matches a file whose only
record is no tf.Example, so that the error of its parser shows the text.

The manifest of version 1 states `dataset_info.json` as it was before, and readers never open it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import google_crc32c

from shardwright.errors import MissingError
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.records import frame_footer, frame_header
from shardwright.format.versions import version_numbers
from shardwright.storage.folder import Folder

NOTICE = (
    "This folder has grown: these files are those of its first version, without what was appended "
    "or taken away since. Read its newest version with shardwright.Reader or shardwright.load; for "
    "TFDS or a glob, copy it: shardwright build DATASET COPY"
)
# TFDS compares the name of the config, so there must be one.
_FIELDS = f'\n "configName": "version_1",\n "isBlocked": {json.dumps(NOTICE)},'.encode()
_TEXT = NOTICE.encode()  # "T" begins no field of a protobuf message
_RECORD = frame_header(len(_TEXT)) + _TEXT + frame_footer(google_crc32c.value(_TEXT))


def block_first_version(root: Folder, name: str, splits: Iterable[str]) -> None:
    """Let TFDS and globs fail on a dataset's own folder, before its second version is committed.

    May be repeated, also by several writers at a time.

    Args:
        root: The dataset's folder.
        name: The dataset's name.
        splits: The names of its splits.

    Raises:
        StorageError: A file cannot be read or written.
    """
    for split in splits:
        root.write_if_new(naming.notice_file(name, split), _RECORD)
    try:
        data = root.read_bytes(naming.DATASET_INFO)
    except MissingError:  # `gc` has removed version 1
        return
    root.write_if_new(naming.DATASET_INFO, _blocked(_without_block(data)))


def changed_notices(root: Folder, name: str, splits: Iterable[str]) -> list[str]:
    """Return the files that let globs fail and that are there with other bytes.

    Arguments as of `block_first_version`. A dataset that an earlier release has grown has none.

    Raises:
        StorageError: A file cannot be read.
    """
    files = [naming.notice_file(name, split) for split in splits]
    return [
        file
        for file in files
        if root.num_bytes_of(file) is not None and root.read_bytes(file) != _RECORD
    ]


def as_stored(root: Folder, files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Return companion files as a dataset's folder must hold them.

    Raises:
        StorageError: The folder cannot be read.
    """
    name = naming.DATASET_INFO
    blocks = name in files and version_numbers(root)[-1] > 1
    return {**files, name: _blocked(files[name])} if blocks else files


def companion_content(root: Folder, name: str) -> FileContent:
    """Return the content of a companion file as a manifest states it. Raises `StorageError`."""
    data = root.read_bytes(name)
    return FileContent.of(_without_block(data) if name == naming.DATASET_INFO else data)


def _blocked(data: bytes) -> bytes:
    return b"{" + _FIELDS + data.removeprefix(b"{")


def _without_block(data: bytes) -> bytes:
    return data.replace(_FIELDS, b"", 1)
