"""Files of class names, where TFDS looks for them, and of words: one per line, by index."""

from __future__ import annotations

from collections.abc import Iterable

from shardwright.format import naming
from shardwright.format.schema import ExampleSchema, FeatureKind

_FILE_OF = {
    FeatureKind.CLASS_LABEL: naming.labels_file,
    FeatureKind.MULTI_LABEL: naming.labels_file,
    FeatureKind.TOKENS: naming.vocabulary_file,
    FeatureKind.BAG_OF_WORDS: naming.vocabulary_file,
}


def names_files(schema: ExampleSchema) -> dict[str, tuple[str, ...]]:
    """Return the class names or words of each feature that holds indices, by file name."""
    features = (feature for feature in schema.features if feature.kind in _FILE_OF)
    return {_FILE_OF[feature.kind](feature.name): schema.names_of(feature) for feature in features}


def names_text(names: Iterable[str]) -> str:
    """Return the text of such a file."""
    return "".join(f"{name}\n" for name in names)
