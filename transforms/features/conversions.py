"""Convert values to the type that their feature stores, and find misfits.

Integers and booleans become int64, and floats float32: the types of TensorFlow's tf.Example guide.
Texts become indices of a vocabulary, by the rules of scikit-learn's `CountVectorizer`.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import UsageError
from shardwright.format.schema import Feature, FeatureKind, VocabularyRule
from shardwright.transforms.features.lists import (
    BYTES_TYPES,
    Mask,
    is_any,
    is_number,
    null_rows,
    null_where,
    to_texts,
)
from shardwright.transforms.rejects import RejectReason

_INTEGER_RANGES = {
    name: (int(np.iinfo(name).min), int(np.iinfo(name).max))
    for name in ("int8", "int16", "int32", "uint8", "uint16", "uint32")
}
_INT64 = (-(2**63), 2**63 - 1)
_INTEGER_RANGES |= {"": _INT64, "int64": _INT64, "uint64": (0, 2**63 - 1), "bool": (0, 1)}
_MAX_FLOAT32 = float(np.finfo(np.float32).max)
_BFLOAT16_MAX = 3.3895313892515355e38
_FLOAT_LIMITS = {
    "": _MAX_FLOAT32,
    "float32": _MAX_FLOAT32,
    "float64": _MAX_FLOAT32,
    "float16": 65504.0,
    "bfloat16": _BFLOAT16_MAX,
}
INTEGER_DTYPES, FLOAT_DTYPES = frozenset(_INTEGER_RANGES), frozenset(_FLOAT_LIMITS)

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.ASCII)
_NO_NUMBER = re.compile("[+-]?(nan|inf|infinity)")
_TRUTH = {"true": "1", "false": "0"}


def to_integers(values: pa.Array, dtype: str) -> tuple[pa.Array, Mask]:
    """Return values as int64, and a mask of values that do not fit `dtype`; nulls stay null."""
    low, high = _INTEGER_RANGES[dtype]
    kind = values.type
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int64())
    elif pa.types.is_floating(kind):
        return _whole_numbers(values, low, high)
    elif not pa.types.is_integer(kind):
        return _each(values, lambda value: _to_integer(value, low, high), pa.int64())
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    bad = np.asarray((numbers < low) | (numbers > high))
    return null_where(values, bad).cast(pa.int64()), bad


def to_floats(values: pa.Array, dtype: str) -> tuple[pa.Array, Mask]:
    """Return values as rounded float32, and a mask of invalid ones; nulls stay null.

    A value is invalid if it is not a number, or finite and too large for `dtype`.
    """
    limit = _FLOAT_LIMITS[dtype]
    kind = values.type
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif not is_number(kind):
        values, bad = _each(values, _to_float, pa.float64())
        return values.cast(pa.float32(), safe=False), bad | _too_large(values, limit)
    doubles = values.cast(pa.float64(), safe=False)
    bad = _too_large(doubles, limit)
    return null_where(doubles, bad).cast(pa.float32(), safe=False), bad


def _whole_numbers(values: pa.Array, low: int, high: int) -> tuple[pa.Array, Mask]:
    numbers = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    # 2**63 - 1 has no exact float: the next one up is 2**63, which does not fit.
    bad = (
        ~np.isfinite(numbers)
        | (numbers != np.trunc(numbers))
        | (numbers < low)
        | (numbers >= float(high) + (high < 2**53))
    )
    whole = np.where(bad, 0, numbers).astype(np.int64)
    return pa.array(whole, mask=null_rows(values)), np.asarray(bad)


def _too_large(values: pa.Array, limit: float) -> Mask:
    numbers = np.abs(values.fill_null(0.0).to_numpy(zero_copy_only=False))
    return np.asarray((numbers > limit) & (numbers < np.inf))


def _each(
    values: pa.Array, convert: Callable[[Any], Any], kind: pa.DataType
) -> tuple[pa.Array, Mask]:
    """Convert each distinct value once; a None from `convert` marks a bad value."""
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind), np.zeros(len(values), bool)
    encoded = values.dictionary_encode()
    converted = [convert(value) for value in encoded.dictionary.to_pylist()]
    result = pa.array(converted, kind).take(encoded.indices)
    bad = pc.and_(result.is_null(), values.is_valid())
    return result, bad.to_numpy(zero_copy_only=False)


def _to_integer(value: Any, low: int, high: int) -> int | None:
    text = _text_of(value)
    if not _NUMBER.fullmatch(text):
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:  # an exponent of more than 18 digits
        return None
    # Before the integer is made: 1e999999 would take all memory.
    if number.adjusted() > 20 or number != number.to_integral_value():
        return None
    return int(number) if low <= int(number) <= high else None


def _to_float(value: Any) -> float | None:
    text = _text_of(value)
    if _NO_NUMBER.fullmatch(text):
        return float(text)
    number = float(text) if _NUMBER.fullmatch(text) else np.inf
    return None if np.isinf(number) else number  # float() turns numbers beyond float64 into inf


def _text_of(value: Any) -> str:
    """Return the text of a number; 1 for true, and 0 for false."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    text = text.strip().lower()
    return _TRUTH.get(text, text)


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


_LOG = logging.getLogger("shardwright.features")
# Of many random numbers a few become equal; of times in seconds, nearly all.
_LEAST_DISTINCT = 0.9
_told: set[str] = set()  # features of this process that were warned of


class Misfit(NamedTuple):
    """Rows whose value cannot be stored.

    Attributes:
        rows: The rows, bool [rows].
        reason: The typed reason.
        rule: The message after the feature's name; "{value}" stands for the value.
    """

    rows: Mask
    reason: RejectReason
    rule: str


