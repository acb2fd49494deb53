"""Find what a dataset has of some ids: records, lists that name them, and names of their own.

An erasure copies the newest version without these records and removes all else (`remains.py`). So
no published file is changed, and no kind of file can be overlooked.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from html import unescape
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shardwright.errors import RecordFault, StorageError
from shardwright.format import naming
from shardwright.format.example import ExampleFault, parse_example
from shardwright.format.index import read_index_of, read_live_rows
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.parquet import read_rows
from shardwright.format.records import FOOTER_BYTES, HEADER_BYTES, scan_records
from shardwright.format.schema import INDEXED, WORDS, Feature, erased_name
from shardwright.format.splits import ShardInfo
from shardwright.format.versions import generation_folders
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads
from shardwright.transforms.features.texts import UNKNOWN
from shardwright.transforms.inputs.formats.copied import has_ids, ids_of_inputs
from shardwright.transforms.promotion import read_in_place
from shardwright.transforms.references import SUFFIX
from shardwright.transforms.rejects import REJECTED_LABELS

Numbers: TypeAlias = Mapping[str, set[int]]
"""Numbers of class names and words by feature name."""

_READERS = 16
_LISTED = ("id", "keeper")  # columns of ids
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_FIELDS = re.compile(r"[,;|\t]")
_AROUND = " '\"[](){}<>:;,."
# Of a page, the comparison with a replaced dataset: other ids on it are those of records.
_CHANGES = re.compile(r'<section aria-labelledby="changes">.*?</section>', re.DOTALL)
_TEXT = re.compile(r'>([^<]+)<|="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Found:
    """The records and names that a dataset has of some ids.

    Attributes:
        ids: Those of the ids that it has, also in lists alone.
        num_records: Records of the newest version that go.
        must_copy: A file of the newest version has one of them, or a name that goes.
        names: Numbers of the names that no other record of the newest version has.
    """

    ids: frozenset[str]
    num_records: int
    must_copy: bool
    names: Numbers


def finished_generations(root: Folder) -> dict[str, Manifest]:
    """Return the manifests of the finished generations on disk by folder, also of unnamed ones.

    Raises:
        BuildError: A build is replacing the dataset.
        NotADatasetError: A manifest is damaged.
        StorageError: A folder cannot be read.
    """
    folders = ["", *generation_folders(root)]  # the first one may be gone
    there = [each for each in folders if root.num_bytes_of(_in(each, naming.MANIFEST)) is not None]
    return {folder: read_in_place(root.below(folder)) for folder in there}


def find(root: Folder, newest: Manifest, ids: frozenset[str], *, keep_names: bool = False) -> Found:
    """Return what the finished generations of a dataset have of some ids.

    With `keep_names`, no name goes.

    Raises:
        BuildError: A build is replacing the dataset.
        StorageError: An index, a list or a shard is damaged, or cannot be read.
    """
    wanted, live = pa.array(sorted(ids), pa.string()), dict(newest.named_shards())
    found, lost = set[str](), defaultdict[str, set[int]](set)
    num_records, must_copy = 0, False
    for folder, manifest in finished_generations(root).items():
        below, here = root.below(folder), set[str]()
        for name, rows, index in _rows_with(below, manifest, wanted):
            here |= ids & texts_of(index)
            _add_numbers(lost, below, manifest, name, index)
            info = live.get(replace(name, folder=folder))
            num_records += 0 if info is None else len(np.setdiff1d(rows, info.removed_rows))
        for path, texts in _lists_in(below):
            if listed := ids & texts:
                here |= listed
                _add_rejected(lost, path, manifest)
        found |= here
        must_copy |= bool(here) and folder in newest.folders
    names = {} if keep_names else _without_used(root, newest, wanted, lost)
    return Found(frozenset(found), num_records, must_copy or bool(names), names)


def _rows_with(
    below: Folder, manifest: Manifest, wanted: pa.Array
) -> Iterator[tuple[ShardName, NDArray[np.intp], pa.Table]]:
    """Yield the shards of a generation that have records of these ids, with their rows."""

    def look(shard: tuple[ShardName, ShardInfo]) -> tuple[ShardName, NDArray[np.intp], pa.Table]:
        index = read_index_of(below, *shard)
        rows = np.flatnonzero(has_ids(index, wanted))
        return shard[0], rows, index.take(rows)

    looked = map_reads(look, manifest.named_shards(), _READERS)
    yield from ((name, rows, index) for name, rows, index in looked if len(rows))


def _lists_in(below: Folder) -> Iterator[tuple[str, set[str]]]:
    """Yield the files that may name other images than those of records, and what they name."""
    kinds = (f"{naming.REJECTS_DIR}/", naming.NEAR_DUPLICATES, naming.REPORT)
    files = (file for file in naming.build_outputs(below) if file.startswith(kinds))
    lists = [file for file in files if file.endswith((".parquet", ".html"))]
    yield from zip(lists, map_reads(lambda file: texts_in(below, file), lists), strict=True)


def texts_in(below: Folder, path: str) -> set[str]:
    """Return what may be an id in a table or a page of a dataset.

    Raises:
        StorageError: The file cannot be read.
    """
    if path.endswith(".parquet"):
        return texts_of(read_rows(below, path))
    page = below.read_bytes(path).decode(errors="replace")
    pairs = (pair for section in _CHANGES.findall(page) for pair in _TEXT.findall(section))
    return {unescape(text) for pair in pairs for text in pair if text}


def texts_of(rows: pa.Table) -> set[str]:
    """Return what may be an id in a table: ids, those of inputs, and what a message quotes."""
    found: set[str] = set()
    for column in _LISTED:
        if column in rows.column_names:
            found.update(rows[column].to_pylist())
    if SUFFIX in rows.column_names:
        found.update(ids_of_inputs(rows).to_pylist())
    if "detail" in rows.column_names:
        for detail in rows["detail"].unique().to_pylist():
            found.update(_names_in(detail or ""))
    return found


def _names_in(text: str) -> Iterator[str]:
    """Yield what may be an id in a message, which may quote a line of a table, or an item of JSON.

    These are texts in quotes, fields of a line, and words that are no plain words.
    """
    for quoted in map(_unquoted, _QUOTED.findall(text)):
        yield quoted
        yield from _names_in(quoted) if quoted != text else ()
    yield from (field.strip(_AROUND) for field in _FIELDS.split(text))
    yield from (word.strip(_AROUND) for word in text.split() if not word.isalpha())


def _unquoted(quoted: str) -> str:
    try:
        return str(ast.literal_eval(quoted))
    except (ValueError, SyntaxError):  # quotes of other texts
        return quoted[1:-1]


def _add_numbers(
    lost: Numbers, below: Folder, manifest: Manifest, name: ShardName, index: pa.Table
) -> None:
    """Add the numbers of the names that some records of a shard have."""
    features = [one for one in manifest.schema.features if one.kind in INDEXED]
    if not features:
        return
    starts, lengths = (index[column].to_numpy() for column in ("offset", "length"))
    spans = list(zip(starts.tolist(), (starts + lengths).tolist(), strict=True))
    for frame in below.read_ranges(name.shard, spans):
        with suppress(ExampleFault):  # a damaged record goes, too
            for feature, numbers in _numbers_in(frame[HEADER_BYTES:-FOOTER_BYTES], features):
                lost[feature].update(numbers)


def _add_rejected(lost: Numbers, path: str, manifest: Manifest) -> None:
    """Add the numbers of the names that a reject may have had, which its row does not say."""
    schema = manifest.schema
    if not path.startswith(naming.REJECTS_DIR):
        return
    for feature in (one for one in schema.features if one.kind in INDEXED):
        if feature == schema.label:
            for split in manifest.splits.values():
                lost[feature.name].update(map(int, split.stats.get(REJECTED_LABELS, ())))
        elif not feature.names:  # those of the user's schema stay
            lost[feature.name].update(range(len(schema.names_of(feature))))


def _without_used(root: Folder, newest: Manifest, wanted: pa.Array, lost: Numbers) -> Numbers:
    """Return the numbers of those names that no record has that stays.

    Raises:
        StorageError: A shard is damaged, or cannot be read.
    """
    features = [one for one in newest.schema.features if one.kind in INDEXED]
    left = {one.name: _named(newest, one, lost.get(one.name, ())) for one in features}
    for name, info in newest.named_shards():
        features = [one for one in features if left[one.name]]
        if not features:  # each shard may have the last name that is looked for
            break
        index = read_live_rows(root, name, info)
        index = index.filter(pc.invert(has_ids(index, wanted)))
        if features == [newest.schema.label]:
            left[features[0].name].difference_update(index["label"].unique().to_pylist())
            continue
        staying = set(index["offset"].to_pylist())
        try:
            with root.local_copy(name.shard) as file:
                for record in scan_records(file):
                    if record.offset in staying:
                        for feature, numbers in _numbers_in(record.data, features):
                            left[feature].difference_update(numbers)
        except (ExampleFault, RecordFault) as error:
            raise StorageError(
                f"{root.path(name.shard)} is damaged ({error}), so it is unknown which classes "
                "and words its records have: run `shardwright repair`, then this command again"
            ) from error
    return {feature: numbers for feature, numbers in left.items() if numbers}


def _named(newest: Manifest, feature: Feature, numbers: Iterable[int]) -> set[int]:
    """Return the numbers whose names say something: neither placeholders nor the numbers."""
    names = newest.schema.names_of(feature)
    return {
        number
        for number in numbers
        if 0 <= number < len(names)
        and names[number] not in (str(number), erased_name(number))
        and not (names[number] == UNKNOWN and feature.kind in WORDS)
    }


def _numbers_in(data: bytes, features: Iterable[Feature]) -> Iterator[tuple[str, list[int]]]:
    values = parse_example(data)
    for feature in features:
        yield feature.name, [int(number) for number in values.get(feature.stored[0].key, ())]


def _in(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
