"""Check the files beside the shards against the manifest: TFDS's, names, statistics, rejects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from msgspec import UNSET, Struct, to_builtins

from shardwright.errors import MissingError, NotADatasetError, StorageError
from shardwright.format import naming
from shardwright.format.json_files import read_json, typed
from shardwright.format.listed_files import DatasetFault
from shardwright.format.manifest import Manifest
from shardwright.format.parquet import read_rows
from shardwright.format.schema import ExampleSchema, FeatureKind
from shardwright.format.tfds_features import (
    TfdsFeature,
    TfdsSequence,
    features_json,
    names_files,
    names_text,
)
from shardwright.sizes import counted
from shardwright.storage.folder import Folder

T = TypeVar("T")


def check_companions(root: Folder, manifest: Manifest) -> Iterator[DatasetFault]:
    """Yield every difference between the manifest and the files beside the shards."""
    faults = [
        *_manifest_faults(root, manifest),
        *_faults_of(root, manifest, naming.DATASET_INFO, _DatasetInfo, _dataset_info_faults),
        *_faults_of(root, manifest, naming.FEATURES, TfdsFeature, _features_faults),
        *_faults_of(root, manifest, naming.STATS, dict[str, Any], _stats_faults),
    ]
    if root.num_bytes_of(naming.SCHEMA_PBTXT) is None:
        faults.append(DatasetFault.of_file(naming.SCHEMA_PBTXT, "the file is missing"))
    faults += [*_names_faults(root, manifest.schema), *_reject_faults(root, manifest)]
    yield from faults


def _faults_of(
    root: Folder,
    manifest: Manifest,
    filename: str,
    kind: type[T],
    check: Callable[[T, Manifest], Iterable[str]],
) -> Iterator[DatasetFault]:
    faults: Iterable[str]
    try:
        content = read_json(root, filename, kind)
        faults = ["the file is missing"] if content is None else check(content, manifest)
    except (NotADatasetError, StorageError) as error:
        faults = [str(error)]
    yield from (DatasetFault.of_file(filename, what) for what in faults)


class _InfoSplit(Struct, rename="camel"):
    name: str
    shard_lengths: list[str]


class _DatasetInfo(Struct):
    name: str
    version: str
    splits: list[_InfoSplit]


def _manifest_faults(root: Folder, manifest: Manifest) -> Iterator[DatasetFault]:
    """Yield contradictions within the manifest: totals, shard numbers and number of inputs."""
    # In `next/`, while it replaces an older dataset, the manifest does not name that folder.
    there = read_json(root, naming.MANIFEST, dict[str, Any]) or {}
    sums = replace(manifest, folder="").to_json()
    differing = [key for key in sums if there.get(key) != sums[key]]
    if differing:
        yield DatasetFault.of_file(
            naming.MANIFEST, f"totals that do not match the shards: {', '.join(differing)}"
        )
    for split in manifest.splits.values():
        indices = [shard.index for shard in split.shards]
        if indices != list(range(len(indices))):
            yield DatasetFault.of_file(
                naming.MANIFEST,
                f"split {split.name!r} has shards {indices}, expected 0 to {len(indices) - 1}",
            )
    if manifest.num_inputs != manifest.num_records + sum(manifest.rejects.values()):
        what = (
            f"num_inputs is {manifest.num_inputs}, but there are "
            f"{counted(manifest.num_records, 'record')} and "
            f"{counted(sum(manifest.rejects.values()), 'reject')}"
        )
        yield DatasetFault.of_file(naming.MANIFEST, what)


def _dataset_info_faults(info: _DatasetInfo, manifest: Manifest) -> Iterator[str]:
    for key in ("name", "version"):
        if getattr(info, key) != (wanted := getattr(manifest, key)):
            yield f"{key} is {getattr(info, key)!r}, the manifest says {wanted!r}"
    lengths = {split.name: split.shard_lengths for split in info.splits}
    for name in sorted({*lengths, *manifest.splits}):
        shards = manifest.splits[name].shards if name in manifest.splits else ()
        if lengths.get(name, []) != [str(shard.num_records) for shard in shards]:
            yield (
                f"shardLengths of split {name!r} is {lengths.get(name)}, "
                f"the manifest says {[shard.num_records for shard in shards]}"
            )


def _features_faults(content: TfdsFeature, manifest: Manifest) -> Iterator[str]:
    there = dict(_flatten_features(content, ""))
    wanted = dict(_flatten_features(typed(features_json(manifest.schema), TfdsFeature), ""))
    for name in sorted({*there, *wanted}):
        if there.get(name) != wanted.get(name):
            yield (
                f"feature {name!r} is {there.get(name, 'missing')}, "
                f"the schema says {wanted.get(name, 'it does not exist')}"
            )


def _flatten_features(node: TfdsFeature, name: str) -> Iterator[tuple[str, str]]:
    """Yield (name, kind) for each feature of TFDS's JSON, nested names joined by `/`."""
    if node.features_dict is not UNSET:
        for key, child in node.features_dict.features.items():
            yield from _flatten_features(child, f"{name}/{key}" if name else key)
    elif node.sequence is not UNSET and node.sequence.feature.features_dict is not UNSET:
        for inner, kind in _flatten_features(node.sequence.feature, name):
            yield inner, f"{kind} in {_list_of(node.sequence)} {name}"
    else:
        yield name, _kind_of(node)


