"""Recognize TFRecord files, and find their layout in the first records and in their folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from shardwright.errors import RecordFault, UsageError
from shardwright.format.records import RecordSpan
from shardwright.sizes import counted
from shardwright.storage.folder import UserFolder
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.input_files import (
    FilesFacts,
    InputFile,
    base_of,
    common_split_names,
    describe_files,
    find_files,
)
from shardwright.transforms.inputs.source import SourceRequest
from shardwright.transforms.inputs.tables.table_roles import describe_columns
from shardwright.transforms.inputs.tfrecords.record_statistics import statistics_of
from shardwright.transforms.inputs.tfrecords.stated_features import (
    NOTHING_STATED,
    Stated,
    read_stated,
)
from shardwright.transforms.inputs.tfrecords.tfrecord_files import (
    is_tfrecord_name,
    open_tfrecord,
    read_frames,
)
from shardwright.transforms.inputs.tfrecords.tfrecord_layout import (
    WHOLE_RECORD,
    RecordLayout,
    layout_of_bytes,
    make_layout,
)
from shardwright.transforms.references import reference_schema

LOOK_FILES, LOOK_RECORDS = 3, 100  # the first records of the first non-empty files are examined
_MODEL_GARDEN = "image/"


@dataclass(frozen=True, slots=True, kw_only=True)
class TFRecordFacts(FilesFacts):
    """The facts about TFRecord files.

    Attributes:
        layout: The roles and types of the features.
    """

    layout: RecordLayout

    def parts(self) -> Iterator[str]:
        yield from (file.uri for file in files_of(self.request)[0])


def look(request: SourceRequest) -> TFRecordFacts | None:
    """Return the facts about TFRecord files; None if INPUT is something else.

    Raises:
        UsageError: The format is forced and there are no files, a file or its records are invalid,
            or an option does not fit.
        StorageError: A file cannot be read.
    """
    files, stated = files_of(request)
    if not files:
        request.refuse_if_forced("holds no files; give a TFRecord file, a wildcard or a folder")
        return None
    if request.columns.get("size") is not None:
        raise UsageError(
            f"--size-column needs a table, but {request.argument} {request.uri} "
            "is of TFRecord files"
        )
    if request.image_root is not None:
        raise UsageError(
            f"--image-root needs image paths, but {request.argument} {request.uri} "
            "holds the images themselves"
        )
    return _facts_of(request, files, _layout_of(request, files, stated))


def _layout_of(
    request: SourceRequest, files: tuple[InputFile, ...], stated: Stated
) -> RecordLayout:
    if request.image is None and WHOLE_RECORD in request.kinds and not _have_it(request, files):
        request.refuse_columns("of TFRecord records that are not tf.Examples")
        return layout_of_bytes()
    seen = statistics_of(_first_records(files, request.storage), request.uri)
    return make_layout(
        seen, request.columns, request.uri, stated, kinds=request.kinds, main=request.image
    )


def _have_it(request: SourceRequest, files: tuple[InputFile, ...]) -> bool:
    """Return whether records are tf.Examples with a feature of the name `WHOLE_RECORD`."""
    try:
        seen = statistics_of(_first_records(files, request.storage), request.uri)
    except UsageError:
        return False
    return WHOLE_RECORD in seen.features


def _facts_of(
    request: SourceRequest, files: Sequence[InputFile], layout: RecordLayout
) -> TFRecordFacts:
    has_indices = (
        layout.label is not None
        and layout.class_names is None
        and layout.types[layout.label] == pa.int64()
    )
    is_model_garden = any(feature.name.startswith(_MODEL_GARDEN) for feature in layout.features)
    return TFRecordFacts(
        _describe(request, files, layout),
        reference_schema(layout.columns.items()),
        layout.features,
        states_splits=layout.split is not None or common_split_names(files),
        splits_can_be_redrawn=layout.split is None,
        feature_names="model-garden" if is_model_garden else None,
        may_have_labels=layout.label is not None,
        labels_from="" if layout.label is None else f"feature {layout.label!r}",
        has_integer_labels=has_indices,
        labels_are_indices=has_indices,
        class_names=layout.class_names,
        request=request,
        base=base_of(files),
        layout=layout,
    )


def _describe(request: SourceRequest, files: Sequence[InputFile], layout: RecordLayout) -> str:
    anew = f"; recomputed: {', '.join(layout.left_out)}" if layout.left_out else ""
    told = describe_files(request, files, "TFRecord file")
    return f"{told}, {describe_columns(layout, layout.columns)}{anew}"


def files_of(request: SourceRequest) -> tuple[tuple[InputFile, ...], Stated]:
    """Return the TFRecord files of INPUT, and what its folder states.

    In a dataset of this project, shards of older builds are left out.
    """
    files = find_files(request, is_tfrecord_name)
    if not files and request.forced:  # of any name
        files = find_files(request, bool)
    if not files:
        return (), NOTHING_STATED
    stated = read_stated(UserFolder(os.path.dirname(files[0].uri), request.storage))
    if stated.shards is not None:
        files = (
            tuple(file for file in files if os.path.basename(file.uri) in stated.shards) or files
        )
    return files, stated


def _first_records(files: tuple[InputFile, ...], storage: StorageOptions) -> Iterator[bytes]:
    """Yield the first valid records of the first files that have any.

    Raises:
        UsageError: No file has any; the message shows the first fault.
    """
    fault, looked_into = None, 0
    for file in files:
        found = 0
        with open_tfrecord(file.uri, storage) as (stream, _):
            for frame in islice(read_frames(stream), LOOK_RECORDS):
                if isinstance(frame, RecordSpan):
                    found += 1
                    yield frame.data
                elif isinstance(frame, RecordFault):
                    fault = fault or UsageError(f"{file.uri} is not a valid TFRecord file: {frame}")
        looked_into += bool(found)
        if looked_into == LOOK_FILES:
            return
    if not looked_into:
        raise fault or UsageError(
            f"{files[0].uri} has no records, and neither has any other of "
            f"{counted(len(files), 'file')}"
        )
