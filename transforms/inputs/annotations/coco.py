"""COCO json files as input: boxes, segmentations and captions of images beside them.

Each part is one set of images, such as `instances_train2017.json` with `captions_train2017.json`.
An annotation that cannot be read rejects its image; a box without area is dropped (`boxes`).

Memory per part: the images' ids and names, about 300 bytes an image, and the annotations of one
batch of images. All others are in a temporary file (`annotation_rows`).
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shardwright.errors import BuildError, StorageError, UsageError
from shardwright.format.schema import Feature, FeatureKind
from shardwright.sizes import counted
from shardwright.storage.addresses import is_remote
from shardwright.storage.folder import files_of
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.transforms.inputs.annotations import boxes
from shardwright.transforms.inputs.annotations.coco_files import (
    TEXT,
    CocoImage,
    CocoReader,
    look_at_coco,
    merge_categories,
    number_of,
)
from shardwright.transforms.inputs.file_rules import split_of
from shardwright.transforms.inputs.folder_contents import has_wildcard, read_start
from shardwright.transforms.inputs.image_paths import is_whole_path, look_up_batch, resolve_paths
from shardwright.transforms.inputs.image_rows import ImageRow, image_references
from shardwright.transforms.inputs.input_files import find_files
from shardwright.transforms.inputs.source import Rows, SourceFacts, SourceFormat, SourceRequest
from shardwright.transforms.inputs.top_folders import names_state_splits
from shardwright.transforms.references import (
    BATCH_ROWS,
    STATED_SIZE,
    STATED_SIZE_TYPE,
    extra_name,
    reference_schema,
    with_columns,
)
from shardwright.transforms.rejects import Reject, RejectReason

CAPTIONS, IMAGE_ID = "captions", "image_id"
_ENDING = ".json"
_SECTIONS = re.compile(
    rb'(\xef\xbb\xbf)?\s*\{.*?"(images|annotations|categories)"\s*:\s*\[', re.DOTALL
)
_START_BYTES = 1 << 16
# Prefixes of COCO's own file names. Roboflow writes `_BESIDE` next to the images.
_KINDS = ("instances", "person_keypoints", "stuff", "panoptic", "image_info", "captions")
_NAME = re.compile(rf"(?:(?P<kind>{'|'.join(_KINDS)})_)?(?P<set>.+)\.json", re.IGNORECASE)
_BESIDE = "_annotations.coco.json"
_OBJECT_TYPES = {
    boxes.BOX: boxes.BOX_TYPE,
    boxes.LABEL: pa.string(),
    boxes.AREA: pa.float64(),
    boxes.IS_CROWD: pa.int64(),
    boxes.SEGMENTATION: pa.large_string(),
}
_BATCH_BYTES = 32 << 20  # of a batch's annotations, on average
_OTHER_FILES = 5  # json files without COCO's names that detection reads
_PROBES = 5  # images looked up to find the folder of a set


class CocoSet(NamedTuple):
    """Json files that annotate the same images.

    Attributes:
        name: The common part of their names, such as "train2017"; often the images' folder.
        files: Their addresses.
        split: The split that the name states, or None.
        folders: The folders that may hold the images, most likely first.
    """

    name: str
    files: tuple[str, ...]
    split: str | None
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CocoFacts(SourceFacts):
    """The facts about json files and the images that they list.

    Attributes:
        uri: INPUT.
        sets: The parts.
        root: The folder that ids, which are paths, are relative to.
        names: Category names in label order.
        has_boxes: True if a file has boxes.
        has_captions: True if a file has captions.
        num_keypoints: The numbers of keypoints that categories name.
        storage: Options of the stores that hold the files.
    """

    uri: str
    sets: tuple[CocoSet, ...]
    root: str
    names: tuple[str, ...]
    has_boxes: bool
    has_captions: bool
    num_keypoints: frozenset[int]
    storage: StorageOptions

    def parts(self) -> Iterator[str]:
        yield from map(str, range(len(self.sets)))


def look(request: SourceRequest) -> CocoFacts | None:
    """Return the facts about COCO json files; None if INPUT is something else.

    Raises:
        UsageError: The format is forced and there is no json, an option gives a column, or there
            are boxes without categories.
        BuildError: A file is not JSON, or its categories are invalid.
        StorageError: A folder cannot be listed, or a file cannot be read.
    """
    files = _find(request)
    if not request.forced:
        files = [
            uri for uri in files if _SECTIONS.match(read_start(uri, request.storage, _START_BYTES))
        ]
    if not files:
        request.refuse_if_forced(
            "has no COCO json: give the .json, or a folder with annotations/*.json"
        )
        return None
    request.refuse_columns("COCO json")
    return _facts_of(request, files)


def _find(request: SourceRequest) -> list[str]:
    """Return the addresses of the json files that may be COCO's, in name order."""
    uri, look_in = request.uri, request.listings.look_in
    if has_wildcard(uri) or uri.lower().endswith(_ENDING):
        return [
            file.uri for file in find_files(request, lambda name: name.lower().endswith(_ENDING))
        ]
    root = look_in(uri)
    for folder in root.folders:
        if folder.lower() == "annotations":
            below = look_in(f"{uri}/{folder}").files
            return [f"{uri}/{folder}/{name}" for name in below if name.lower().endswith(_ENDING)]
    beside = [
        name
        for name in root.files
        if _is_named(name) or (request.forced and name.lower().endswith(_ENDING))
    ]
    splits = [folder for folder in root.folders if split_of([folder])]
    inside = [
        f"{folder}/{name}"
        for folder in splits
        for name in look_in(f"{uri}/{folder}").files
        if _is_named(name)
    ]
    if beside or inside:
        return [f"{uri}/{name}" for name in beside or inside]
    # Label Studio's result.json, FiftyOne's labels.json: `look` reads what is in them.
    found = request.listings.companions_in(uri)
    others = (path for path in found.others if found.images and path.lower().endswith(_ENDING))
    return [f"{uri}/{path}" for path in islice(others, _OTHER_FILES)]


