"""Packages by allow-list; everything else is in pyproject.toml. Dataflow workers install from this file."""

from setuptools import setup

setup(
    packages=["shardwright", "shardwright.cache", "shardwright.storage", "pipelines", "transforms", "schemas"],
    package_data={"shardwright": ["py.typed"]},
)
