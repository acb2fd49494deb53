"""The reader's cache: local copies of remote shards, shared by processes (see `shard_cache`)."""

from shardwright.cache.pins import PinnedShard
from shardwright.cache.settings import CacheSettings
from shardwright.cache.shard_cache import ShardCache

__all__ = ["CacheSettings", "PinnedShard", "ShardCache"]
