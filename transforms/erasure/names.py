"""Find class names and words that only erased records had: those become placeholders.

Their numbers stay, because records hold numbers, so all versions keep the same ones. A receipt
notes the hashes of the names before the records go, so that a later run still finds them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

import pyarrow as pa

from shardwright.errors import RecordFault, StorageError
from shardwright.format.example import ExampleFault, parse_example
from shardwright.format.index import read_index_of
from shardwright.format.manifest import Manifest, shard_of
from shardwright.format.records import FOOTER_BYTES, HEADER_BYTES, scan_records
from shardwright.format.schema import INDEXED, WORDS, ExampleSchema, Feature, erased_name
from shardwright.storage.folder import Folder
from shardwright.transforms.erasure.traces import Traces
from shardwright.transforms.erasure.wanted_ids import WantedIds
from shardwright.transforms.features.texts import UNKNOWN
from shardwright.transforms.rejects import REJECTED_LABELS
from shardwright.transforms.write.rewritten_shards import read_frames

Names = Mapping[str, set[str]]
"""Class names and words by feature."""


def key_of(feature: str, name: str) -> str:
    """Return the text that is hashed for a name."""
    return f"{feature}={name}"


def names_of(root: Folder, traces: Traces) -> Iterator[str]:
    """Yield the `key_of` of each class name and word of the records and rejects that go.

    A reject does not say which it had. So these are the classes of all rejects of its shard, and
    all words and values that were learned: those that another record has stay anyway.

    Raises:
        StorageError: A shard cannot be read.
    """
    below, schema = root.below(traces.folder), traces.manifest.schema
    features = _indexed(schema)
    if not features:
        return
    for name, rows in traces.rows.items():
        if not len(rows):
            continue
        info = shard_of(traces.manifest, name)
        index = read_index_of(below, name, info).take(pa.array(rows))
        with below.local_copy(name.shard) as file:
            frames = [frame for _, frame in read_frames(file, index)]
        for frame in frames:
            with suppress(ExampleFault):  # a damaged record goes, too
                for feature, found in _names_in(
                    frame[HEADER_BYTES:-FOOTER_BYTES], schema, features
                ):
                    yield from (key_of(feature.name, each) for each in found)
    if any("/rejects/" in f"/{path}" for path in traces.ids):
        for feature in features:
            names = schema.names_of(feature)
            if feature == schema.label:
                stats = [split.stats for split in traces.manifest.splits.values()]
                counts = _labels(stats, REJECTED_LABELS)
                names = tuple(names[number] for number in counts if number < len(names))
            elif feature.names:  # of the user's schema
                continue
            yield from (key_of(feature.name, each) for each in names)


def lost_names(
    root: Folder,
    generations: Mapping[str, Manifest],
    schemas: Iterable[ExampleSchema],
    keys: WantedIds,
) -> dict[str, set[str]]:
    """Return those names of schemas that are among `keys`, and that no record has.

    Args:
        root: The dataset's folder.
        generations: The manifests of its finished generations by folder.
        schemas: Those of all manifests.
        keys: The keys of the names to look for.

    Raises:
        StorageError: A shard is damaged, or cannot be read.
    """
    left: dict[str, set[str]] = defaultdict(set)
    for schema in schemas:
        for feature in _indexed(schema):
            names = enumerate(schema.names_of(feature))
            left[feature.name] |= {
                name
                for number, name in names
                # A placeholder is none of a record's, and names that are their numbers tell
                # nothing.
                if name not in (erased_name(number), str(number))
                and not (name == UNKNOWN and feature.kind in WORDS)
                and key_of(feature.name, name) in keys
            }
    for folder, manifest in generations.items():
        _take_away_used(root.below(folder), manifest, left)
    return {feature: names for feature, names in left.items() if names}


def numbers_of(schema: ExampleSchema, lost: Names) -> dict[str, tuple[int, ...]]:
    """Return the numbers of the lost names in a schema by feature, {} if it has none of them."""
    found = {
        feature.name: tuple(
            number
            for number, name in enumerate(schema.names_of(feature))
            if name in lost.get(feature.name, ())
        )
        for feature in _indexed(schema)
    }
    return {feature: numbers for feature, numbers in found.items() if numbers}


def _take_away_used(below: Folder, manifest: Manifest, left: Names) -> None:
    """Remove the names that a record of a generation has; reads shards until none is left."""
    schema = manifest.schema
    if schema.label is not None:  # its classes are counted
        counts = _labels([split.stats for split in manifest.splits.values()], "labels")
        names = schema.class_names
        left[schema.label.name].difference_update(
            names[number] for number in counts if number < len(names)
        )
    for name, _ in manifest.named_shards():
        features = [
            feature
            for feature in _indexed(schema)
            if feature != schema.label and left[feature.name]
        ]
        # Each shard may take away the last name that is looked for: no further shard is downloaded.
        if not features:
            return
        try:
            with below.local_copy(name.shard) as file:
                for record in scan_records(file):
                    for feature, found in _names_in(record.data, schema, features):
                        left[feature.name].difference_update(found)
        except (ExampleFault, RecordFault) as error:
            raise StorageError(
                f"{below.path(name.shard)} is damaged ({error}), so it is unknown which classes "
                "and words its records have: run `shardwright repair`, then this command again"
            ) from error


def _indexed(schema: ExampleSchema) -> list[Feature]:
    return [feature for feature in schema.features if feature.kind in INDEXED]


def _names_in(
    data: bytes, schema: ExampleSchema, features: Iterable[Feature]
) -> Iterator[tuple[Feature, list[str]]]:
    values = parse_example(data)
    for feature in features:
        names = schema.names_of(feature)
        numbers = (int(number) for number in values.get(feature.stored[0].key, ()))
        yield feature, [names[number] for number in numbers if 0 <= number < len(names)]


def _labels(stats: Iterable[Mapping[str, Mapping[str, int]]], key: str) -> list[int]:
    return [int(label) for each in stats for label, count in each.get(key, {}).items() if count]