def _kind_of(node: TfdsFeature) -> str:
    """Return a text of everything that decides how TFDS reads a feature."""
    if node.sequence is not UNSET:
        return f"{_list_of(node.sequence)} {_kind_of(node.sequence.feature)}"
    if node.class_label is not UNSET:
        return f"{FeatureKind.CLASS_LABEL} of {node.class_label.num_classes}"
    if node.text is not UNSET:
        return str(FeatureKind.TEXT)
    kinds = {"image": node.image, "boundingBox": node.bounding_box, "tensor": node.tensor}
    for key, found in kinds.items():
        if found is not UNSET:
            return f"{key} {json.dumps(to_builtins(found), sort_keys=True)}"
    return node.python_class_name


def _list_of(sequence: TfdsSequence) -> str:
    return "list of" if sequence.length == "-1" else f"list of {sequence.length}"


def _stats_faults(content: Mapping[str, Any], manifest: Manifest) -> Iterator[str]:
    for name in sorted({*content, *manifest.splits}):
        if name not in manifest.splits or content.get(name) != manifest.splits[name].stats:
            yield f"the statistics of split {name!r} differ from the manifest"


def _names_faults(root: Folder, schema: ExampleSchema) -> Iterator[DatasetFault]:
    """Yield faults of the files of class names and words."""
    for filename, names in names_files(schema).items():
        try:
            text = root.read_bytes(filename).decode("utf-8", "surrogatepass")
        except MissingError:
            yield DatasetFault.of_file(filename, "the file is missing")
            continue
        except (StorageError, ValueError) as error:
            yield DatasetFault.of_file(filename, f"the file cannot be read: {error}")
            continue
        if text != names_text(names):
            there, what = (
                text.count("\n"),
                "words" if filename.endswith(naming.VOCABULARY_SUFFIX) else "classes",
            )
            yield DatasetFault.of_file(
                filename, f"the {there} {what} in the file are not the {len(names)} of the manifest"
            )


def _reject_faults(root: Folder, manifest: Manifest) -> Iterator[DatasetFault]:
    """Compare the number of rejects by reason; the file of a failed build is left out."""
    counts: Counter[str] = Counter()
    for path in naming.build_outputs(root):
        if (
            not path.startswith(f"{naming.REJECTS_DIR}/")
            or naming.is_failed_rejects(path)
            or not path.endswith(".parquet")
        ):
            continue
        try:
            counts.update(read_rows(root, path, ["reason"])["reason"].to_pylist())
        except (StorageError, KeyError) as error:
            yield DatasetFault.of_file(path, f"the file cannot be read: {error}")
    if counts != Counter(manifest.rejects):
        what = (
            f"the files hold {_show_counts(counts)}, "
            f"the manifest says {_show_counts(manifest.rejects)}"
        )
        yield DatasetFault.of_file(naming.REJECTS_DIR, what)


def _show_counts(counts: Mapping[str, int]) -> str:
    return (
        ", ".join(f"{number} {reason}" for reason, number in sorted(counts.items())) or "no rejects"
    )
