"""Mutation testing: a fixed list of small changes to the source that tests should notice."""
