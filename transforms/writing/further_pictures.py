"""The pictures of a record besides its image: read, checked and encoded with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from shardwright.schema import ExampleSchema, Feature, FeatureKind
from transforms.images import (
    EncodeOptions,
    ImageFault,
    ImageInfo,
    ImageToStore,
    encode_mask,
    store_image,
)
from transforms.references import extra_name, picture_columns
from transforms.writing.image_reads import NO_PICTURE, ImageRead

_NOTHING = ImageToStore(b"", ImageInfo("", 0, 0, 0))

FurtherReads = Sequence[tuple[Feature, Sequence[ImageRead]]]  # one read a row


def further_reads(
    references: pa.RecordBatch, reads: Sequence[ImageRead], schema: ExampleSchema
) -> FurtherReads:
    """The reads of each further picture, in writing order.

    Args:
        references: The rows.
        reads: As `start_reads` gives them: of each row, then of each column of pictures.
        schema: The features.

    Raises:
        ValueError: The reads are not those of these rows.
    """
    names, num_rows = picture_columns(references.schema), references.num_rows
    if len(reads) != num_rows * (1 + len(names)):
        raise ValueError(
            f"{num_rows} rows with {len(names)} further pictures each need as many reads, got {len(reads)}"
        )
    places = {
        name: reads[(number + 1) * num_rows : (number + 2) * num_rows]
        for number, name in enumerate(names)
    }
    return [
        (feature, places[name])
        for feature in schema.features
        if (name := extra_name(feature.name)) in places
    ]


def take_pictures(
    reads: FurtherReads, row: int, check: str, options: EncodeOptions
) -> Mapping[str, ImageToStore]:
    """What is stored for the further pictures of one row, by feature name; no bytes for one that the record does not have.

    Raises:
        ImageFault: One is to be rejected, and its record with it; the detail names the feature.
    """
    taken = {}
    for feature, of_feature in reads:
        try:
            read = of_feature[row]
            data = None if read is NO_PICTURE else read()
        except ImageFault as fault:
            raise ImageFault(fault.reason, f"{feature.name}: {fault.detail}") from fault
        taken[feature.name] = take_picture(data, feature, check, options)
    return taken


def take_picture(
    data: bytes | None, feature: Feature, check: str, options: EncodeOptions
) -> ImageToStore:
    """What is stored for one further picture; no bytes where there is none.

    Raises:
        ImageFault: It is to be rejected; the detail names the feature.
    """
    if data is None:
        return _NOTHING
    try:
        if feature.kind == FeatureKind.MASK:
            return ImageToStore(*encode_mask(data, options, check=check))
        return store_image(data, options, check=check)
    except ImageFault as fault:
        raise ImageFault(fault.reason, f"{feature.name}: {fault.detail}") from fault
