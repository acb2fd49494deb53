"""Reduce batches to (image, label), the form that Keras takes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from shardwright.errors import UsageError
from shardwright.format.schema import FeatureKind
from shardwright.reader.batches import MASK, Batch
from shardwright.reader.reader import Reader


class SupervisedNames(NamedTuple):
    """The columns of (image, label), and whether the mask becomes a sample weight.

    The label of an image whose mask moves with it is the mask. With boxes, or several masks, it is
    a dict: the boxes and the lists of their objects, the mask of padded ones, and the masks. The
    image of `MultiCrop` is a dict of its crops.
    """

    image: str | tuple[str, ...]
    label: str | tuple[str, ...]
    is_masked: bool

    @classmethod
    def of(cls, reader: Reader) -> SupervisedNames:
        """Find the columns; raise `UsageError` if the reader yields no image or no label."""
        columns = reader.engine.columns
        image, objects = columns.image, columns.objects
        if image is not None and columns.moves:
            moved = (*objects.features, objects.mask, *columns.masks) if objects else columns.masks
            names = tuple(each.name for each in moved if each)
            label = names if objects or len(names) > 1 else names[0]
            return cls(image.name, label, reader.options.is_masked)
        labels = [
            feature.name for feature in columns.features if feature.kind == FeatureKind.CLASS_LABEL
        ]
        if image is None or not labels:
            given = ", ".join(reader.element_spec)
            lacks = "images" if reader.schema.image is None else "labels"
            fix = (
                "add them to features="
                if reader.class_names and reader.schema.image
                else f"this dataset has no {lacks}, so take batches as dicts"
            )
            raise UsageError(
                f"(image, label) needs an image and a label, but this Reader gives {given}: {fix}"
            )
        names = tuple(reader.engine.images)
        images = image.name if image.name in names else names
        return cls(images, labels[0], reader.options.is_masked)

    def pick(self, batch: Batch) -> tuple[Any, ...]:
        """Return (image, label) or (image, label, float32 weights [rows]), 0 for padding rows."""
        pair = self.pair(batch)
        return (*pair, batch[MASK].astype(np.float32)) if self.is_masked else pair

    def pair(self, batch: Batch) -> tuple[Any, Any]:
        """Return (image, label)."""
        image, label = (
            batch[part] if isinstance(part, str) else {name: batch[name] for name in part}
            for part in (self.image, self.label)
        )
        return image, label
