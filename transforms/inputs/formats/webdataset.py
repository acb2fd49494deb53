"""WebDataset shards as input: tars of samples, each an image with its label, caption or json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from shardwright.errors import MissingError, UsageError
from shardwright.format.schema import Feature, FeatureKind
from shardwright.transforms.inputs.columns import ROLE_COLUMNS, Columns, find_roles
from shardwright.transforms.inputs.file_rules import Problem, decode_text, has_image_name
from shardwright.transforms.inputs.formats.archives import (
    LEAST_LOOK,
    LOOK_BYTES,
    Archive,
    ArchiveFault,
    ArchiveSource,
    ArchiveStart,
    Member,
    archive_faults,
    first_and_last,
    layout_of,
    member_problem,
    member_reject,
    path_problem,
    place_member,
    until_fault,
)
from shardwright.transforms.inputs.formats.tars import TarSource, tar_stem
from shardwright.transforms.inputs.input_files import InputFile, base_of, describe_files, state_of
from shardwright.transforms.inputs.rows import NOT_FITTING, NumberedRow, list_rows, raw_rows
from shardwright.transforms.inputs.source import Rows, SourceRequest, in_batches
from shardwright.transforms.inputs.spool import SpoolWriter
from shardwright.transforms.references import ImagePlace
from shardwright.transforms.rejects import Reject, RejectReason

LABEL, CAPTION, JSON = "cls", "txt", "json"
# Columns of a sample besides the fields of its json.
_IMAGE, _ID, _CLASS, _FOLDER, _SPLIT = ".image", ".id", ".cls", ".folder", ".split"
_FIELD_TYPES = (pa.bool_(), pa.int64(), pa.float64(), pa.string())
_EMPTY: tuple[object, ...] = (None, [])  # values of a json that have no type
_TEXTS = frozenset({LABEL, CAPTION, JSON})
COMPANIONS = _TEXTS | {"id", "__key__", "index", "key"}  # with these, an image forms a sample
_MAX_TEXT_BYTES = 16 << 20
_JSON_ROLES = ("label", "id", "split", "group")
_TAKEN_NAMES = frozenset({"image", "id", "label"})  # features of every dataset
_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,18}")
_LOOK_SAMPLES = 1000


@dataclass(slots=True)
class Sample:
    """A sample of a shard.

    Attributes:
        key: Its key, with folders.
        sizes: Suffix -> length in bytes of the member, in order.
        pictures: Suffix -> place of the image.
        texts: Suffix -> bytes of the label, caption or json.
        problem: Why it cannot be a record, or None; the first problem found.
    """

    key: str
    sizes: dict[str, int] = field(default_factory=dict)
    pictures: dict[str, ImagePlace] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    problem: Problem | None = None

    @property
    def image_suffixes(self) -> list[str]:
        """The suffixes of images, the main one first: `jpg` before `seg.png`, else in order."""
        return sorted(filter(is_image_suffix, self.sizes), key=lambda suffix: "." in suffix)

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields of its json, {} without one; ValueError if it is invalid."""
        try:
            text = decode_text(self.texts.get(JSON, b"{}"))
            fields = json.loads(text)
            if "\\u" in text:  # half of a surrogate pair is not text
                json.dumps(fields, ensure_ascii=False).encode()
            if not isinstance(fields, dict):
                raise ValueError("it is not an object with fields")
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the json cannot be read: {error}") from error
        return fields

    def text(self, suffix: str) -> str | None:
        """Return the text of a member, None without it; ValueError if it is not UTF-8."""
        try:
            return decode_text(self.texts[suffix]) if suffix in self.texts else None
        except UnicodeError as error:
            raise ValueError(f"the .{suffix} is {error}") from error


def is_image_suffix(suffix: str) -> bool:
    """Return whether a suffix, such as "jpg" or "seg.png", is an image's."""
    return has_image_name(f".{suffix}")


def split_key(path: str, *, keys_have_dots: bool = False) -> tuple[str, str] | None:
    """Return a member's key, and its suffix in lower case; None if it is not part of a sample.

    The suffix begins at the first dot, as webdataset has it, or at the last one.
    """
    folder, slash, name = path.rpartition("/")
    stem, _, suffix = name.rpartition(".") if keys_have_dots else name.partition(".")
    is_part = stem and suffix and not stem.startswith(".")
    return (f"{folder}{slash}{stem}", suffix.lower()) if is_part else None


