"""Make records of rows with the user's functions, any number per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from shardwright.errors import ImageFault
from shardwright.format.schema import Feature
from shardwright.transforms.images.checks import check_image
from shardwright.transforms.images.pixels import encode_png
from shardwright.transforms.images.storing import (
    NO_IMAGE,
    ImageToStore,
    check_stated_size,
    store_image,
    upright_size,
)
from shardwright.transforms.references import (
    LABEL_INDEX,
    extra_columns,
    name_of_extra,
    picture_columns,
)
from shardwright.transforms.rejects import RejectReason
from shardwright.transforms.user_code import Picture, Record, apply_all
from shardwright.transforms.write.examples import ExampleEncoder
from shardwright.transforms.write.image_reads import NO_PICTURE, ImageRead
from shardwright.transforms.write.made_records import (
    MadeRecord,
    further_reads,
    image_name,
    stated_sizes,
    take_picture,
)

if TYPE_CHECKING:
    from shardwright.transforms.write.write_job import WriteJob


class TransformedRows:
    """A maker of records that applies the user's functions to each row."""

    def __init__(
        self,
        references: pa.RecordBatch,
        reads: Sequence[ImageRead],
        encoder: ExampleEncoder,
        job: WriteJob,
    ) -> None:
        self._references, self._reads, self._encoder, self._job = references, reads, encoder, job
        self._further = further_reads(references, reads, job.schema)
        self._stated_sizes = stated_sizes(references)
        pictures = picture_columns(references.schema)
        self._keys = [name for name in extra_columns(references.schema) if name not in pictures]
        features = job.schema.features
        self._stored = {stored.key: stored for feature in features for stored in feature.stored}
        self._class_names = {name: index for index, name in enumerate(job.schema.class_names)}

    def records_of(self, row: int) -> list[MadeRecord]:
        """Return the records made of a row.

        Raises:
            ImageFault: The row is rejected, with all records made of it.
        """
        given = self._references.slice(row, 1).to_pylist()[0]
        return [
            self._made(row, given, record)
            for record in apply_all(self._job.transforms, self._record(row, given))
        ]

    def _record(self, row: int, given: dict[str, Any]) -> Record:
        data = None
        if self._reads[row] is not NO_PICTURE or not self._job.schema.may_lack_image:
            data = self._reads[row]()
            # Before the function sees it: a damaged image is the input's fault, not the function's.
            check_image(data, self._job.check, stored=False)
            if (stated := self._stated_sizes[row]) is not None:
                check_stated_size(data, stated, self._job.encode, check=self._job.check)
        features = {name_of_extra(name): given[name] for name in self._keys}
        pictures: dict[str, Picture | None] = {
            feature.name: None if reads[row] is NO_PICTURE else reads[row]()
            for feature, reads in self._further
        }
        return Record(given["id"], data, given["label"], features, pictures, given["uri"])

    def _made(self, row: int, given: dict[str, Any], record: Record) -> MadeRecord:
        self._refuse_unknown(record)
        job, label = self._job, self._label_of(record)
        columns = {**given, "id": record.id, "label": record.label, LABEL_INDEX: label}
        for name in self._keys:
            columns[name] = self._checked(record, name)
        small = pa.RecordBatch.from_pylist([columns], schema=self._references.schema)
        image, size = self._image_of(record)
        pictures = {
            feature.name: take_picture(
                _picture(record, feature), feature, job.check, job.encode, size
            )
            for feature, _ in self._further
        }
        entries = self._encoder.encode_known(small)[0]
        return MadeRecord(row, record.id, label, entries, image, pictures)

    def _image_of(self, record: Record) -> tuple[ImageToStore, tuple[int, int] | None]:
        """Return the image to store, and its size as `upright_size` tells it."""
        job, feature = self._job, self._job.schema.image
        if record.image is None:
            if job.schema.may_lack_image:
                return NO_IMAGE, None
            told = "a transform returned no image, and the feature of the image has no default"
            raise ImageFault(told, RejectReason.TRANSFORM)
        if feature is None:
            told = "a transform returned an image, which the dataset does not have"
            raise ImageFault(f"{told}: declare it in --schema", RejectReason.TRANSFORM)
        name = _name_of(record)
        data = _encoded(record.image)
        size = upright_size(data, job.encode, job.check)
        return store_image(data, job.encode, check=job.check, name=name), size

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


def _picture(record: Record, feature: Feature) -> bytes | None:
    """Return an additional image of a record, None without one."""
    picture = record.pictures.get(feature.name)
    if picture is None and feature.default is None:
        raise ImageFault(
            f"a transform returned no picture for {feature.name!r}", RejectReason.BAD_VALUE
        )
    return None if picture is None else _encoded(picture)


def _name_of(record: Record) -> str:
    """Return the name that tells the format; pixels have no format to check against a name."""
    return (
        ""
        if isinstance(record.image, np.ndarray)
        else image_name(record.id.partition("#")[0], record.uri)
    )
