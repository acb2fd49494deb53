"""`Reader.grain()`: a dataset as a random-access source of Grain, whose samplers, shuffles and loaders then decide the order.

    source = sw.Reader("dataset/", global_batch_size=256, image=sw.TrainImage(224)).grain()
    train = grain.MapDataset.source(source).shuffle(seed=0).repeat().batch(256).to_iter_dataset().mp_prefetch()

Grain itself is not imported: its sources are whatever has a length and gives items by number. Its processes want absl's flags to be
parsed: in a program without `absl.app.run`, call `absl.flags.FLAGS.mark_as_parsed()`.
"""

from __future__ import annotations

from shardwright.reader.examples import ExampleSource
from shardwright.reader.reader import Reader


def as_grain(reader: Reader) -> ExampleSource:
    """A reader's records as a `grain.sources.RandomAccessDataSource`.

    Item `number`, from 0, is the record with that number in the order they are stored in: a dict of NumPy arrays and scalars,
    texts as str. Of the reader its split, features, image, seed and `where` hold; batches and order are Grain's to make.

    A random image such as `TrainImage` is drawn from (seed, number), the same in every epoch of Grain's. For another one in each
    epoch let Grain draw, which repeats and resumes it as exactly:

        grain.MapDataset.range(len(source)).shuffle(seed=0).repeat().random_map(
            lambda number, rng: source.example(number, draw=int(rng.integers(2**63))))

    Raises:
        UsageError: A feature is encoded as `Sparse`.
    """
    return ExampleSource(reader.options)