def read_samples(
    members: Iterable[Member],
    archive: Archive | None,
    writer: SpoolWriter | None = None,
    *,
    keys_have_dots: bool = False,
) -> Iterator[Sample | tuple[str, Problem]]:
    """Yield samples in order, and (path, problem) for each member outside a sample.

    Args:
        members: All members of an archive.
        archive: As for `place_member`; None to leave out the places of images.
        writer: As for `place_member`.
        keys_have_dots: As for `split_key`.

    Raises:
        ArchiveFault: The rest of the archive cannot be read. The last sample, which may be
            incomplete, is not yielded.
    """
    sample: Sample | None = None
    for member in members:
        found = split_key(member.path, keys_have_dots=keys_have_dots)
        problem = path_problem(member.path)
        if found is None or problem:
            other = RejectReason.OTHER_FILE, "not in a sample: its name has no suffix"
            yield member.path, problem or other
            continue
        key, suffix = found
        # The same suffix again begins another sample: shards may repeat a key.
        if sample is not None and (sample.key != key or suffix in sample.sizes):
            yield sample
            sample = None
        sample = sample or Sample(key)
        sample.sizes[suffix] = member.num_bytes
        if is_image_suffix(suffix) and archive:
            place = member_problem(member) or place_member(member, archive, writer)
            if isinstance(place, ImagePlace):
                sample.pictures[suffix] = place
            else:
                problem = place
        elif suffix in _TEXTS:
            problem = member.problem
            if member.num_bytes > _MAX_TEXT_BYTES:
                told = f"its .{suffix} is too large: {member.num_bytes} bytes"
                problem = RejectReason.BAD_VALUE, told
            if problem is None:
                with archive_faults(), member.open() as file:
                    sample.texts[suffix] = file.read(member.num_bytes)
                if len(sample.texts[suffix]) != member.num_bytes:
                    raise ArchiveFault(RejectReason.TRUNCATED, f"it ends inside {member.path!r}")
        sample.problem = sample.problem or problem
    if sample is not None:
        yield sample


def num_paired(samples: Sequence[Sample]) -> int:
    """Return the number of images that share a key with a label, caption or json."""
    return sum(
        bool(sample.image_suffixes) and not COMPANIONS.isdisjoint(sample.sizes)
        for sample in samples
    )


def infer_fields(records: Sequence[Mapping[str, Any]]) -> tuple[dict[str, pa.DataType], list[str]]:
    """Return the Arrow types of fields with scalars, or lists of them, and the other fields."""
    kinds = {}
    names = dict.fromkeys(name for record in records for name in record)
    for name in filter(None, names):
        with suppress(*NOT_FITTING):
            kind = pa.array([record.get(name) for record in records]).type
            if (kind.value_type if pa.types.is_list(kind) else kind) in _FIELD_TYPES:
                kinds[name] = kind
    # Without one without any value: a later value of it rejects its sample.
    filled = {name for record in records for name, value in record.items() if value not in _EMPTY}
    return kinds, [name for name in names if name not in kinds and name in filled]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLayout(Columns):
    """The columns that samples become: fields of the json, captions, images, and some of its own.

    Attributes:
        fields: The json's fields with a role or a feature.
        ignored: Suffixes and fields that are not used.
        keys_have_dots: As for `split_key`.
    """

    fields: tuple[str, ...]
    ignored: tuple[str, ...]
    keys_have_dots: bool

    @property
    def label_source(self) -> str:
        """The members or the field of the json that hold labels; "" if the folders do."""
        return "" if self.label in (None, _FOLDER) else str(self.label)

    def values_of(self, sample: Sample, main: str) -> dict[str, Any]:
        """Return the values and images of a sample without a `problem`, by column.

        Raises:
            ValueError: The sample cannot be a record; the message says why.
        """
        fields = sample.fields
        names = {suffix: _picture_name(suffix) for suffix in sample.pictures if suffix != main}
        further = {suffix: name for suffix, name in names.items() if name in self.pictures}
        self._refuse_unseen(sample, fields, {JSON, main, *further})
        values = {name: fields.get(name) for name in self.fields}
        for suffix, name in further.items():
            if name in values:
                both = " and ".join(one for one in further if further[one] == name)
                raise ValueError(f"it has {both}, which are both the image {name!r}")
            values[name] = sample.pictures[suffix]
        if self.label == _CLASS:
            label = (sample.text(LABEL) or "").strip() or None
            # "007" and "7" are the same class: members of a class are often padded.
            is_number = label is not None and _WHOLE_NUMBER.fullmatch(label)
            values[_CLASS] = str(int(label)) if label and is_number else label
        if CAPTION in self.known:
            values[CAPTION] = sample.text(CAPTION)
        return values | {_IMAGE: sample.pictures[main]}

    def _refuse_unseen(self, sample: Sample, fields: Mapping[str, Any], used: set[str]) -> None:
        """Raise ValueError for what no first sample has: there is no column that it could fill."""
        used.update([LABEL] * (self.label == _CLASS) + [CAPTION] * (CAPTION in self.known))
        left = [f".{suffix}" for suffix in sample.sizes if suffix not in used]
        left += [
            f"the json's {name}"
            for name, value in fields.items()
            if name not in self.fields and value not in _EMPTY
        ]
        for one in left:
            if one not in self.ignored:
                raise ValueError(f"it has {one}, which the first samples lack")


