"""Texts as indices of a vocabulary: counting tokens, choosing the words, encoding. As scikit-learn's `CountVectorizer` does it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import UsageError
from shardwright.schema import VocabularyRule

UNKNOWN = "[UNK]"  # as in Keras's TextVectorization


def count_tokens(column: pa.Array, rule: VocabularyRule) -> Counter[str]:
    """How often each token occurs in all texts together. A null has no tokens; what is no text is read as Arrow prints it."""
    counts: Counter[str] = Counter()
    tokenize = _tokenizer(rule)
    for item in pc.value_counts(_as_texts(column).drop_null()).to_pylist():
        counts.update(tokenize(item["values"]) * item["counts"])
    return counts


def choose_words(
    counts: Mapping[str, int], rule: VocabularyRule, *, unknown: bool = False
) -> tuple[str, ...]:
    """The vocabulary, sorted: of the words that occur `rule.min_count` times, the `rule.max_size` most frequent, ties by the word.

    Args:
        unknown: Put UNKNOWN before them, besides `rule.max_size`, as the word of all tokens that were not chosen.

    Raises:
        UsageError: A word holds a line break, which the vocabulary's file cannot.
    """
    known = [
        word
        for word, count in counts.items()
        if count >= rule.min_count and not (unknown and word == UNKNOWN)
    ]
    known.sort(key=lambda word: (-counts[word], word))
    words = sorted(known[: rule.max_size])
    broken = next((word for word in words if "\n" in word or "\r" in word), None)
    if broken is not None:
        raise UsageError(
            f"the word {broken!r} holds a line break, and a vocabulary is one word a line: change token_pattern"
        )
    return (UNKNOWN, *words) if unknown else tuple(words)


def encode_tokens(column: pa.Array, words: Sequence[str], rule: VocabularyRule) -> pa.Array:
    """The indices in `words` of each text's tokens, in the text's order: list<int64>, no nulls, [] for a null.

    A token that is no word has UNKNOWN's index where `words` has UNKNOWN, and is left out otherwise.
    """
    index_of = _index_of(words)
    tokenize, unknown = _tokenizer(rule), index_of.get(UNKNOWN)

    def encode(text: str) -> list[int]:
        if unknown is None:
            return [index_of[token] for token in tokenize(text) if token in index_of]
        return [index_of.get(token, unknown) for token in tokenize(text)]

    texts = _as_texts(column).dictionary_encode()
    return _spread(
        [encode(text) for text in texts.dictionary.to_pylist()], pa.int64(), texts.indices
    )


def encode_bags(
    column: pa.Array, words: Sequence[str], rule: VocabularyRule
) -> tuple[pa.Array, pa.Array]:
    """The words of each text and how often they occur there.

    Returns:
        Indices in `words`, ascending, list<int64>, and counts, list<float32>: of one length a row, no nulls, [] for a null.
        Tokens that are no words are left out.
    """
    index_of, tokenize = _index_of(words), _tokenizer(rule)
    texts = _as_texts(column).dictionary_encode()

    def bag_of(text: str) -> list[tuple[int, int]]:
        return sorted(
            (index_of[token], count)
            for token, count in Counter(tokenize(text)).items()
            if token in index_of
        )

    bags = [bag_of(text) for text in texts.dictionary.to_pylist()]
    indices = _spread([[index for index, _ in bag] for bag in bags], pa.int64(), texts.indices)
    return indices, _spread(
        [[count for _, count in bag] for bag in bags], pa.float32(), texts.indices
    )


def check_pattern(pattern: str) -> re.Pattern[str]:
    """The compiled pattern of a rule.

    Raises:
        UsageError: It is no regular expression, or has more than one group.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"token_pattern {pattern!r} is no regular expression: {error}") from error
    if compiled.groups > 1:
        raise UsageError(
            f"token_pattern {pattern!r} has {compiled.groups} groups, and one at most can be the token: write (?:...) instead"
        )
    return compiled


def _tokenizer(rule: VocabularyRule) -> Callable[[str], list[str]]:
    find = check_pattern(rule.token_pattern).findall
    return (lambda text: find(text.lower())) if rule.lowercase else find


def _index_of(words: Sequence[str]) -> dict[str, int]:
    return {word: index for index, word in enumerate(words)}


def _as_texts(column: pa.Array) -> pa.Array:
    """The column as strings; bytes that are not UTF-8 are read as far as they are."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return pa.array(
            [
                None if value is None else value.decode("utf-8", "replace")
                for value in column.to_pylist()
            ],
            pa.string(),
        )
    return column.cast(pa.string())


def _spread(lists: Sequence[Sequence[float]], kind: pa.DataType, indices: pa.Array) -> pa.Array:
    """One list a row, by the number of its text; [] where there is none."""
    every = pa.array([*lists, []], pa.list_(kind))
    return every.take(pc.fill_null(indices, len(lists)))
