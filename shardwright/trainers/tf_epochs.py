"""The number of each epoch, inside a tf.data pipeline.

tf.data has no counter that tells a dataset how often it has been iterated; but `RandomDatasetV2` gives another number in each
iteration, the same ones in every run, and an iterator's checkpoint knows where in them it is. So an epoch is numbered by
looking up which of these numbers it has got. That holds for `repeat()`, for several iterations of one dataset, and for an
iterator restored in another process, without a variable that would have to be saved beside it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

NUM_NUMBERED = 4096
_SEEDS = (0x5EED, 0xE90C)  # of the tokens alone: no seed of the user's changes which epoch is which


def epoch_numbers() -> tf.data.Dataset:
    """One element, int64 []: how often this dataset has been iterated before.

    From the 4,097th iteration on it is a number far above, another one each time and the same ones in every run.
    """
    tokens, numbers = _numbered_tokens()

    def number_of(token: tf.Tensor) -> tf.Tensor:
        at = tf.minimum(
            tf.searchsorted(tf.constant(tokens), token[tf.newaxis])[0], NUM_NUMBERED - 1
        )
        return tf.where(
            tf.gather(tokens, at) == token, tf.gather(numbers, at), NUM_NUMBERED + token
        )

    return _tokens().map(number_of)


def _tokens() -> tf.data.Dataset:
    """One element, int64 [], below 2**63: another one in each iteration."""
    seed, seed2 = _SEEDS
    # `tf.data.Dataset.random` would mix in `tf.random.set_seed`.
    variant = tf.raw_ops.RandomDatasetV2(
        seed=seed,
        seed2=seed2,
        seed_generator=tf.raw_ops.DummySeedGenerator(),
        output_types=[tf.int64],
        output_shapes=[tf.TensorShape(())],
        rerandomize_each_iteration=True,
    )
    halves: Any = tf.data.experimental.from_variant(
        variant, tf.TensorSpec((), tf.int64)
    )  # of 32 bits each
    return halves.take(2).batch(2, drop_remainder=True).map(lambda half: half[0] * 2**31 + half[1])


@cache
def _numbered_tokens() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The tokens of the first epochs in ascending order, and the epochs' numbers in the order of their tokens."""
    tokens = _tokens().repeat(NUM_NUMBERED).batch(NUM_NUMBERED).get_single_element().numpy()
    order = np.argsort(tokens)
    return tokens[order], order.astype(np.int64)
