"""Vocabularies, the meaning of class and word indices: given by the user or learned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError, UsageError
from shardwright.format.schema import (
    INDEXED,
    WORDS,
    ExampleSchema,
    Feature,
    FeatureKind,
    Source,
    VocabularyRule,
)
from shardwright.transforms.features.texts import choose_words, count_tokens
from shardwright.transforms.references import extra_name
from shardwright.transforms.splits.split_rules import DEFAULT_SPLIT

MAX_CLASSES = 1_000_000

Counts = Mapping[str, Counter[str | int]]  # feature name -> occurrences of each class or word
Vocabularies = Mapping[str, tuple[str, ...]]


def indexed_features(schema: ExampleSchema) -> list[Feature]:
    """Return the features that hold indices of a vocabulary, including the label."""
    return [feature for feature in schema.features if feature.kind in INDEXED]


def column_of(feature: Feature) -> str:
    """Return the column of settled references that holds the values to index."""
    return "label" if feature.source == Source.LABEL else extra_name(feature.name)


def count_values(batch: pa.RecordBatch, schema: ExampleSchema) -> Counts:
    """Count the classes and words to learn in a batch of settled references.

    Classes are counted in all rows, words in the rows of the train split.
    """
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
    """Return the sums of all counts."""
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
    earlier: Vocabularies | None = None,
) -> Vocabularies:
    """Return every vocabulary in index order, by feature name.

    Args:
        counts: Counts of all references.
        schema: The features, with the names that are given.
        class_names: The label's names, if they are given.
        integer_labels: The label's texts are whole numbers.
        label_indices: Labels are indices already, so the names are all numbers up to the largest.
        needs_label: Fail if no image has a label.
        earlier: The vocabularies of the dataset that these references are added to. Words stay as
            they are; classes keep their numbers, and further ones follow in the usual order.

    Raises:
        BuildError: A feature has nothing to learn from, or its values cannot be a vocabulary.
    """
    vocabularies: dict[str, tuple[str, ...]] = {}
    for feature in indexed_features(schema):
        found = counts.get(feature.name)
        known = None if earlier is None else earlier[feature.name]
        if known is not None and feature.kind in WORDS:
            names = known
        elif feature.source == Source.LABEL and class_names is not None:
            names = tuple(class_names)
        elif feature.names:
            names = feature.names
        elif feature.kind in WORDS:
            names = _order_words(feature, found)
        elif feature.source == Source.LABEL:
            if needs_label and not known:
                _check_labels(feature, found)
            names = order_class_names(map(str, found or ()), integers=integer_labels)
            names = _every_index(names) if label_indices else names
        else:
            names = _order_values(feature, found or ())
        vocabularies[feature.name] = names if known is None else _added(names, known, feature)
    return vocabularies


def _added(names: Sequence[str], known: tuple[str, ...], feature: Feature) -> tuple[str, ...]:
    """Return the known names, then those that are new."""
    there = set(known)
    new = [name for name in names if name not in there]
    if new and not known and feature.source == Source.LABEL:
        raise BuildError(
            f"INPUT has labels, such as {new[0]!r}, but the dataset has none: build a dataset with "
            "labels in another OUTPUT, or leave the labels out"
        )
    return (*known, *new)


def _check_labels(feature: Feature, counts: Counter[str | int] | None) -> None:
    if counts is not None and not counts:
        raise BuildError(
            f"the schema has the label {feature.name!r}, but no image of INPUT has one: "
            "remove it from the schema"
        )


def _order_values(feature: Feature, values: Collection[str | int]) -> tuple[str, ...]:
    integers = any(isinstance(value, int) for value in values)
    return order_class_names(map(str, values), integers=integers, feature=feature.name)


def _every_index(numbers: tuple[str, ...]) -> tuple[str, ...]:
    """Return all numbers from 0 to the last one, or `numbers` if they cannot be indices."""
    if not numbers or int(numbers[0]) < 0 or int(numbers[-1]) >= MAX_CLASSES:
        return numbers
    return tuple(map(str, range(int(numbers[-1]) + 1)))


def _order_words(feature: Feature, counts: Counter[str | int] | None) -> tuple[str, ...]:
    if counts is None:  # there are no references at all, which fails elsewhere
        return ()
    rule = feature.vocabulary or VocabularyRule()
    words = choose_words(
        {str(word): count for word, count in counts.items()},
        rule,
        unknown=feature.kind == FeatureKind.TOKENS,
    )
    if not any(count >= rule.min_count for count in counts.values()):
        raise BuildError(
            f"feature {feature.name!r} learns its vocabulary from the {DEFAULT_SPLIT!r} split, "
            f"whose texts have no word that occurs at least {rule.min_count} times: lower "
            "min_count, set the feature's names, or make sure that the split exists"
        )
    return words


def order_class_names(
    names: Iterable[str], *, integers: bool, feature: str = ""
) -> tuple[str, ...]:
    """Return class names in label order: sorted as text, or by value if they are whole numbers.

    scikit-learn's binarizers use the same order.

    Args:
        names: Class names in any order.
        integers: The names are whole numbers.
        feature: The feature's name; "" for the label.

    Raises:
        BuildError: There are more than MAX_CLASSES names, or a file of names can hold none of them.
    """
    found = set(names)
    # Images of the other classes are rejected, as of an unknown class.
    distinct = {name for name in found if is_storable(name, may_be_blank=feature != "")}
    if found and not distinct:
        raise BuildError(
            f"class name {min(found)!r} is blank or contains a line break, which labels.txt cannot "
            "hold: rename the class"
        )
    _check_num_classes(distinct, feature)
    return tuple(sorted(distinct, key=int) if integers else sorted(distinct))


def _check_num_classes(distinct: Collection[str], feature: str) -> None:
    if len(distinct) > MAX_CLASSES:
        where = f"values of {feature!r}" if feature else "labels"
        column = "that" if feature else "--label-column"
        raise BuildError(
            f"there are {len(distinct)} different {where}, more than {MAX_CLASSES}: "
            f"is {column} the right column? "
            "A column that holds no classes can be stored as a plain feature instead"
        )


def is_storable(class_name: str, *, may_be_blank: bool = False) -> bool:
    """Return whether a file of class names can hold a name.

    Args:
        class_name: The name.
        may_be_blank: For a category, whose empty value is one of its values. TFDS drops blank
            lines, so a label must not be blank.
    """
    is_line = "\n" not in class_name and "\r" not in class_name
    return is_line and (may_be_blank or bool(class_name.strip()))


def read_class_names(text: str, path: str) -> tuple[str, ...]:
    """Return the names in a `--class-names` file, which has one per line in label order.

    Raises:
        UsageError: A name occurs twice, or there is none.
    """
    # Not splitlines, because TFDS splits names files at "\n" only.
    names = [line.strip() for line in text.removeprefix("\ufeff").split("\n") if line.strip()]
    doubled = (
        next((name for name in names if names.count(name) > 1), None)
        if len(set(names)) < len(names)
        else None
    )
    if doubled or not names:
        raise UsageError(
            f"--class-names {path}: "
            + (f"{doubled!r} occurs twice" if doubled else "the file has no names")
        )
    return tuple(names)
