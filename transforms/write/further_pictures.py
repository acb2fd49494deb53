"""Read, check and encode the additional images of a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from shardwright.errors import ImageFault
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind
from shardwright.transforms.images.masks import encode_mask
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.images.storing import NO_IMAGE, ImageToStore, store_image
from shardwright.transforms.references import extra_name, picture_columns
from shardwright.transforms.write.image_reads import NO_PICTURE, ImageRead

FurtherReads = Sequence[tuple[Feature, Sequence[ImageRead]]]  # one read per row


def further_reads(
    references: pa.RecordBatch, reads: Sequence[ImageRead], schema: ExampleSchema
) -> FurtherReads:
    """Return the reads of each additional image, in writing order.

    Args:
        references: The rows.
        reads: Reads from `start_reads`: of each row, then of each column of additional images.
        schema: The features.

    Raises:
        ValueError: The reads do not match the rows.
    """
    names, num_rows = picture_columns(references.schema), references.num_rows
    if len(reads) != num_rows * (1 + len(names)):
        raise ValueError(
            f"{num_rows} rows with {len(names)} additional images each need one read per image, "
            f"got {len(reads)}"
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
    reads: FurtherReads,
    row: int,
    check: str,
    options: EncodeOptions,
    image_size: tuple[int, int] | None,
) -> Mapping[str, ImageToStore]:
    """Return the additional images to store of one row, by feature name.

    An image that the record lacks has no bytes.

    Raises:
        ImageFault: An image is rejected, and its record with it; its text has the feature.
    """
    taken = {}
    for feature, of_feature in reads:
        try:
            read = of_feature[row]
            data = None if read is NO_PICTURE else read()
        except ImageFault as fault:
            # With the feature's name: a record may have several images, and the reject names one
            # id.
            raise ImageFault(f"{feature.name}: {fault.what}", fault.reason) from fault
        taken[feature.name] = take_picture(data, feature, check, options, image_size)
    return taken


def take_picture(
    data: bytes | None,
    feature: Feature,
    check: str,
    options: EncodeOptions,
    image_size: tuple[int, int] | None,
) -> ImageToStore:
    """Return one additional image to store, without bytes if the record lacks it.

    Args:
        data: The whole file, None without one.
        feature: The feature.
        check: As for `check_image`.
        options: Those of the images.
        image_size: Height and width of the record's image, as for `encode_mask`.

    Raises:
        ImageFault: The image is rejected; its text has the feature.
    """
    if data is None:
        return NO_IMAGE
    try:
        if feature.kind == FeatureKind.MASK:
            return ImageToStore(*encode_mask(data, options, check=check, image_size=image_size))
        return store_image(data, options, check=check)
    except ImageFault as fault:
        raise ImageFault(f"{feature.name}: {fault.what}", fault.reason) from fault
