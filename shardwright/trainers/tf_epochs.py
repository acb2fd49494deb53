"""Number the epochs inside a tf.data pipeline.

tf.data does not tell a dataset how often it has been iterated. But `RandomDatasetV2` yields a new
number in each iteration, the same sequence in every run, and an iterator's checkpoint holds its
place in that sequence. So the epoch is the index of that number in the sequence. This works with
`repeat()`, with repeated iteration, and for an iterator restored in another process, and needs no
variable to be saved.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

# More epochs than trainings have; the two tables take 64 KB.
NUM_NUMBERED = 4096
_SEEDS = (0x5EED, 0xE90C)  # for the tokens only: the user's seed does not change the numbering


def epoch_numbers() -> tf.data.Dataset:
    """Return a dataset of one element, int64 []: the number of its earlier iterations.

    From the 4,097th iteration on the element is a far larger number, different in each iteration
    and the same in every run.
    """
    tokens, numbers = _numbered_tokens()

    def number_of(token: tf.Tensor) -> tf.Tensor:
        # Clipped: a token above all others is in no table, and the comparison finds that out.
        at = tf.minimum(
            tf.searchsorted(tf.constant(tokens), token[tf.newaxis])[0], NUM_NUMBERED - 1
        )
        return tf.where(
            tf.gather(tokens, at) == token, tf.gather(numbers, at), NUM_NUMBERED + token
        )

    return _tokens().map(number_of)


def _tokens() -> tf.data.Dataset:
    """Return a dataset of one element, int64 [] below 2**63, different in each iteration."""
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
    # Each number has 32 bits; two make a token.
    halves: Any = tf.data.experimental.from_variant(variant, tf.TensorSpec((), tf.int64))
    pairs = halves.take(2).batch(2, drop_remainder=True)
    # tf.data service with "distributed_epoch" divides what a source yields among its workers, but
    # random numbers are without end: each worker would get a pair, and read all records. The single
    # element here goes to one of them.
    single = tf.data.Dataset.from_tensors(0)
    return tf.data.Dataset.zip((pairs, single)).map(lambda half, _: half[0] * 2**31 + half[1])


@cache
def _numbered_tokens() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the tokens of the first epochs in ascending order, and the epoch of each."""
    # `repeat` iterates `_tokens` again and again, just as the epochs of a pipeline will.
    tokens = _tokens().repeat(NUM_NUMBERED).batch(NUM_NUMBERED).get_single_element().numpy()
    order = np.argsort(tokens)
    return tokens[order], order.astype(np.int64)