def _is_named(name: str) -> bool:
    match = _NAME.fullmatch(name) if name.lower().endswith(_ENDING) else None
    return match is not None and (bool(match["kind"]) or name.lower() == _BESIDE)


def _facts_of(request: SourceRequest, files: Sequence[str]) -> CocoFacts:
    sets, root, left_out = _sets_of(request, files)
    found = [look_at_coco(uri, request.storage) for one in sets for uri in one.files]
    names = merge_categories(content.categories for content in found)
    has_boxes = any(content.has_boxes for content in found)
    has_captions = any(content.has_captions for content in found)
    num_keypoints = frozenset[int]().union(*(content.num_keypoints for content in found))
    if has_boxes and not names:
        raise UsageError(
            f"{request.uri} has boxes and no categories: "
            "add the section `categories` with an id and a name for each class"
        )
    ignored = f"; {', '.join(left_out)} left out" if left_out else ""
    if not num_keypoints and any(content.has_keypoints for content in found):
        ignored += "; keypoints left out, as no category names them"
    kinds = [f"boxes of {counted(len(names), 'class')}"] * has_boxes
    kinds += ["keypoints"] * bool(num_keypoints) + ["captions"] * has_captions
    columns = [(IMAGE_ID, pa.int64())]
    features: tuple[Feature, ...] = ()
    if has_boxes:
        columns += [(name, pa.list_(kind)) for name, kind in _OBJECT_TYPES.items()]
        area = Feature(boxes.AREA, FeatureKind.FLOAT32, shape=(None,), sequence="objects")
        crowd = boxes.flag_feature(boxes.IS_CROWD)
        features = (*boxes.box_features(names), area, crowd, boxes.SEGMENTATION_FEATURE)
    if num_keypoints:
        most = max(num_keypoints)
        columns.append((boxes.KEYPOINTS, pa.list_(boxes.keypoint_type(most))))
        features = (*features, boxes.keypoint_feature(most))
    if has_boxes:
        columns.append((STATED_SIZE, STATED_SIZE_TYPE))
    if has_captions:
        columns.append((CAPTIONS, pa.list_(pa.large_string())))
        features = (*features, Feature(CAPTIONS, FeatureKind.TEXT, shape=(None,)))
    return CocoFacts(
        f"COCO json at {request.uri} ({_files_as_text(sets)}) "
        f"with {' and '.join(kinds) or 'images only'}{ignored}",
        reference_schema(columns),
        features,
        states_splits=len(sets) > 1
        and names_state_splits(request, {one.name: one.split for one in sets}),
        uri=request.uri,
        sets=sets,
        root=root,
        folders=(root,),
        labels_from=f"the categories of {_files_as_text(sets)}",
        names=names,
        has_boxes=has_boxes,
        has_captions=has_captions,
        num_keypoints=num_keypoints,
        storage=request.storage,
    )


