"""Making a finished dataset out of finished shards: the manifest and its companions, in the order that keeps it safe."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardwright import naming
from shardwright.errors import BuildError, ExistsError
from shardwright.index import ShardSummary
from shardwright.manifest import Manifest, ShardInfo, SplitInfo, json_bytes, json_text, read_json
from shardwright.schema import ExampleSchema
from shardwright.storage import Folder
from transforms import companions
from transforms.output_state import Clearance, check_owner, check_rejects
from transforms.packing import Layout
from transforms.report import report_html
from transforms.statistics import merge_stats


@dataclass(frozen=True, slots=True)
class Publication:
    """What publishing needs to know besides the shards.

    Attributes:
        root: The dataset's folder.
        name: The dataset's name.
        version: The user's version.
        schema: The features, without class names.
        settings: The options that decide the shards' bytes.
        provenance: Where the dataset came from.
        max_reject_fraction: More rejects than this and nothing is published.
    """

    root: Folder
    name: str
    version: str
    schema: ExampleSchema
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any]
    max_reject_fraction: float


def publish(publication: Publication, summaries: Sequence[ShardSummary], layout: Layout, clearance: Clearance) -> Manifest:
    """Write all companions, remove what no longer belongs, and write the manifest last.

    Raises:
        BuildError: Too many rejects, a planned shard is not there, or another build has taken the output over.
    """
    _check_complete(summaries, layout)
    manifest = make_manifest(publication, summaries, clearance)
    check_rejects(manifest.rejects, manifest.num_records, publication.max_reject_fraction)
    root = publication.root
    there = read_json(root, naming.MANIFEST)
    check_owner(root, clearance.fingerprint)
    published = _published(there, manifest)
    _write_companions(root, published or manifest)
    _remove_stale(root, manifest, summaries)
    if published is None:
        _commit(root, manifest, replaces=there is not None)
    return published or manifest


def _commit(root: Folder, manifest: Manifest, *, replaces: bool) -> None:
    """Two builds of the same output cannot both publish: the second one is told, and compares when it is run again."""
    data = json_bytes(manifest.to_json())
    if replaces:
        root.write_bytes(naming.MANIFEST, data)
        return
    try:
        root.create_bytes(naming.MANIFEST, data)
    except ExistsError as error:
        raise BuildError(f"another build has published a dataset at {root} meanwhile: run the build again to compare with it") from error


def make_manifest(publication: Publication, summaries: Sequence[ShardSummary], clearance: Clearance) -> Manifest:
    """The manifest of these shards."""
    by_split: dict[str, list[ShardSummary]] = defaultdict(list)
    for summary in sorted(summaries, key=lambda summary: summary.name):
        by_split[summary.name.split].append(summary)
    rejects = Counter(clearance.rejects)
    for summary in summaries:
        rejects.update(summary.rejects)
    splits = {split: _split_info(split, shards) for split, shards in sorted(by_split.items())}
    return Manifest(
        name=publication.name,
        version=publication.version,
        schema=publication.schema.with_class_names(clearance.class_names),
        splits=splits,
        rejects=dict(sorted(rejects.items())),
        num_inputs=sum(split.num_records for split in splits.values()) + rejects.total(),
        settings=publication.settings,
        fingerprint=clearance.fingerprint,
        provenance=publication.provenance,
    )


def _split_info(split: str, summaries: Sequence[ShardSummary]) -> SplitInfo:
    shards = tuple(
        ShardInfo(summary.name.index, summary.num_records, summary.num_bytes, summary.crc32c, summary.digest, summary.etag)
        for summary in summaries
    )
    return SplitInfo(split, shards, merge_stats(summary.stats for summary in summaries))


def _check_complete(summaries: Sequence[ShardSummary], layout: Layout) -> None:
    written = {(summary.name.split, summary.name.index) for summary in summaries}
    planned = {(split, index) for split, cuts in layout.cuts.items() for index in range(cuts.num_shards)}
    if written != planned or len(summaries) != len(planned):
        missing = sorted(planned - written)[:3]
        raise BuildError(f"{len(summaries)} shards were written where {len(planned)} are planned (missing: {missing}): run the build again")


def _write_companions(root: Folder, manifest: Manifest) -> None:
    texts = {
        naming.FEATURES: json_text(companions.features_json(manifest.schema)),
        naming.DATASET_INFO: json_text(companions.dataset_info_json(manifest)),
        naming.STATS: json_text({split.name: dict(split.stats) for split in manifest.splits.values()}),
        naming.SCHEMA_PBTXT: companions.schema_pbtxt(manifest.schema),
        naming.REPORT: report_html(manifest),
    }
    if manifest.schema.label is not None:
        texts[naming.labels_file(manifest.schema.label.name)] = companions.labels_text(manifest.schema)
    for filename, text in texts.items():
        root.write_if_new(filename, text.encode("utf-8", "surrogatepass"))


def _remove_stale(root: Folder, manifest: Manifest, summaries: Sequence[ShardSummary]) -> None:
    """Shards, sidecars and temporary files of earlier or killed builds: none is named by this manifest."""
    keep = {naming.MANIFEST, naming.PLAN, naming.FEATURES, naming.DATASET_INFO, naming.STATS, naming.SCHEMA_PBTXT, naming.REPORT}
    keep.add(naming.PLAN_REJECTS)
    if manifest.schema.label is not None:
        keep.add(naming.labels_file(manifest.schema.label.name))
    for summary in summaries:
        keep |= {summary.name.shard, summary.name.sidecar}
        if summary.rejects:
            keep.add(summary.name.rejects)
    root.remove_all([name for name in root.outputs() if name not in keep])


def _published(there: Mapping[str, Any] | None, manifest: Manifest) -> Manifest | None:
    """The manifest in place, where it says the same but for its provenance: then it keeps its time of making."""
    if there is None or {**there, "provenance": None} != {**manifest.to_json(), "provenance": None}:
        return None
    return Manifest.from_json(there)
