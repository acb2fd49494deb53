"""Ready-made schemas by the name that `--schema` takes.

Each is a function of the set of feature names ("tfds" or "model-garden"), the names of the input's
columns, and the features that the input's extra columns would fill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from shardwright.format.schema import ExampleSchema, Feature
from shardwright.schemas.detection import OBJECTS, detection
from shardwright.schemas.image_classification import image_classification
from shardwright.schemas.image_pairs import image_pairs
from shardwright.schemas.image_text import image_text
from shardwright.schemas.multi_label import multi_label
from shardwright.schemas.records import records
from shardwright.schemas.segmentation import segmentation
from shardwright.schemas.tabular import tabular
from shardwright.schemas.unlabeled import unlabeled

ReadySchema = Callable[[str, Sequence[str], Sequence[Feature]], ExampleSchema]


def _classification(
    feature_names: str, columns: Sequence[str], extras: Sequence[Feature]
) -> ExampleSchema:
    del columns
    return image_classification(feature_names=feature_names, extras=tuple(extras))


# Schemas with a feature for every column of the input.
WITH_ALL_COLUMNS = frozenset({"image_classification", "tabular", "records"})
# Schemas without an image.
WITHOUT_IMAGE = frozenset({"records"})
# The columns that a schema takes by these names from any input.
COLUMNS: Mapping[str, ExampleSchema] = {"detection": ExampleSchema(OBJECTS)}
READY_SCHEMAS: Mapping[str, ReadySchema] = {
    "image_classification": _classification,
    "multi_label": multi_label,
    "image_text": image_text,
    "detection": detection,
    "segmentation": segmentation,
    "image_pairs": image_pairs,
    "unlabeled": unlabeled,
    "tabular": tabular,
    "records": records,
}
