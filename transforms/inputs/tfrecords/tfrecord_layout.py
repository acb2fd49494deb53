"""Infer the layout of TFRecord files: the features of the image, label and id, and all types.

Sources are the first records of the first files, and what the folder states (`stated_features`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.format.schema import ARROW_TYPES, PICTURES, Feature, FeatureKind
from transforms.inputs.image_values import IMAGE_NAMES, said_kinds
from transforms.inputs.tfrecords.record_statistics import Look, Seen
from transforms.inputs.tfrecords.stated_features import NOTHING_STATED, Stated
from transforms.references import PICTURE_TYPE

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


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """The roles and types of the features.

    Attributes:
        image: The key of the image.
        columns: Key of every other feature that is kept -> type of its `x/` column; classes with
            known names are text.
        features: These as features of examples, in writing order.
        label, id, split, group: Keys with a role, or None.
        types: Key of a feature with a role -> int64 or binary.
        class_names: Class names of an integer label, if known.
        left_out: Keys that are recomputed from the image.
    """

    image: str
    columns: Mapping[str, pa.DataType]
    features: tuple[Feature, ...]
    label: str | None = None
    id: str | None = None
    split: str | None = None
    group: str | None = None
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    class_names: tuple[str, ...] | None = None
    left_out: tuple[str, ...] = ()

    @property
    def keys(self) -> frozenset[str]:
        """The keys that a record may have."""
        return frozenset((self.image, *self.columns, *self.types, *self.left_out))


def make_layout(
    look: Look,
    columns: Mapping[str, str | None],
    place: str,
    stated: Stated = NOTHING_STATED,
    *,
    kinds: Mapping[str, FeatureKind] | None = None,
) -> RecordLayout:
    """Return the roles and types of the features.

    Args:
        look: Statistics of the first records.
        columns: Role -> key given by an option, or None.
        place: The input's name in messages.
        stated: The features that the folder states.
        kinds: Key -> kind of the feature that `--schema` fills from it.

    Raises:
        UsageError: No feature holds images, or a given feature is missing or does not suit its
            role.
    """
    look = _as_said(look, said_kinds(columns, kinds))
    image = _image_key(look, columns.get("image"), place, stated)
    roles = {
        "label": _role_key(
            look, "label", columns, (*filter(None, [stated.label]), *LABEL_NAMES), place
        ),
        "id": _role_key(look, "id", columns, (*filter(None, [stated.id]), *ID_NAMES), place),
        "split": _role_key(look, "split", columns, (), place),
        "group": _role_key(look, "group", columns, (), place),
    }
    return _layout_of(look, image, roles, stated)


def _layout_of(
    look: Look, image: str, roles: Mapping[str, str | None], stated: Stated
) -> RecordLayout:
    """Return the layout with these roles; features without one become columns."""
    types = {key: look.stored(key) for key in roles.values() if key is not None}
    left_out = tuple(key for key in look.features if key in stated.derived)
    if image == "image/encoded" and not stated.derived:
        left_out = tuple(key for key in _DERIVED if key in look.features)
    others = [
        key
        for key in _in_order(look, stated)
        if key not in types and key not in left_out and key != image
    ]
    features = [_feature_of(key, look, stated) for key in others]
    return RecordLayout(
        image=image,
        columns={
            key: _column_type(key, feature, look)
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


def _as_said(look: Look, said: Mapping[str, FeatureKind]) -> Look:
    """Return the statistics with the kinds that an option or the schema sets: image or not."""
    features = dict(look.features)
    for key in said.keys() & features.keys():
        seen = features[key]
        features[key] = Seen(
            seen.kinds, seen.lengths, seen.kinds["bytes_list"] if said[key] in PICTURES else 0
        )
    return Look(look.num_records, features)


def _image_key(look: Look, given: str | None, place: str, stated: Stated) -> str:
    if given is not None:
        if given not in look.features:
            raise UsageError(
                f"--image-column {given!r} is not in the records of {place}, which have {look}"
            )
        if not look.has_images(given):
            raise UsageError(
                f"--image-column {given!r} of {place} does not hold one encoded image "
                "(JPEG, PNG, ...) in each record"
            )
        return given
    images = [key for key in look.features if look.has_images(key)]
    wanted = [key for key in (*filter(None, [stated.image]), *IMAGE_NAMES) if key in images]
    if wanted or len(images) == 1:
        return (wanted or images)[0]
    if images:
        raise UsageError(
            f"the records of {place} hold several images, {', '.join(map(repr, images))}: "
            "choose the main one with --image-column"
        )
    raise UsageError(
        f"no feature of {place} holds encoded images (JPEG, PNG, ...); its records have {look}"
    )


def _role_key(
    look: Look, role: str, columns: Mapping[str, str | None], names: Sequence[str], place: str
) -> str | None:
    given = columns.get(role)
    if given is None:
        return next((name for name in names if name in look.features and _suits(look, name)), None)
    if given not in look.features:
        raise UsageError(
            f"--{role}-column {given!r} is not in the records of {place}, which have {look}"
        )
    if not _suits(look, given):
        raise UsageError(
            f"--{role}-column {given!r} of {place} must be one whole number or text in each record"
        )
    return given


def _suits(look: Look, key: str) -> bool:
    return look.is_scalar(key) and look.stored(key) != pa.float32() and not look.has_images(key)


def _in_order(look: Look, stated: Stated) -> list[str]:
    """Return the keys in writing order: as stated, then by name."""
    first = [key for key in stated.features if key in look.features]
    return [*first, *(key for key in look.features if key not in stated.features)]


def _feature_of(key: str, look: Look, stated: Stated) -> Feature:
    name = "label_text" if key == _LABEL_TEXT and "label_text" not in look.features else key
    column, known = "" if key == name else key, stated.features.get(key)
    if look.has_images(key):
        if known is not None and known.kind in PICTURES:
            return known
        return Feature(
            name,
            FeatureKind.IMAGE,
            column=column,
            default="" if look.features[key].images < look.num_records else None,
        )
    if (
        known is not None
        and known.kind not in PICTURES
        and ARROW_TYPES[known.kind] == look.stored(key)
    ):
        return replace(known, column="")
    shape = () if look.is_scalar(key) else (None,)
    return Feature(name, _KINDS[look.stored(key)], shape=shape, column=column)


def _column_type(key: str, feature: Feature, look: Look) -> pa.DataType:
    if look.has_images(key):
        return PICTURE_TYPE
    value = pa.string() if feature.names else look.stored(key)
    return value if feature.stored_shape == () else pa.list_(value)
