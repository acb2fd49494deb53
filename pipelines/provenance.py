"""Describe the origin of a dataset for its manifest: inputs, time, Python and packages."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from pipelines.options import BuildOptions
from pipelines.runners import runner_of

_RECORDED_PACKAGES = (
    "shardwright",
    "apache-beam",
    "pyarrow",
    "tfx-bsl",
    "Pillow",
    "google-crc32c",
    "obstore",
)


def provenance_of(options: BuildOptions) -> dict[str, Any]:
    return {
        "input": options.input,
        "labels": options.labels,
        **({"split_ids": list(options.split_ids)} if options.split_ids else {}),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "runner": runner_of(options.beam_args),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _RECORDED_PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
