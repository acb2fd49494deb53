"""Move the boxes of a record with its image's crop, and shorten the other lists of its objects."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

import numpy as np

from shardwright.errors import UsageError
from shardwright.format.entries import Values
from shardwright.format.example import ExampleFault
from shardwright.format.schema import Feature, FeatureKind
from shardwright.images.boxes import Boxes
from shardwright.images.crops import View
from shardwright.reader.encodings import Dense, Encoding
from shardwright.reader.values import item_shape
from shardwright.sizes import counted


class ObjectLists:
    """The features that have an item for each object of an image.

    Attributes:
        rules: How boxes move, and which are kept.
        boxes: The feature of the boxes, whose values in a batch are float32.
        lists: The other features.
        mask: The feature that is True for boxes and False for padding; None without padding.

    Args:
        rules: How boxes move.
        requested: The features that are read.
        flips: True if some images are mirrored.

    Raises:
        UsageError: A feature is not requested, is no such list, or would be wrong in a mirror.
    """

    def __init__(self, rules: Boxes, requested: Sequence[Feature], *, flips: bool) -> None:
        known = {feature.name: feature for feature in requested}
        boxes = known.pop(rules.name, None)
        if boxes is None:
            raise UsageError(
                f"boxes={rules.name!r} is not a feature that is read; those are {', '.join(known)}"
            )
        if boxes.kind != FeatureKind.BOX or boxes.stored_shape != (None, 4):
            raise UsageError(
                f"boxes={rules.name!r} must be a list of boxes, of kind box and shape (None, 4); "
                f"it has kind {boxes.kind} and shape {boxes.shape}"
            )
        self.rules = rules
        self.mask: Feature | None = None
        if rules.max_boxes is not None:
            name = f"{rules.name}_mask"
            self.mask = Feature(name, FeatureKind.INT64, shape=(None,), dtype="bool")
            if name in known:
                raise UsageError(
                    f"feature {name!r} has the same name as the mask of max_boxes: "
                    "leave it out of features="
                )
        self.lists = _lists_of(rules, boxes, known)
        for feature in self.lists:
            _check_items(feature, rules, flips=flips)
        self.boxes = replace(boxes, dtype="")

    @property
    def features(self) -> tuple[Feature, ...]:
        """The boxes and the lists, as `move` takes their values."""
        return (self.boxes, *self.lists)

    def encodings(
        self, wanted: Sequence[tuple[Feature, Encoding]]
    ) -> list[tuple[Feature, Encoding]]:
        """Return the features of a batch, and their encodings: padded ones unless users chose."""
        found = []
        for feature, encoding in wanted:
            known = self.boxes if feature.name == self.boxes.name else feature
            pads = self.mask is not None and known in self.features and encoding == Encoding()
            found.append((known, self._padded if pads else encoding))
        return found if self.mask is None else [*found, (self.mask, self._padded)]

    @property
    def _padded(self) -> Encoding:
        return Dense(self.rules.max_boxes, truncate=True)

    def move(self, values: Sequence[Values], view: View | None) -> Iterator[tuple[Feature, Any]]:
        """Yield each feature, and the mask, with the values of the objects in a view of the image.

        Args:
            values: Of `features`, as stored.
            view: None for a record without an image, which shows no object.

        Raises:
            ExampleFault: A list does not have an item for each box.
        """
        given, *others = values
        boxes = np.asarray(given, np.float32).reshape(-1, 4)
        kept = np.zeros(len(boxes), np.bool_)
        if view is not None:
            # `boxes` are those that are kept, already moved; `kept` tells which of the given ones
            # they are.
            boxes, kept = self.rules.move(boxes, view)
        yield self.boxes, boxes[: np.count_nonzero(kept)].reshape(-1)
        for feature, items in zip(self.lists, others, strict=True):
            size = math.prod(item_shape(feature))
            if len(items) != len(kept) * size:
                raise ExampleFault(
                    f"feature {feature.name!r} has {counted(len(items) // size, 'item')}, "
                    f"but {self.boxes.name!r} has {counted(len(kept), 'box', 'boxes')}"
                )
            if feature.kind == FeatureKind.KEYPOINTS and view is not None:
                points = np.asarray(items, np.float32).reshape(-1, size // 3, 3)[kept]
                yield feature, self.rules.move_points(points, view).reshape(-1)
            else:
                yield feature, list(compress(items, np.repeat(kept, size)))
        if self.mask is not None:
            yield self.mask, [1] * np.count_nonzero(kept)


def _check_items(feature: Feature, rules: Boxes, *, flips: bool) -> None:
    if feature.kind != FeatureKind.KEYPOINTS:
        return
    num_points, mirrored = math.prod(item_shape(feature)) // 3, rules.mirrored
    if mirrored is None and flips:
        raise UsageError(
            f"images are flipped, and a left eye of {feature.name!r} is then a right one: write "
            f"sw.Boxes({rules.name!r}, mirrored=[...]) with the number of the point that takes "
            "each one's place, such as [0, 2, 1] for a nose and two eyes, or flip=False"
        )
    if mirrored is not None and len(mirrored) != num_points:
        raise UsageError(
            f"Boxes(mirrored={mirrored}) has {counted(len(mirrored), 'number')}, but an object of "
            f"{feature.name!r} has {counted(num_points, 'point')}: give one number for each"
        )


def _lists_of(rules: Boxes, boxes: Feature, known: dict[str, Feature]) -> tuple[Feature, ...]:
    """Return the other features with an item per box."""
    lists = {
        name: feature
        for name, feature in known.items()
        # Lists of the user's schema, and not texts or tensors that are stored as lists.
        if feature.shape[:1] == feature.stored_shape[:1] == (None,)
    }
    names = rules.lists
    if names is None:
        # Features of one sequence in the schema have one length by definition; others may by
        # chance.
        names = [name for name in lists if lists[name].sequence == boxes.sequence]
        if names and not boxes.sequence:
            raise UsageError(
                f"the schema does not say which lists have an item for each of {rules.name!r}: "
                f"write boxes=sw.Boxes({rules.name!r}, lists={names}) with those that do, or []"
            )
    if others := set(names) - set(lists):
        raise UsageError(
            f"Boxes(lists=...) has {', '.join(sorted(others))}, but the lists that are read beside "
            f"{rules.name} are {', '.join(lists) or 'none'}"
        )
    return tuple(lists[name] for name in names)
