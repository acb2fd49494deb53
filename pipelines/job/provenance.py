"""Describe the origin of a dataset for its manifest: command, inputs, time and versions."""

from __future__ import annotations

import functools
import platform
import shlex
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from shardwright.format.manifest import time_text
from shardwright.pipelines.options.build import BuildOptions
from shardwright.pipelines.runners.beam_options import runner_of
from shardwright.storage.addresses import HIDDEN, redact
from shardwright.storage.options import is_secret

_RECORDED_PACKAGES = (
    "shardwright",
    "apache-beam",
    "pyarrow",
    "tfx-bsl",
    "Pillow",
    "google-crc32c",
    "obstore",
)
_STORAGE = "--storage-option"


def provenance_of(options: BuildOptions) -> dict[str, Any]:
    return {
        **({"command": shown_command(options.command)} if options.command else {}),
        "input": options.input,
        "labels": options.labels,
        **({"split_ids": list(options.split_ids)} if options.split_ids else {}),
        "created": time_text(),
        "runner": runner_of(options.beam_args),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _RECORDED_PACKAGES},
    }


def shown_command(words: Sequence[str]) -> str:
    """Return a command line as one would type it, without its secrets."""
    return shlex.join(map(_shown, words, ["", *words]))


def _shown(word: str, earlier: str) -> str:
    """Return a word without its secret; `earlier` is the one before it."""
    option, equals, value = word.partition("=")
    if earlier == _STORAGE:
        return _setting(word)
    if option == _STORAGE and equals:
        return f"{_STORAGE}={_setting(value)}"
    if _is_secret(earlier) and not word.startswith("--"):
        return HIDDEN
    return f"{option}={HIDDEN}" if equals and _is_secret(option) else redact(word)


def _setting(text: str) -> str:
    """Return the KEY=VALUE of a store without its secret."""
    key, _, _ = text.partition("=")
    return f"{key}={HIDDEN}" if is_secret(key) else redact(text)


def _is_secret(option: str) -> bool:
    """Return whether an option's value is secret; False for one that has its value already."""
    return (
        option.startswith("--")
        and "=" not in option
        and option != "--labels-key"
        and is_secret(option)
    )


@functools.cache  # it parses a file of metadata
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
