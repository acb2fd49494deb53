"""Refuse to overwrite a dataset that INPUT itself leads to, through links."""

from __future__ import annotations

import os
from collections.abc import Iterator

from shardwright.errors import UsageError
from shardwright.pipelines.options.build import BuildOptions
from shardwright.storage.addresses import absolute, is_remote
from shardwright.transforms.inputs.wildcards import has_wildcard, matching


def check_own_files(options: BuildOptions) -> None:
    """Check the links among the entries of INPUT if OUTPUT is to be overwritten.

    Raises:
        UsageError: One leads to a file or folder of OUTPUT.
    """
    source, output = absolute(options.input), options.root.uri
    if options.if_exists != "overwrite" or is_remote(source) or not os.path.isdir(output):
        return
    own = os.path.join(os.path.realpath(output), "")
    if has_wildcard(source):
        paths = [path for path, _ in matching(source, options.storage)]
        links = iter({os.path.dirname(path) for path in paths} | set(filter(os.path.islink, paths)))
    else:
        links = _links_below(source, set())
    for link in links:
        if os.path.join(real := os.path.realpath(link), "").startswith(own):
            raise UsageError(
                f"INPUT {options.input} leads to {real}, which is in OUTPUT {options.output} and "
                f"would be overwritten ({link}): choose another OUTPUT"
            )


def _links_below(folder: str, seen: set[str]) -> Iterator[str]:
    """Yield the links in a folder and in those below it; an entry that is no link costs nothing."""
    real = os.path.realpath(folder)
    if real in seen or not os.path.isdir(real):
        return
    seen.add(real)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                yield entry.path
            if entry.is_dir():
                yield from _links_below(entry.path, seen)
