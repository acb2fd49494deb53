"""Vocabularies, tokens and bags of words, against scikit-learn's CountVectorizer."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from shardwright.errors import UsageError
from shardwright.format.schema import VocabularyRule
from shardwright.transforms.features.conversions import (
    UNKNOWN,
    check_pattern,
    choose_words,
    count_tokens,
    encode_bags,
    encode_tokens,
)

Texts = list[str | None]
DEFAULT = VocabularyRule()
TEXTS: Texts = [
    "The cat sat on the mat.", "THE CAT, the cat; and a dog", "", "a b c",
    "Straße ÄÖÜ naïve 日本語 テスト İstanbul ǅ", "1 22 333 4.44 5_5",
    "it's don't e-mail\tline\nbreak", "The cat sat on the mat.", None,
]  # fmt: skip
# Few letters, so that words recur; capitals, two whose lower case is longer, digits, separators.
TEXT = st.lists(st.none() | st.text(st.sampled_from("abAB é1_.-İßﬁ \n"), max_size=20), max_size=12)
NO_SPACES = VocabularyRule(token_pattern=r"\S+")
RULES = [
    DEFAULT,
    VocabularyRule(lowercase=False),
    VocabularyRule(token_pattern=r"(\w)\w*"),
    VocabularyRule(token_pattern=r"[a-zA-Z]"),
]


def vectorizer(rule: VocabularyRule) -> CountVectorizer:
    return CountVectorizer(
        lowercase=rule.lowercase, token_pattern=rule.token_pattern, max_features=rule.max_size
    )


def count(texts: Texts, rule: VocabularyRule = DEFAULT) -> Counter[str]:
    return count_tokens(pa.array(texts, pa.string()), rule)


def bags_of(texts: Texts, words: tuple[str, ...], rule: VocabularyRule) -> list[dict[int, float]]:
    indices, counts = encode_bags(pa.array(texts, pa.string()), words, rule)
    assert (indices.type, counts.type) == (pa.list_(pa.int64()), pa.list_(pa.float32()))
    assert indices.null_count == counts.null_count == 0
    rows = list(zip(indices.to_pylist(), counts.to_pylist(), strict=True))
    assert all(row == sorted(set(row)) for row, _ in rows), "ascending, each once"
    return [dict(zip(*row, strict=True)) for row in rows]


def check_against_scikit(texts: Texts, rule: VocabularyRule) -> None:
    """Compare the words, and their counts in each text."""
    known = [text or "" for text in texts]
    words, judge = choose_words(count(texts, rule), rule), vectorizer(rule)
    if not words:
        with pytest.raises(ValueError, match="empty vocabulary"):
            judge.fit(known)
        return
    matrix = judge.fit_transform(known).toarray().tolist()
    assert words == tuple(judge.get_feature_names_out())
    assert bags_of(texts, words, rule) == [
        {index: float(number) for index, number in enumerate(row) if number} for row in matrix
    ]


@pytest.mark.parametrize("rule", [*RULES, NO_SPACES], ids=str)
def test_words_and_bags_equal_those_of_scikit_learn(rule: VocabularyRule) -> None:
    check_against_scikit(TEXTS, rule)


@given(texts=TEXT, rule=st.sampled_from(RULES))
def test_words_and_bags_of_any_texts_equal_those_of_scikit_learn(
    texts: Texts, rule: VocabularyRule
) -> None:
    check_against_scikit(texts, rule)


@given(texts=TEXT, max_size=st.integers(1, 6))
def test_the_most_frequent_words_stay(texts: Texts, max_size: int) -> None:
    """Of equally frequent words scikit-learn keeps any, choose_words the first by alphabet."""
    rule = VocabularyRule(max_size=max_size)
    counts = count(texts, rule)
    words = choose_words(counts, rule)
    by_frequency = sorted(counts, key=lambda word: (-counts[word], word))
    assert words == tuple(sorted(by_frequency[:max_size]))
    if counts:
        theirs = vectorizer(rule).fit([text or "" for text in texts]).get_feature_names_out()
        assert sorted(counts[word] for word in words) == sorted(counts[word] for word in theirs)


def test_words_rarer_than_min_count_are_left_out() -> None:
    counts = Counter({"often": 3, "twice": 2, "once": 1})
    assert choose_words(counts, VocabularyRule(min_count=2)) == ("often", "twice")
    assert choose_words(counts, VocabularyRule(min_count=4)) == ()


@given(texts=TEXT, cut=st.integers(0, 12))
def test_counts_of_parts_add_up(texts: Texts, cut: int) -> None:
    assert count(texts[:cut]) + count(texts[cut:]) == count(texts)


@pytest.mark.parametrize(
    ("texts", "found"),
    [(["the cat saw the dog"], [[1, 0, 1]]), (["dog", None, "", "dog cat"], [[], [], [], [0]]),
     ([], [])],
)  # fmt: skip
def test_unknown_tokens_are_left_out(texts: Texts, found: list[list[int]]) -> None:
    encoded = encode_tokens(pa.array(texts, pa.string()), ("cat", "the"), DEFAULT)
    assert encoded.equals(pa.array(found, pa.list_(pa.int64())))


def test_unknown_tokens_have_an_index_if_the_words_hold_one() -> None:
    counts = Counter({"cat": 2, "the": 2, "dog": 1, UNKNOWN: 9})
    words = choose_words(counts, VocabularyRule(max_size=2), unknown=True)
    assert words == (UNKNOWN, "cat", "the"), "once, and not counted in max_size"
    encoded = encode_tokens(pa.array(["the cat saw the dog"]), words, DEFAULT)
    assert encoded.to_pylist() == [[2, 1, 0, 2, 0]]


@given(texts=TEXT)
def test_tokens_are_those_that_scikit_learn_cuts(texts: Texts) -> None:
    words, analyze = choose_words(count(texts), DEFAULT), vectorizer(DEFAULT).build_analyzer()
    encoded = encode_tokens(pa.array(texts, pa.string()), words, DEFAULT).to_pylist()
    found = [[words[index] for index in row] for row in encoded]
    assert found == [analyze(text or "") for text in texts]


def test_a_word_with_a_line_break_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"'two\\nlines' contains a line break.*change token_pattern"
    ):
        choose_words(Counter({"two\nlines": 1}), DEFAULT)


@pytest.mark.parametrize(
    ("pattern", "message"), [("(", "not a regular expression"), ("(a)(b)", "2 groups")]
)
def test_bad_patterns_are_refused(pattern: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_pattern(pattern)
