"""Serve a dataset as a random-access data source for Grain.

    reader = sw.Reader("dataset/", global_batch_size=256, image=sw.TrainImage(224))
    dataset = grain.MapDataset.source(reader.grain()).shuffle(seed=0).repeat().batch(256)
    train = dataset.to_iter_dataset().mp_prefetch()

Grain's samplers, shuffles and loaders decide the order. Grain itself is not imported: any object
with a length and indexing is a source. Its worker processes need parsed absl flags: in a program
without `absl.app.run`, call `absl.flags.FLAGS.mark_as_parsed()`.
"""

from __future__ import annotations

from shardwright.reader.examples import ExampleSource
from shardwright.reader.reader import Reader


def as_grain(reader: Reader) -> ExampleSource:
    """Return a reader's records as a `grain.sources.RandomAccessDataSource`.

    Item `number`, from 0, is the record with that number in stored order: a dict of NumPy arrays
    and scalars, text as str. The reader's split, features, image, seed and `where` apply; Grain
    makes the batches and their order.

    The random part of an image, as of `TrainImage`, is drawn from (seed, number): it is the same
    in every epoch. To vary it by epoch, reproducibly and across resumes, let Grain draw it:

        grain.MapDataset.range(len(source)).shuffle(seed=0).repeat().random_map(
            lambda number, rng: source.example(number, draw=int(rng.integers(2**63))))

    Raises:
        UsageError: A feature is encoded as `Sparse`.
    """
    return ExampleSource(reader.options)
