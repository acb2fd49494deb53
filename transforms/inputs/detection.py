"""What INPUT is, found by looking: each known format is asked in turn."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping
from importlib import metadata

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.schema import FeatureKind
from shardwright.storage import NO_OPTIONS, Folder, StorageOptions, absolute, is_remote
from transforms.inputs.source import InputSource, SourceFormat, SourceRequest
from transforms.rejects import Reject

ENTRY_POINTS = "shardwright.sources"
WILDCARD = re.compile(r"[*?\[]|\{[^{}]*(\.\.|,)[^{}]*\}")


@functools.cache
def known_formats() -> Mapping[str, SourceFormat]:
    """Every installed format by its name, in the order in which they are asked.

    Raises:
        UsageError: A package's format cannot be loaded; the message names it.
    """
    formats = []
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        try:
            formats.append((entry.name, entry.load()()))
        except Exception as error:  # whatever a package of others does at import
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
    """What INPUT is.

    Args:
        uri: The INPUT argument.
        columns: role -> column named by an option, or None.
        argument: What messages call it.
        storage: Options of the store that it is in.
        input_format: Take it for this, without looking.
        image_root: Where relative picture names start; None for the format's own rule.
        spool: Where bytes may be put that cannot be read in place.
        kinds: Column -> kind of the feature that `--schema` fills from it.

    Raises:
        UsageError: There is no such place or format, it is of none, or an option does not fit it.
        BuildError: A table that cannot be read.
        StorageError: A store that cannot be asked.
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
    for known in known_formats().values():
        found = known.open(request, forced=False)
        if found is not None:
            return found
    if has_wildcard(uri):
        raise UsageError(
            f"{argument} {uri} matches no file of a known form: see how it is spelled; of images, give the folder they are in"
        )
    endings = ", ".join(f"{known.name} ({known.summary})" for known in known_formats().values())
    raise UsageError(f"{argument} {uri} is of no known form: {endings}")


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
    """What formats are asked, checked as far as it can be without knowing a format; arguments are those of `detect_source`.

    Raises:
        UsageError: There is no such place.
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


def _open_forced(request: SourceRequest, input_format: str) -> InputSource:
    if input_format not in known_formats():
        raise UsageError(
            f"--input-format {input_format!r} is not known; give one of {', '.join(known_formats())}"
        )
    found = known_formats()[input_format].open(request, forced=True)
    if found is None:
        raise UsageError(
            f"{request.argument} {request.uri} cannot be read as {input_format}: leave --input-format out to see what it is"
        )
    return found


def _check_path(request: SourceRequest, written: str) -> None:
    try:
        request.uri.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the path of {request.argument} {request.uri!r} is not UTF-8: rename its folder, or link to it"
        ) from error
    if is_remote(request.uri) or has_wildcard(request.uri):
        return
    if not os.path.exists(request.uri):
        raise UsageError(f"{request.argument} {written} does not exist")
    if not os.path.isdir(request.uri) and not os.path.isfile(request.uri):
        raise UsageError(f"{request.argument} {written} is neither a folder nor a file")


def has_wildcard(uri: str) -> bool:
    """Whether it names several files by `*`, `?`, `[...]`, `{000..012}` or `{a,b}`, and is not a local path with such a name."""
    return WILDCARD.search(uri) is not None and (is_remote(uri) or not os.path.lexists(uri))


def list_source(source: InputSource) -> Iterator[pa.RecordBatch | Reject]:
    """All references of a source, in batches, and the rejects among them."""
    for part in source.parts():
        yield from source.list_part(part)
