"""The table of all that a dataset keeps of a record: `erase` and `--verify` walk it, and its test.

A new kind of file gets a row here, or `tests/builds/test_erased_places.py` fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from enum import StrEnum
from html import unescape
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from shardwright.errors import MissingError
from shardwright.format import naming
from shardwright.format.json_files import load_json
from shardwright.format.versions import generation_folders
from shardwright.storage.folder import Folder

_BLOCK_BYTES = 1 << 20
_EXACT = ("id", "keeper", "uri")  # columns in which `traces` compares whole values


class Erased(StrEnum):
    """The way in which a record leaves a place."""

    REWRITTEN = "written again without it"
    REMADE = "made again from what is left"
    RENAMED = "a placeholder, if no other record has the name"
    COUNTED = "numbers alone, counted again"
    REMOVED = "removed as a whole"
    NEVER = "never there: no name, only settings or hashes"


class RecordPlace(NamedTuple):
    """A kind of file that may keep something of a record.

    Attributes:
        what: What it keeps.
        pattern: Its paths below the folder of a generation; "" for a place outside of the dataset.
        erased: How `erase` takes a record out of it.
        texts: Yields the content that is searched for ids from the file's bytes; None searches the
            bytes themselves, block by block.
        is_list: It names ids beside those of the shards, so that `traces` looks into it.
    """

    what: str
    pattern: str
    erased: Erased
    texts: Callable[[bytes], Iterator[str]] | None = None
    is_list: bool = False


def _json_texts(data: bytes) -> Iterator[str]:
    waiting, found = [load_json(data)], []
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, dict):
            # Keys as well: class counts have the names as keys.
            waiting += [*item, *item.values()]
        elif isinstance(item, list):
            waiting += item
    yield "\n".join(found)


def _listed_texts(data: bytes) -> Iterator[str]:
    yield from _table_texts(data, without=_EXACT)


def _table_texts(data: bytes, without: Collection[str] = ()) -> Iterator[str]:
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        for key, value in (file.schema_arrow.metadata or {}).items():
            yield f"{key!r}\n{value!r}"
        names = [
            field.name
            for field in file.schema_arrow
            if pa.types.is_string(field.type) and field.name not in without
        ]
        for batch in file.iter_batches(columns=names) if names else ():
            for column in batch.columns:
                # Between line breaks, which end a name for the search, so that an id at the start
                # of a value is found.
                yield "\n".join(each for each in column.to_pylist() if each)


def _page_texts(data: bytes) -> Iterator[str]:
    yield unescape(data.decode(errors="replace"))


def _lines(data: bytes) -> Iterator[str]:
    yield data.decode(errors="replace")


PLACES = (
    RecordPlace("features", r"[^/]*\.tfrecord-\d+-of-\d+", Erased.REWRITTEN),
    RecordPlace("index", rf"{naming.INDEX_DIR}/[^.].*", Erased.REWRITTEN, _listed_texts),
    RecordPlace("signals", rf"{naming.SIGNALS_DIR}/[^.].*", Erased.REWRITTEN, _listed_texts),
    RecordPlace(
        "rejects", rf"{naming.REJECTS_DIR}/[^.].*", Erased.REWRITTEN, _listed_texts, is_list=True
    ),
    RecordPlace(
        "near-duplicates", naming.NEAR_DUPLICATES, Erased.REWRITTEN, _listed_texts, is_list=True
    ),
    RecordPlace("class names", rf"[^/]*{re.escape(naming.LABELS_SUFFIX)}", Erased.RENAMED, _lines),
    RecordPlace(
        "vocabularies", rf"[^/]*{re.escape(naming.VOCABULARY_SUFFIX)}", Erased.RENAMED, _lines
    ),
    RecordPlace("statistics", naming.STATS, Erased.REMADE, _json_texts),
    RecordPlace("statistics of TFDV", naming.STATS_PB, Erased.COUNTED),
    RecordPlace(
        "what TFDS reads", rf"{naming.FEATURES}|{naming.DATASET_INFO}", Erased.COUNTED, _json_texts
    ),
    RecordPlace("what TFX reads", naming.SCHEMA_PBTXT, Erased.COUNTED),
    RecordPlace("page and pictures", naming.REPORT, Erased.REMADE, _page_texts, is_list=True),
    RecordPlace("manifest", naming.MANIFEST, Erased.REMADE, _json_texts),
    RecordPlace("versions", rf"{naming.VERSIONS_DIR}/\d+\.json", Erased.REMADE, _json_texts),
    RecordPlace("pins and notes", rf"{naming.VERSIONS_DIR}/.*", Erased.NEVER),
    RecordPlace("plan", naming.PLAN, Erased.NEVER, _json_texts),
    RecordPlace("spool and listings", rf"{naming.SPOOL_DIR}/.*", Erased.REMOVED),
    RecordPlace("a build that replaces the dataset", rf"{naming.NEXT_DIR}/.*", Erased.REMOVED),
    RecordPlace("staged files", rf"{naming.STAGED_DIR}/.*", Erased.REMOVED),
    RecordPlace("temporary files", r"(.*/)?\..*\.tmp", Erased.REMOVED),
    RecordPlace("caches of readers", "", Erased.REMOVED),  # `shardwright.cache.manifests`
    RecordPlace("local copies of objects", "", Erased.NEVER),  # `Folder.local_copy`
    RecordPlace("uploads and old versions of objects", "", Erased.REMOVED),  # `old_objects`
    RecordPlace("receipt", "", Erased.NEVER),
)
OTHER = RecordPlace("a file of others", ".*", Erased.NEVER)


def place_of(path: str) -> RecordPlace:
    """Return the place of a file, given its path below the dataset's folder; OTHER for none."""
    parts = path.split("/")
    if naming.is_generation_folder("/".join(parts[:2])):
        path = "/".join(parts[2:])
    found = (place for place in PLACES if place.pattern and re.fullmatch(place.pattern, path))
    return next(found, OTHER)


