"""List the packages to install; all other metadata is in pyproject.toml.

Beam's `--setup_file` needs this file to install the packages on Dataflow workers.
"""

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
        "transforms.writing",
        "transforms.splitting",
        "transforms.publishing",
        "transforms.planning",
        "transforms.inputs.tfrecords",
        "transforms.inputs.tables",
        "transforms.inputs.folders",
        "transforms.inputs.embedded",
        "transforms.inputs.archives",
        "transforms.inputs.annotations",
        "schemas",
    ],
    package_data={"shardwright": ["py.typed"]},
)