def _files_as_text(sets: Sequence[CocoSet]) -> str:
    files = ", ".join(file.rpartition("/")[2] for one in sets[:3] for file in one.files)
    return f"{files} and those of {len(sets) - 3} more sets" if len(sets) > 3 else files


def _sets_of(
    request: SourceRequest, files: Sequence[str]
) -> tuple[tuple[CocoSet, ...], str, list[str]]:
    """Return the sets of json files, the folder of their ids, and the names of skipped files."""
    chosen, left_out = _chosen_files(files)
    has_root = not (has_wildcard(request.uri) or request.uri.lower().endswith(_ENDING))
    root = request.image_root or (
        request.uri if has_root else _common(_home(folder) for folder, _ in chosen)
    )
    sets = (
        CocoSet(
            name,
            read,
            split_of(re.split(r"[^A-Za-z0-9]+", name)),
            _image_folders(folder, name, request.image_root),
        )
        for (folder, name), read in chosen.items()
    )
    return tuple(sets), root, left_out


def _chosen_files(files: Sequence[str]) -> tuple[dict[tuple[str, str], tuple[str, ...]], list[str]]:
    """Return the files to read by (folder, name) of their set, and the names of the other files.

    Of a set, the first file in the order of `_KINDS` is read, and its captions: the others annotate
    the same images again.
    """
    by_set: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for uri in files:
        folder, kind, name = _named(uri)
        by_set[folder, name][kind] = uri
    chosen, left_out = {}, []
    for key, kinds in by_set.items():
        objects = next((kind for kind in ("", *_KINDS[:-1]) if kind in kinds), None)
        read = [kinds[kind] for kind in (objects, "captions") if kind is not None and kind in kinds]
        chosen[key] = tuple(read)
        left_out += [os.path.basename(uri) for uri in kinds.values() if uri not in read]
    return chosen, left_out


def _named(uri: str) -> tuple[str, str, str]:
    """Return (folder, kind, name of the set) of a json file."""
    folder, _, base = uri.rpartition("/")
    match = _NAME.fullmatch(base)
    if base.lower() == _BESIDE or match is None:
        return folder, "", folder.rpartition("/")[2]
    return folder, (match["kind"] or "").lower(), match["set"]


def _home(folder: str) -> str:
    """Return the data set's folder, given the folder of a json."""
    above, _, base = folder.rpartition("/")
    return above if base.lower() == "annotations" else folder


def _image_folders(folder: str, name: str, image_root: str | None) -> tuple[str, ...]:
    """Return the folders that may hold a set's images, most likely first."""
    if image_root is not None:
        return f"{image_root}/{name}", image_root
    home = _home(folder)
    return tuple(
        dict.fromkeys(
            (
                f"{home}/{name}",
                f"{home}/images/{name}",
                f"{home}/images",
                f"{home}/data",
                home,
                f"{folder}/{name}",
                folder,
            )
        )
    )


def _common(folders: Iterable[str]) -> str:
    """Return the innermost folder that contains all of them."""
    found = sorted(set(folders))
    if len(found) == 1:
        return found[0]
    if any(is_remote(folder) for folder in found):
        parts = [folder.split("/") for folder in found]
        same = next(
            (place for place, names in enumerate(zip(*parts, strict=False)) if len(set(names)) > 1),
            min(map(len, parts)),
        )
        return "/".join(parts[0][:same])
    return os.path.commonpath(found)


def list_part(facts: CocoFacts, part: str) -> Rows:
    """Yield a set's images as references, in the order of its first file, and rejects.

    Args:
        facts: The facts about INPUT.
        part: The set's number.

    Raises:
        BuildError: A file is not COCO json.
        StorageError: A file cannot be read.
    """
    found = facts.sets[int(part)]
    reader = CocoReader(facts.storage, facts.num_keypoints)
    for uri in found.files:
        yield from reader.read(uri)
    yield from _SetListing(facts, found, reader).list()


