"""COCO json files as input: boxes, segmentations and captions of images beside them.

Each part is one set of images, such as `instances_train2017.json` with `captions_train2017.json`.
An annotation that cannot be read rejects its image; a box without area is dropped (`boxes`).

Memory per part: its files, and about half as much again for what refers to their items.
"""

from __future__ import annotations

import json
import logging
import os
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import UNSET
from msgspec.json import Decoder

from shardwright.errors import BuildError, UsageError
from shardwright.format.schema import Feature, FeatureKind
from shardwright.sizes import counted
from shardwright.storage.folder import files_of
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.transforms.inputs import boxes
from shardwright.transforms.inputs.file_rules import Problem, peek_text, split_of
from shardwright.transforms.inputs.folder_contents import has_wildcard, read_start
from shardwright.transforms.inputs.formats.coco_files import (
    ANNOTATION,
    ANNOTATION_WITH_KEYPOINTS,
    IMAGE,
    MAX_INT64,
    OUTLINE,
    Category,
    Image,
    check_text,
    encodable,
    key_of,
    look_at_coco,
    number_of,
    read_categories,
    read_coco,
    read_item,
    stem_of,
)
from shardwright.transforms.inputs.image_paths import (
    PROBES,
    holding_folder,
    is_whole_path,
    look_up_batch,
    resolve_paths,
)
from shardwright.transforms.inputs.input_files import find_files, names_state_splits
from shardwright.transforms.inputs.source import (
    ImageRow,
    InputSource,
    Rows,
    SourceRequest,
    image_references,
)
from shardwright.transforms.references import (
    BATCH_ROWS,
    extra_name,
    keep_rows,
    reference_schema,
    with_columns,
)
from shardwright.transforms.rejects import Reject, RejectReason

_LOG = logging.getLogger("shardwright.inputs")
CAPTIONS, IMAGE_ID = "captions", "image_id"
_ENDING = ".json"
_SECTIONS = re.compile(r'\s*\{.*?"(images|annotations|categories)"\s*:\s*\[', re.DOTALL)
_START_BYTES = 1 << 16
# Prefixes of COCO's own file names. Roboflow writes `_BESIDE` next to the images.
_KINDS = ("instances", "person_keypoints", "stuff", "panoptic", "image_info", "captions")
_NAME = re.compile(rf"(?:(?P<kind>{'|'.join(_KINDS)})_)?(?P<set>.+)\.json", re.IGNORECASE)
_BESIDE = "_annotations.coco.json"
_VALUES = (boxes.LABEL, boxes.AREA, boxes.IS_CROWD, boxes.SEGMENTATION)
_BATCH_BYTES = 32 << 20  # of a batch's annotations, on average, as JSON
_encode = json.JSONEncoder(separators=(",", ":")).encode
_MOST_FILES = 64  # json files that detection reads, those with COCO's names first


class CocoSet(NamedTuple):
    """Json files that annotate the same images.

    Attributes:
        files: Their addresses.
        split: The split that the name states, or else the folder of the files; None without one.
        folders: The folders that may hold the images, most likely first.
    """

    files: tuple[str, ...]
    split: str | None
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CocoSource(InputSource):
    """Json files and the images that they list.

    Attributes:
        uri: INPUT.
        sets: The parts.
        root: The folder that ids, which are paths, are relative to.
        types: Name -> type of each value of objects; {} if no file has boxes.
        has_captions: True if a file has captions.
        num_keypoints: The numbers of keypoints that categories name.
        storage: Options of the stores that hold the files.
    """

    summary = "a COCO .json, or a folder with annotations/*.json"
    rank = 20
    has_pixel_outlines = True

    uri: str
    sets: tuple[CocoSet, ...]
    root: str
    types: Mapping[str, pa.DataType]
    has_captions: bool
    num_keypoints: frozenset[int]
    storage: StorageOptions

    def parts(self) -> Iterator[str]:
        yield from map(str, range(len(self.sets)))

    @classmethod
    def look(cls, request: SourceRequest) -> CocoSource | None:
        """Return COCO json files as a source; None if INPUT is something else.

        Raises:
            UsageError: The format is forced and there is no json, an option gives a column, or
                there are boxes without categories.
            BuildError: A file is not JSON, or its categories are invalid.
            StorageError: A folder cannot be listed, or a file cannot be read.
        """
        found = _find(request)
        starts = map_reads(lambda uri: read_start(uri, request.storage, _START_BYTES), found)
        pairs = zip(found, starts, strict=True)
        files = [uri for uri, start in pairs if _SECTIONS.match(peek_text(start))]
        if request.forced:
            files = files or found
        if not files:
            request.refuse_if_forced(
                "has no COCO json: give the .json, or a folder with annotations/*.json"
            )
            return None
        request.refuse_columns("COCO json")
        return _source_of(request, files)

    def references(self, part: str) -> Rows:
        """Yield a set's images as references, in the order of its first file, and rejects.

        Args:
            part: The set's number.

        Raises:
            BuildError: A file is not COCO json.
            StorageError: A file cannot be read.
        """
        listing = _SetListing(self, self.sets[int(part)])
        yield from listing.read()
        yield from listing.batches()


