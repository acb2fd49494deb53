"""Erase records from every version of a dataset, with a receipt."""
