"""Vocabularies, the meaning of class and word indices: given by the user or learned."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypedDict

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
from shardwright.sizes import counted
from shardwright.transforms.features.conversions import choose_words, count_tokens
from shardwright.transforms.references import extra_name
from shardwright.transforms.splits.split_rules import DEFAULT_SPLIT

_LOG = logging.getLogger("shardwright.features")
MAX_CLASSES = 1_000_000
_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}")  # "007" is a name, which a number would change

Counts = Mapping[str, Counter[str]]  # feature name -> occurrences of each class or word
Vocabularies = Mapping[str, tuple[str, ...]]


class VocabularyRules(TypedDict, total=False):
    """The arguments of `order_vocabularies` besides counts and schema."""

    class_names: Sequence[str] | None
    labels_are_names: bool
    needs_label: bool
    earlier: Vocabularies | None


def indexed_features(schema: ExampleSchema) -> list[Feature]:
    """Return the features that hold indices of a vocabulary, including the label."""
    return [feature for feature in schema.features if feature.kind in INDEXED]


def count_values(batch: pa.RecordBatch, schema: ExampleSchema) -> Counts:
    """Count the classes and words to learn in a batch of settled references.

    Classes are counted in all rows, words in the rows of the train split.
    """
    counts: dict[str, Counter[str]] = {}
    for feature in indexed_features(schema):
        if feature.names:
            continue
        is_label = feature.source == Source.LABEL
        column = batch.column("label" if is_label else extra_name(feature.name))
        if feature.kind in WORDS:
            column = column.filter(pc.equal(batch.column("split"), DEFAULT_SPLIT))
            counts[feature.name] = count_tokens(column, feature.vocabulary or VocabularyRule())
        else:
            values = column.flatten() if pa.types.is_list(column.type) else column
            found = pc.value_counts(values.drop_null()).to_pylist()
            counts[feature.name] = Counter({each["values"]: each["counts"] for each in found})
    return counts


def add_counts(parts: Iterable[Counts]) -> Counts:
    """Return the sums of all counts."""
    total: dict[str, Counter[str]] = {}
    for part in parts:
        for name, counts in part.items():
            total.setdefault(name, Counter()).update(counts)
    return total


def order_vocabularies(
    counts: Counts,
    schema: ExampleSchema,
    *,
    class_names: Sequence[str] | None = None,
    labels_are_names: bool = False,
    needs_label: bool = False,
    earlier: Vocabularies | None = None,
) -> Vocabularies:
    """Return every vocabulary in index order, by feature name.

    Args:
        counts: Counts of all references.
        schema: The features, with the names that are given.
        class_names: The label's names, if they are given.
        labels_are_names: Labels that are numbers are names, which sort as text.
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
        is_label = feature.source == Source.LABEL
        if known is not None and feature.kind in WORDS:
            names = known
        elif is_label and class_names is not None:
            names = tuple(class_names)
        elif feature.names:
            names = feature.names
        elif feature.kind in WORDS:
            names = _order_words(feature, found)
        else:
            if is_label and needs_label and not known and found is not None and not found:
                raise BuildError(
                    f"the schema has the label {feature.name!r}, but no image of INPUT has one: "
                    "remove it from the schema"
                )
            as_text = is_label and labels_are_names
            name = "" if is_label else feature.name
            names = _learn_classes(found, known, as_text=as_text, feature=name)
        vocabularies[feature.name] = names if known is None else _added(names, known, feature)
    return vocabularies


def _learn_classes(
    found: Collection[str] | None, known: tuple[str, ...] | None, **rules: Any
) -> tuple[str, ...]:
    """Return the names of found classes, in order; `known` are those of a dataset that grows."""
    values = set(found or ())
    if not known:
        return order_class_names(values, **rules)
    if known == tuple(map(str, range(len(known)))):  # class numbers, which stay
        return order_class_names(values.union(known), **rules)
    return tuple(name for name in order_class_names(values, **rules) if name in values)


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


def _order_words(feature: Feature, counts: Counter[str] | None) -> tuple[str, ...]:
    if counts is None:  # there are no references at all, which fails elsewhere
        return ()
    rule = feature.vocabulary or VocabularyRule()
    words = choose_words(counts, rule, unknown=feature.kind == FeatureKind.TOKENS)
    if not any(count >= rule.min_count for count in counts.values()):
        raise BuildError(
            f"feature {feature.name!r} learns its vocabulary from the {DEFAULT_SPLIT!r} split, "
            f"whose texts have no word that occurs at least {rule.min_count} times: lower "
            "min_count, set the feature's names, or make sure that the split exists"
        )
    return words


def order_class_names(
    names: Iterable[str], *, as_text: bool = False, feature: str = ""
) -> tuple[str, ...]:
    """Return class names in the order of their indices.

    Names that are all whole numbers are class numbers and stay what they are: the names are "0" to
    the largest. Numbers that cannot be indices are ordered by value. Other names are sorted as
    text, as by scikit-learn's `LabelBinarizer`.

    Args:
        names: Class names in any order.
        as_text: Whole numbers are sorted as text, too.
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
    if len(distinct) > MAX_CLASSES:
        where = f"values of {feature!r}" if feature else "labels"
        column = "that" if feature else "--label-column"
        raise BuildError(
            f"there are {len(distinct)} different {where}, more than {MAX_CLASSES}: "
            f"is {column} the right column? "
            "A column that holds no classes can be stored as a plain feature instead"
        )
    numbers = sorted(int(name) for name in distinct if _WHOLE_NUMBER.fullmatch(name))
    if as_text or not numbers:
        return tuple(sorted(distinct))
    if len(numbers) < len(distinct):
        other = min(name for name in distinct if not _WHOLE_NUMBER.fullmatch(name))
        _LOG.warning(
            "%r has %s and the name %r: all are names, sorted as text, so that 10 comes before 2. "
            "For class numbers, correct the other names",
            feature or "label", counted(len(numbers), "whole number"), other,
        )  # fmt: skip
        return tuple(sorted(distinct))
    return _numbered(numbers, feature)


def _numbered(numbers: Sequence[int], feature: str) -> tuple[str, ...]:
    """Return the names of classes that are these ascending numbers."""
    first, last = numbers[0], numbers[-1]
    if first < 0 or last >= MAX_CLASSES:
        _LOG.warning(
            "%r has the numbers %d to %d, which cannot be class indices: %d becomes class 0, and "
            "the others follow by value",
            feature or "label", first, last, first,
        )  # fmt: skip
        return tuple(map(str, numbers))
    if len(numbers) <= last:
        _LOG.warning(
            "%r has %s between %d and %d: numbers stay what they are, so there are %d classes, %d "
            "of them without a record. To number the classes anew, list them with --class-names",
            feature or "label", counted(len(numbers), "class number"), first, last,
            last + 1, last + 1 - len(numbers),
        )  # fmt: skip
    return tuple(map(str, range(last + 1)))


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
    names = [line.strip() for line in text.split("\n") if line.strip()]
    if not names:
        raise UsageError(f"--class-names {path}: the file has no names")
    (most, number), *_ = Counter(names).most_common(1)
    if number > 1:
        raise UsageError(f"--class-names {path}: {most!r} occurs twice")
    return tuple(names)