def misfits_at(
    rows: Mask, rule: str, reason: RejectReason = RejectReason.BAD_VALUE
) -> list[Misfit]:
    return [Misfit(rows, reason, rule)] if rows.any() else []


def _integers(values: pa.Array, feature: Feature) -> tuple[pa.Array, list[Misfit]]:
    numbers, bad = to_integers(values, feature.dtype)
    told = {
        "": "a signed 64-bit integer",
        "uint64": "uint64 within the range of a signed 64-bit integer",
    }
    return numbers, misfits_at(
        bad, f"is {{value}}, which does not fit {told.get(feature.dtype, feature.dtype)}"
    )


def _floats(values: pa.Array, feature: Feature) -> tuple[pa.Array, list[Misfit]]:
    numbers, bad = to_floats(values, feature.dtype)
    _warn_of_rounding(values, numbers, feature)
    kind = feature.dtype if feature.dtype not in ("", "float32", "float64") else "a 32-bit float"
    return numbers, misfits_at(bad, f"is {{value}}, which does not fit {kind}")


def _warn_of_rounding(values: pa.Array, numbers: pa.Array, feature: Feature) -> None:
    """Warn, once in a process, of a column of which many different numbers become equal."""
    if not is_number(values.type) or feature.name in _told:
        return
    given = pc.count_distinct(values.filter(numbers.is_valid())).as_py()
    left = pc.count_distinct(numbers).as_py()
    if left < _LEAST_DISTINCT * given:
        _told.add(feature.name)
        _LOG.warning(
            "column %r: of %s different numbers %d %s left as 32-bit floats, the only ones of "
            "tf.Example: make them whole numbers, such as microseconds, or a TENSOR of float64",
            feature.column_name,
            f"{given:,}",
            left,
            "is" if left == 1 else "are",
        )


def _boxes(values: pa.Array, feature: Feature) -> tuple[pa.Array, list[Misfit]]:
    numbers, misfits = _floats(values, feature)
    corners = numbers.fill_null(0).to_numpy(zero_copy_only=False).reshape(-1, 4)
    ymin, xmin, ymax, xmax = corners.T
    inside = ((corners >= 0) & (corners <= 1)).all(1)
    bad = np.repeat(~inside | (ymin > ymax) | (xmin > xmax), 4)
    rule = (
        "is {value}; a box must be ymin, xmin, ymax, xmax as fractions from 0 to 1 of height and "
        "width, with ymin <= ymax and xmin <= xmax"
    )
    return numbers, misfits + misfits_at(bad, rule)


def _keypoints(values: pa.Array, feature: Feature) -> tuple[pa.Array, list[Misfit]]:
    numbers, misfits = _floats(values, feature)
    x, y, visibility = numbers.fill_null(0).to_numpy(zero_copy_only=False).reshape(-1, 3).T
    # Points may be outside of their image, but pixels given for fractions are far outside.
    near = (x >= -1) & (x <= 2) & (y >= -1) & (y <= 2)
    bad = np.repeat(~near | ~np.isin(visibility, (0, 1, 2)), 3)
    rule = (
        "is {value}; a keypoint must be x, y and visibility: x and y as fractions of width and "
        "height, and 0 for a point without a label, 1 for a hidden and 2 for a visible one"
    )
    return numbers, misfits + misfits_at(bad, rule)


def _texts(values: pa.Array, feature: Feature) -> tuple[pa.Array, list[Misfit]]:
    del feature
    is_bytes = is_any(values.type, BYTES_TYPES)
    return (values if is_bytes else values.cast(pa.string())).cast(pa.binary()), []


def _classes(values: pa.Array, feature: Feature) -> tuple[pa.Array, list[Misfit]]:
    """Return class names as texts.

    If names are given and none of them is a number, whole numbers are indices into them.
    """
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.string())
    if pa.types.is_floating(values.type):  # as pandas makes of a column with a gap
        numbers, bad = to_integers(null_where(values, pc.is_nan(values)), "")
        named, misfits = _classes(numbers, feature)
        return named, misfits + misfits_at(bad, "is {value}; a class is a text or a whole number")
    if not pa.types.is_integer(values.type):
        texts, bad = to_texts(values)
        return texts, misfits_at(bad, "is {value}, which is not UTF-8")
    numbers, bad = to_integers(values, "")
    misfits = misfits_at(bad, "is {value}, which does not fit a signed 64-bit integer")
    if not feature.names or any(name.lstrip("-").isdecimal() for name in feature.names):
        return numbers.cast(pa.string()), misfits
    indices = numbers.fill_null(0).to_numpy()
    outside = (indices < 0) | (indices >= len(feature.names))
    rule = f"is {{value}}; class indices must be at least 0 and below {len(feature.names)}"
    known = null_where(numbers, outside)
    return pa.array(feature.names, pa.string()).take(known), misfits + misfits_at(
        outside, rule, RejectReason.UNKNOWN_LABEL
    )


CONVERT: dict[FeatureKind, Callable[[pa.Array, Feature], tuple[pa.Array, list[Misfit]]]] = {
    FeatureKind.INT64: _integers,
    FeatureKind.FLOAT32: _floats,
    FeatureKind.BOX: _boxes,
    FeatureKind.KEYPOINTS: _keypoints,
    FeatureKind.TEXT: _texts,
    FeatureKind.BYTES: _texts,
    FeatureKind.CLASS_LABEL: _classes,
    FeatureKind.MULTI_LABEL: _classes,
}