def _find(request: SourceRequest) -> list[str]:
    """Return the addresses of the json files that may be COCO's, in name order."""
    uri = request.uri
    if has_wildcard(uri) or uri.lower().endswith(_ENDING):
        return [
            file.uri for file in find_files(request, lambda name: name.lower().endswith(_ENDING))
        ]
    # Tools give the file any name, and images may be elsewhere: `look` reads what is in it.
    others = request.listings.companions_in(uri).others
    paths = [path for path in others if path.lower().endswith(_ENDING)]
    paths.sort(key=lambda path: not _is_named(path.rpartition("/")[2]))
    return [f"{uri}/{path}" for path in sorted(paths[:_MOST_FILES])]


def _is_named(name: str) -> bool:
    match = _NAME.fullmatch(name)
    return match is not None and (bool(match["kind"]) or name.lower() == _BESIDE)


def _source_of(request: SourceRequest, files: Sequence[str]) -> CocoSource:
    sets, root, left_out = _sets_of(request, files)
    found = look_at_coco((uri for one in sets for uri in one.files), request.storage)
    names, counts, has_captions = found.names, frozenset(found.num_keypoints), found.has_captions
    if found.has_boxes and not names:
        raise UsageError(
            f"{request.uri} has boxes and no categories: "
            "add the section `categories` with an id and a name for each class"
        )
    if not (has_wildcard(request.uri) or request.uri.lower().endswith(_ENDING)):
        images = request.listings.companions_in(request.uri).images
        # As far as detection looks.
        others = [path for path in images if stem_of(path) not in found.stems]
        if others:
            _LOG.warning(
                "%s %s has %s that no json lists, such as %s: not read",
                *(request.argument, request.uri, counted(len(others), "image"), others[0]),
            )
    ignored = f"; {', '.join(left_out)} left out" if left_out else ""
    if found.has_keypoints and not counts:
        ignored += "; keypoints left out, as no category names them"
    kinds = [f"boxes of {counted(len(names), 'class')}"] * found.has_boxes
    kinds += ["keypoints"] * bool(counts) + ["captions"] * has_captions
    columns = [(IMAGE_ID, pa.int64()), *[(CAPTIONS, pa.list_(pa.large_string()))] * has_captions]
    schema, features = reference_schema(columns), list[Feature]()
    types: dict[str, pa.DataType] = {}
    if found.has_boxes:
        types = boxes.value_types(*_VALUES, num_keypoints=max(counts, default=0))
        schema = boxes.objects_schema(types, columns)
        features += boxes.value_features(types, names)
    features += [Feature(CAPTIONS, FeatureKind.TEXT, shape=(None,))] * has_captions
    shown = ", ".join(os.path.basename(file) for one in sets[:3] for file in one.files)
    shown += f" and those of {len(sets) - 3} more sets" if len(sets) > 3 else ""
    return CocoSource(
        f"COCO json at {request.uri} ({shown}) "
        f"with {' and '.join(kinds) or 'images only'}{ignored}",
        schema,
        tuple(features),
        states_splits=len(sets) > 1
        and names_state_splits(request, {_below(root, one.files[0]): one.split for one in sets}),
        uri=request.uri,
        sets=sets,
        root=root,
        folders=(root,),
        labels_from=f"the categories of {shown}",
        types=types,
        has_captions=has_captions,
        num_keypoints=counts,
        storage=request.storage,
    )


