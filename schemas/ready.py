"""Ready-made schemas: a row for each name that `--schema` takes.

Feature names of images with one class label each are TFDS's (`image`, `label`, `id`), or those of
TensorFlow Model Garden's readers (`official/vision/dataloaders/tf_example_decoder.py`:
`image/encoded`, `image/class/label`, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source

_TFDS = (
    Feature("image", FeatureKind.IMAGE, Source.IMAGE),
    Feature("id", FeatureKind.TEXT, Source.ID),
    Feature("label", FeatureKind.CLASS_LABEL, Source.LABEL),
)
_MODEL_GARDEN = (
    Feature("image/encoded", FeatureKind.IMAGE, Source.IMAGE),
    Feature("image/filename", FeatureKind.TEXT, Source.ID),
    Feature("image/format", FeatureKind.TEXT, Source.FORMAT),
    Feature("image/height", FeatureKind.INT64, Source.HEIGHT),
    Feature("image/width", FeatureKind.INT64, Source.WIDTH),
    Feature("image/class/label", FeatureKind.CLASS_LABEL, Source.LABEL),
    Feature("image/class/text", FeatureKind.TEXT, Source.LABEL_TEXT),
)
FEATURE_NAMES: Mapping[str, tuple[Feature, ...]] = {"tfds": _TFDS, "model-garden": _MODEL_GARDEN}


def image_classification(
    *, feature_names: str = "tfds", extras: tuple[Feature, ...] = ()
) -> ExampleSchema:
    """Return the schema of labeled images; `with_class_names` completes it, or removes the label.

    Args:
        feature_names: "tfds" or "model-garden".
        extras: The user's own features.
    """
    return ExampleSchema((*FEATURE_NAMES[feature_names], *extras))


class ReadySchema(NamedTuple):
    """A ready-made schema: the features of every image, and those that its name stands for.

    Attributes:
        has_image: False for records without an image.
        has_label: True with a class label.
        own: A feature from a column of INPUT.
        columns: The usual names of that column, in the order in which they are tried.
        objects: Features of boxes.
        extra: Returns the feature of each other column of INPUT; None to leave them out.
    """

    has_image: bool = True
    has_label: bool = False
    own: Feature | None = None
    columns: tuple[str, ...] = ()
    objects: tuple[Feature, ...] = ()
    extra: Callable[[Feature], Feature] | None = None

    def make(
        self, feature_names: str, columns: Sequence[str], extras: Sequence[Feature]
    ) -> ExampleSchema:
        """Return the schema for an input.

        Args:
            feature_names: "tfds" or "model-garden".
            columns: The names of the input's columns.
            extras: The features that its extra columns would fill.
        """
        features = FEATURE_NAMES[feature_names if self.has_image else "tfds"]
        left_out = set() if self.has_image else {Source.IMAGE}
        # A column of numbers to predict is a feature, and often has the label's name.
        if not self.has_label or (self.extra and any(extra.name == "label" for extra in extras)):
            left_out |= {Source.LABEL, Source.LABEL_TEXT}
        own = [] if self.own is None else [self._from_column(self.own, columns, extras)]
        more = map(self.extra, extras) if self.extra else ()
        kept = (feature for feature in features if feature.source not in left_out)
        return ExampleSchema((*kept, *own, *self.objects, *more))

    def _from_column(
        self, own: Feature, columns: Sequence[str], extras: Sequence[Feature]
    ) -> Feature:
        by_lower = {column.lower(): column for column in reversed(columns)}
        found = (by_lower[name] for name in self.columns if name in by_lower)
        column = next(found, self.columns[0])
        has_several = any(extra.is_list for extra in extras if extra.column_name == column)
        if own.kind is FeatureKind.TEXT and has_several:
            own = replace(own, name="captions", shape=(None,))
        return replace(own, column="" if column == own.name else column)


def _as_category(extra: Feature) -> Feature:
    """Return texts as categories, learned from the column; a missing text is the category ""."""
    if extra.kind not in (FeatureKind.BYTES, FeatureKind.TEXT):
        return extra
    kind = FeatureKind.MULTI_LABEL if extra.is_list else FeatureKind.CLASS_LABEL
    return replace(extra, kind=kind, default=None if extra.is_list else "")


def _unchanged(extra: Feature) -> Feature:
    return extra


# TFDS's `objects`, a sequence of a `bbox` and a `label`.
OBJECTS = (
    Feature("objects/bbox", FeatureKind.BOX, shape=(None, 4), sequence="objects"),
    Feature("objects/label", FeatureKind.CLASS_LABEL, shape=(None,), sequence="objects"),
)
READY_SCHEMAS: Mapping[str, ReadySchema] = {
    "image_classification": ReadySchema(has_label=True, extra=_unchanged),
    # From a column of lists, or of texts as "cat|dog".
    "multi_label": ReadySchema(
        own=Feature("labels", FeatureKind.MULTI_LABEL),
        columns=("labels", "label", "tags", "classes", "categories", "category"),
    ),
    # `captions` if an image has several texts.
    "image_text": ReadySchema(
        own=Feature("text", FeatureKind.TEXT),
        columns=("text", "caption", "captions", "txt", "description", "sentence", "prompt"),
    ),
    "detection": ReadySchema(objects=OBJECTS),
    # Class or instance numbers, from a column of files.
    "segmentation": ReadySchema(
        own=Feature("segmentation_mask", FeatureKind.MASK),
        columns=(
            "mask", "segmentation_mask", "mask_path", "mask_file", "segmentation", "annotation",
        ),
    ),
    # Before and after, low and high resolution, anchor and match.
    "image_pairs": ReadySchema(
        has_label=True,
        own=Feature("second_image", FeatureKind.IMAGE),
        columns=(
            "second_image", "image2", "image_2", "image_b", "second", "target_image", "pair",
        ),
    ),
    "unlabeled": ReadySchema(),
    "tabular": ReadySchema(has_label=True, extra=_as_category),
    "records": ReadySchema(has_image=False, has_label=True, extra=_unchanged),
}  # fmt: skip
# Schemas with a feature for every column of the input.
WITH_ALL_COLUMNS = frozenset(name for name, ready in READY_SCHEMAS.items() if ready.extra)
# Schemas without an image.
WITHOUT_IMAGE = frozenset(name for name, ready in READY_SCHEMAS.items() if not ready.has_image)
