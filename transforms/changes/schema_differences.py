"""Compare the features of a dataset with those of a build that adds to it."""

from __future__ import annotations

from collections.abc import Iterator

from shardwright.format.schema import ExampleSchema, same_names
from shardwright.transforms.features.vocabularies import Vocabularies, indexed_features


def schema_differences(there: ExampleSchema, here: ExampleSchema) -> str:
    """Return how the features differ, "" if they do not. Learned names do not count.

    Args:
        there: The schema of a dataset.
        here: The schema of a build, without learned names. Its label does not count if the dataset
            has no labels: whether INPUT has some is known once it is listed.
    """
    return "; ".join(_differences(there, here.with_class_names(there.class_names)))


def _differences(there: ExampleSchema, here: ExampleSchema) -> Iterator[str]:
    old, new = ({each.name: each.to_json() for each in one.features} for one in (there, here))
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in new:
            yield f"feature {name!r} is missing here"
        elif name not in old:
            yield f"feature {name!r} is missing there"
        else:
            for key in sorted({*old[name], *new[name]}):
                values = old[name].get(key), new[name].get(key)
                if values[0] != values[1] and not (
                    key == "names" and same_names(values[0] or (), values[1] or ())
                ):
                    yield f"{key} of {name!r} is {values[0]!r} there and {values[1]!r} here"


def known_vocabularies(there: ExampleSchema, here: ExampleSchema) -> Vocabularies:
    """Return the names of a dataset for each feature of a build that holds indices.

    Args:
        there, here: As in `schema_differences`; they do not differ.
    """
    return {feature.name: there.names_of(feature) for feature in indexed_features(here)}