def _sets_of(
    request: SourceRequest, files: Sequence[str]
) -> tuple[tuple[CocoSet, ...], str, list[str]]:
    """Return the sets of json files, the folder of their ids, and the names of skipped files.

    Of a set, the first file in the order of `_KINDS` is read, and its captions: the others annotate
    the same images again.
    """
    by_set: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for uri in files:
        folder, _, base = uri.rpartition("/")
        match = None if base.lower() == _BESIDE else _NAME.fullmatch(base)
        name = match["set"] if match else folder.rpartition("/")[2]
        by_set[folder, name][((match and match["kind"]) or "").lower()] = uri
    root = request.image_root or request.uri
    if not request.image_root and (has_wildcard(root) or root.lower().endswith(_ENDING)):
        homes = [f"{_home(folder)}/" for folder, _ in by_set]
        shared = os.path.commonprefix(homes)  # noqa: RUF071 - `commonpath` spoils addresses
        root = shared.rpartition("/")[0] or "/"
    sets, left_out = [], []
    for (folder, name), kinds in by_set.items():
        objects = next((kinds[kind] for kind in ("", *_KINDS[:-1]) if kind in kinds), None)
        read = tuple(filter(None, (objects, kinds.get("captions"))))
        left_out += [os.path.basename(uri) for uri in kinds.values() if uri not in read]
        words = re.split(r"[^A-Za-z0-9]+", name), _below(root, folder).split("/")[::-1]
        split = split_of(chain(*words))
        sets.append(CocoSet(read, split, _image_folders(folder, name, request.image_root)))
    return tuple(sets), root, left_out


def _below(root: str, path: str) -> str:
    return path.removeprefix(root).lstrip("/")


def _home(folder: str) -> str:
    """Return the data set's folder, given the folder of a json."""
    above, _, base = folder.rpartition("/")
    return above if base.lower() == "annotations" else folder


def _image_folders(folder: str, name: str, image_root: str | None) -> tuple[str, ...]:
    """Return the folders that may hold a set's images, most likely first."""
    if image_root is not None:
        return f"{image_root}/{name}", image_root
    home = _home(folder)
    inside = (name, f"images/{name}", "images", "data")
    places = *(f"{home}/{place}" for place in inside), home, f"{folder}/{name}", folder
    return tuple(dict.fromkeys(places))


class _UnknownClassError(ValueError):
    """The class of an annotation is not in `categories`."""


