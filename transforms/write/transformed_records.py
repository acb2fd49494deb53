"""Make records of rows with the user's functions, any number per row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import ImageFault
from shardwright.format.schema import ExampleSchema, Feature
from shardwright.transforms.images.checks import check_image
from shardwright.transforms.images.pixels import encode_png
from shardwright.transforms.images.storing import check_stated_size, store_image, upright_size
from shardwright.transforms.references import (
    LABEL_INDEX,
    SUFFIX,
    extra_columns,
    name_of_extra,
    picture_columns,
)
from shardwright.transforms.rejects import RejectReason
from shardwright.transforms.user_code import Picture, Record, UserTransform, apply_all
from shardwright.transforms.write.image_chunks import make_chunk
from shardwright.transforms.write.image_reads import NO_PICTURE, ImageRead
from shardwright.transforms.write.made_records import NO_IMAGE, ImageToStore, MadeRecord
from shardwright.transforms.write.stored_records import (
    StoredRecords,
    further_reads,
    image_name,
    stated_sizes,
    take_picture,
)
from shardwright.transforms.write.write_job import Chunk, ReadRows, ShardRows, WriteJob


@dataclass(frozen=True)
class TransformedRecords(StoredRecords):
    """A maker of any number of records a row, by users' functions.

    Attributes:
        transforms: The functions, in order.
    """

    transforms: tuple[UserTransform, ...]
    encodes_rows, makes_other_ids = False, True

    @property
    def decodes(self) -> bool:
        return True

    @property
    def may_crash(self) -> bool:
        return True

    def make(self, rows: ReadRows, job: WriteJob) -> Chunk:
        return make_chunk(rows, _TransformedRows(rows, job.schema, self).records_of, job)

    def described(self, shard: ShardRows) -> pa.RecordBatch | None:
        """Return None: the index does not have the values of results."""

    def index_columns(self, shard: ShardRows) -> Mapping[str, pa.Array]:
        # A function's ids begin with the input's id, so the difference says where that ends.
        lengths = (pc.utf8_length(ids) for ids in (shard.ids, shard.kept.column("id")))
        return {SUFFIX: pc.subtract(*lengths)}


class _TransformedRows:
    """The rows of a chunk."""

    def __init__(self, rows: ReadRows, schema: ExampleSchema, maker: TransformedRecords) -> None:
        references, reads = rows.references, rows.reads
        self._references, self._reads, self._encoder = references, reads, rows.encoder
        self._schema, self._maker = schema, maker
        self._further = further_reads(references, reads, schema)
        self._stated_sizes = stated_sizes(references)
        pictures = picture_columns(references.schema)
        self._keys = [name for name in extra_columns(references.schema) if name not in pictures]
        features = schema.features
        self._stored = {stored.key: stored for feature in features for stored in feature.stored}
        self._class_names = {name: index for index, name in enumerate(schema.class_names)}

    def records_of(self, row: int) -> list[MadeRecord]:
        """Return the records made of a row.

        Raises:
            ImageFault: The row is rejected, with all records made of it.
        """
        given = self._references.slice(row, 1).to_pylist()[0]
        return [
            self._made(row, given, record)
            for record in apply_all(self._maker.transforms, self._record(row, given))
        ]

    def _record(self, row: int, given: dict[str, Any]) -> Record:
        data = None
        if self._reads[row] is not NO_PICTURE or not self._schema.may_lack_image:
            data = self._reads[row]()
            # Before the function sees it: a damaged image is the input's fault, not the function's.
            check_image(data, self._maker.check, stored=False)
            if (stated := self._stated_sizes[row]) is not None:
                check_stated_size(data, stated, self._maker.encode, check=self._maker.check)
        features = {name_of_extra(name): given[name] for name in self._keys}
        pictures: dict[str, Picture | None] = {
            feature.name: None if reads[row] is NO_PICTURE else reads[row]()
            for feature, reads in self._further
        }
        return Record(given["id"], data, given["label"], features, pictures, given["uri"])

    def _made(self, row: int, given: dict[str, Any], record: Record) -> MadeRecord:
        self._refuse_unknown(record)
        maker, label = self._maker, self._label_of(record)
        columns = {**given, "id": record.id, "label": record.label, LABEL_INDEX: label}
        for name in self._keys:
            columns[name] = self._checked(record, name)
        small = pa.RecordBatch.from_pylist([columns], schema=self._references.schema)
        image, size = self._image_of(record)
        pictures = {
            feature.name: take_picture(
                _picture(record, feature), feature, maker.check, maker.encode, size
            )
            for feature, _ in self._further
        }
        entries = self._encoder.encode_known(small)[0]
        return MadeRecord(row, record.id, label, entries, image, pictures)

    def _image_of(self, record: Record) -> tuple[ImageToStore, tuple[int, int] | None]:
        """Return the image to store, and its size as `upright_size` tells it."""
        maker, feature = self._maker, self._schema.image
        if record.image is None:
            if self._schema.may_lack_image:
                return NO_IMAGE, None
            told = "a transform returned no image, and the feature of the image has no default"
            raise ImageFault(told, RejectReason.TRANSFORM)
        if feature is None:
            told = "a transform returned an image, which the dataset does not have"
            raise ImageFault(f"{told}: declare it in --schema", RejectReason.TRANSFORM)
        name = _name_of(record)
        data = _encoded(record.image)
        size = upright_size(data, maker.encode, maker.check)
        return store_image(data, maker.encode, check=maker.check, name=name), size

    def _refuse_unknown(self, record: Record) -> None:
        unknown = record.features.keys() - set(map(name_of_extra, self._keys))
        if unknown:
            raise ImageFault(
                f"a transform returned the feature {min(unknown)!r}, which the dataset does not "
                "have: declare it in --schema",
                RejectReason.TRANSFORM,
            )

    def _label_of(self, record: Record) -> int | None:
        if not self._class_names:
            return None
        if record.label not in self._class_names:
            raise ImageFault(
                f"a transform returned the label {record.label!r}, which is not a known class name",
                RejectReason.UNKNOWN_LABEL,
            )
        return self._class_names[record.label]

    def _checked(self, record: Record, name: str) -> Any:
        """Return the value of a feature, checked against its type."""
        kind, key = self._references.schema.field(name).type, name_of_extra(name)
        value = record.features.get(key)
        try:
            if value is None:
                raise ValueError("it is missing")
            # Arrow checks type and range, and refuses a float for an integer.
            found = pa.array([value], kind)[0].as_py()
            if isinstance(found, list) and not self._stored[key].takes(len(found)):
                raise ValueError(f"it must have {self._stored[key].told_count} values")
            return found
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise ImageFault(
                f"a transform returned {value!r} for feature {key!r}, which is {kind}: {error}",
                RejectReason.BAD_VALUE,
            ) from error


def _encoded(picture: Picture) -> bytes:
    return encode_png(picture) if isinstance(picture, np.ndarray) else picture


def _picture(record: Record, feature: Feature) -> ImageRead:
    """Return the read of an additional image of a record."""
    picture = record.pictures.get(feature.name)
    if picture is None and feature.default is None:
        raise ImageFault(
            f"a transform returned no picture for {feature.name!r}", RejectReason.BAD_VALUE
        )
    return NO_PICTURE if picture is None else partial(_encoded, picture)


def _name_of(record: Record) -> str:
    """Return the name that tells the format; pixels have no format to check against a name."""
    return (
        ""
        if isinstance(record.image, np.ndarray)
        else image_name(record.id.partition("#")[0], record.uri)
    )
