"""Reduce batches to (image, label), the form that Keras takes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from shardwright.errors import UsageError
from shardwright.format.schema import FeatureKind
from shardwright.reader.batches import MASK, Batch
from shardwright.reader.reader import Reader


class SupervisedNames(NamedTuple):
    """The columns of (image, label), and whether the mask becomes a sample weight."""

    image: str
    label: str
    is_masked: bool

    @classmethod
    def of(cls, reader: Reader) -> SupervisedNames:
        """Find the columns; raise `UsageError` if the reader yields no image or no label."""
        image = reader.engine.columns.image
        labels = [
            feature.name
            for feature in reader.engine.columns.features
            if feature.kind == FeatureKind.CLASS_LABEL
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
        return cls(image.name, labels[0], reader.options.is_masked)

    def pick(self, batch: Batch) -> tuple[Any, ...]:
        """Return (image, label) or (image, label, float32 weights [rows]), 0 for padding rows."""
        pair = (batch[self.image], batch[self.label])
        return (*pair, batch[MASK].astype(np.float32)) if self.is_masked else pair
