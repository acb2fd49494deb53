"""Detect the input format: offer INPUT to each known format in turn."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from importlib import metadata

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.format.schema import FeatureKind
from shardwright.storage.addresses import absolute, is_remote
from shardwright.storage.folder import Folder
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from transforms.inputs.input_files import has_wildcard
from transforms.inputs.source import InputSource, SourceFormat, SourceRequest
from transforms.rejects import Reject

ENTRY_POINTS = "shardwright.sources"


@functools.cache
def known_formats() -> Mapping[str, SourceFormat]:
    """Return every installed format by name, in the order in which they are tried.

    Raises:
        UsageError: A package's format cannot be loaded.
    """
    formats = []
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        try:
            formats.append((entry.name, entry.load()()))
        except Exception as error:  # third-party code may raise anything at import
            raise UsageError(
                f"the input format {entry.name!r} ({entry.value}) cannot be loaded: {error}"
            ) from error
    return dict(sorted(formats, key=lambda item: (item[1].rank, item[0])))


def detect_source(
    uri: str,
    columns: Mapping[str, str | None],
    *,
    argument: str = "INPUT",
    storage: StorageOptions = NO_OPTIONS,
    input_format: str | None = None,
    image_root: str | None = None,
    spool: Folder | None = None,
    kinds: Mapping[str, FeatureKind] | None = None,
) -> InputSource:
    """Detect the format of INPUT and return its source.

    Args:
        uri: The INPUT argument.
        columns: Role -> column given by an option, or None.
        argument: The argument's name in messages.
        storage: Options of its store.
        input_format: The format to use, without detection.
        image_root: The folder that relative image paths start from; None for the format's rule.
        spool: A folder for bytes that cannot be read in place.
        kinds: Column -> kind of the feature that `--schema` fills from it.

    Raises:
        UsageError: INPUT does not exist, its format is unknown, or an option does not fit it.
        BuildError: A table cannot be read.
        StorageError: The store does not respond.
    """
    request = make_request(
        uri,
        columns,
        argument=argument,
        storage=storage,
        image_root=image_root,
        spool=spool,
        kinds=kinds,
    )
    if input_format is not None:
        return _open_forced(request, input_format)
    return _open_first(request, uri)


def make_request(
    uri: str,
    columns: Mapping[str, str | None],
    *,
    argument: str = "INPUT",
    storage: StorageOptions = NO_OPTIONS,
    image_root: str | None = None,
    spool: Folder | None = None,
    kinds: Mapping[str, FeatureKind] | None = None,
) -> SourceRequest:
    """Return a checked request to offer to formats; arguments as for `detect_source`.

    Raises:
        UsageError: INPUT does not exist.
    """
    request = SourceRequest(
        absolute(uri),
        argument,
        columns,
        storage,
        image_root and absolute(image_root),
        spool,
        kinds or {},
    )
    _check_path(request, uri)
    return request


def _open_first(request: SourceRequest, written: str) -> InputSource:
    """Return the source of the first format that recognizes INPUT."""
    for known in known_formats().values():
        found = known.open(request, forced=False)
        if found is not None:
            return found
    if has_wildcard(written):
        raise UsageError(
            f"{request.argument} {written} matches no file of a known format: check its spelling; "
            "for images, give their folder"
        )
    endings = ", ".join(f"{known.name} ({known.summary})" for known in known_formats().values())
    raise UsageError(
        f"{request.argument} {written} has an unknown format; known formats: {endings}"
    )


def _open_forced(request: SourceRequest, input_format: str) -> InputSource:
    if input_format not in known_formats():
        raise UsageError(
            f"--input-format {input_format!r} is unknown: "
            f"choose one of {', '.join(known_formats())}"
        )
    found = known_formats()[input_format].open(request, forced=True)
    if found is None:
        raise UsageError(
            f"{request.argument} {request.uri} cannot be read as {input_format}: "
            "omit --input-format to detect the format"
        )
    return found


def _check_path(request: SourceRequest, written: str) -> None:
    try:
        request.uri.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the path of {request.argument} {request.uri!r} is not UTF-8: "
            "rename its folder, or link to it"
        ) from error
    if is_remote(request.uri) or has_wildcard(request.uri):
        return
    if not os.path.exists(request.uri):
        raise UsageError(f"{request.argument} {written} does not exist")
    if not os.path.isdir(request.uri) and not os.path.isfile(request.uri):
        raise UsageError(f"{request.argument} {written} is neither a folder nor a file")


def list_source(source: InputSource) -> Iterator[pa.RecordBatch | Reject]:
    """Yield all references of a source, in batches, and its rejects."""
    for part in source.parts():
        yield from source.list_part(part)
