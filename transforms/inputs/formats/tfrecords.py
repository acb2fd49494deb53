"""TFRecord files of any writer as input: plain or compressed, valid or damaged.

Images are read in place, not copied or re-encoded.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa

from shardwright.errors import RecordFault, StorageError, UsageError
from shardwright.format.entries import Block, Span, bytes_span, find_features, read_values
from shardwright.format.example import ExampleFault
from shardwright.format.records import HEADER_BYTES, RecordSpan, frame_header, read_record
from shardwright.format.schema import ARROW_TYPES, PICTURES, Feature, FeatureKind
from shardwright.sizes import counted
from shardwright.storage.folder import Folder, files_of
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.columns import (
    IMAGE_NAMES,
    Columns,
    extra_feature,
    said_kinds,
)
from shardwright.transforms.inputs.file_rules import size_problem
from shardwright.transforms.inputs.formats.stated_features import (
    DetectionKeys,
    RecordStatistics,
    Stated,
    is_sequence_example,
    read_stated,
    statistics_of,
)
from shardwright.transforms.inputs.input_files import (
    FilesSource,
    InputFile,
    base_of,
    describe_files,
    files_state_splits,
    find_files,
    state_of,
)
from shardwright.transforms.inputs.rows import (
    Found,
    NumberedRow,
    RawRows,
    columns_of,
    list_rows,
    raw_rows,
)
from shardwright.transforms.inputs.source import Rows, SourceRequest
from shardwright.transforms.inputs.spool import SpoolWriter, spooled_part
from shardwright.transforms.references import BATCH_ROWS, ImagePlace
from shardwright.transforms.rejects import Reject, RejectReason, incomplete

LABEL_NAMES = ("label", "image/class/label", "class", "class_id", "category", "target", "labels")
# The first that exists is the id. Other file names are not: they may repeat across classes.
ID_NAMES = ("id", "image_id", "image/filename", "image/source_id")
# Model Garden's features of the encoded image: recomputed when a record is written.
_DERIVED = ("image/format", "image/height", "image/width")
_LABEL_TEXT = "image/class/text"
LOOK_FILES, LOOK_RECORDS = 3, 100  # the first records of the first non-empty files are examined
_MODEL_GARDEN = "image/"
_GZIP = b"\x1f\x8b\x08"
MAX_BATCH_BYTES = 16 << 20  # of values in a batch, because a feature may be large
_BUFFER_BYTES = 1 << 20
# x.tfrecord, x.tfrecords, x.tfrec, x.tfrecord-00000-of-00012, x.tfrecord.gz, and x.record of the
# Object Detection API; also a bare train-00000-of-01024, and TFX's data_tfrecord-00000-of-00001.gz.
_NAME = re.compile(
    r"(?i).*\.(tfrecords?|tfrec)([-._].*)?|.*\.record(-\d+-of-\d+)?(\.gz)?|.*-\d{5,}-of-\d{5,}(\.gz)?"
)
_KINDS = {
    pa.binary(): "bytes_list",
    pa.float32(): "float_list",
    pa.int64(): "int64_list",
    pa.string(): "bytes_list",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLayout(Columns):
    """The features of tf.Examples, as columns of their type; bytes with a role are text.

    Attributes:
        left_out: Keys that are recomputed from the image.
        may_lack_images: True if a record without an image is not a reject.
        detection: The features of boxes, which become objects, or None.
    """

    left_out: tuple[str, ...] = ()
    may_lack_images: bool = False
    detection: DetectionKeys | None = None


def make_layout(
    seen: RecordStatistics,
    request: SourceRequest,
    stated: Stated,
    detection: DetectionKeys | None = None,
) -> RecordLayout:
    """Return the roles and types of the features.

    Args:
        seen: Statistics of the first records.
        request: The request for INPUT.
        stated: The features that the folder states.
        detection: The features of boxes, or None.

    Raises:
        UsageError: No feature holds images, or a given feature is missing or does not suit its
            role.
    """
    said = said_kinds(request.columns, request.kinds)
    features = {
        key: replace(one, images=one.kinds["bytes_list"] if said[key] in PICTURES else 0)
        if key in said
        else one
        for key, one in seen.features.items()
    }
    seen = RecordStatistics(seen.num_records, features)  # with the kinds that the user says
    usual = {
        "label": (stated.label, *LABEL_NAMES),
        "id": [*filter(seen.is_scalar, (stated.id, *ID_NAMES))],
        "split": (),
        "group": (),
    }
    found = columns_of(
        seen.as_rows(),
        [*filter(seen.has_images, seen.features)],
        request,
        f"the records of {request.uri}",
        usual=usual,
        images=(stated.image, *IMAGE_NAMES),
    )
    assert found is not None  # forced
    image, label = found.image, found.label or ""
    roles: dict[str, Any] = found.roles
    kinds = {
        key: pa.string() if seen.stored(key) == pa.binary() else seen.stored(key)
        for key in roles.values()
    }
    left_out = tuple(key for key in seen.features if image and key in stated.derived)
    if image == "image/encoded" and not stated.derived:
        left_out = tuple(key for key in _DERIVED if key in seen.features)
    boxes = {} if detection is None else detection.stored
    left_out += () if detection is None else detection.left_out
    known = {
        key: _feature_of(key, seen, stated)
        for key in dict.fromkeys([*stated.features, *seen.features])  # as stated, then by name
        if key in seen.features and key not in {*kinds, *left_out, *boxes}
    }
    for key, feature in known.items():
        value = seen.stored(key)
        kinds[key] = value if feature.stored_shape == () else pa.list_(value)
    named = dict(known)
    if label in stated.features and kinds[label] != pa.string():
        named[label] = stated.features[label]
    return RecordLayout(
        columns=pa.schema([*kinds.items(), *boxes.items()]),
        detection=detection,
        **roles,
        pictures=tuple(filter(seen.has_images, known)),
        class_names={key: one.names for key, one in named.items() if one.names},
        known=known,
        left_out=left_out,
        may_lack_images=request.may_lack_images,
    )


def _feature_of(key: str, seen: RecordStatistics, stated: Stated) -> Feature:
    name = "label_text" if key == _LABEL_TEXT and "label_text" not in seen.features else key
    column, known = "" if key == name else key, stated.features.get(key)
    if seen.has_images(key):
        if known is not None and known.kind in PICTURES:
            return known
        return Feature(
            name,
            FeatureKind.IMAGE,
            column=column,
            default="" if seen.features[key].images < seen.num_records else None,
        )
    if (
        known is not None
        and known.kind not in PICTURES
        and ARROW_TYPES[known.kind] == seen.stored(key)
    ):
        return replace(known, column="")
    shape = () if seen.is_scalar(key) else (None,)
    return replace(extra_feature(name, seen.stored(key)), shape=shape, column=column)


@dataclass(frozen=True, slots=True, kw_only=True)
class TFRecordSource(FilesSource):
    """TFRecord files.

    Attributes:
        layout: The roles and types of the features.
    """

    summary = (
        "TFRecord files of tf.Example: a file, a wildcard or a folder "
        "(TFDS, Model Garden, shardwright, ...)"
    )
    rank = 20
    reads_records = True

    layout: RecordLayout

    def parts(self) -> Iterator[str]:
        yield from (file.uri for file in _files_in(self.request)[0])

    @classmethod
    def look(cls, request: SourceRequest) -> TFRecordSource | None:
        """Return TFRecord files as a source; None if INPUT is something else.

        Raises:
            UsageError: The format is forced and there are no files, a file or its records are
                invalid, or an option does not fit.
            StorageError: A file cannot be read.
        """
        files, stated = _files_in(request)
        if not files:
            request.refuse_if_forced("holds no files; give a TFRecord file, a wildcard or a folder")
            return None
        request.refuse_columns("made of TFRecord files", "size")
        if request.image_root is not None:
            raise UsageError(
                f"--image-root needs image paths, but {request.argument} {request.uri} "
                "holds the images themselves"
            )
        seen = statistics_of(_first_records(files, request.storage), request.uri)
        folder = Folder(os.path.dirname(files[0].uri), request.storage, None)
        detection = None
        if request.image is not None:
            detection = DetectionKeys.find(seen, folder, request.kinds)
        layout = make_layout(seen, request, stated, detection)
        label = layout.label
        has_indices = (
            label is not None
            and label not in layout.class_names
            and layout.columns.field(label).type == pa.int64()
        )
        is_model_garden = any(one.name.startswith(_MODEL_GARDEN) for one in layout.features)
        anew = f"; recomputed: {', '.join(layout.left_out)}" if layout.left_out else ""
        told = describe_files(request, files, "TFRecord file")
        found = {"labels_from": "" if label is None else f"feature {label!r}"}
        if layout.detection is not None:
            others = tuple(key for key in layout.extras if key not in layout.detection.stored)
            found |= layout.detection.attributes(replace(layout, brought=others))
            told += " with boxes (Object Detection API)"
        return layout.source_as(
            TFRecordSource,
            f"{told}, {layout.describe()}{anew}",
            columns=None,
            states_splits=layout.split is not None or files_state_splits(request, files),
            feature_names="model-garden" if is_model_garden else None,
            labels_are_indices=has_indices,
            request=request,
            base=base_of(files),
            is_part=is_tfrecord_name,
            layout=layout,
            **found,
        )

    def references(self, part: str) -> Rows:
        """Yield the records of a file, with their objects if they have boxes."""
        detection = self.layout.detection
        for found in _list_file(self, part):
            if detection is None or isinstance(found, Reject):
                yield found
            else:
                yield from detection.with_objects(found, self.request.storage)


def _files_in(request: SourceRequest) -> tuple[tuple[InputFile, ...], Stated]:
    """Return the TFRecord files of INPUT, and what its folder states.

    In a dataset of this project, shards of older builds are left out.
    """
    files = find_files(request, is_tfrecord_name)
    if not files and request.forced:  # of any name
        files = find_files(request, bool)
    if not files:
        return (), Stated()
    stated = read_stated(Folder(os.path.dirname(files[0].uri), request.storage, None))
    if stated.shards is not None:
        # If it names none of them, it does not speak of these files.
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


class _Every(frozenset[bytes]):
    """A set that contains every key."""

    def __contains__(self, key: object) -> bool:
        return True


_EVERY = _Every()


def _raw_rows(
    layout: RecordLayout,
    file: InputFile,
    frames: Iterator[RecordSpan | RecordFault],
    place: ImagePlace | SpoolWriter,
) -> Iterator[RawRows | Reject]:
    """Yield the records of one file as rows, and a reject for each invalid one.

    Args:
        layout: The columns of the rows.
        file: The file; its name begins the ids of rejects.
        frames: The file's records and faults, from its start.
        place: The file itself, or the writer of the spool that images are copied to.
    """
    maker = _RowMaker(layout, place)
    rows: list[NumberedRow] = []
    num_bytes = num_rows = 0
    for number, frame in enumerate(frames):
        if isinstance(frame, RecordFault):
            told = f"record {number}, {str(frame).removeprefix('record ')}"
            if frame.next_offset is None:  # the start of the next record is unknown
                yield incomplete(file.name, file.uri, told, num_rows)
            else:
                yield Reject(f"{file.name}#{number}", file.uri, RejectReason.CORRUPT, told)
            continue
        try:
            rows.append((number, maker.make(frame)))
        except (ExampleFault, ValueError) as error:
            told = f"record {number} at byte {frame.offset}: {error}"
            yield Reject(f"{file.name}#{number}", file.uri, RejectReason.BAD_VALUE, told)
            continue
        num_rows += 1
        num_bytes += len(frame.data)
        if len(rows) == BATCH_ROWS or num_bytes >= MAX_BATCH_BYTES:
            yield raw_rows(layout, rows)
            rows, num_bytes = [], 0
    if rows:
        yield raw_rows(layout, rows)


class _RowMaker:
    """A maker of rows from records."""

    def __init__(self, layout: RecordLayout, place: ImagePlace | SpoolWriter) -> None:
        self._layout = layout
        self._place = place
        self._columns = [(one.name, one.name.encode(), one.type) for one in layout.columns]
        self._keys = {key.encode() for key in (*layout.columns.names, *layout.left_out)}

    def make(self, frame: RecordSpan) -> dict[str, Any]:
        """Return the values of a record; of an image, as of `RawRows.places`.

        Raises:
            ValueError, ExampleFault: It cannot be a reference.
        """
        layout, data = self._layout, frame.data
        block, spans = find_features(data, 0, len(data), _EVERY)
        if block is not data and is_sequence_example(data):
            raise ValueError(
                "a tf.SequenceExample, which is not supported: write one tf.Example for each image"
            )
        # Its column does not exist, so the feature would be lost in silence.
        if unknown := spans.keys() - self._keys:
            name = min(unknown).decode(errors="replace")
            raise ValueError(f"it has the feature {name!r}, which the first records lack")
        row: dict[str, Any] = {}
        for name, key, kind in self._columns:
            is_picture = name == layout.image or name in layout.pictures
            found = bytes_span(block, spans[key]) if is_picture and key in spans else None
            if found:
                row[name] = self._picture(name, block, found, frame)
            elif key in spans:
                row[name] = _value(name, kind, block, spans[key])
                if is_picture and row[name] is not None:
                    raise ValueError(f"its image, {name!r}, is not one bytes value")
            elif pa.types.is_list(kind):
                row[name] = []
        return row

    def _picture(self, name: str, block: Block, span: Span, frame: RecordSpan) -> Found:
        """Return the place of an image in the file to read later.

        One of b"", which means no image in own records, too, is None if it may be.
        """
        start, num_bytes = span[0], span[1] - span[0]
        may_lack = name != self._layout.image or self._layout.may_lack_images
        if problem := size_problem(num_bytes):
            return problem if num_bytes or not may_lack else None
        # Protobuf has reassembled the features; in the record, the image is one run of bytes.
        if block is not frame.data:
            start = frame.data.index(block[start : start + num_bytes])
        if isinstance(self._place, SpoolWriter):
            return self._place.place(frame.data[start : start + num_bytes])
        offset = frame.offset + HEADER_BYTES + start
        return ImagePlace(self._place.uri, offset, num_bytes, self._place.etag)


def _value(name: str, kind: pa.DataType, block: Block, span: Span) -> Any:
    """Return the values of a feature, or its only one; None without any."""
    is_list = pa.types.is_list(kind)
    wanted = _KINDS[kind.value_type if is_list else kind]
    found, values = read_values(block, span)
    # An empty list of any type is no value.
    if len(values) and found != wanted:
        raise ValueError(f"{name!r} is a {found}, but a {wanted} in the first records")
    if is_list:
        return values
    if len(values) > 1:
        raise ValueError(f"{name!r} has {len(values)} values, but one in the first records")
    try:
        return next((one.decode() if kind == pa.string() else one for one in values), None)
    except UnicodeDecodeError as error:
        raise ValueError(f"{name!r} is {values[0][:40]!r}, which is not UTF-8") from error


def _list_file(source: TFRecordSource, part: str) -> Rows:
    file, storage = source.file_of(part), source.request.storage
    state = state_of(part, storage)
    if not state.num_bytes:
        told = "the file is empty: it has no records"
        yield Reject(file.name, file.uri, RejectReason.OTHER_FILE, told)
        return
    layout, request = source.layout, source.request
    with open_tfrecord(part, storage) as (stream, is_compressed):
        frames = read_frames(stream, None if is_compressed else state.num_bytes)

        def make(place: ImagePlace | SpoolWriter) -> Rows:
            rows = _raw_rows(layout, file, frames, place)
            # A record without an image has the place of the others.
            there = file._replace(uri=place.uri)
            return list_rows(layout, request, there, rows, None, etag=place.etag)

        if is_compressed and (layout.image is not None or layout.pictures):
            # It cannot be read at an offset, so its images go to the spool.
            yield from spooled_part(request, file, state, make, columns=layout.to_json())
        else:
            yield from make(ImagePlace(part, 0, *state))


def is_tfrecord_name(name: str) -> bool:
    """Return whether a file's name is that of a TFRecord file."""
    return _NAME.fullmatch(name) is not None


