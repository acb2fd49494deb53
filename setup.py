"""Packages by allow-list; everything else is in pyproject.toml. Dataflow workers install from this file."""

from setuptools import setup

setup(
    packages=[
        "shardwright",
        "shardwright.cache",
        "shardwright.images",
        "shardwright.reader",
        "shardwright.storage",
        "shardwright.trainers",
        "pipelines",
        "transforms",
        "transforms.features",
        "transforms.images",
        "transforms.inputs",
        "schemas",
    ],
    package_data={"shardwright": ["py.typed"]},
)
