"""Vocabularies: the order of scikit-learn, the rows that they are learned from, and errors."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import LabelBinarizer, MultiLabelBinarizer

from shardwright.errors import BuildError, UsageError
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source, VocabularyRule
from shardwright.transforms.features import vocabularies
from shardwright.transforms.features.columns import settle_column
from shardwright.transforms.features.rows import index_column
from shardwright.transforms.features.vocabularies import (
    add_counts,
    count_values,
    order_class_names,
    order_vocabularies,
    read_class_names,
)
from tests.support.helpers import references

IMAGE = Feature("image", FeatureKind.IMAGE, Source.IMAGE)
LABEL = Feature("label", FeatureKind.CLASS_LABEL, Source.LABEL)
SETS = st.lists(st.sampled_from(["b", "a", "B", "x10", "x9"]), max_size=4)
TEXTS = st.lists(st.text("ab é", max_size=8), min_size=1, max_size=8)


def learn(feature: Feature, *columns: pa.Array, **options: Any) -> tuple[str, ...]:
    """Return the vocabulary learned from batches with these columns; all rows are of train."""
    schema = ExampleSchema((IMAGE, feature))
    batches = [
        references([str(row) for row in range(len(column))], split="train", extras={"x/f": column})
        for column in columns
    ]
    counts = add_counts([add_counts(count_values(batch, schema) for batch in batches), {}])
    return order_vocabularies(counts, schema, **options)["f"]


WORDS, NUMBERS = st.text("aBé", min_size=1, max_size=3), st.integers(-20, -1)


@given(st.lists(WORDS, min_size=2, max_size=12) | st.lists(NUMBERS, min_size=2, max_size=12))
def test_classes_are_in_the_order_of_label_binarizer(labels: list[Any]) -> None:
    names = pa.array(map(str, labels))
    words = learn(Feature("f", FeatureKind.CLASS_LABEL), names[:1], names[1:])
    assert list(words) == list(map(str, LabelBinarizer().fit(labels).classes_))


@given(sets=st.lists(SETS, min_size=1, max_size=8))
def test_multi_labels_are_those_of_multi_label_binarizer(sets: list[list[str]]) -> None:
    feature, column = Feature("f", FeatureKind.MULTI_LABEL), pa.array(sets, pa.list_(pa.string()))
    binarizer = MultiLabelBinarizer().fit(sets)
    words = learn(feature, column)
    assert list(words) == binarizer.classes_.tolist()
    indices = index_column(column, feature, words)[0]["f"].to_pylist()
    dense = np.zeros((len(sets), len(words)), int)
    for row, found in enumerate(indices):
        dense[row, found] = 1
    assert (dense == binarizer.transform(sets)).all()
    assert all(found == sorted(set(found)) for found in indices)


@given(texts=TEXTS, max_size=st.none() | st.integers(1, 4), min_count=st.integers(1, 3))
def test_bags_of_count_vectorizer(texts: list[str], max_size: int | None, min_count: int) -> None:
    rule = VocabularyRule(max_size=max_size, min_count=min_count, token_pattern=r"\w+")
    feature, column = Feature("f", FeatureKind.BAG_OF_WORDS, vocabulary=rule), pa.array(texts)
    counts = Counter(token for text in texts for token in text.split())
    kept = sorted(word for word, count in counts.items() if count >= min_count)
    kept = sorted(sorted(kept, key=lambda word: (-counts[word], word))[:max_size])
    if not kept:
        told = "learns its vocabulary from the 'train' split, whose texts have no word that occurs"
        with pytest.raises(BuildError, match=told):
            learn(feature, column)
        return
    words = learn(feature, column)
    vectorizer = CountVectorizer(vocabulary=kept, token_pattern=r"\w+")
    assert list(words) == vectorizer.get_feature_names_out().tolist()
    stored, _ = index_column(column, feature, words)
    indices, values = (stored[f"f/{name}"].to_pylist() for name in ("indices", "values"))
    dense = np.zeros((len(texts), len(words)), int)
    for row, found in enumerate(indices):
        dense[row, found] = values[row]
    assert (dense == vectorizer.transform(texts).toarray()).all()


def test_words_come_from_the_train_split_and_classes_from_all() -> None:
    text = Feature("t", FeatureKind.TOKENS, column="text")
    schema = ExampleSchema((IMAGE, text, Feature("c", FeatureKind.CLASS_LABEL)))
    extras = {"x/t": ["seen twice seen", "never seen"], "x/c": ["dog", "cat"]}
    counts = count_values(references(["1", "2"], split=["train", "test"], extras=extras), schema)
    assert counts == {"t": {"seen": 2, "twice": 1}, "c": {"dog": 1, "cat": 1}}
    learned = {"t": ("[UNK]", "seen", "twice"), "c": ("cat", "dog")}
    assert order_vocabularies(counts, schema) == learned


def test_given_names_are_not_learned() -> None:
    given_names = Feature("c", FeatureKind.CLASS_LABEL, names=("z", "a"))
    schema = ExampleSchema((IMAGE, LABEL, given_names))
    batch = references(["1"], label="q", split="train", extras={"x/c": ["a"]})
    counts = count_values(batch, schema)
    assert counts == {"label": {"q": 1}}
    names = {"label": ("y", "x"), "c": ("z", "a")}
    assert order_vocabularies(counts, schema, class_names=["y", "x"]) == names


@given(numbers=st.sets(st.integers(0, 150), min_size=1))
def test_class_numbers_stay_what_they_are(numbers: set[int]) -> None:
    """Of every type, in every container, a class keeps its number."""
    column = pa.array(sorted(numbers))
    for values in (column, column.cast(pa.float64()), column.cast(pa.string())):
        feature = Feature("f", FeatureKind.CLASS_LABEL)
        settled = settle_column(values, feature).column
        names = learn(feature, settled)
        stored, unknown = index_column(settled, feature, names)
        assert (stored["f"].to_pylist(), unknown.any()) == (column.to_pylist(), False)


@pytest.mark.parametrize(("labels", "names", "warning"), [
    (["3", "1"], ("0", "1", "2", "3"), "'label' has 2 class numbers between 1 and 3: numbers stay"),
    (["0", "1", None], ("0", "1"), ""), ([None], (), ""),
    (["-1", "2"], ("-1", "2"), "the numbers -1 to 2, which cannot be class indices: -1 becomes"),
    (["5", "1000000"], ("5", "1000000"), "the numbers 5 to 1000000, which cannot be class indices"),
    (["10", "2", "N/A"], ("10", "2", "N/A"), "has 2 whole numbers and the name 'N/A': all are"),
    (["007", "8"], ("007", "8"), "has 1 whole number and the name '007'"),
])  # fmt: skip
def test_labels_that_are_numbers(
    labels: list[str | None],
    names: tuple[str, ...],
    warning: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    schema = ExampleSchema((IMAGE, LABEL))
    counts = count_values(references([str(n) for n in range(len(labels))], label=labels), schema)
    assert order_vocabularies(counts, schema) == {"label": names}
    assert len(caplog.messages) == bool(warning)
    assert warning in caplog.text


def test_nothing_is_learned_from_nothing() -> None:
    """A later step reports that there are no images."""
    features = (Feature("t", FeatureKind.TOKENS), Feature("m", FeatureKind.MULTI_LABEL))
    schema = ExampleSchema((IMAGE, LABEL, *features))
    assert order_vocabularies(add_counts([]), schema) == {"label": (), "t": (), "m": ()}


@pytest.mark.parametrize(
    ("feature", "options", "earlier", "found", "names"),
    [
        (LABEL, {}, ("dog", "cat"), ["cat", "ant", "eel"], ("dog", "cat", "ant", "eel")),
        (LABEL, {}, ("9", "2"), ["10", "3", "2"], ("9", "2", "3", "10")),
        (LABEL, {}, ("0", "1"), ["3"], ("0", "1", "2", "3")),
        (LABEL, {"class_names": ["ant", "cat"]}, ("cat",), ["ant"], ("cat", "ant")),
        (LABEL, {"needs_label": True}, ("cat",), [None], ("cat",)),
        (LABEL, {}, (), [None], ()),
        (Feature("f", FeatureKind.CLASS_LABEL), {}, (), ["b", "a"], ("a", "b")),
        (Feature("f", FeatureKind.MULTI_LABEL), {}, ("b",), [["c", "a"]], ("b", "a", "c")),
        # Words are chosen by their counts, which nobody knows any more.
        (Feature("f", FeatureKind.TOKENS), {}, ("[UNK]", "b"), ["a a a"], ("[UNK]", "b")),
    ],
)  # fmt: skip
def test_earlier_names_keep_their_numbers(
    feature: Feature,
    options: dict[str, Any],
    earlier: tuple[str, ...],
    found: list[Any],
    names: tuple[str, ...],
) -> None:
    schema = ExampleSchema((IMAGE, feature))
    ids = list(map(str, range(len(found))))
    columns = {"label": found} if feature is LABEL else {"extras": {"x/f": found}}
    counts = add_counts([count_values(references(ids, split="train", **columns), schema)])
    known = {feature.name: earlier}
    assert order_vocabularies(counts, schema, earlier=known, **options) == {feature.name: names}


def test_a_dataset_without_labels_gets_none() -> None:
    counts = {"label": Counter({"cat": 1})}
    with pytest.raises(BuildError, match="INPUT has labels, such as 'cat', but the dataset has no"):
        order_vocabularies(counts, ExampleSchema((IMAGE, LABEL)), earlier={"label": ()})


def test_no_words_in_train() -> None:
    schema = ExampleSchema((IMAGE, Feature("t", FeatureKind.TOKENS)))
    batch = references(["1"], split="test", extras={"x/t": ["words of test only"]})
    told = "feature 't' learns its vocabulary from the 'train' split"
    with pytest.raises(BuildError, match=told):
        order_vocabularies(count_values(batch, schema), schema)


@pytest.mark.parametrize(("names", "as_text", "ordered"), [
    ({"dog", "Cat", "cat", "ant"}, False, ("Cat", "ant", "cat", "dog")),
    ({"10", "9", "1"}, True, ("1", "10", "9")),
    ({"10", "9", "1", "-2"}, False, ("-2", "1", "9", "10")),
    ({"é", "z", "\U0001f415"}, False, ("z", "é", "\U0001f415")),
    (set(), False, ()),
])  # fmt: skip
def test_order_of_classes(names: set[str], as_text: bool, ordered: tuple[str, ...]) -> None:
    assert order_class_names(names, as_text=as_text) == ordered


@pytest.mark.parametrize("name", ["two\nlines", "cr\rhere", "", "  "])
def test_class_names_that_no_file_holds(name: str) -> None:
    """Their images are rejected, but a dataset without any class would be an unlabeled one."""
    assert order_class_names({"fine", name}) == ("fine",)
    told = f"class name {name!r} is blank or contains a line break"
    with pytest.raises(BuildError, match=re.escape(told)):
        order_class_names({name})


def test_more_labels_than_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabularies, "MAX_CLASSES", 3)
    assert len(order_class_names("abc")) == 3
    told = "there are 4 different labels, more than 3: is --label-column the right column"
    with pytest.raises(BuildError, match=told):
        order_class_names("abcd")
    told = "there are 4 different values of 'tags', more than 3: is that the right column"
    with pytest.raises(BuildError, match=told):
        order_class_names("abcd", feature="tags")


@pytest.mark.parametrize(("text", "names"), [
    ("dog\ncat\n", ("dog", "cat")),
    (" dog \r\n\r\ncat", ("dog", "cat")),
    ("two words\nline\u2028separator", ("two words", "line\u2028separator")),
])  # fmt: skip
def test_class_names_file(text: str, names: tuple[str, ...]) -> None:
    assert read_class_names(text, "f.txt") == names


@pytest.mark.parametrize(("text", "message"), [
    (" \n\n", "--class-names f.txt: the file has no names"),
    ("a\nb\n a\n", "--class-names f.txt: 'a' occurs twice"),
])  # fmt: skip
def test_class_names_file_errors(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_class_names(text, "f.txt")
