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

import tensorflow as tf

# More epochs than trainings have; the table takes 500 KB.
NUM_NUMBERED = 4096
_SEEDS = (0x5EED, 0xE90C)  # for the tokens only: the user's seed does not change the numbering


def epoch_tokens() -> tf.data.Dataset:
    """Return a dataset of one element, int64 [] below 2**63, which `epoch_of` numbers."""
    pairs = _halves().batch(2, drop_remainder=True)
    # tf.data service with "distributed_epoch" divides what a source yields among its workers, but
    # random numbers are without end: each worker would get a pair, and read all records. The single
    # element here goes to one of them.
    single = tf.data.Dataset.from_tensors(0)
    return tf.data.Dataset.zip((pairs, single)).map(lambda pair, _: _token_of(pair))


def epoch_of(token: int) -> int:
    """Return the number of earlier iterations, when `epoch_tokens` yielded this token.

    From the 4,097th iteration on it is a far larger number, different in each iteration and the
    same in every run.
    """
    return _numbered_tokens().get(token, NUM_NUMBERED + token)


def _halves() -> tf.data.Dataset:
    """Return a dataset of the two halves of a token: random numbers of 32 bits, int64 []."""
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
    halves: Any = tf.data.experimental.from_variant(variant, tf.TensorSpec((), tf.int64))
    return halves.take(2)


def _token_of(pair: Any) -> Any:
    return pair[0] * 2**31 + pair[1]


@cache
def _numbered_tokens() -> dict[int, int]:
    """Return the number of each token of the first iterations."""
    # `repeat` iterates the halves again and again, just as the epochs of a pipeline will. That of
    # `epoch_tokens` would take a second: it makes a map, a zip and a batch for each epoch.
    halves = _halves().repeat(NUM_NUMBERED).batch(2 * NUM_NUMBERED).get_single_element().numpy()
    tokens = _token_of(halves.reshape(NUM_NUMBERED, 2).T)
    return {token: number for number, token in enumerate(tokens.tolist())}
