"""Columns of a batch from the requested features of its records.

A batch's columns are allocated once, filled row by row from several threads, and finished into a
dict of arrays:

    columns = ColumnReader(schema, {"image": None, "label": OneHot(), "tags": Dense(9)})
    store = columns.allocate(256)
    # Once per batch, whole columns; returns row -> ExampleFault.
    faults = columns.fill_indexed(store, labels)
    # From any thread, each row once; raises ExampleFault.
    image, _ = columns.fill(store, row, block, start, stop)
    # {"label": float32 [b, classes], "tags": objects [b, 9]}
    batch = columns.finish(store, kept=mask, pad=False)

- If only the image and the label are requested, `columns.needs_record` is False: `fill` need not be
  called, and only image bytes need be read. `fill_indexed` then takes the labels.
  Otherwise everything comes from the record, and `fill_indexed` does nothing.
- `columns.image` is the image feature if requested, else None. Images are not columns: `fill`
  returns the image's bytes as a memoryview of `block`, without a copy, and the engine decodes them
  into an array of its own.
- `fill` writes a row only once the whole record is parsed, or leaves it as allocated and raises.
  The error has the feature, the value found and the schema's rule; the caller adds shard and row.
- If boxes and masks move with the image, `fill` returns their values and those of the other lists
  of the boxes' objects. `move` sets these columns, when it is known which part of it is shown.
- `finish` with `kept` (bool [b]) drops the other rows; with `pad=True` they stay, as zeros, empty
  strings and empty lists.
- `columns.features` are the requested features but the image, `columns.encodings` their encodings
  by name, `columns.spec(b)` the (shape, dtype) of each column of a finished batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardwright.errors import UsageError
from shardwright.format.entries import Block, Span, Values, bytes_span, find_features, read_values
from shardwright.format.example import ExampleFault
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source, StoredFeature
from shardwright.images.crops import View
from shardwright.images.masks import show_mask
from shardwright.images.specs import CropImage
from shardwright.reader.encodings import Encoding, MaskPixels, Spec, natural_encoding
from shardwright.reader.object_lists import ObjectLists
from shardwright.reader.values import SparseColumn
from shardwright.sizes import counted

Features = Sequence[str] | Mapping[str, Encoding | None] | None
Store = dict[str, npt.NDArray[Any]]
Batch = dict[str, npt.NDArray[Any] | SparseColumn]

_KINDS = {"bytes_list": "bytes", "float_list": "float", "int64_list": "int64"}


class ColumnReader:
    """A maker of columns from some features of a dataset: stateless, picklable and thread-safe.

    Args:
        schema: Features of the records, and class names.
        features: Names to request, or {name: encoding} (None: as stored); None for all features.
        image: The transform of the image; None if no boxes and masks move with it.

    Attributes:
        image: The image feature if requested, else None.
        features: The other requested features, in the given order.
        encodings: Their encodings, by name.
        needs_record: True if `fill` must be called, because the index does not have everything.
        moves: True if `move` must be called, because features move with the image:
        objects: the boxes, and the lists that go with them; None if boxes do not move,
        masks: and the masks.

    Raises:
        UsageError: A feature is unknown, or its encoding does not fit it.
    """

    def __init__(
        self,
        schema: ExampleSchema,
        features: Features = None,
        image: CropImage | None = None,
    ) -> None:
        wanted = _find_wanted(schema, features)
        self.objects: ObjectLists | None = None
        self.masks: tuple[Feature, ...] = ()
        if image is not None and image.masks:
            self.masks = _find_masks(image.masks, [feature for feature, _ in wanted])
            pixels = MaskPixels(image.shape[:2])
            # The crop decides the size of a mask, so the user's encoding of its bytes does not
            # apply.
            wanted = [(each, pixels if each in self.masks else form) for each, form in wanted]
        if image is not None and image.boxes is not None:
            requested = [feature for feature, _ in wanted]
            self.objects = ObjectLists(image.boxes, requested, flips=image.flip)
            wanted = self.objects.encodings(wanted)
        self.image = next(
            (feature for feature, _ in wanted if feature.source == Source.IMAGE), None
        )
        others = [
            (feature, encoding) for feature, encoding in wanted if feature.source != Source.IMAGE
        ]
        self.features = tuple(feature for feature, _ in others)
        self.encodings = {
            feature.name: encoding.complete(feature, schema.names_of(feature))
            for feature, encoding in others
        }
        self.needs_record = any(feature.source != Source.LABEL for feature in self.features)
        held = (*(self.objects.features if self.objects else ()), *self.masks)
        moved = (*held, self.objects.mask) if self.objects else held
        self.moves = bool(held)
        self._held = _keys_of(held)
        self._parsed = [
            (feature, self.encodings[feature.name], _keys_of([feature]))
            for feature in self.features
            if feature not in moved
        ]
        stored = [*self._held, *(pair for *_, keys in self._parsed for pair in keys)]
        self._keys = {key for key, _ in stored}
        if self.image is not None:
            self._keys.add(self.image.name.encode())

    def spec(self, batch: int | None) -> dict[str, Spec]:
        """Return (shape, dtype) of each column of a finished batch, without the image.

        Args:
            batch: Number of rows; None for any. A `SparseColumn` has the shape of its dense form,
                with None for the second size.
        """
        return {
            feature.name: self.encodings[feature.name].spec(feature, batch)
            for feature in self.features
        }

    def allocate(self, batch: int) -> Store:
        """Return blank columns of `batch` rows, for `fill` and `finish`."""
        return {
            feature.name: self.encodings[feature.name].allocate(feature, batch)
            for feature in self.features
        }

    def fill_indexed(self, store: Store, labels: npt.NDArray[np.int64]) -> dict[int, ExampleFault]:
        """Set whole columns from the labels in the index, [b], -1 for none.

        Returns:
            The first fault of each row that has one; leave these rows out in `finish`.
        """
        faults: dict[int, ExampleFault] = {}
        # If records are read anyway, take everything from them: a batch's columns have one origin.
        for feature in () if self.needs_record else self.features:
            encoding, column = self.encodings[feature.name], store[feature.name]
            # The usual case, labels as stored: one copy instead of a call per row.
            if type(encoding) is Encoding and column.dtype == labels.dtype:
                column[:] = labels
                continue
            for row, label in enumerate(labels.tolist()):
                try:
                    column[row] = encoding.encode(feature, [label])
                except ExampleFault as fault:
                    faults.setdefault(row, fault)
        return faults

    def fill(
        self, store: Store, row: int, block: Block, start: int = 0, stop: int | None = None
    ) -> tuple[memoryview | None, list[Values]]:
        """Set the columns of one row that the index does not have.

        Args:
            block: Bytes with a serialized tf.Example at [start, stop).

        Returns:
            The bytes of the image if requested, else None: those of `block`, without a copy, unless
            the record is in a form that only protobuf reads. And the values for `move`: which
            objects are shown is known after the crop is drawn.

        Raises:
            ExampleFault: The bytes are not a tf.Example, or a requested feature is missing, differs
                from the schema in kind or number, or does not fit its encoding. The row is unset.
        """
        found, spans = find_features(block, start, len(block) if stop is None else stop, self._keys)
        image = None
        if self.image is not None:
            image = _image_bytes(self.image, found, spans.get(self.image.name.encode()))
        # Encode all columns before the first is set: a fault leaves no row half filled.
        encoded = []
        for feature, encoding, stored in self._parsed:
            values = [_checked_values(told, found, spans.get(key)) for key, told in stored]
            encoded.append(
                (feature.name, encoding.encode(feature, values[0] if len(values) == 1 else values))
            )
        held = [_checked_values(told, found, spans.get(key)) for key, told in self._held]
        for name, value in encoded:
            store[name][row] = value
        return image, held

    def move(self, store: Store, row: int, held: Sequence[Values], view: View | None) -> None:
        """Set the columns that move with the image, of a row that `fill` has set.

        Args:
            held: Their values, as `fill` has returned them.
            view: What is shown of the image; None for a record without one, which shows no object.

        Raises:
            ExampleFault: Values do not fit their encoding, or the boxes.
            ImageFault: A mask cannot be decoded, or does not fit the image.
        """
        count = len(held) - len(self.masks)
        if self.objects is not None:
            for feature, items in self.objects.move(held[:count], view):
                store[feature.name][row] = self.encodings[feature.name].encode(feature, items)
        for feature, (data,) in zip(self.masks, held[count:], strict=True):
            if data and view is not None:
                store[feature.name][row] = show_mask(feature, data, view)

    def finish(
        self, store: Store, kept: npt.NDArray[np.bool_] | None = None, *, pad: bool = False
    ) -> Batch:
        """Return the batch's columns as users see them.

        Args:
            kept: bool [b], the rows in the batch; None for all.
            pad: Keep the other rows too, but blank: 0, "", b"" or an empty list.
        """
        batch: Batch = {}
        for feature in self.features:
            encoding, column = self.encodings[feature.name], store[feature.name]
            if kept is not None and not pad:
                column = column[kept]
            elif kept is not None and not kept.all():
                # A row of a damaged record may be half filled, or have the values of an earlier
                # batch.
                blank = encoding.allocate(feature, 1)[0]
                for row in np.flatnonzero(~kept):
                    column[row] = blank
            batch[feature.name] = encoding.finish(feature, column)
        return batch


def _find_wanted(schema: ExampleSchema, features: Features) -> list[tuple[Feature, Encoding]]:
    known = {feature.name: feature for feature in schema.features}
    features = list(known) if features is None else features
    wanted = []
    for name, encoding in (
        features if isinstance(features, Mapping) else dict.fromkeys(features)
    ).items():
        if name not in known:
            raise UsageError(
                f"feature {name!r} is not in this dataset, which has {', '.join(known)}"
            )
        if encoding is not None and known[name].source == Source.IMAGE:
            raise UsageError(
                f"feature {name!r} is the image, which takes no encoding: "
                "use image=... to decode it"
            )
        wanted.append((known[name], encoding or natural_encoding(known[name])))
    return wanted


def _find_masks(names: Sequence[str], requested: Sequence[Feature]) -> tuple[Feature, ...]:
    known = {each.name: each for each in requested if each.kind == FeatureKind.MASK}
    for name in names:
        if name not in known:
            raise UsageError(
                f"masks={name!r} is not a mask that is read; those are {', '.join(known) or 'none'}"
            )
    return tuple(known[name] for name in names)


def _keys_of(features: Sequence[Feature]) -> list[tuple[bytes, StoredFeature]]:
    return [(stored.key.encode(), stored) for feature in features for stored in feature.stored]


def _image_bytes(feature: Feature, block: Block, span: Span | None) -> memoryview:
    # The usual encoding of a single value, which needs no copy; anything else goes through
    # protobuf.
    place = bytes_span(block, span) if span else None
    if place is not None:
        return memoryview(block)[place[0] : place[1]]
    return memoryview(_checked_values(feature.stored[0], block, span)[0])


def _checked_values(stored: StoredFeature, block: Block, span: Span | None) -> Values:
    if span is None:
        raise ExampleFault(f"feature {stored.key!r} is missing")
    kind, values = read_values(block, span)
    if not stored.takes(len(values)):
        raise ExampleFault(
            f"feature {stored.key!r} has {counted(len(values), 'value')}, "
            f"the schema says {stored.told_count}"
        )
    # An empty list has no kind in the serialized form.
    if len(values) and kind is not None and _KINDS[kind] != stored.told_kind:
        raise ExampleFault(
            f"feature {stored.key!r} holds {_KINDS[kind]} values, "
            f"the schema says {stored.told_kind}"
        )
    return values
