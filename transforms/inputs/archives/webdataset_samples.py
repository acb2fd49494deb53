"""Group the members of WebDataset shards into samples by key.

The key is the path up to the first dot in the file name, and members of a sample are consecutive:
`base_plus_ext` and `group_by_keys` of https://github.com/webdataset/webdataset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from shardwright.transforms.inputs.archives.archive_members import (
    ArchiveFault,
    Member,
    MemberPlace,
    archive_faults,
    member_problem,
    path_problem,
    place_member,
)
from shardwright.transforms.inputs.file_rules import Problem, has_image_name
from shardwright.transforms.inputs.spool import SpoolWriter
from shardwright.transforms.rejects import RejectReason

LABEL, CAPTION, JSON = "cls", "txt", "json"
_MOST_EXACT = 2**53  # float64 holds every integer up to this one
_TEXTS = frozenset({LABEL, CAPTION, JSON})
COMPANIONS = _TEXTS | {"id", "__key__", "index", "key"}  # with these, an image forms a sample
_MAX_TEXT_BYTES = 16 << 20
_KEY = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)", re.DOTALL)


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
    pictures: dict[str, MemberPlace] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    problem: Problem | None = None

    @property
    def image_suffixes(self) -> list[str]:
        """The suffixes of images, the main one first: `jpg` before `seg.png`, else in order."""
        return sorted(filter(is_image_suffix, self.sizes), key=lambda suffix: "." in suffix)


def is_image_suffix(suffix: str) -> bool:
    """Return whether a suffix, such as "jpg" or "seg.png", is an image's."""
    return has_image_name(f".{suffix}")


def split_key(path: str) -> tuple[str, str] | None:
    """Return a member's key, and its suffix in lower case; None if it is not part of a sample."""
    match = _KEY.fullmatch(path)
    return (match[1], match[2].lower()) if match else None


def read_samples(
    members: Iterable[Member],
    archive: MemberPlace,
    writer: SpoolWriter | None,
    *,
    places: bool = True,
) -> Iterator[Sample | tuple[str, Problem]]:
    """Yield samples in order, and (path, problem) for each member outside a sample.

    Args:
        members: All members of an archive.
        archive: As for `place_member`.
        writer: As for `place_member`.
        places: True to find the places of images, too.

    Raises:
        ArchiveFault: The rest of the archive cannot be read. The last sample, which may be
            incomplete, is not yielded.
    """
    sample: Sample | None = None
    for member in members:
        found = split_key(member.path)
        problem = path_problem(member.path)
        if found is None or problem:
            yield (
                member.path,
                problem or (RejectReason.OTHER_FILE, "not in a sample: its name has no suffix"),
            )
            continue
        key, suffix = found
        if sample is not None and (sample.key != key or suffix in sample.sizes):
            yield sample
            sample = None
        sample = sample or Sample(key)
        sample.sizes[suffix] = member.num_bytes
        _take(sample, suffix, member, archive, writer if places else None, places=places)
    if sample is not None:
        yield sample


def _take(
    sample: Sample,
    suffix: str,
    member: Member,
    archive: MemberPlace,
    writer: SpoolWriter | None,
    *,
    places: bool,
) -> None:
    if is_image_suffix(suffix) and places:
        found = member_problem(member) or place_member(member, archive, writer)
        if isinstance(found, MemberPlace):
            sample.pictures[suffix] = found
        else:
            sample.problem = sample.problem or found
    elif suffix in _TEXTS:
        if member.problem or member.num_bytes > _MAX_TEXT_BYTES:
            problem = member.problem or (
                RejectReason.BAD_VALUE,
                f"its .{suffix} is too large: {member.num_bytes} bytes",
            )
            sample.problem = sample.problem or problem
            return
        with archive_faults(), member.open() as file:
            sample.texts[suffix] = file.read(member.num_bytes)
        if len(sample.texts[suffix]) != member.num_bytes:
            raise ArchiveFault(RejectReason.TRUNCATED, f"it ends inside {member.path!r}")


def is_webdataset(samples: Sequence[Sample]) -> bool:
    """Return whether at least half of the images share a key with a label, caption or json."""
    images = [sample for sample in samples if sample.image_suffixes]
    paired = [sample for sample in images if not COMPANIONS.isdisjoint(sample.sizes)]
    return bool(paired) and 2 * len(paired) >= len(images)


def read_json(sample: Sample) -> Mapping[str, Any] | None:
    """Return the fields of a sample's json; None if it has no json.

    Raises:
        ValueError: The json is not an object, or holds half of a surrogate pair, which is not text.
    """
    if JSON not in sample.texts:
        return None
    raw = sample.texts[JSON]
    text = raw.decode(json.detect_encoding(raw))  # json.loads accepts half of a surrogate pair
    fields = json.loads(text)
    if "\\u" in text:
        json.dumps(fields, ensure_ascii=False).encode()  # fails for such a half as an escape
    if not isinstance(fields, dict):
        raise ValueError("it is not an object with fields")
    return fields


def infer_fields(records: Sequence[Mapping[str, Any]]) -> tuple[dict[str, pa.DataType], list[str]]:
    """Return the Arrow types of fields with scalars, or lists of them, and the other fields.

    All values of a typed field have one type; both results are in order of appearance.
    """
    seen: dict[str, pa.DataType | None] = {}
    for record in records:
        for name, value in record.items():
            if value is not None:
                kind = _kind_of(value)
                seen[name] = _merge(seen[name], kind) if name in seen else kind
            elif name not in seen:
                seen[name] = pa.null()
    kinds = {
        name: kind
        for name, kind in seen.items()
        if name and kind is not None and not _is_empty(kind)
    }
    kinds = {
        name: kind
        for name, kind in kinds.items()
        if all(_is_exact(record.get(name), kind) for record in records)
    }
    return kinds, [name for name in seen if name not in kinds]


def _kind_of(value: object) -> pa.DataType | None:
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if -(2**63) <= value < 2**63 else None
    if isinstance(value, float):
        return pa.float64()
    if isinstance(value, str):
        return pa.string()
    if not isinstance(value, list):
        return None
    item: pa.DataType | None = pa.null()
    for one in value:
        kind = None if isinstance(one, list) else _kind_of(one)
        item = _merge(item, kind)
    return None if item is None else pa.list_(item)


def _merge(one: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    """Return the type that holds both, or None."""
    if one is None or other is None:
        return None
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_list(one) and pa.types.is_list(other):
        item = _merge(one.value_type, other.value_type)
        return None if item is None else pa.list_(item)
    return pa.float64() if {one, other} == {pa.int64(), pa.float64()} else None


def _is_empty(kind: pa.DataType) -> bool:
    return pa.types.is_null(kind) or (pa.types.is_list(kind) and pa.types.is_null(kind.value_type))


def fits(value: object, kind: pa.DataType) -> bool:
    """Return whether a field's value fits its type; a missing value fits any."""
    found = pa.null() if value is None else _kind_of(value)
    return found is not None and _merge(kind, found) == kind and _is_exact(value, kind)


def _is_exact(value: object, kind: pa.DataType) -> bool:
    """Return whether integers in a float field are exact: Arrow rejects those beyond 2**53."""
    if isinstance(value, list):
        return all(_is_exact(item, kind.value_type) for item in value)
    return kind != pa.float64() or not isinstance(value, int) or abs(value) <= _MOST_EXACT
