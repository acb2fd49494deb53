"""Encode texts as indices of a vocabulary, by the rules of scikit-learn's `CountVectorizer`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import UsageError
from shardwright.format.schema import VocabularyRule

_FLOAT = pa.float32()
UNKNOWN = "[UNK]"  # as in Keras's TextVectorization


def count_tokens(column: pa.Array, rule: VocabularyRule) -> Counter[str]:
    """Return how often each token of a column of strings occurs; null has no tokens."""
    counts: Counter[str] = Counter()
    tokenize = _tokenizer(rule)
    for item in pc.value_counts(column.drop_null()).to_pylist():
        counts.update(tokenize(item["values"]) * item["counts"])
    return counts


def choose_words(
    counts: Mapping[str, int], rule: VocabularyRule, *, unknown: bool = False
) -> tuple[str, ...]:
    """Return the `rule.max_size` most frequent words with `rule.min_count` occurrences, sorted.

    Ties of frequency are decided by the word.

    Args:
        counts: Occurrences of each token.
        rule: The vocabulary's limits.
        unknown: Prepend UNKNOWN, not counted in `rule.max_size`, for all other tokens.

    Raises:
        UsageError: A word contains a line break, which the vocabulary's file cannot hold.
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
            f"the word {broken!r} contains a line break, but a vocabulary has one word per line: "
            "change token_pattern"
        )
    return (UNKNOWN, *words) if unknown else tuple(words)


def encode_tokens(column: pa.Array, words: Sequence[str], rule: VocabularyRule) -> pa.Array:
    """Return the indices in `words` of each text's tokens, as list<int64> without nulls.

    Unknown tokens get the index of UNKNOWN, or are left out if `words` lacks it. A null text is [].
    """
    index_of = _index_of(words)
    tokenize, unknown = _tokenizer(rule), index_of.get(UNKNOWN)

    def encode(text: str) -> list[int]:
        if unknown is None:
            return [index_of[token] for token in tokenize(text) if token in index_of]
        return [index_of.get(token, unknown) for token in tokenize(text)]

    texts = column.dictionary_encode()
    return _spread(
        [encode(text) for text in texts.dictionary.to_pylist()], pa.int64(), texts.indices
    )


def encode_bags(
    column: pa.Array, words: Sequence[str], rule: VocabularyRule, counts: pa.DataType = _FLOAT
) -> tuple[pa.Array, pa.Array]:
    """Count the words of each text; other tokens are left out.

    Args:
        column: The texts.
        words: The vocabulary.
        rule: Its rules.
        counts: Type of the counts, float32 or int64.

    Returns:
        Ascending indices in `words` as list<int64>, and lists of counts. Both lists of a row have
        the same length; a null text is [].
    """
    index_of, tokenize = _index_of(words), _tokenizer(rule)
    texts = column.dictionary_encode()

    def bag_of(text: str) -> list[tuple[int, int]]:
        return sorted(
            (index_of[token], count)
            for token, count in Counter(tokenize(text)).items()
            if token in index_of
        )

    bags = [bag_of(text) for text in texts.dictionary.to_pylist()]
    indices = _spread([[index for index, _ in bag] for bag in bags], pa.int64(), texts.indices)
    return indices, _spread([[count for _, count in bag] for bag in bags], counts, texts.indices)


def check_pattern(pattern: str) -> re.Pattern[str]:
    """Return the compiled pattern of a rule.

    Raises:
        UsageError: It is not a regular expression, or has more than one group.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UsageError(
            f"token_pattern {pattern!r} is not a regular expression: {error}"
        ) from error
    if compiled.groups > 1:
        raise UsageError(
            f"token_pattern {pattern!r} has {compiled.groups} groups, but at most one can be the "
            "token: use (?:...) for the others"
        )
    return compiled


def check_words(words: Sequence[str], rule: VocabularyRule) -> None:
    """Check that texts can have the words of a vocabulary: others would be stored as no words.

    Raises:
        UsageError: The rule never makes a token of a word, or its pattern is invalid.
    """
    tokenize = _tokenizer(rule)
    for word in words:
        if word != UNKNOWN and tokenize(word) != [word]:
            raise UsageError(
                f"no text has the word {word!r}: token_pattern {rule.token_pattern!r} with "
                f"lowercase={rule.lowercase} finds {tokenize(word)} in it: change the rule or the "
                "word"
            )


def _tokenizer(rule: VocabularyRule) -> Callable[[str], list[str]]:
    find = check_pattern(rule.token_pattern).findall
    return (lambda text: find(text.lower())) if rule.lowercase else find


def _index_of(words: Sequence[str]) -> dict[str, int]:
    return {word: index for index, word in enumerate(words)}


def _spread(lists: Sequence[Sequence[float]], kind: pa.DataType, indices: pa.Array) -> pa.Array:
    """Return one list per row, by the number of its text; [] for null."""
    every = pa.array([*lists, []], pa.list_(kind))
    return every.take(pc.fill_null(indices, len(lists)))
