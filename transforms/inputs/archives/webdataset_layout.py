"""Infer the layout of WebDataset samples from the first ones, and turn samples into rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.format.schema import Feature, FeatureKind
from shardwright.transforms.inputs.archives.archive_members import MemberPlace
from shardwright.transforms.inputs.archives.webdataset_samples import (
    CAPTION,
    COMPANIONS,
    LABEL,
    Sample,
    fits,
    infer_fields,
    is_image_suffix,
    read_json,
)
from shardwright.transforms.inputs.file_rules import SPLIT_FOLDERS
from shardwright.transforms.inputs.tables.table_columns import extra_feature
from shardwright.transforms.inputs.tables.table_roles import ROLE_COLUMNS
from shardwright.transforms.references import PICTURE_TYPE, reference_schema

_JSON_ROLES = ("label", "id", "split", "group")
_TAKEN_NAMES = frozenset({"image", "id", "label"})  # features of every dataset
_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,18}")


class SampleRow(NamedTuple):
    """A sample as columns: its image's place and length, its texts, its extras in layout order."""

    picture: MemberPlace
    num_bytes: int
    texts: Mapping[str, str | None]  # of label, id, split and group, if stated
    extras: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class SampleLayout:
    """The columns that samples' members become.

    Attributes:
        has_labels: True if samples have a .cls.
        has_integer_labels: True if labels are integers.
        has_captions: True if samples have a .txt.
        roles: (role, field of the json) pairs.
        fields: Name and type of the json's fields that become features.
        pictures: Suffixes of images other than the main one.
        ignored: Suffixes and fields that are not used.
    """

    has_labels: bool = False
    has_integer_labels: bool = False
    has_captions: bool = False
    roles: tuple[tuple[str, str], ...] = ()
    fields: tuple[tuple[str, pa.DataType], ...] = ()
    pictures: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Name and type of each extra column."""
        captions = ((CAPTION, pa.string()),) if self.has_captions else ()
        return (
            *captions,
            *self.fields,
            *((_picture_name(suffix), PICTURE_TYPE) for suffix in self.pictures),
        )

    @property
    def schema(self) -> pa.Schema:
        return reference_schema(self.columns)

    @property
    def features(self) -> tuple[Feature, ...]:
        captions = (Feature(CAPTION, FeatureKind.TEXT),) if self.has_captions else ()
        fields = (_json_feature(name, kind) for name, kind in self.fields)
        return (
            *captions,
            *fields,
            *(Feature(_picture_name(suffix), _picture_kind(suffix)) for suffix in self.pictures),
        )

    @property
    def label_source(self) -> str:
        """The members or the field of the json that hold labels; "" if the folders decide."""
        return ".cls" if self.has_labels else dict(self.roles).get("label", "")

    def describe(self) -> str:
        """Return the samples' part of the log line: source of labels, features, ignored members."""
        told = [f"labels from {self.label_source}"] if self.label_source else []
        told += [f"features {', '.join(name for name, _ in self.columns)}"] if self.columns else []
        told += [f"without {', '.join(self.ignored)}"] if self.ignored else []
        return "".join(f", {text}" for text in told)

    def row_of(self, sample: Sample) -> SampleRow:
        """Return the columns of a sample without a `problem`.

        Raises:
            ValueError: The sample cannot be a record; the message says why.
        """
        main = self.main_image(sample)
        if main is None:
            raise ValueError(f"no image among its members ({', '.join(sample.sizes)})")
        fields = _fields_of(sample)
        for name, kind in self.fields:
            if not fits(fields.get(name), kind):
                raise ValueError(
                    f"the json's {name!r} is {_shown(fields[name])}, but others are {kind}"
                )
        extras: list[Any] = [_text_of(sample, CAPTION)] if self.has_captions else []
        extras += [fields.get(name) for name, _ in self.fields]
        extras += [_picture(sample, suffix) for suffix in self.pictures]
        return SampleRow(
            sample.pictures[main], sample.sizes[main], self._texts(sample, fields), tuple(extras)
        )

    def main_image(self, sample: Sample) -> str | None:
        """Return the suffix of a sample's main image, or None."""
        return next(
            (suffix for suffix in sample.image_suffixes if suffix not in self.pictures), None
        )

    def _texts(self, sample: Sample, fields: Mapping[str, Any]) -> dict[str, str | None]:
        texts = {role: _role_text(fields.get(name), name) for role, name in self.roles}
        if split := texts.get("split"):
            texts["split"] = SPLIT_FOLDERS.get(split.lower(), split)
        if self.has_labels:
            texts["label"] = (_text_of(sample, LABEL) or "").strip() or None
        label = texts.get("label")
        if label is not None and self.has_integer_labels:
            if not _WHOLE_NUMBER.fullmatch(label):
                raise ValueError(f"the label is {label!r}, but others are whole numbers")
            texts["label"] = str(int(label))
        return texts


