"""List the packages to install; all other metadata is in pyproject.toml.

`shardwright` is the only name that is installed, because users have modules called `transforms`.
The application's folders stand at the top of the repository; links in `shardwright/` lead to them.

Beam's `--setup_file` needs this file to install the packages on Dataflow workers.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "shardwright.images._region",
            ["shardwright/images/_region/region.c"],
            depends=["shardwright/images/_region/jpeg62.h"],
            extra_compile_args=["-O3"],
            py_limited_api=True,  # one wheel for CPython 3.11 and later
            optional=True,  # without a compiler the package installs all the same
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
    packages=[
        "shardwright",
        "shardwright.cache",
        "shardwright.format",
        "shardwright.images",
        "shardwright.inspect",
        "shardwright.pipelines",
        "shardwright.pipelines.commands",
        "shardwright.pipelines.job",
        "shardwright.pipelines.local",
        "shardwright.pipelines.options",
        "shardwright.pipelines.repairs",
        "shardwright.pipelines.runners",
        "shardwright.reader",
        "shardwright.report",
        "shardwright.schemas",
        "shardwright.storage",
        "shardwright.trainers",
        "shardwright.transforms",
        "shardwright.transforms.changes",
        "shardwright.transforms.duplicates",
        "shardwright.transforms.erasure",
        "shardwright.transforms.features",
        "shardwright.transforms.images",
        "shardwright.transforms.inputs",
        "shardwright.transforms.inputs.formats",
        "shardwright.transforms.labels",
        "shardwright.transforms.near_duplicates",
        "shardwright.transforms.plan",
        "shardwright.transforms.publish",
        "shardwright.transforms.splits",
        "shardwright.transforms.versions",
        "shardwright.transforms.write",
    ],
    include_package_data=False,  # the C files are in the sdist alone
    package_data={
        "shardwright": ["py.typed"],
        "shardwright.report": ["page.js", "style.css"],
    },
)
