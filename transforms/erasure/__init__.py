"""Erase records from a dataset: what is found of their ids, what else goes, and the receipt."""
