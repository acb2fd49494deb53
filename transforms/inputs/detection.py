"""Detect the input format: offer INPUT to each known format in turn."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata

from shardwright.errors import UsageError
from shardwright.storage.addresses import is_remote
from shardwright.transforms.inputs.folder_contents import fixed_folder, has_wildcard
from shardwright.transforms.inputs.input_files import FilesSource, checked
from shardwright.transforms.inputs.source import (
    InputSource,
    SourceRequest,
)

ENTRY_POINTS = "shardwright.sources"


@functools.cache
def known_formats() -> Mapping[str, type[InputSource]]:
    """Return every installed format by name, in the order in which they are tried.

    Raises:
        UsageError: A package's format cannot be loaded.
    """
    formats = []
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        try:
            formats.append((entry.name, entry.load()))
        except Exception as error:  # third-party code may raise anything at import
            raise UsageError(
                f"the input format {entry.name!r} ({entry.value}) cannot be loaded: {error}"
            ) from error
    return dict(sorted(formats, key=lambda item: (item[1].rank, item[0])))


def detect_source(request: SourceRequest) -> InputSource:
    """Detect the format of INPUT, and return INPUT as its source.

    Raises:
        UsageError: INPUT does not exist, its format is unknown, or an option does not fit it.
        BuildError: A table cannot be read.
        StorageError: The store does not respond.
    """
    found = checked(request)
    refuse_image_options(request)
    formats, forced = known_formats(), request.input_format
    if forced is not None and forced not in formats:
        raise UsageError(
            f"--input-format {forced!r} is unknown: choose one of {', '.join(formats)}"
        )
    for name, known in formats.items() if forced is None else [(forced, formats[forced])]:
        source = known.look(found)
        if source is not None:
            if request.image is None and not known.reads_records:
                raise UsageError(
                    f"--schema has no image, and {request.argument} is {source.description}: give "
                    "a schema with an image, or a table, NumPy arrays or TFRecord files"
                )
            if request.top_folders is not None and not known.has_top_folders:
                raise UsageError(
                    f"--top-folders is for folders and archives of images, but {request.argument} "
                    f"is {source.description}: leave it out"
                )
            if isinstance(source, FilesSource):
                source.warn_of_unread()
            return replace(source, name=name, folders=_folders_of(found, source))
    endings = ", ".join(f"{name} ({known.summary})" for name, known in formats.items())
    problem = f"has an unknown format; known formats: {endings}"
    if request.forced:
        problem = f"cannot be read as {forced}: omit --input-format to detect the format"
    elif has_wildcard(request.uri):
        problem = "matches no file of a known format: check its spelling; for images, give their "
        problem += "folder"
    raise UsageError(f"{request.argument} {request.uri} {problem}")


def refuse_image_options(request: SourceRequest) -> None:
    """Raise an error for an option that says where images are, if the schema has none.

    Raises:
        UsageError: There is such an option.
    """
    if request.image is not None:
        return
    given = {f"--{role}-column": request.columns.get(role) for role in ("image", "size")}
    for option, value in {**given, "--image-root": request.image_root}.items():
        if value is not None:
            raise UsageError(
                f"{option} {value!r} is for images, and --schema has none: leave {option} out, or "
                "add a feature with the source image"
            )


def _folders_of(request: SourceRequest, source: InputSource) -> tuple[str, ...]:
    """Return the folders and files that images may be in; real paths if they are local."""
    uri = request.uri
    own = fixed_folder(uri) if has_wildcard(uri) else uri
    if not is_remote(own) and not os.path.isdir(own):
        own = os.path.dirname(own)
    spool = None if request.spool is None else request.spool.uri
    others = (request.image_root, source.label_paths_root, spool)
    found = (uri, own, *filter(None, others), *source.folders, *request.allow_outside)
    return tuple(dict.fromkeys(one if is_remote(one) else os.path.realpath(one) for one in found))
