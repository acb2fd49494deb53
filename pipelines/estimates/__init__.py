"""Estimate requests, time, memory and cost of a build, for `shardwright plan --estimate`."""
