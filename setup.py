"""List the packages to install; all other metadata is in pyproject.toml.

Beam's `--setup_file` needs this file to install the packages on Dataflow workers.
"""

from setuptools import setup

setup(
    packages=[
        "pipelines",
        "pipelines.estimates",
        "pipelines.repairs",
        "schemas",
        "shardwright",
        "shardwright.cache",
        "shardwright.format",
        "shardwright.images",
        "shardwright.images.formats",
        "shardwright.inspect",
        "shardwright.reader",
        "shardwright.report",
        "shardwright.storage",
        "shardwright.tfdata",
        "shardwright.trainers",
        "transforms",
        "transforms.changes",
        "transforms.duplicates",
        "transforms.erasure",
        "transforms.features",
        "transforms.images",
        "transforms.inputs",
        "transforms.inputs.annotations",
        "transforms.inputs.archives",
        "transforms.inputs.arrays",
        "transforms.inputs.datasets",
        "transforms.inputs.embedded",
        "transforms.inputs.folders",
        "transforms.inputs.records",
        "transforms.inputs.tables",
        "transforms.inputs.tfrecords",
        "transforms.labels",
        "transforms.near_duplicates",
        "transforms.plan",
        "transforms.publish",
        "transforms.splits",
        "transforms.versions",
        "transforms.write",
    ],
    package_data={
        "pipelines.estimates": ["prices.toml"],
        "shardwright": ["py.typed"],
        "shardwright.report": ["page.js", "style.css"],
    },
)
