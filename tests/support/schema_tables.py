"""Tables of images with masks and texts, and schemas of one's own for them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from shardwright.format import naming
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source, VocabularyRule
from shardwright.storage.folder import Folder
from shardwright.transforms.reject_files import read_rejects
from tests.support.build_helpers import png_of, write_table
from tests.support.tfrecord_makers import records_of as records_of

IMAGE = Feature("image", FeatureKind.IMAGE, Source.IMAGE)
LABEL = Feature("label", FeatureKind.CLASS_LABEL, Source.LABEL)
OWN = ExampleSchema(
    (
        IMAGE,
        Feature("id", FeatureKind.TEXT, Source.ID),
        LABEL,
        Feature("age", FeatureKind.INT64, dtype="uint8", default=0),
        Feature(
            "words", FeatureKind.BAG_OF_WORDS, column="note", vocabulary=VocabularyRule(min_count=2)
        ),
    )
)
OWN_PYTHON = """
from shardwright.format.schema import *
SCHEMA = ExampleSchema((
    Feature("image", FeatureKind.IMAGE, Source.IMAGE),
    Feature("id", FeatureKind.TEXT, Source.ID),
    Feature("label", FeatureKind.CLASS_LABEL, Source.LABEL),
    Feature("age", FeatureKind.INT64, dtype="uint8", default=0),
    Feature("words", FeatureKind.BAG_OF_WORDS, column="note",
            vocabulary=VocabularyRule(min_count=2)),
))
"""


def mask_of(number: int) -> bytes:
    """Return a mask of 8 x 8 pixels of one class."""
    file = io.BytesIO()
    Image.fromarray(np.full((8, 8), number, np.uint8)).save(file, "PNG")
    return file.getvalue()


def table(tmp_path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write a table of images, and the images of 8 x 8 pixels that it names."""
    for number, row in enumerate(rows):
        (tmp_path / row["image"]).write_bytes(png_of(5 * number))
    return write_table(tmp_path / "t.jsonl", rows)


def rejects_in(root: Path) -> list[tuple[str, str, str]]:
    """Return (id, reason, detail) of every reject of a dataset, sorted."""
    folder = Folder(str(root))
    names = [name for name in naming.build_outputs(folder) if name.startswith("rejects/")]
    rejects = [reject for name in names for reject in read_rejects(folder, name)]
    return sorted((reject.id, str(reject.reason), reject.detail) for reject in rejects)
