"""The steps of a build as Beam transforms, in the order of the pipeline.

Import them from here for a pipeline of your own (examples/own_pipeline.py). Each folder holds one
step: its PTransform, which only wires, and its pure functions, which do not know Beam.

inputs/      ListImages            files, tables, archives -> batches of references (references.py)
             SpoolRecords          records of Python -> the same; their images go to the spool
labels/      JoinLabels            a table of labels -> labels and features
duplicates/  DropDuplicates        equal bytes -> one reference
near_duplicates/
             FindNearDuplicates    perceptual hashes -> groups, and a keeper of each
changes/     FindChanges           references -> those that a dataset does not have as they are
splits/      AssignSplits          hash of the id -> a split
             DrawSplits            hashes of all -> exact numbers, even classes, whole groups
             ListSplits            a list of ids -> their splits
features/    EncodeFeatures        columns -> final values, and vocabularies
plan/        EstimateSizes         a sample -> sizes after re-encoding
             PlanShards            references -> shards, exactly
write/       ClearOutput           the whole plan -> permission to write
             WriteShards           a shard's plan -> the shard, with its index and rejects
             WriteWithBeam         the same with Beam's own WriteToTFRecord
publish/     PublishDataset        all sidecars -> companion files, and last the manifest
versions/    CommitVersion         additions -> the next version of a dataset that grows
images/      no step: what one image becomes, for those that read or write images
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardwright.transforms.changes.find_changes import FindChanges
    from shardwright.transforms.duplicates.drop_duplicates import DropDuplicates
    from shardwright.transforms.features.encode_features import EncodeFeatures
    from shardwright.transforms.images.options import EncodeOptions
    from shardwright.transforms.inputs.detection import detect_source
    from shardwright.transforms.inputs.list_images import ListImages, SpoolRecords
    from shardwright.transforms.inputs.source import SourceRequest
    from shardwright.transforms.labels.join_labels import JoinLabels
    from shardwright.transforms.near_duplicates.find_near_duplicates import FindNearDuplicates
    from shardwright.transforms.near_duplicates.groups import NearDuplicateOptions
    from shardwright.transforms.output_state import OutputRequest
    from shardwright.transforms.plan.packing import ShardPolicy
    from shardwright.transforms.plan.plan_shards import EstimateSizes, PlanShards
    from shardwright.transforms.publish.companions import TfdsFiles
    from shardwright.transforms.publish.near_duplicates import NearDuplicateList
    from shardwright.transforms.publish.publication import Companion, Publication
    from shardwright.transforms.publish.publish_dataset import PublishDataset
    from shardwright.transforms.publish.report_file import Report
    from shardwright.transforms.references import keep_rows, reject_rows
    from shardwright.transforms.reject_limits import RejectLimits
    from shardwright.transforms.rejects import Reject, RejectReason
    from shardwright.transforms.routing import Route
    from shardwright.transforms.splits.assign_splits import AssignSplits, DrawSplits
    from shardwright.transforms.splits.list_splits import ListSplits
    from shardwright.transforms.splits.split_rules import parse_split
    from shardwright.transforms.user_code import Record, RejectRecord
    from shardwright.transforms.versions.commit_version import CommitVersion
    from shardwright.transforms.write.clear_output import ClearOutput
    from shardwright.transforms.write.stored_records import StoredRecords
    from shardwright.transforms.write.transformed_records import TransformedRecords
    from shardwright.transforms.write.write_job import WriteJob
    from shardwright.transforms.write.write_shards import WriteShards
    from shardwright.transforms.write.write_stock import WriteWithBeam

# Imported on first use, because a worker's or launcher's process rarely needs all steps, and a
# plan made without a graph needs no Beam.
_MODULES = {
    "ListImages": "inputs.list_images",
    "SpoolRecords": "inputs.list_images",
    "JoinLabels": "labels.join_labels",
    "DropDuplicates": "duplicates.drop_duplicates",
    "FindNearDuplicates": "near_duplicates.find_near_duplicates",
    "FindChanges": "changes.find_changes",
    "AssignSplits": "splits.assign_splits",
    "DrawSplits": "splits.assign_splits",
    "ListSplits": "splits.list_splits",
    "EncodeFeatures": "features.encode_features",
    "EstimateSizes": "plan.plan_shards",
    "PlanShards": "plan.plan_shards",
    "ClearOutput": "write.clear_output",
    "WriteShards": "write.write_shards",
    "WriteWithBeam": "write.write_stock",
    "PublishDataset": "publish.publish_dataset",
    "CommitVersion": "versions.commit_version",
    # Their arguments, and what a step of your own needs.
    "Companion": "publish.publication",
    "EncodeOptions": "images.options",
    "NearDuplicateList": "publish.near_duplicates",
    "NearDuplicateOptions": "near_duplicates.groups",
    "OutputRequest": "output_state",
    "Publication": "publish.publication",
    "Record": "user_code",
    "Reject": "rejects",
    "RejectLimits": "reject_limits",
    "RejectReason": "rejects",
    "RejectRecord": "user_code",
    "Report": "publish.report_file",
    "Route": "routing",
    "ShardPolicy": "plan.packing",
    "SourceRequest": "inputs.source",
    "StoredRecords": "write.stored_records",
    "TfdsFiles": "publish.companions",
    "TransformedRecords": "write.transformed_records",
    "WriteJob": "write.write_job",
    "detect_source": "inputs.detection",
    "keep_rows": "references",
    "parse_split": "splits.split_rules",
    "reject_rows": "references",
}

__all__ = [
    "AssignSplits",
    "ClearOutput",
    "CommitVersion",
    "Companion",
    "DrawSplits",
    "DropDuplicates",
    "EncodeFeatures",
    "EncodeOptions",
    "EstimateSizes",
    "FindChanges",
    "FindNearDuplicates",
    "JoinLabels",
    "ListImages",
    "ListSplits",
    "NearDuplicateList",
    "NearDuplicateOptions",
    "OutputRequest",
    "PlanShards",
    "Publication",
    "PublishDataset",
    "Record",
    "Reject",
    "RejectLimits",
    "RejectReason",
    "RejectRecord",
    "Report",
    "Route",
    "ShardPolicy",
    "SourceRequest",
    "SpoolRecords",
    "StoredRecords",
    "TfdsFiles",
    "TransformedRecords",
    "WriteJob",
    "WriteShards",
    "WriteWithBeam",
    "detect_source",
    "keep_rows",
    "parse_split",
    "reject_rows",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