@contextmanager
def open_tfrecord(uri: str, storage: StorageOptions) -> Iterator[tuple[BinaryIO, bool]]:
    """Open a TFRecord file; yield it, uncompressed and at its start, and whether it is compressed.

    Raises:
        StorageError: It cannot be read.
    """
    try:
        with files_of(uri, storage).open_stream(uri) as file:
            header = file.read(HEADER_BYTES)
            is_gzip, is_compressed = header.startswith(_GZIP), _is_compressed(header)
            file.seek(0)
            plain: Any = file
            if is_gzip and is_compressed:
                plain = gzip.GzipFile(fileobj=file)
            elif is_compressed:  # Arrow reads zlib, too
                packed = pa.CompressedInputStream(pa.PythonFile(file, "r"), "gzip")
                plain = io.BufferedReader(packed, _BUFFER_BYTES)
            yield plain, is_compressed
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"{uri} cannot be read: {error.strerror or error}") from error


def read_frames(file: BinaryIO, num_bytes: int | None = None) -> Iterator[RecordSpan | RecordFault]:
    """Yield every record of a file, in order, and a fault for each damaged one.

    A fault that hides the start of the next record is the last and stands for the rest of the file.

    Args:
        file: The file, at its start.
        num_bytes: The file's length, None if it is compressed.
    """
    offset = 0
    while True:
        try:
            span = read_record(file, offset, num_bytes)
        except RecordFault as fault:
            yield fault
            if fault.next_offset is None:
                return
            offset = fault.next_offset
            continue
        except (EOFError, OSError, zlib.error) as error:
            told = f"the file cannot be unpacked any further: {error}"
            yield RecordFault(offset, told, is_truncated=True)
            return
        if span is None:
            return
        yield span
        offset = span.next_offset


def _is_compressed(header: bytes) -> bool:
    """Return whether the first bytes are those of gzip or zlib.

    A plain file begins with a length and its checksum, which no other file does.
    """
    if header == frame_header(int.from_bytes(header[:8], "little")):
        return False
    is_zlib = (
        len(header) > 1 and header[0] & 0x0F == 8 and int.from_bytes(header[:2], "big") % 31 == 0
    )  # RFC 1950
    return is_zlib or header.startswith(_GZIP)
