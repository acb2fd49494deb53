"""Read a dataset: compute any batch from its position.

reader          `Reader`, the public class: position and iteration (`iteration`); arguments
(`options`)
engine          position -> batch, stateless
steps           positions of global batches, and each host's part; `state`: a saved position
places          position -> (shard, row), by an order: `order` with `permutation`, `sampling`;
`orders` chooses
corpus          the shards to read: `subsets` of splits; `selection` of their records
record_reader   (shard, row) -> verified bytes, by `shard_index` and `shard_files`
batches         bytes -> arrays, by `columns` and their encodings, and by `shardwright.images`
"""

from shardwright.reader.class_encodings import MultiHot, OneHot
from shardwright.reader.encodings import Encoding, RawTensor, Text
from shardwright.reader.list_encodings import Dense, Sparse
from shardwright.reader.reader import Reader
from shardwright.reader.record_reader import BadRecord
from shardwright.reader.sampling import ClassBalanced, ClassWeights, RecordWeights
from shardwright.reader.values import SparseColumn

__all__ = [
    "BadRecord",
    "ClassBalanced",
    "ClassWeights",
    "Dense",
    "Encoding",
    "MultiHot",
    "OneHot",
    "RawTensor",
    "Reader",
    "RecordWeights",
    "Sparse",
    "SparseColumn",
    "Text",
]