def learn_layout(
    samples: Sequence[Sample], request: SourceRequest, *, keys_have_dots: bool = False
) -> SampleLayout:
    """Infer the layout of samples.

    Args:
        samples: The first ones; those with invalid json are skipped here, and rejected later.
        request: The request for INPUT.
        keys_have_dots: As for `split_key`.

    Raises:
        UsageError: No json has a given field, or no field can have its role.
    """
    request.refuse_columns("made of samples, whose image is a member", "image", "size")
    records = []
    for sample in samples:
        with suppress(ValueError):  # its json is invalid
            records.append(sample.fields)
    further = (suffix for sample in samples for suffix in sample.image_suffixes[1:])
    pictures = dict.fromkeys(map(_picture_name, further), pa.null())
    suffixes = dict.fromkeys(suffix for sample in samples for suffix in sample.sizes)
    own = dict.fromkeys((_ID, _CLASS, _FOLDER, _SPLIT, CAPTION), pa.string())
    kinds, others = infer_fields(records)
    others += [name for name in kinds if name in own | pictures]
    kinds = {name: kind for name, kind in kinds.items() if name not in others}
    asked = request.columns.get("label") is not None  # then it is the label, whatever else could be
    has_labels = not asked and LABEL in suffixes
    # With a .cls, the json's `label` is not the label.
    by_name = ("split",) if has_labels else ("label", "split")
    usual = {role: ROLE_COLUMNS[role] if role in by_name else () for role in _JSON_ROLES}
    rows = pa.RecordBatch.from_pylist(records, schema=pa.schema(kinds))
    roles = find_roles(rows, request, "the samples' json", usual)
    # A feature of one of these names would replace that of every dataset.
    taken = {*_TAKEN_NAMES, *roles.values()}.difference(request.kinds)
    label = _CLASS if has_labels else roles["label"] or _FOLDER
    if label == _FOLDER and kinds.get("label") == pa.float64():  # numbers to predict
        label = None
        taken -= {"label"}
    features = [name for name in kinds if name not in taken]
    used = {*features, *filter(None, roles.values())}
    captions = [CAPTION] * (CAPTION in suffixes)
    texts = (name for name in (*captions, *features) if kinds.get(name, pa.string()) == pa.string())
    unused = (
        one
        for one in suffixes
        if not (one in COMPANIONS or is_image_suffix(one)) or (asked and one == LABEL)
    )
    return SampleLayout(
        columns=pa.schema({**own, **kinds, _IMAGE: pa.null(), **pictures}),
        image=_IMAGE,
        label=label,
        id=roles["id"] or _ID,
        split=roles["split"] or _SPLIT,
        group=roles["group"],
        pictures=tuple(pictures),
        known={name: Feature(name, FeatureKind.TEXT) for name in texts}
        | {
            name: Feature(
                name, FeatureKind.MASK if re.search("mask|seg", name) else FeatureKind.IMAGE
            )
            for name in pictures
        },
        brought=(*captions, *features, *pictures),
        fields=tuple(name for name in kinds if name in used),
        ignored=(
            *map(".{}".format, unused),
            *(f"the json's {name}" for name in (*kinds, *others) if name not in used),
        ),
        keys_have_dots=keys_have_dots,
    )


def _picture_name(suffix: str) -> str:
    """Return the feature of a further image: "seg" for `seg.png` and `seg.jpg`."""
    return suffix.rpartition(".")[0] or suffix


