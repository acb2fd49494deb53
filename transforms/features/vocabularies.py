"""Vocabularies: what class and word indices mean, given by the user or learned from the references themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError, UsageError
from shardwright.schema import ExampleSchema, Feature, FeatureKind, Source, VocabularyRule
from transforms.features.texts import choose_words, count_tokens
from transforms.references import extra_name
from transforms.splitting.splits import DEFAULT_SPLIT

MAX_CLASSES = 1_000_000
CLASSES = frozenset({FeatureKind.CLASS_LABEL, FeatureKind.MULTI_LABEL})
WORDS = frozenset({FeatureKind.TOKENS, FeatureKind.BAG_OF_WORDS})

Counts = Mapping[str, Counter[str | int]]  # by feature name: how often each class or word occurs
Vocabularies = Mapping[str, tuple[str, ...]]


def indexed_features(schema: ExampleSchema) -> list[Feature]:
    """The features that hold indices of a vocabulary, the label's among them."""
    return [feature for feature in schema.features if feature.kind in CLASSES | WORDS]


def column_of(feature: Feature) -> str:
    """The column of settled references that holds what a feature's indices stand for."""
    return "label" if feature.source == Source.LABEL else extra_name(feature.name)


def count_values(batch: pa.RecordBatch, schema: ExampleSchema) -> Counts:
    """The classes of a batch of settled references, and the words of its texts in the train split, for all that is to be learned."""
    counts: dict[str, Counter[str | int]] = {}
    for feature in indexed_features(schema):
        if feature.names:
            continue
        column = batch.column(column_of(feature))
        if feature.kind in WORDS:
            column = column.filter(pc.equal(batch.column("split"), DEFAULT_SPLIT))
            counts[feature.name] = Counter(
                count_tokens(column, feature.vocabulary or VocabularyRule())
            )
        else:
            counts[feature.name] = _count_classes(column)
    return counts


def _count_classes(column: pa.Array) -> Counter[str | int]:
    values = column.flatten() if pa.types.is_list(column.type) else column
    return Counter(
        {item["values"]: item["counts"] for item in pc.value_counts(values.drop_null()).to_pylist()}
    )


def add_counts(parts: Iterable[Counts]) -> Counts:
    """The counts of all parts together."""
    total: dict[str, Counter[str | int]] = {}
    for part in parts:
        for name, counts in part.items():
            total.setdefault(name, Counter()).update(counts)
    return total


def order_vocabularies(
    counts: Counts,
    schema: ExampleSchema,
    *,
    class_names: Sequence[str] | None = None,
    integer_labels: bool = False,
    label_indices: bool = False,
    needs_label: bool = False,
) -> Vocabularies:
    """Every vocabulary in index order, by feature name.

    Args:
        counts: Of all references.
        schema: Where names that are given are.
        class_names: The label's, where they are given.
        integer_labels: The label's texts are whole numbers.
        label_indices: They are indices already, so that their names are all numbers up to the largest.
        needs_label: That nothing has a label is an error.

    Raises:
        BuildError: Nothing can be learned for a feature, or what was found can be no vocabulary.
    """
    vocabularies = {}
    for feature in indexed_features(schema):
        found = counts.get(feature.name, Counter())
        if feature.source == Source.LABEL and class_names is not None:
            vocabularies[feature.name] = tuple(class_names)
        elif feature.names:
            vocabularies[feature.name] = feature.names
        elif feature.kind in WORDS:
            vocabularies[feature.name] = _order_words(
                feature, found if feature.name in counts else None
            )
        elif feature.source == Source.LABEL:
            if needs_label and not found and feature.name in counts:
                raise BuildError(
                    f"the schema has the label {feature.name!r}, and no image of INPUT has one: leave it out of the schema"
                )
            names = order_class_names(map(str, found), integers=integer_labels)
            vocabularies[feature.name] = _every_index(names) if label_indices else names
        else:
            integers = any(isinstance(value, int) for value in found)
            vocabularies[feature.name] = order_class_names(
                map(str, found), integers=integers, feature=feature.name
            )
    return vocabularies


def _every_index(numbers: tuple[str, ...]) -> tuple[str, ...]:
    """The numbers from 0 to the last of these; these alone where they can be no indices."""
    if not numbers or int(numbers[0]) < 0 or int(numbers[-1]) >= MAX_CLASSES:
        return numbers
    return tuple(map(str, range(int(numbers[-1]) + 1)))


def _order_words(feature: Feature, counts: Counter[str | int] | None) -> tuple[str, ...]:
    if counts is None:  # there are no references at all, which is told elsewhere
        return ()
    rule = feature.vocabulary or VocabularyRule()
    words = choose_words(
        {str(word): count for word, count in counts.items()},
        rule,
        unknown=feature.kind == FeatureKind.TOKENS,
    )
    if not any(count >= rule.min_count for count in counts.values()):
        raise BuildError(
            f"feature {feature.name!r} learns its vocabulary from the {DEFAULT_SPLIT!r} split, whose texts have no word that occurs "
            f"{rule.min_count} times: lower min_count, give the feature names, or see that there is such a split"
        )
    return words


def order_class_names(
    names: Iterable[str], *, integers: bool, feature: str = ""
) -> tuple[str, ...]:
    """Class names in label order: sorted as text, or by value where they are whole numbers, as scikit-learn's binarizers sort them.

    Args:
        names: In any order.
        integers: They are whole numbers.
        feature: Whose they are; "" for the label's.

    Raises:
        BuildError: So many that they are no classes; or a name that a names file, one name a line, cannot hold.
    """
    distinct = set(names)
    if len(distinct) > MAX_CLASSES:
        where = f"values of {feature!r}" if feature else "labels"
        column = "that" if feature else "--label-column"
        raise BuildError(
            f"there are {len(distinct)} different {where}, more than {MAX_CLASSES}: is {column} the right column? "
            "A column that is no class becomes a feature when it is not the label column"
        )
    for name in distinct:
        if "\n" in name or "\r" in name:
            raise BuildError(
                f"class name {name!r} has a line break in it, which labels.txt cannot hold: rename the class"
            )
    return tuple(sorted(distinct, key=int) if integers else sorted(distinct))


def read_class_names(text: str, path: str) -> tuple[str, ...]:
    """The class names of a `--class-names` file: one a line, in label order.

    Raises:
        UsageError: A name stands twice, or there is none.
    """
    names = [
        line.strip() for line in text.removeprefix("\ufeff").split("\n") if line.strip()
    ]  # not splitlines: TFDS splits so
    doubled = (
        next((name for name in names if names.count(name) > 1), None)
        if len(set(names)) < len(names)
        else None
    )
    if doubled or not names:
        raise UsageError(
            f"--class-names {path}: "
            + (f"{doubled!r} stands there twice" if doubled else "no names in it")
        )
    return tuple(names)