class _SetListing:
    """The listing of one set. Annotations stay JSON until the batch of their image."""

    def __init__(self, source: CocoSource, found: CocoSet) -> None:
        self._source, self._set = source, found
        self._images: list[Image] = []
        self._row_of: dict[str, int] = {}
        self._categories: dict[str, Category] = {}
        self._annotations: list[Any] = []
        self._starts: list[int] = []  # of each file's annotations
        # In the order of images and ids: row of the image, id, and number of each annotation.
        self._rows = self._orders = self._numbers = np.zeros(0, np.int64)

    def read(self) -> Iterator[Reject]:
        """Read the files, and yield rejects of items that belong to no image."""
        for uri in self._set.files:
            content = read_coco(uri, self._source.storage)
            yield from self._add_images(content.images, uri)
            self._categories |= read_categories(content, uri)
            self._starts.append(len(self._annotations))
            self._annotations += content.annotations
        yield from self._sort_annotations()

    def _add_images(self, items: Sequence[Any], uri: str) -> Iterator[Reject]:
        here: set[str] = set()
        for number, item in enumerate(items):
            place = f"{uri}: images[{number}]"
            try:
                image = read_item(item, IMAGE, place)
                check_text(image.file_name, f"{place}.file_name")
            except ValueError as error:
                detail = f"{error}; an image has an id and a file_name"
                yield Reject("", uri, RejectReason.BAD_VALUE, encodable(detail))
                continue
            key, name = key_of(image.id), image.file_name
            row = self._row_of.setdefault(key, len(self._images))
            if row == len(self._images):
                self._images.append(image)
            # The same image in two files of a set, such as boxes and captions, is no duplicate.
            elif key in here or self._images[row].file_name != name:
                detail = f"two images have the id {key}: {self._images[row].file_name} is kept"
                yield Reject(name, uri, RejectReason.DUPLICATE_ID, detail)
            here.add(key)
        if not here:
            raise BuildError(
                f"{uri} lists no `images`: it is empty or not COCO json; "
                "other tables must be .jsonl, .csv or .parquet"
            )

    def _sort_annotations(self) -> Iterator[Reject]:
        """Sort the annotations, and yield a reject for each that belongs to no image."""
        rows, orders = (np.full(len(self._annotations), -1, np.int64) for _ in range(2))
        strangers: dict[str, None] = {}
        for number, item in enumerate(self._annotations):
            uri, place = self._place_of(number)
            try:
                outline = read_item(item, OUTLINE, f"{uri}: annotations[{place}]")
            except ValueError as error:
                detail = f"{error}; an annotation has the image_id of one of the images"
                yield Reject("", uri, RejectReason.BAD_VALUE, encodable(detail))
                continue
            row, order = self._row_of.get(key := key_of(outline.image_id)), outline.id
            if row is None:
                strangers[key] = None
            else:
                is_number = isinstance(order, int) and abs(order) <= MAX_INT64
                rows[number], orders[number] = row, order if is_number else place
        for key in strangers:
            detail = (
                f"annotations have image_id {key}, which is not in `images`: "
                "remove them, or add the image"
            )
            yield Reject(key, self._set.files[0], RejectReason.BAD_ID, detail)
        self._numbers = np.lexsort((orders, rows))
        self._rows, self._orders = rows[self._numbers], orders[self._numbers]

    def _place_of(self, number: int) -> tuple[str, int]:
        """Return an annotation's file, and its position there."""
        file = bisect_right(self._starts, number) - 1
        return self._set.files[file], number - self._starts[file]

    def batches(self) -> Iterator[pa.RecordBatch | Reject]:
        """Yield the images with their annotations, and rejects."""
        storage, folders = self._source.storage, self._set.folders
        names = (image.file_name for image in self._images)
        relative = islice((name for name in names if not is_whole_path(name)), PROBES)
        found, _ = holding_folder(pa.array(relative, pa.string()), folders, storage)
        folder, files = found or folders[0], files_of(self._source.uri, storage)
        num_bytes = sum(files.num_bytes_of(uri) or 0 for uri in self._set.files)
        # Fewer rows if images have many annotations, because a batch is in memory.
        size = max(1, min(BATCH_ROWS, len(self._images) * _BATCH_BYTES // max(num_bytes, 1)))
        for start in range(0, len(self._images), size):
            yield from self._batch(folder, range(start, min(start + size, len(self._images))))

    def _batch(self, folder: str, rows: range) -> Rows:
        source = self._source
        objects, captions, problems = self._annotations_of(rows)
        batch = self._references(folder, rows)
        for row, problem in sorted(problems.items()):
            image = batch.slice(row - rows.start, 1)
            yield Reject(image.column("id")[0].as_py(), image.column("uri")[0].as_py(), *problem)
        batch = keep_rows(batch, np.array([row not in problems for row in rows]))
        listed_in = self._set.files[0]
        missing, batch = look_up_batch(batch, source.storage, folder=folder, listed_in=listed_in)
        yield from missing
        kept = batch.column("row").to_pylist()
        if source.has_captions:
            texts = pa.array([captions.get(row, []) for row in kept], pa.list_(pa.large_string()))
            batch = with_columns(batch, {extra_name(CAPTIONS): texts})
        if source.types:
            place_of = {row: place for place, row in enumerate(kept)}
            pairs = [(place_of[row], item) for row, item in objects if row in place_of]
            images = (self._images[row] for row in kept)
            stated = [boxes.stated_size(image.height, image.width) for image in images]
            its = boxes.ObjectRows.of(pairs, source.types)
            yield from boxes.with_objects(batch, its, stated, source.storage)
        elif batch.num_rows:
            yield batch

    def _annotations_of(
        self, rows: range
    ) -> tuple[list[tuple[int, boxes.ImageObject]], dict[int, list[str]], dict[int, Problem]]:
        """Return the annotations of images in the order of rows and ids, as in TFDS.

        Returns:
            (row of the image, object with its box and keypoints in pixels) of each object; row ->
            captions; and row -> a problem, which rejects the image.
        """
        objects, problems = list[tuple[int, boxes.ImageObject]](), dict[int, Problem]()
        captions: dict[int, list[str]] = defaultdict(list)
        decoder: Decoder[Any] = (
            ANNOTATION_WITH_KEYPOINTS if self._source.num_keypoints else ANNOTATION
        )
        wanted = slice(*np.searchsorted(self._rows, (rows.start, rows.stop)))
        columns = self._numbers, self._rows, self._orders
        for number, row, order in zip(*(each[wanted].tolist() for each in columns), strict=True):
            uri, position = self._place_of(number)
            place = f"{uri}: annotations[{position}]"
            try:
                item = read_item(self._annotations[number], decoder, place)
                if item.caption is not UNSET:
                    captions[row].append(encodable(item.caption))
                if item.caption is UNSET or item.bbox is not UNSET:
                    objects.append((row, self._object_of(item, order, place)))
            except (ValueError, RecursionError) as error:
                is_unknown = isinstance(error, _UnknownClassError)
                reason = RejectReason.UNKNOWN_LABEL if is_unknown else RejectReason.BAD_VALUE
                is_deep = isinstance(error, RecursionError)
                told = f"{place} is nested too deeply" if is_deep else encodable(str(error))
                # Of several, the same one whatever their order.
                problems[row] = min((reason, told), problems.get(row, (reason, told)))
        return objects, captions, problems

    def _object_of(self, item: Any, order: int, place: str) -> boxes.ImageObject:
        """Return an object with its box and keypoints in pixels; raise `ValueError` if invalid."""
        if item.bbox is UNSET or item.category_id is None:
            raise ValueError(f"{place} has no bbox, or no category_id")
        category = self._categories.get(key_of(item.category_id))
        if category is None:
            raise _UnknownClassError(
                f"{place}.category_id is {item.category_id!r:.80}, which is not in `categories`"
            )
        x, y, width, height = item.bbox
        area = width * height if item.area is None else item.area
        text = "" if item.segmentation is None else _encode(item.segmentation)
        values: tuple[object, ...] = (category.name, area, int(item.iscrowd), text)
        if counts := self._source.num_keypoints:
            values = (*values, _padded(item.keypoints, counts, place))
        return boxes.ImageObject(order, (y, x, y + height, x + width), values)

    def _references(self, folder: str, rows: range) -> pa.RecordBatch:
        images = self._images[rows.start : rows.stop]
        names = pa.array([image.file_name for image in images], pa.string())
        uris = resolve_paths(names, folder)[1]
        ids = resolve_paths(uris, self._source.root)[0].to_pylist()
        split = self._set.split if self._source.states_splits else None
        references = [
            ImageRow(name, uri, split=split, row=row)
            for row, name, uri in zip(rows, ids, uris.to_pylist(), strict=True)
        ]
        keys = pa.array([number_of(key_of(image.id)) for image in images], pa.int64())
        return with_columns(image_references(references), {extra_name(IMAGE_ID): keys})


def _padded(points: list[float] | None, counts: Set[int], place: str) -> list[list[float]]:
    """Return keypoints with zeros up to the highest of the numbers that categories name."""
    points = points or []
    if len(points) not in {0, *(3 * count for count in counts)}:
        named = " or ".join(map(str, sorted(counts)))
        raise ValueError(
            f"{place}.keypoints has {len(points)} values: expected x, y and visibility of each of "
            f"the {named} that its category names"
        )
    points = points + [0.0] * (3 * max(counts) - len(points))
    return [points[start : start + 3] for start in range(0, len(points), 3)]
