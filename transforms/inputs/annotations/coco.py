"""COCO json files as input: boxes, segmentations and captions of images beside them.

Each part is one set of images, such as `instances_train2017.json` with `captions_train2017.json`.
An annotation that cannot be read rejects its image; a box without area is dropped (`boxes`).

Memory per part: the images' names and the boxes. The text of segmentations and captions, which is
most of a json, is in a temporary file meanwhile.
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
from transforms.inputs.annotations import boxes
from transforms.inputs.annotations.coco_files import number_of
from transforms.inputs.annotations.coco_look import CAPTIONS, IMAGE_ID, CocoFacts, CocoSet, look
from transforms.inputs.annotations.coco_table import CocoImage, CocoReader, RowsOfImages
from transforms.inputs.file_lookups import look_up_batch
from transforms.inputs.image_paths import is_whole_path, resolve_paths
from transforms.inputs.source import Rows, SourceFormat
from transforms.references import BATCH_ROWS, extra_name
from transforms.rejects import Reject, RejectReason

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
    yield from _SetListing(facts, facts.sets[int(part)]).list()


class _SetListing:
    """The listing of one set."""

    def __init__(self, facts: CocoFacts, found: CocoSet) -> None:
        self._facts, self._set = facts, found
        reader = CocoReader(facts.storage)
        for uri in found.files:
            reader.read(uri)
        self._table = reader.table
        # Image number -> row in `images`; -1 for ids that only annotations have.
        row_of = np.full(len(self._table.numbers), -1)
        row_of[[self._table.numbers[image.key] for image in self._table.images]] = np.arange(
            len(self._table.images)
        )
        self._row_of = row_of
        self._objects = RowsOfImages(self._table.objects, row_of)
        self._captions = RowsOfImages(self._table.captions, row_of)
        names = [self._table.categories.get(key) for key in reader.category_keys]
        self._class_of = pa.array(names, pa.string())
        self._check_features()
        for number, key in enumerate(reader.category_keys):
            if names[number] is None:
                self._note_unknown(number, key)

    def list(self) -> Iterator[pa.RecordBatch | Reject]:
        yield from self._table.rejects
        yield from self._strangers()
        folder = self._image_folder()
        for start in range(0, len(self._table.images), BATCH_ROWS):
            yield from self._batch(folder, start)

    def _check_features(self) -> None:
        """Raise an error if the files hold more than detection found: it would be lost silently."""
        strange = sorted(
            {name for name in self._class_of.to_pylist() if name is not None}
            - set(self._facts.names)
        )
        if (
            strange
            or (len(self._captions) and not self._facts.has_captions)
            or (len(self._objects) and not self._facts.has_boxes)
        ):
            what = f"the category {strange[0]!r}" if strange else "boxes and captions in one file"
            raise BuildError(
                f"{', '.join(self._set.files)}: found {what} only in the middle of the file: "
                "write `categories` first or last"
            )

    def _note_unknown(self, number: int, key: str) -> None:
        images = self._objects.column("image").filter(
            pc.equal(self._objects.column("category"), number)
        )
        for image in images.unique().to_pylist():
            detail = (
                f"an annotation in {self._set.files[0]} has category_id {key}, "
                "which is not in `categories`"
            )
            self._table.faults.setdefault(image, (RejectReason.UNKNOWN_LABEL, detail))

    def _strangers(self) -> Iterator[Reject]:
        """Yield a reject for each image id of annotations that is not in `images`."""
        for key, number in self._table.numbers.items():
            if self._row_of[number] < 0:
                detail = (
                    f"annotations have image_id {key}, which is not in `images`: "
                    "remove them, or add the image"
                )
                yield Reject(key, self._set.files[0], RejectReason.BAD_ID, detail)

    def _image_folder(self) -> str:
        """Return the first candidate folder that holds one of the first images' relative paths."""
        names = (image.file_name for image in self._table.images)
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
        images = self._table.images[start : start + BATCH_ROWS]
        batch = self._references(images, folder, start)
        faults = [self._table.faults.get(self._table.numbers[image.key]) for image in images]
        places = [place for place, fault in enumerate(faults) if fault is None]
        for place, fault in enumerate(faults):
            if fault:
                yield Reject(
                    batch.column("id")[place].as_py(), batch.column("uri")[place].as_py(), *fault
                )
        missing, batch = look_up_batch(
            batch.take(pa.array(places, pa.int64())),
            self._facts.storage,
            listed_in=self._set.files[0],
        )
        yield from missing
        if self._facts.has_boxes:
            for part in self._with_objects(batch):
                yield self._with_captions(part) if isinstance(part, pa.RecordBatch) else part
        elif batch.num_rows:
            yield self._with_captions(batch)

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
            boxes.IS_CROWD: found.column("crowd").cast(pa.int64()),
            boxes.SEGMENTATION: self._texts_of(found),
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
        column = boxes.list_array(self._texts_of(found), rows, batch.num_rows)
        return batch.append_column(extra_name(CAPTIONS), column)

    def _texts_of(self, found: pa.RecordBatch) -> pa.Array:
        return self._table.texts.read(found.column("start"), found.column("length"))


def _exists(uri: str, storage: StorageOptions) -> bool:
    try:
        return files_of(uri, storage).num_bytes_of(uri) is not None
    except (StorageError, ValueError):  # ValueError: a path with a NUL in it
        return False


# A json, a wildcard, or a folder with them in `annotations/` or beside the images.
FORMAT = SourceFormat("a COCO .json, or a folder with annotations/*.json", look, list_part, rank=20)
