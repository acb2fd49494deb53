"""Read a dataset: compute any batch from its position.

reader          `Reader`, the public class: position and iteration (`iteration`); arguments
(`options`)
engine          position -> batch, stateless
steps           positions of global batches, and each host's part; `state`: a saved position
places          position -> (shard, row), by an order: `order` with `permutation`, `sampling`;
`orders` chooses
corpus          the shards to read: `subsets` of splits; `selection` of their records
record_reader   (shard, row) -> verified bytes, by `shard_index` and `shard_files`
batches         bytes -> arrays, by `columns` and their encodings, and by `shardwright.images`;
`object_lists` move with the image
"""
