"""The reader's cache: whole shards of a dataset in a store, as local files that several processes share (see `shard_cache`)."""

from shardwright.cache.pins import PinnedShard
from shardwright.cache.settings import CacheSettings
from shardwright.cache.shard_cache import ShardCache

__all__ = ["CacheSettings", "PinnedShard", "ShardCache"]
