"""Vocabularies, tokens and bags of words, against scikit-learn's CountVectorizer on the same texts."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from shardwright.errors import UsageError
from shardwright.schema import VocabularyRule
from transforms.features.texts import (
    UNKNOWN,
    check_pattern,
    choose_words,
    count_tokens,
    encode_bags,
    encode_tokens,
)

DEFAULT = VocabularyRule()
TEXTS = [
    "The cat sat on the mat.",
    "THE CAT, the cat; and a dog",
    "",
    "a b c",
    "Straße ÄÖÜ naïve 日本語 テスト İstanbul ǅ",
    "1 22 333 4.44 5_5",
    "it's don't e-mail\tline\nbreak",
    "The cat sat on the mat.",
]
# Few letters, so that words are met again; capital letters, two that change their length in lower case, digits and what parts words.
TEXT = st.lists(st.none() | st.text(st.sampled_from("abAB é1_.-İßﬁ \n"), max_size=20), max_size=12)
RULES = [
    DEFAULT,
    VocabularyRule(lowercase=False),
    VocabularyRule(token_pattern=r"\S+"),
    VocabularyRule(token_pattern=r"(\w)\w*"),
    VocabularyRule(token_pattern=r"[a-zA-Z]"),
]


def vectorizer(rule: VocabularyRule) -> CountVectorizer:
    return CountVectorizer(
        lowercase=rule.lowercase, token_pattern=rule.token_pattern, max_features=rule.max_size
    )


def learn(texts: list[str | None], rule: VocabularyRule) -> tuple[str, ...]:
    return choose_words(count_tokens(pa.array(texts, pa.string()), rule), rule)


def bags_of(
    texts: list[str | None], words: tuple[str, ...], rule: VocabularyRule
) -> list[dict[int, float]]:
    indices, counts = encode_bags(pa.array(texts, pa.string()), words, rule)
    assert (indices.type, counts.type) == (pa.list_(pa.int64()), pa.list_(pa.float32()))
    assert indices.null_count == counts.null_count == 0
    for row in indices.to_pylist():
        assert row == sorted(set(row)), "ascending, each once"
    return [
        dict(zip(*row, strict=True))
        for row in zip(indices.to_pylist(), counts.to_pylist(), strict=True)
    ]


def check_against_scikit(texts: list[str | None], rule: VocabularyRule) -> None:
    """The same words, and the same counts of them in each text."""
    known = ["" if text is None else text for text in texts]
    words = learn(texts, rule)
    judge = vectorizer(rule)
    if not words:
        with pytest.raises(ValueError, match="empty vocabulary"):
            judge.fit(known)
        return
    matrix = judge.fit_transform(known)
    assert words == tuple(judge.get_feature_names_out())
    assert bags_of(texts, words, rule) == [
        {index: float(count) for index, count in enumerate(row) if count}
        for row in matrix.toarray().tolist()
    ]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_words_and_bags_are_those_of_scikit_learn(rule: VocabularyRule) -> None:
    check_against_scikit([*TEXTS, None], rule)


@given(texts=TEXT, rule=st.sampled_from([rule for rule in RULES if rule.token_pattern != r"\S+"]))
def test_words_and_bags_of_any_texts_are_those_of_scikit_learn(
    texts: list[str | None], rule: VocabularyRule
) -> None:
    check_against_scikit(texts, rule)


@given(texts=TEXT, max_size=st.integers(1, 6))
def test_the_most_frequent_words_stay_as_in_scikit_learn(
    texts: list[str | None], max_size: int
) -> None:
    """scikit-learn takes any of the words that are met equally often; here the first by the alphabet stays."""
    rule = VocabularyRule(max_size=max_size)
    counts = count_tokens(pa.array(texts, pa.string()), rule)
    words = choose_words(counts, rule)
    by_frequency = sorted(counts, key=lambda word: (-counts[word], word))
    assert words == tuple(sorted(by_frequency[:max_size]))
    if counts:
        theirs = (
            vectorizer(rule)
            .fit(["" if text is None else text for text in texts])
            .get_feature_names_out()
        )
        assert sorted(counts[word] for word in words) == sorted(counts[word] for word in theirs)


def test_words_met_less_often_than_min_count_are_left_out() -> None:
    counts = Counter({"often": 3, "twice": 2, "once": 1})
    assert choose_words(counts, VocabularyRule(min_count=2)) == ("often", "twice")
    assert choose_words(counts, VocabularyRule(min_count=4)) == ()


@given(texts=TEXT, cut=st.integers(0, 12))
def test_counts_of_parts_add_up(texts: list[str | None], cut: int) -> None:
    parts = (
        count_tokens(pa.array(part, pa.string()), DEFAULT) for part in (texts[:cut], texts[cut:])
    )
    assert sum(parts, Counter()) == count_tokens(pa.array(texts, pa.string()), DEFAULT)


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["the cat saw the dog"], [[1, 0, 1]]),
        (["dog", None, "", "dog dog cat"], [[], [], [], [0]]),
        ([], []),
    ],
)
def test_tokens_are_in_the_order_of_the_text_and_others_are_left_out(
    texts: list[str | None], found: list[list[int]]
) -> None:
    encoded = encode_tokens(pa.array(texts, pa.string()), ("cat", "the"), DEFAULT)
    assert encoded.type == pa.list_(pa.int64())
    assert encoded.to_pylist() == found


def test_unknown_tokens_have_an_index_where_the_words_hold_one() -> None:
    words = choose_words(
        Counter({"cat": 2, "the": 2, "dog": 1, UNKNOWN: 9}),
        VocabularyRule(max_size=2),
        unknown=True,
    )
    assert words == (UNKNOWN, "cat", "the"), "besides the two that were asked for, and once"
    assert encode_tokens(pa.array(["the cat saw the dog"]), words, DEFAULT).to_pylist() == [
        [2, 1, 0, 2, 0]
    ]


@given(texts=TEXT)
def test_tokens_are_those_that_scikit_learn_cuts(texts: list[str | None]) -> None:
    words = learn(texts, DEFAULT)
    analyze = vectorizer(DEFAULT).build_analyzer()
    encoded = encode_tokens(pa.array(texts, pa.string()), words, DEFAULT).to_pylist()
    assert [[words[index] for index in row] for row in encoded] == [
        analyze(text or "") for text in texts
    ]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["1.25 22", None, "1.25 22"], pa.large_string()),
        pa.array([b"1.25 22", None, b"1.25 22"], pa.binary()),
        pa.array(["1.25 22", None, "1.25 22"]).dictionary_encode(),
        pa.array(["no", "1.25 22", None, "1.25 22"])[1:],
    ],
    ids=["large_string", "binary", "dictionary", "slice"],
)
def test_texts_of_any_arrow_type_are_read(column: pa.Array) -> None:
    assert count_tokens(column, DEFAULT) == {"25": 2, "22": 2}
    assert encode_tokens(column, ("22", "25"), DEFAULT).to_pylist() == [[1, 0], [], [1, 0]]


def test_numbers_are_read_as_their_digits_and_bad_bytes_as_far_as_they_are_text() -> None:
    assert count_tokens(pa.array([123, None, 45]), DEFAULT) == {"123": 1, "45": 1}
    assert count_tokens(pa.array([None, None]), DEFAULT) == {}
    assert count_tokens(pa.array([b"good \xff\xfe text"]), DEFAULT) == {"good": 1, "text": 1}


def test_a_word_with_a_line_break_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'two\\nlines' holds a line break.*change token_pattern"):
        choose_words(Counter({"two\nlines": 1}), DEFAULT)


@pytest.mark.parametrize(
    ("pattern", "message"), [("(", "no regular expression"), ("(a)(b)", "2 groups")]
)
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_pattern(pattern)
