"""The files of class names and words."""

from __future__ import annotations

from schemas.image_classification import image_classification
from shardwright.names_files import names_files, names_text
from shardwright.schema import Feature, FeatureKind

EXTRAS = (
    Feature("weather/sky", FeatureKind.CLASS_LABEL, names=("blue", "gray")),
    Feature("scenes", FeatureKind.MULTI_LABEL),
    Feature("caption", FeatureKind.TOKENS),
    Feature("text/tags", FeatureKind.BAG_OF_WORDS, keys=("ids", "counts")),
    Feature("age", FeatureKind.INT64),
)
VOCABULARIES = {
    "label": ("cat", "dog"),
    "scenes": ("indoor",),
    "caption": ("[UNK]", "a"),
    "text/tags": ("x",),
}


def test_every_feature_of_indices_has_a_file_where_it_is_looked_for() -> None:
    assert names_files(image_classification(extras=EXTRAS).with_vocabularies(VOCABULARIES)) == {
        "label.labels.txt": ("cat", "dog"),
        "weather-sky.labels.txt": ("blue", "gray"),
        "scenes.labels.txt": ("indoor",),
        "caption.vocab.txt": ("[UNK]", "a"),
        "text-tags.vocab.txt": ("x",),
    }


def test_a_dataset_without_indices_has_no_such_file() -> None:
    assert names_files(image_classification().with_class_names(())) == {}


def test_each_name_has_a_line_of_its_own() -> None:
    assert names_text(("cat", "Löwe")) == "cat\nLöwe\n"
    assert names_text(()) == ""
