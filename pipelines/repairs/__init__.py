"""Repair the broken files of a dataset from its sources."""
