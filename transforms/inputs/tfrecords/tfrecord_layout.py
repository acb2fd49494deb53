"""Infer the layout of TFRecord files: the features of the image, label and id, and all types.

Sources are the first records of the first files, and what the folder states (`stated_features`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.format.schema import ARROW_TYPES, PICTURES, Feature, FeatureKind
from shardwright.transforms.inputs.image_values import IMAGE_NAMES, said_kinds
from shardwright.transforms.inputs.source import MAIN_IMAGE
from shardwright.transforms.inputs.tfrecords.record_statistics import (
    FeatureStatistics,
    RecordStatistics,
)
from shardwright.transforms.inputs.tfrecords.stated_features import NOTHING_STATED, Stated
from shardwright.transforms.references import PICTURE_TYPE

LABEL_NAMES = ("label", "image/class/label", "class", "class_id", "category", "target", "labels")
# The first that exists is the id. Other file names are not: they may repeat across classes.
ID_NAMES = ("id", "image_id", "image/filename")
_KINDS = {
    pa.binary(): FeatureKind.BYTES,
    pa.float32(): FeatureKind.FLOAT32,
    pa.int64(): FeatureKind.INT64,
}
# Model Garden's features of the encoded image: recomputed when a record is written.
_DERIVED = ("image/format", "image/height", "image/width")
_LABEL_TEXT = "image/class/text"
WHOLE_RECORD = "record"  # the column of records that are not tf.Examples


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """The roles and types of the features.

    Attributes:
        image: The key of the image; None if records have none.
        columns: Key of every other feature that is kept -> type of its `x/` column; classes with
            known names are text.
        features: These as features of examples, in writing order.
        label, id, split, group: Keys with a role, or None.
        types: Key of a feature with a role -> int64 or binary.
        class_names: Class names of an integer label, if known.
        left_out: Keys that are recomputed from the image.
        may_lack_images: True if a record without an image is not a reject.
        is_of_bytes: True if records are not parsed, but fill one column with all their bytes.
    """

    image: str | None
    columns: Mapping[str, pa.DataType]
    features: tuple[Feature, ...]
    label: str | None = None
    id: str | None = None
    split: str | None = None
    group: str | None = None
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    class_names: tuple[str, ...] | None = None
    left_out: tuple[str, ...] = ()
    # Not in the text of a layout, which decides the name of a spool: see `tfrecord_source`.
    may_lack_images: bool = field(default=False, repr=False)
    is_of_bytes: bool = field(default=False, repr=False)

    @property
    def keys(self) -> frozenset[str]:
        """The keys that a record may have."""
        image = () if self.image is None else (self.image,)
        return frozenset((*image, *self.columns, *self.types, *self.left_out))

    @property
    def has_images(self) -> bool:
        return self.image is not None or PICTURE_TYPE in self.columns.values()


def make_layout(
    seen: RecordStatistics,
    columns: Mapping[str, str | None],
    place: str,
    stated: Stated = NOTHING_STATED,
    *,
    kinds: Mapping[str, FeatureKind] | None = None,
    main: Feature | None = MAIN_IMAGE,
) -> RecordLayout:
    """Return the roles and types of the features.

    Args:
        seen: Statistics of the first records.
        columns: Role -> key given by an option, or None.
        place: The input's name in messages.
        stated: The features that the folder states.
        kinds: Key -> kind of the feature that `--schema` fills from it.
        main: As `SourceRequest.image`.

    Raises:
        UsageError: No feature holds images, or a given feature is missing or does not suit its
            role.
    """
    seen = _as_said(seen, said_kinds(columns, kinds))
    image = None if main is None else _image_key(seen, columns.get("image"), place, stated)
    roles = _roles_of(seen, columns, place, stated, kinds or {})
    layout = _layout_of(seen, image, roles, stated)
    return replace(layout, may_lack_images=main is None or main.is_optional)


def _roles_of(
    seen: RecordStatistics,
    columns: Mapping[str, str | None],
    place: str,
    stated: Stated,
    kinds: Mapping[str, FeatureKind],
) -> Mapping[str, str | None]:
    """Return role -> key; without an option, none that the schema fills a feature from."""
    usual = {
        "label": (*filter(None, [stated.label]), *LABEL_NAMES),
        "id": (*filter(None, [stated.id]), *ID_NAMES),
        "split": (),
        "group": (),
    }
    return {
        role: _role_key(seen, role, columns, [name for name in names if name not in kinds], place)
        for role, names in usual.items()
    }


def layout_of_bytes() -> RecordLayout:
    """Return the layout of records that are not parsed: one column with all bytes of each."""
    feature = Feature(WHOLE_RECORD, FeatureKind.BYTES)
    return RecordLayout(None, {WHOLE_RECORD: pa.binary()}, (feature,), is_of_bytes=True)


def _layout_of(
    seen: RecordStatistics, image: str | None, roles: Mapping[str, Any], stated: Stated
) -> RecordLayout:
    """Return the layout with these roles; features without one become columns."""
    types = {key: seen.stored(key) for key in roles.values() if key is not None}
    left_out = tuple(key for key in seen.features if image and key in stated.derived)
    if image == "image/encoded" and not stated.derived:
        left_out = tuple(key for key in _DERIVED if key in seen.features)
    others = [
        key
        for key in _in_order(seen, stated)
        if key not in types and key not in left_out and key != image
    ]
    features = [_feature_of(key, seen, stated) for key in others]
    return RecordLayout(
        image=image,
        columns={
            key: _column_type(key, feature, seen)
            for key, feature in zip(others, features, strict=True)
        },
        features=tuple(features),
        **roles,
        types=types,
        class_names=stated.class_names_of(roles["label"])
        if roles["label"] and types[roles["label"]] == pa.int64()
        else None,
        left_out=left_out,
    )


def _as_said(seen: RecordStatistics, said: Mapping[str, FeatureKind]) -> RecordStatistics:
    """Return the statistics with the kinds that an option or the schema sets: image or not."""
    features = dict(seen.features)
    for key in said.keys() & features.keys():
        one = features[key]
        features[key] = FeatureStatistics(
            one.kinds, one.lengths, one.kinds["bytes_list"] if said[key] in PICTURES else 0
        )
    return RecordStatistics(seen.num_records, features)


def _image_key(seen: RecordStatistics, given: str | None, place: str, stated: Stated) -> str:
    if given is not None:
        if given not in seen.features:
            raise UsageError(
                f"--image-column {given!r} is not in the records of {place}, which have {seen}"
            )
        if not seen.has_images(given):
            raise UsageError(
                f"--image-column {given!r} of {place} does not hold one encoded image "
                "(JPEG, PNG, ...) in each record"
            )
        return given
    images = [key for key in seen.features if seen.has_images(key)]
    wanted = [key for key in (*filter(None, [stated.image]), *IMAGE_NAMES) if key in images]
    if wanted or len(images) == 1:
        return (wanted or images)[0]
    if images:
        raise UsageError(
            f"the records of {place} hold several images, {', '.join(map(repr, images))}: "
            "choose the main one with --image-column"
        )
    raise UsageError(
        f"no feature of {place} holds encoded images (JPEG, PNG, ...); its records have {seen}: "
        "choose --image-column, or for records without images give --schema records"
    )


def _role_key(
    seen: RecordStatistics,
    role: str,
    columns: Mapping[str, str | None],
    names: Sequence[str],
    place: str,
) -> str | None:
    given = columns.get(role)
    if given is None:
        return next((name for name in names if name in seen.features and _suits(seen, name)), None)
    if given not in seen.features:
        raise UsageError(
            f"--{role}-column {given!r} is not in the records of {place}, which have {seen}"
        )
    if not _suits(seen, given):
        raise UsageError(
            f"--{role}-column {given!r} of {place} must be one whole number or text in each record"
        )
    return given


def _suits(seen: RecordStatistics, key: str) -> bool:
    return seen.is_scalar(key) and seen.stored(key) != pa.float32() and not seen.has_images(key)


def _in_order(seen: RecordStatistics, stated: Stated) -> list[str]:
    """Return the keys in writing order: as stated, then by name."""
    first = [key for key in stated.features if key in seen.features]
    return [*first, *(key for key in seen.features if key not in stated.features)]


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
    return Feature(name, _KINDS[seen.stored(key)], shape=shape, column=column)


def _column_type(key: str, feature: Feature, seen: RecordStatistics) -> pa.DataType:
    if seen.has_images(key):
        return PICTURE_TYPE
    value = pa.string() if feature.names else seen.stored(key)
    return value if feature.stored_shape == () else pa.list_(value)
