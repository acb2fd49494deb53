"""The files of class names and words."""

from __future__ import annotations

from shardwright.format.schema import Feature
from shardwright.format.schema import FeatureKind as K
from shardwright.format.tfds_features import names_files, names_text
from shardwright.schemas.ready import image_classification

EXTRAS = (
    Feature("weather/sky", K.CLASS_LABEL, names=("blue", "gray")),
    Feature("scenes", K.MULTI_LABEL),
    Feature("caption", K.TOKENS),
    Feature("text/tags", K.BAG_OF_WORDS, keys=("ids", "counts")),
    Feature("age", K.INT64),
)


def test_every_feature_of_indices_has_a_file() -> None:
    learned = {"label": ("cat", "dog"), "scenes": ("indoor",), "text/tags": ("x",)}
    vocabularies = {**learned, "caption": ("[UNK]", "a")}
    assert names_files(image_classification(extras=EXTRAS).with_vocabularies(vocabularies)) == {
        "label.labels.txt": ("cat", "dog"),
        "weather-sky.labels.txt": ("blue", "gray"),
        "scenes.labels.txt": ("indoor",),
        "caption.vocab.txt": ("[UNK]", "a"),
        "text-tags.vocab.txt": ("x",),
    }
    assert names_files(image_classification().with_class_names(())) == {}


def test_each_name_has_its_own_line() -> None:
    assert names_text(("cat", "Löwe")) == "cat\nLöwe\n"
    assert names_text(()) == ""