class _SetListing:
    """The listing of one set, after its files were read."""

    def __init__(self, facts: CocoFacts, found: CocoSet, reader: CocoReader) -> None:
        self._facts, self._set = facts, found
        self._table = table = reader
        self._category_keys = [*reader.category_numbers]
        names = [table.categories.get(key) for key in self._category_keys]
        self._class_of = pa.array(names, pa.string())
        self._check_features()
        spooled = (table.objects, table.captions, table.faults)
        for rows in spooled:
            rows.flush()
        num_bytes = sum(rows.num_bytes for rows in spooled)
        # Fewer rows if images have many annotations, because a batch is in memory.
        self._batch_rows = max(
            1, min(BATCH_ROWS, len(table.images) * _BATCH_BYTES // max(num_bytes, 1))
        )
        row_of = np.array(table.row_of)
        self._objects, self._captions, self._faults = (
            rows.by_image(row_of, self._batch_rows) for rows in spooled
        )

    def list(self) -> Iterator[pa.RecordBatch | Reject]:
        yield from self._strangers()
        self._table.numbers.clear()  # most of the memory
        folder = self._image_folder()
        for start in range(0, len(self._table.images), self._batch_rows):
            yield from self._batch(folder, start)

    def _check_features(self) -> None:
        """Raise an error if the files hold more than detection found: it would be lost silently."""
        strange = sorted(
            {name for name in self._class_of.to_pylist() if name is not None}
            - set(self._facts.names)
        )
        if (
            strange
            or (len(self._table.captions) and not self._facts.has_captions)
            or (len(self._table.objects) and not self._facts.has_boxes)
        ):
            what = f"the category {strange[0]!r}" if strange else "boxes and captions in one file"
            raise BuildError(
                f"{', '.join(self._set.files)}: found {what} only in the middle of the file: "
                "write `categories` first or last"
            )

    def _strangers(self) -> Iterator[Reject]:
        """Yield a reject for each image id of annotations that is not in `images`."""
        for key, number in self._table.numbers.items():
            if self._table.row_of[number] < 0:
                detail = (
                    f"annotations have image_id {key}, which is not in `images`: "
                    "remove them, or add the image"
                )
                yield Reject(key, self._set.files[0], RejectReason.BAD_ID, detail)

    def _image_folder(self) -> str:
        """Return the first candidate folder that holds one of the first images' relative paths."""
        images = self._table.images
        names = (images[row].file_name for row in range(len(images)))
        relative = islice((name for name in names if not is_whole_path(name)), _PROBES)
        probes = pa.array(relative, pa.string())
        for folder in self._set.folders:
            if any(
                _exists(uri, self._facts.storage)
                for uri in resolve_paths(probes, folder)[1].to_pylist()
            ):
                return folder
        return self._set.folders[0]

    def _batch(self, folder: str, start: int) -> Iterator[pa.RecordBatch | Reject]:
        rows = np.arange(start, min(start + self._batch_rows, len(self._table.images)))
        batch = self._references([self._table.images[row] for row in rows.tolist()], folder, start)
        faults = self._faults_of(rows)
        for place, fault in sorted(faults.items()):
            yield Reject(
                batch.column("id")[place].as_py(), batch.column("uri")[place].as_py(), *fault
            )
        places = [place for place in range(len(rows)) if place not in faults]
        missing, batch = look_up_batch(
            batch.take(pa.array(places, pa.int64())),
            self._facts.storage,
            folder=folder,
            listed_in=self._set.files[0],
        )
        yield from missing
        if self._facts.has_boxes:
            for part in self._with_objects(batch):
                yield self._with_captions(part) if isinstance(part, pa.RecordBatch) else part
        elif batch.num_rows:
            yield self._with_captions(batch)

    def _faults_of(self, rows: NDArray[np.int64]) -> dict[int, tuple[RejectReason, str]]:
        """Return the first fault of each image that has one, by its position in `rows`."""
        places, found = self._faults.of(rows)
        reasons = map(RejectReason, found.column("reason").to_pylist())
        faults: dict[int, tuple[RejectReason, str]] = {}
        for place, *fault in zip(
            places.tolist(), reasons, found.column(TEXT).to_pylist(), strict=True
        ):
            faults.setdefault(place, (fault[0], fault[1]))
        places, found = self._objects.of(rows)
        categories = found.column("category")
        unknown = pc.is_null(self._class_of.take(categories)).to_numpy(zero_copy_only=False)
        pairs = zip(categories.to_numpy()[unknown].tolist(), places[unknown].tolist(), strict=True)
        for category, place in sorted(set(pairs)):
            detail = (
                f"an annotation in {self._set.files[0]} has category_id "
                f"{self._category_keys[category]}, which is not in `categories`"
            )
            faults.setdefault(place, (RejectReason.UNKNOWN_LABEL, detail))
        return faults

    def _references(self, images: Sequence[CocoImage], folder: str, start: int) -> pa.RecordBatch:
        names = pa.array([image.file_name for image in images], pa.string())
        uris = resolve_paths(names, folder)[1]
        ids = resolve_paths(uris, self._facts.root)[0].to_pylist()
        split = self._set.split if self._facts.states_splits else None
        rows = [
            ImageRow(name, uri, 0, None, split, None, None, row)
            for row, (name, uri) in enumerate(zip(ids, uris.to_pylist(), strict=True), start)
        ]
        keys = pa.array([number_of(image.key) for image in images], pa.int64())
        return with_columns(image_references(rows), {extra_name(IMAGE_ID): keys})

    def _with_objects(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | Reject]:
        """Yield the batch with `objects` columns, and a reject for each image of unknown size."""
        rows, found = self._objects.of(batch.column("row").to_numpy())
        sizes = self._sizes(batch, set(rows.tolist()))
        unknown = np.array([size is None for size in sizes], bool)
        if unknown.any():
            for place in np.flatnonzero(unknown):
                detail = (
                    f"{self._set.files[0]} states no width and height, "
                    "and the image's header has none: its boxes have no scale"
                )
                yield Reject(
                    batch.column("id")[place].as_py(),
                    batch.column("uri")[place].as_py(),
                    RejectReason.BAD_VALUE,
                    detail,
                )
            batch = batch.filter(pa.array(~unknown))
            sizes = [size for size in sizes if size is not None]
            # Again, because the rows of the remaining images have moved up.
            rows, found = self._objects.of(batch.column("row").to_numpy())
        if not batch.num_rows:
            return
        columns, empty = boxes.object_columns(
            self._objects_of(batch, rows, found, np.array(sizes, float)),
            batch.column("uri").to_pylist(),
        )
        yield from empty
        yield with_columns(batch, columns)

    def _objects_of(
        self,
        batch: pa.RecordBatch,
        rows: NDArray[np.int64],
        found: pa.RecordBatch,
        sizes: NDArray[np.float64],
    ) -> boxes.ObjectRows:
        pixels = np.stack(
            [found.column(name).to_numpy() for name in ("x", "y", "width", "height")], axis=1
        )
        ids, orders = batch.column("id").to_pylist(), found.column("order").to_pylist()
        columns = {
            boxes.LABEL: self._class_of.take(found.column("category")),
            boxes.AREA: found.column("area"),
            boxes.IS_CROWD: found.column("crowd"),
            boxes.SEGMENTATION: found.column(TEXT),
        }
        if self._facts.num_keypoints:
            points = found.column("keypoints").flatten().to_numpy().reshape(len(rows), -1, 3)
            columns[boxes.KEYPOINTS] = boxes.keypoints_of_pixels(points, sizes[rows])
        names = [f"{ids[row]}#{order}" for row, order in zip(rows, orders, strict=True)]
        corners = boxes.corners_of_pixels(pixels, sizes[rows, 0], sizes[rows, 1])
        return boxes.ObjectRows(rows, corners, columns, names, sizes[rows])

    def _sizes(
        self, batch: pa.RecordBatch, with_objects: set[int]
    ) -> Sequence[boxes.ImageSize | None]:
        """Return each image's size: as stated, else from its header if the image has boxes."""
        images = [self._table.images[row] for row in batch.column("row").to_pylist()]
        uris, storage = batch.column("uri").to_pylist(), self._facts.storage
        unknown = [
            place
            for place, image in enumerate(images)
            if image.size is None and place in with_objects
        ]
        # The size of an image without boxes does not matter.
        sizes = [image.size or boxes.ImageSize(1, 1) for image in images]

        def read(place: int) -> boxes.ImageSize | None:
            return boxes.read_size(uris[place], storage)

        known = dict(
            zip(
                unknown,
                map_reads(read, unknown) if is_remote(self._facts.uri) else map(read, unknown),
                strict=True,
            )
        )
        return [known.get(place, size) for place, size in enumerate(sizes)]

    def _with_captions(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self._facts.has_captions:
            return batch
        rows, found = self._captions.of(batch.column("row").to_numpy())
        column = boxes.list_array(found.column(TEXT), rows, batch.num_rows)
        return batch.append_column(extra_name(CAPTIONS), column)


def _exists(uri: str, storage: StorageOptions) -> bool:
    try:
        return files_of(uri, storage).num_bytes_of(uri) is not None
    except (StorageError, ValueError):  # ValueError: a path with a NUL in it
        return False


# A json, a wildcard, or a folder with them in `annotations/` or beside the images.
FORMAT = SourceFormat("a COCO .json, or a folder with annotations/*.json", look, list_part, rank=20)
