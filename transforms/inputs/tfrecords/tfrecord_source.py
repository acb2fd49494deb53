"""TFRecord files of any writer as input; images are read in place, not copied or re-encoded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO, ClassVar

import pyarrow as pa

from shardwright.errors import RecordFault, UsageError
from shardwright.format.records import RecordSpan
from shardwright.storage import Folder, StorageOptions
from transforms.inputs.input_files import (
    FileState,
    InputFile,
    common_split_names,
    find_files,
    state_of,
)
from transforms.inputs.source import InputSource, SourceFacts, SourceFormat, SourceRequest
from transforms.inputs.spool import SpoolWriter, rules_digest, spooled
from transforms.inputs.tfrecords.record_statistics import look_at
from transforms.inputs.tfrecords.stated_features import NOTHING_STATED, Stated, read_stated
from transforms.inputs.tfrecords.tfrecord_files import is_tfrecord_name, open_tfrecord, read_frames
from transforms.inputs.tfrecords.tfrecord_layout import RecordLayout, make_layout
from transforms.inputs.tfrecords.tfrecord_references import list_records
from transforms.references import reference_schema
from transforms.rejects import Reject, RejectReason

LOOK_FILES, LOOK_RECORDS = 3, 100  # the first records of the first non-empty files are examined
_MODEL_GARDEN = "image/"


@dataclass(frozen=True, slots=True)
class TFRecordSource(InputSource):
    """TFRecord files to list. `parts` finds them again, so that a source of many files stays small.

    Attributes:
        request: The request for INPUT.
        root: The folder that file names are relative to.
        layout: The roles and types of the features.
    """

    request: SourceRequest
    root: str
    layout: RecordLayout

    def parts(self) -> Iterator[str]:
        for file in _files_of(self.request)[0]:
            yield file.uri

    def list_part(self, part: str) -> Iterator[pa.RecordBatch | Reject]:
        file = InputFile(part, part.removeprefix(f"{self.root}/"))
        state = state_of(file.uri, self.request.storage)
        if not state.num_bytes:
            yield Reject(
                file.name,
                file.uri,
                RejectReason.OTHER_FILE,
                "the file is empty: it has no records",
            )
            return
        with open_tfrecord(file.uri, self.request.storage) as (stream, compression):
            if compression is None:
                frames = read_frames(stream, state.num_bytes)
                yield from list_records(
                    frames, file, self.layout, schema=self.facts.schema, uri=file.uri, state=state
                )
            else:
                yield from self._list_compressed(file, state, stream)

    def _list_compressed(
        self, file: InputFile, state: FileState, stream: BinaryIO
    ) -> Iterator[pa.RecordBatch | Reject]:
        """Yield references into the spool: a compressed file cannot be read at an offset."""

        def make(writer: SpoolWriter) -> Iterator[pa.RecordBatch | Reject]:
            place = FileState(0, writer.etag)
            yield from list_records(
                read_frames(stream), file, self.layout,
                schema=self.facts.schema, uri=writer.uri, state=place,
                keep=lambda record, _, span: writer.add(record[span[0] : span[1]]),
            )  # fmt: skip

        rules = rules_digest(file, self.layout)
        yield from spooled(
            self.request.spool,
            file.uri,
            f"{state.etag}-{state.num_bytes}-{rules}",
            self.request.storage,
            make,
        )


class TFRecordFormat(SourceFormat):
    """Files with the names of TFRecord files."""

    name: ClassVar[str] = "tfrecord"
    summary: ClassVar[str] = (
        "TFRecord files of tf.Example: a file, a wildcard or a folder "
        "(TFDS, Model Garden, shardwright, ...)"
    )
    rank: ClassVar[int] = 20

    def open(self, request: SourceRequest, *, forced: bool) -> TFRecordSource | None:
        files, stated = _files_of(request, forced=forced)
        if not files:
            if forced:
                raise UsageError(
                    f"{request.argument} {request.uri} holds no files; "
                    "give a TFRecord file, a wildcard or a folder"
                )
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
        look = look_at(_first_records(files, request.storage), request.uri)
        layout = make_layout(look, request.columns, request.uri, stated, kinds=request.kinds)
        root = files[0].uri.removesuffix(files[0].name).rstrip("/")
        return TFRecordSource(_facts_of(request, files, layout), request, root, layout)


def _facts_of(
    request: SourceRequest, files: Sequence[InputFile], layout: RecordLayout
) -> SourceFacts:
    has_indices = (
        layout.label is not None
        and layout.class_names is None
        and layout.types[layout.label] == pa.int64()
    )
    is_model_garden = any(feature.name.startswith(_MODEL_GARDEN) for feature in layout.features)
    return SourceFacts(
        description=_describe(request, files, layout),
        schema=reference_schema(layout.columns.items()),
        features=layout.features,
        states_splits=layout.split is not None or common_split_names(files),
        splits_can_be_redrawn=layout.split is None,
        feature_names="model-garden" if is_model_garden else None,
        has_integer_labels=has_indices,
        labels_are_indices=has_indices,
        class_names=layout.class_names,
    )


def _describe(request: SourceRequest, files: Sequence[InputFile], layout: RecordLayout) -> str:
    roles = ", ".join(
        f"{role}={key!r}"
        for role in ("image", "label", "id", "split", "group")
        if (key := getattr(layout, role))
    )
    extras = f"; features from {', '.join(layout.columns)}" if layout.columns else ""
    anew = f"; recomputed: {', '.join(layout.left_out)}" if layout.left_out else ""
    number = "a TFRecord file" if len(files) == 1 else f"{len(files)} TFRecord files"
    return f"{number} at {request.uri}, {roles}{extras}{anew}"


def _files_of(
    request: SourceRequest, *, forced: bool = True
) -> tuple[tuple[InputFile, ...], Stated]:
    """Return the TFRecord files of INPUT, and what its folder states.

    In a dataset of this project, shards of older builds are left out.
    """
    files = find_files(request, is_tfrecord_name) or (find_files(request, bool) if forced else ())
    if not files:
        return (), NOTHING_STATED
    stated = read_stated(Folder(os.path.dirname(files[0].uri), request.storage))
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
            f"{files[0].uri} has no records, and neither has any other of {len(files)} files"
        )
