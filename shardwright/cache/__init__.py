"""The reader's cache: local copies of remote shards, shared by processes (see `shard_cache`)."""
