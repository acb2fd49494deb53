"""Choose the order of a reader: stored, shuffled, sampled, or a mix of datasets."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shardwright.reader.corpus import Corpus
from shardwright.reader.options import ReaderOptions
from shardwright.reader.order import Order, ShuffledOrder, StoredOrder
from shardwright.reader.permutation import derive_key
from shardwright.reader.sampled_orders import MixedOrder, WeightedOrder
from shardwright.reader.sampling import ClassSampling, RecordWeights, order_classes
from shardwright.reader.selection import Selection, for_each_shard
from shardwright.reader.shard_index import labels_of, read_rows


def make_order(corpus: Corpus, selection: Selection, options: ReaderOptions, window: int) -> Order:
    """Return the order of a corpus.

    Args:
        window: Number of shards shuffled together; 0 for stored order.

    Raises:
        UsageError: The sampling does not fit the records.
        StorageError: An index cannot be read; only sampling reads any.
    """
    starts = corpus.source_starts
    spans = [range(start, stop) for start, stop in pairwise(starts)]
    if len(spans) == 1:
        return _make_one(corpus, selection, options, window, spans[0], options.seed)
    # With equal seeds, datasets of equal sizes would have equal orders.
    orders = [
        _make_one(corpus, selection, options, window, span, derive_key(options.seed, number))
        for number, span in enumerate(spans)
    ]
    sizes = [selection.sizes[span.start : span.stop] for span in spans]
    return MixedOrder.of(orders, sizes, list(options.datasets.values()), options.seed)


def _make_one(
    corpus: Corpus,
    selection: Selection,
    options: ReaderOptions,
    window: int,
    span: range,
    seed: int,
) -> Order:
    """Return the order of one dataset, its shards counted from its own first one."""
    sizes = selection.sizes[span.start : span.stop]
    sampling = options.sampling
    if isinstance(sampling, ClassSampling):
        labels = _gather(corpus, selection, span, labels_of, ["label"])
        return order_classes(
            sampling,
            labels.astype(np.int32),
            sizes,
            class_names=corpus.schema.class_names,
            seed=seed,
        )
    if isinstance(sampling, RecordWeights):
        return WeightedOrder.of(_gather(corpus, selection, span, sampling.weigh, None), sizes, seed)
    return ShuffledOrder(sizes, seed, min(window, len(sizes))) if window else StoredOrder(sizes)


def _gather(
    corpus: Corpus,
    selection: Selection,
    span: range,
    work: Callable[[pa.Table], NDArray[Any]],
    columns: list[str] | None,
) -> NDArray[Any]:
    """Return `work(rows)` of the selected records' index rows, joined over all shards."""

    def work_on(number: int) -> NDArray[Any]:
        rows = read_rows(corpus.shards[number], columns)
        return work(rows.take(pa.array(selection.rows_of(number))))

    return np.concatenate(for_each_shard(list(span), work_on))
