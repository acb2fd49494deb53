"""Find the names of Open Images' label codes, such as /m/01g317, beside a table.

The files are those of https://storage.googleapis.com/openimages/web/download_v7.html: a code and a
name in each line, in newer ones below a line of column names.
"""

from __future__ import annotations

import csv
import logging
import re
from collections import Counter

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.storage.folder import files_of
from shardwright.transforms.inputs.foreign_text import decode_text
from shardwright.transforms.inputs.source import SourceRequest

_CODE = re.compile(r"/[gmt]/\w+")
_FILE = re.compile(r".*class-descriptions.*\.csv", re.IGNORECASE)
_LOG = logging.getLogger("shardwright.inputs")


def names_of_codes(labels: pa.Array, folder: str, request: SourceRequest) -> dict[str, str]:
    """Return code -> name; {} if the first labels are no codes, or no file has their names.

    Args:
        labels: The first labels of a table.
        folder: The table's folder.
        request: The request for INPUT.

    Raises:
        UsageError: A file of names is neither UTF-8 nor UTF-16.
        StorageError: The folder or a file cannot be read.
    """
    first = next((label for label in labels.to_pylist() if label), "")
    if _CODE.fullmatch(str(first)) is None:
        return {}
    found: dict[str, str] = {}
    for name in filter(_FILE.fullmatch, request.listings.look_in(folder).files):
        path = f"{folder}/{name}"
        try:
            text = decode_text(files_of(path, request.storage).read_bytes(path))
        except UnicodeError as error:
            raise UsageError(f"{path} is {error}") from error
        found |= {row[0]: row[1] for row in csv.reader(text.splitlines()) if len(row) > 1}
    if not found:
        _LOG.warning(
            "the labels of %s are codes such as %s: for their names, put Open Images' "
            "class-descriptions.csv or class-descriptions-boxable.csv into %s",
            *(request.uri, first, folder),
        )
    # Some codes share a name, and stay classes of their own.
    counts = Counter(found.values())
    return {code: name if counts[name] == 1 else f"{name} ({code})" for code, name in found.items()}