def files_of(root: Folder) -> Iterator[str]:
    """Yield the files in all folders of a dataset, also those that no command has written.

    Raises:
        StorageError: A folder cannot be listed.
    """
    yield from _files_in(root, naming.VERSIONS_DIR, naming.PINS_DIR)
    built = ("", *naming.SHARD_DIRS, naming.SPOOL_DIR)
    beside = (naming.NEXT_DIR, *naming.STAGED_DIRS)
    for generation in ("", *generation_folders(root)):
        below = [generation, *(f"{generation}/{each}".strip("/") for each in beside)]
        yield from _files_in(root, *(f"{one}/{part}".strip("/") for one in below for part in built))


def _files_in(root: Folder, *folders: str) -> Iterator[str]:
    for folder in folders:
        yield from (f"{folder}/{name}" if folder else name for name in root.files(folder))


def parts_of(root: Folder, path: str, overlap: int) -> Iterator[tuple[bytes, bool]]:
    """Yield the content of a file that is searched, between line breaks, and whether it is text.

    Args:
        root: The dataset's folder.
        path: The file.
        overlap: Bytes of a block that the next one has, too, at least 1.

    Raises:
        StorageError: The file cannot be read.
    """
    texts = place_of(path).texts or (_table_texts if path.endswith(".parquet") else None)
    try:
        if texts is not None:
            try:
                yield from (
                    (f"\n{part}\n".encode("utf-8", "replace"), True)
                    for part in texts(root.read_bytes(path))
                )
                return
            except (pa.ArrowException, ValueError):  # a fault of the file, which `verify` states
                pass
        with root.local_copy(path) as file:
            end = b"\n"
            while block := file.read(_BLOCK_BYTES):
                yield (data := end + block), False
                # An id that lies across two blocks is in this part of the next one.
                end = data[-overlap:]
            # Again with an end: an id at the very end of the file has nothing behind it otherwise.
            yield end + b"\n", False
    except MissingError:  # removed since it was listed
        return
