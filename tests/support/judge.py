"""Judge what the writer of a dataset computed, beyond the checksums that `verify` compares.

`verify` trusts the manifest's writer. Tests of the writer do not: they compare each record with the
schema, each index row with its record, ids with each other, and companion files with the manifest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import google_crc32c

from shardwright.format import naming
from shardwright.format.example import ExampleFault, Values, one_value, parse_example
from shardwright.format.index import read_index_of, read_live_rows
from shardwright.format.listed_files import DatasetFault
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.records import FRAME_BYTES, HEADER_BYTES, RecordSpan, scan_records
from shardwright.format.schema import ExampleSchema, Source
from shardwright.format.versions import read_versions
from shardwright.inspect.faults import Verification
from shardwright.inspect.verify import verify
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions
from tests.support.judged_companions import check_companions
from tests.support.judged_examples import ExampleChecker


def judge(
    dataset: str, *, storage_options: Mapping[str, object] | StorageOptions | None = None
) -> Verification:
    """Verify a dataset, and judge what its writer computed if all checksums are right."""
    found = verify(dataset, storage_options=storage_options)
    if not found.is_sound:
        return found
    root = Folder.at(dataset, StorageOptions.of(storage_options))
    versions = list(read_versions(root))
    folders = sorted({folder for version in versions for folder in version.folders})
    faults = [fault for folder in folders for fault in _generation_faults(root.below(folder))]
    faults += [
        fault for version in versions for fault in _doubled(root.below(version.folder), version)
    ]
    return replace(found, faults=tuple(faults))


def _generation_faults(folder: Folder) -> Iterator[DatasetFault]:
    manifest = read_manifest(folder)
    root = folder.below(manifest.folder)
    yield from check_companions(root, manifest)
    examples, rows = ExampleChecker(manifest.schema), RowChecker(manifest.schema)
    labels: dict[str, Counter[int]] = {split: Counter() for split in manifest.splits}
    for name, info in manifest.named_shards():
        index = read_index_of(root, name, info).to_pylist()
        with root.local_copy(name.shard) as file:
            spans = list(scan_records(file))
        if len(spans) != len(index):
            what = f"{len(spans)} records, but {len(index)} rows of its index"
            yield DatasetFault.of_file(name.shard, what)
        for number, (span, row) in enumerate(zip(spans, index, strict=False)):
            try:
                features = parse_example(span.data)
            except ExampleFault as error:
                yield DatasetFault(name.shard, number, span.offset, str(error))
                continue
            for what in examples.faults(features):
                yield DatasetFault(name.shard, number, span.offset, what)
            for what in rows.faults(row, span, features):
                yield DatasetFault(name.sidecar, number, span.offset, what)
            label = one_value(features, manifest.schema.label)
            labels[name.split].update([label] if label is not None else [])
    for split in manifest.splits.values():
        stated = {int(label): number for label, number in split.stats.get("labels", {}).items()}
        if "labels" in split.stats and Counter(stated) != labels[split.name]:
            what = f"the label statistics of split {split.name!r} differ from its records"
            yield DatasetFault.of_file(naming.MANIFEST, what)


def _doubled(root: Folder, version: Manifest) -> Iterator[DatasetFault]:
    """Yield the ids that are in a version more than once."""
    ids: Counter[str] = Counter()
    for name, info in version.named_shards():
        ids.update(read_live_rows(root, name, info, ["id"])["id"].to_pylist())
    for example_id, number in ids.items():
        if number > 1:
            yield DatasetFault.of_file(naming.MANIFEST, f"{number} records have id {example_id!r}")


class RowChecker:
    """A checker of index rows against their records."""

    def __init__(self, schema: ExampleSchema) -> None:
        self._image = schema.image
        self._stated = {
            column: feature
            for column, source in (
                ("label", Source.LABEL),
                ("format", Source.FORMAT),
                ("width", Source.WIDTH),
                ("height", Source.HEIGHT),
            )
            if (feature := schema.find(source)) is not None or column == "label"
        }
        self._id = schema.find(Source.ID)

    def faults(
        self, row: Mapping[str, Any], span: RecordSpan, features: Mapping[str, Values]
    ) -> Iterator[str]:
        length = FRAME_BYTES + len(span.data)
        if (row["offset"], row["length"]) != (span.offset, length):
            yield (
                f"the row says {row['length']} bytes at byte {row['offset']}, "
                f"the record has {length} at byte {span.offset}"
            )
        stated, crc = row["record_crc32c"], google_crc32c.value(span.data)
        if stated not in (None, crc):
            yield f"the row's crc32c of the record is {stated:#010x}, the record's is {crc:#010x}"
        image = b"" if self._image is None else one_value(features, self._image)
        if isinstance(image, bytes):
            yield from _image_faults(row, span, image)
        found = one_value(features, self._id)
        if self._id is not None and isinstance(found, bytes) and found != row["id"].encode():
            yield (
                f"the row's id is {row['id']!r}, "
                f"the record's {found.decode('utf-8', 'backslashreplace')!r}"
            )
        for column, feature in self._stated.items():
            value = one_value(features, feature)
            value = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
            # A record without an image has zeros where its row has nulls.
            is_blank = column != "label" and not row["image_length"] and not value
            if row[column] != (None if is_blank else value):
                yield f"the row's {column} is {row[column]!r}, the record's {value!r}"


def _image_faults(row: Mapping[str, Any], span: RecordSpan, image: bytes) -> Iterator[str]:
    start = row["image_offset"] - span.offset - HEADER_BYTES
    if row["image_length"] != len(image) or start < 0 or not span.data.startswith(image, start):
        yield (
            f"the row says that the image is {row['image_length']} bytes at byte "
            f"{row['image_offset']}, but the record's image of {len(image)} bytes is not there"
        )
    if row["crc32c"] != google_crc32c.value(image):
        yield (
            f"the row's crc32c of the image is {row['crc32c']:#010x}, "
            f"the image's is {google_crc32c.value(image):#010x}"
        )