@dataclass(frozen=True, slots=True, kw_only=True)
class WebDatasetSource(TarSource):
    """WebDataset shards.

    Attributes:
        samples: The layout of the samples.
    """

    summary = "WebDataset .tar shards: KEY.jpg with KEY.cls, KEY.txt or KEY.json"
    rank = 20

    samples: SampleLayout

    def rules(self) -> dict[str, Any]:
        """Return what decides a listing, for the names of a spool."""
        return {**ArchiveSource.rules(self), "samples": self.samples.to_json()}

    @classmethod
    def look(cls, request: SourceRequest) -> WebDatasetSource | None:
        """Return WebDataset shards as a source; None if INPUT is something else.

        Raises:
            UsageError: As for `find` and `learn_layout`, or there are no samples.
        """
        archives = cls.find(request)
        if not archives:
            return None
        starts, keys_have_dots = _first_samples(archives, request)
        num_images = sum(bool(sample.image_suffixes) for sample in starts[0])
        # At least half of the images share a key with a label, caption or json.
        if not request.forced and not 0 < num_images <= 2 * num_paired(starts[0]):
            return None
        found = list(chain.from_iterable(starts))
        if not found:
            raise UsageError(
                f"{archives[0].uri} has no samples: "
                "expected members KEY.SUFFIX, such as 000017.jpg and 000017.cls"
            )
        layout = layout_of(
            request,
            [
                ArchiveStart(
                    [f"{one.key}.{suffix}" for one in start for suffix in one.sizes], False, {}
                )
                for start in starts
            ],
            archives,
        )
        samples = learn_layout(found, request, keys_have_dots=keys_have_dots)
        told = [describe_files(request, archives, "WebDataset shard")]
        told += [f"labels from {samples.label_source}"] if samples.label_source else []
        told += [f"features {', '.join(samples.extras)}"] if samples.extras else []
        told += [f"without {', '.join(samples.ignored)}"] if samples.ignored else []
        return samples.source_as(
            WebDatasetSource,
            ", ".join(told) + layout.describe(),
            columns=None,
            states_splits=layout.states_splits or samples.split != _SPLIT,
            labels_from=samples.label_source or layout.labels_from,
            labels_are_names=not samples.label_source,
            request=request,
            base=base_of(archives),
            layout=layout,
            is_part=cls.is_name,
            samples=samples,
        )

    def list_members(
        self, archive: Archive, members: Iterable[Member], writer: SpoolWriter | None
    ) -> Rows:
        columns, has_dots = self.samples, self.samples.keys_have_dots
        samples = enumerate(read_samples(members, archive, writer, keys_have_dots=has_dots))
        rows = (_row(self, archive.file, number, sample) for number, sample in samples)
        batches = in_batches(until_fault(archive, rows), partial(raw_rows, columns))
        return list_rows(columns, self.request, archive.file, batches, writer)


def _first_samples(
    archives: Sequence[InputFile], request: SourceRequest
) -> tuple[list[list[Sample]], bool]:
    """Return the first samples of the first and last shard, and whether their keys have dots.

    Keys have dots if more images have a label then: with `im0.v1.jpg` and `im0.v1.cls`, but not
    with `0.seg.png` beside `0.jpg` and `0.cls`.
    """
    starts = [list(_samples_of(archive, request)) for archive in first_and_last(archives)]
    suffixes = {suffix for sample in chain(*starts) for suffix in sample.sizes}
    parted = (suffix.rpartition(".") for suffix in suffixes)
    if not any(start and ending in COMPANIONS for start, _, ending in parted):
        return starts, False
    dotted = [
        list(_samples_of(archive, request, keys_have_dots=True))
        for archive in first_and_last(archives)
    ]
    has_dots = sum(map(num_paired, dotted)) > sum(map(num_paired, starts))
    return (dotted, True) if has_dots else (starts, False)


def _samples_of(
    archive: InputFile, request: SourceRequest, *, keys_have_dots: bool = False
) -> Iterator[Sample]:
    """Yield the first samples of a shard that can be read, without the places of images."""
    try:
        size, num_bytes = state_of(archive.uri, request.storage).num_bytes, 0
        with TarSource.open(archive.uri, request.storage, size, False) as tar:
            samples = read_samples(tar.members, None, keys_have_dots=keys_have_dots)
            for number, sample in enumerate(islice(samples, _LOOK_SAMPLES)):
                if isinstance(sample, Sample):
                    yield sample
                    num_bytes += sum(sample.sizes.values())
                if number >= LEAST_LOOK and num_bytes > LOOK_BYTES:
                    return
    except (ArchiveFault, MissingError):  # reported when the archive is listed
        return


def _row(
    source: WebDatasetSource,
    file: InputFile,
    number: int,
    sample: Sample | tuple[str, Problem],
) -> NumberedRow | Reject:
    if isinstance(sample, tuple):
        return member_reject(file.name, file.uri, *sample)
    problem, name = sample.problem, f"{tar_stem(file.name)}/{sample.key}"
    pictures, suffixes = source.samples.pictures, sample.image_suffixes
    main = next((one for one in suffixes if _picture_name(one) not in pictures), None)
    if main is None:
        told = f"no image among its members ({', '.join(sample.sizes)})"
        problem = problem or (RejectReason.NOT_AN_IMAGE, told)
    elif problem is None:
        try:
            row = source.samples.values_of(sample, main)
        except ValueError as error:
            problem = RejectReason.BAD_VALUE, str(error)
        else:
            split, label = source.layout.place_of(file, f"{sample.key}.")
            row |= {_ID: name, _SPLIT: split, _FOLDER: label}
            return number, row
    assert problem is not None
    return Reject(name, f"{file.uri}#{sample.key}", *problem)