def learn_layout(
    samples: Sequence[Sample],
    columns: Mapping[str, str | None],
    declared: Collection[str] = (),
) -> SampleLayout:
    """Infer the layout of samples.

    Args:
        samples: The first ones; those with invalid json are skipped here, and rejected later.
        columns: Role -> field of the json given by an option, or None.
        declared: Fields that `--schema` fills features from, whatever their role.

    Raises:
        UsageError: No json has that field, or no field can have that role.
    """
    kinds, others = infer_fields(_readable_fields(samples))
    has_labels = any(LABEL in sample.texts for sample in samples)
    roles = _find_roles(kinds, columns, has_labels)
    pictures = tuple(
        dict.fromkeys(suffix for sample in samples for suffix in sample.image_suffixes[1:])
    )
    taken = {CAPTION, *map(_picture_name, pictures)}
    taken |= {*_TAKEN_NAMES, *roles.values()}.difference(declared)
    fields = tuple((name, kind) for name, kind in kinds.items() if name not in taken)
    used = {*dict(fields), *roles.values()}
    return SampleLayout(
        has_labels=has_labels,
        has_integer_labels=_all_whole(samples, kinds.get(roles.get("label", ""))),
        has_captions=any(CAPTION in sample.texts for sample in samples),
        roles=tuple(roles.items()),
        fields=fields,
        pictures=pictures,
        ignored=(
            *_unread_members(samples),
            *(f"the json's {name}" for name in (*kinds, *others) if name not in used),
        ),
    )


def _readable_fields(samples: Sequence[Sample]) -> list[Mapping[str, Any]]:
    """Return the json's fields of each sample; without samples with invalid json."""
    records = []
    for sample in samples:
        try:
            records.append(_fields_of(sample))
        except ValueError:
            continue
    return records


def _unread_members(samples: Sequence[Sample]) -> list[str]:
    """Return the suffixes of members that are neither images nor known companions."""
    suffixes = dict.fromkeys(suffix for sample in samples for suffix in sample.sizes)
    return [
        f".{suffix}"
        for suffix in suffixes
        if suffix not in COMPANIONS and not is_image_suffix(suffix)
    ]


def _find_roles(
    kinds: Mapping[str, pa.DataType], columns: Mapping[str, str | None], has_labels: bool
) -> dict[str, str]:
    roles = {}
    for role, given in columns.items():
        if given is not None and role not in _JSON_ROLES:
            raise UsageError(
                f"--{role}-column is for a table: the image of a sample is one of its members"
            )
        if given is not None and given not in kinds:
            raise UsageError(
                f"--{role}-column {given!r} is not a field of the samples' json, "
                f"which has {', '.join(kinds) or 'none'}"
            )
        if given is not None:
            roles[role] = given
    for role in ("split",) if has_labels else ("label", "split"):
        usual = next(
            (
                name
                for name in ROLE_COLUMNS[role]
                if name in kinds and kinds[name] in (pa.string(), pa.int64())
            ),
            None,
        )
        if usual is not None:
            roles.setdefault(role, usual)
    return roles


def _all_whole(samples: Sequence[Sample], field: pa.DataType | None) -> bool:
    if field is not None:
        return bool(field == pa.int64())
    labels = [sample.texts[LABEL].strip() for sample in samples if LABEL in sample.texts]
    return bool(labels) and all(
        _WHOLE_NUMBER.fullmatch(label.decode("ascii", "replace")) for label in labels
    )


def _fields_of(sample: Sample) -> Mapping[str, Any]:
    try:
        return read_json(sample) or {}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the json cannot be read: {error}") from error


def _text_of(sample: Sample, suffix: str) -> str | None:
    try:
        return sample.texts[suffix].decode() if suffix in sample.texts else None
    except UnicodeDecodeError as error:
        raise ValueError(f"the .{suffix} is not UTF-8: {error}") from error


def _role_text(value: object, name: str) -> str | None:
    if value is None or isinstance(value, str):
        return value.strip() or None if value else None
    if isinstance(value, int):
        return str(value)
    raise ValueError(f"the json's {name!r} is {_shown(value)}; it must be text or a whole number")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _picture(sample: Sample, suffix: str) -> dict[str, Any] | None:
    place = sample.pictures.get(suffix)
    return None if place is None else {**place._asdict(), "num_bytes": sample.sizes[suffix]}


def _picture_name(suffix: str) -> str:
    """Return the feature name of a further image: "seg" for `seg.png`, "png" for `png`."""
    return suffix.rpartition(".")[0] or suffix


def _picture_kind(suffix: str) -> FeatureKind:
    return FeatureKind.MASK if re.search("mask|seg", suffix) else FeatureKind.IMAGE


def _json_feature(name: str, kind: pa.DataType) -> Feature:
    if kind == pa.string():
        return Feature(name, FeatureKind.TEXT)
    return extra_feature(name, kind)
