"""COCO json files as input: boxes, segmentations and captions of images beside them.

Each part is one set of images, such as `instances_train2017.json` with `captions_train2017.json`.
An annotation that cannot be read rejects its image; a box without area is dropped (`boxes`).

Memory per part: the images' ids and names, about 300 bytes an image, and the annotations of one
batch of images. All others are in a temporary file (`annotation_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shardwright.errors import BuildError, StorageError
from shardwright.storage.addresses import is_remote
from shardwright.storage.folder import files_of
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.transforms.inputs.annotations import boxes
from shardwright.transforms.inputs.annotations.annotation_rows import TEXT
from shardwright.transforms.inputs.annotations.coco_files import number_of
from shardwright.transforms.inputs.annotations.coco_images import CocoImage
from shardwright.transforms.inputs.annotations.coco_look import (
    CAPTIONS,
    IMAGE_ID,
    CocoFacts,
    CocoSet,
    look,
)
from shardwright.transforms.inputs.annotations.coco_table import CocoReader
from shardwright.transforms.inputs.file_lookups import look_up_batch
from shardwright.transforms.inputs.image_paths import is_whole_path, resolve_paths
from shardwright.transforms.inputs.source import Rows, SourceFormat
from shardwright.transforms.references import BATCH_ROWS, extra_name
from shardwright.transforms.rejects import Reject, RejectReason

_BATCH_BYTES = 32 << 20  # of a batch's annotations, on average
_PROBES = 5  # images looked up to find the folder of a set


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
    reader = CocoReader(facts.storage)
    for uri in found.files:
        yield from reader.read(uri)
    yield from _SetListing(facts, found, reader).list()


class _SetListing:
    """The listing of one set, after its files were read."""

    def __init__(self, facts: CocoFacts, found: CocoSet, reader: CocoReader) -> None:
        self._facts, self._set = facts, found
        self._table = table = reader.table
        self._category_keys = reader.category_keys
        names = [table.categories.get(key) for key in self._category_keys]
        self._class_of = pa.array(names, pa.string())
        self._check_features()
        spooled = (table.objects, table.captions, table.faults)
        for rows in spooled:
            rows.flush()
        num_bytes = sum(rows.num_bytes for rows in spooled)
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
        _, uris = resolve_paths(
            pa.array([image.file_name for image in images], pa.string()), folder
        )
        nothing = pa.nulls(len(images), pa.string())
        keys = [number_of(image.key) for image in images]
        columns = {
            "id": resolve_paths(uris, self._facts.root)[0],
            "uri": uris,
            "offset": pa.nulls(len(images), pa.int64()),
            "num_bytes": pa.nulls(len(images), pa.int64()),
            "etag": nothing,
            "row": pa.array(np.arange(start, start + len(images))),
            "split": pa.array(
                [self._set.split if self._facts.states_splits else None] * len(images), pa.string()
            ),
            "group": nothing,
            "label": nothing,
            extra_name(IMAGE_ID): pa.array(keys, pa.int64()),
        }
        return pa.RecordBatch.from_pydict(columns)

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
            rows, found = self._objects.of(batch.column("row").to_numpy())
        if not batch.num_rows:
            return
        columns, empty = boxes.object_columns(
            self._objects_of(batch, rows, found, np.array(sizes, float)),
            batch.column("uri").to_pylist(),
        )
        yield from empty
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, *columns.values()], [*batch.schema.names, *columns]
        )

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
        names = [f"{ids[row]}#{order}" for row, order in zip(rows, orders, strict=True)]
        return boxes.ObjectRows(
            rows, boxes.corners_of_pixels(pixels, sizes[rows, 0], sizes[rows, 1]), columns, names
        )

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
