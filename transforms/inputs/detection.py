"""Detect the input format, and report labels and masks that formats of images leave unread.

INPUT is offered to each known format in turn.
"""

from __future__ import annotations

import functools
import logging
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from importlib import metadata
from itertools import islice

from shardwright.errors import UsageError
from shardwright.storage.addresses import is_remote
from shardwright.transforms.inputs.file_rules import KIND_FOLDERS, Companions, extension_of
from shardwright.transforms.inputs.folder_contents import fixed_folder, has_wildcard
from shardwright.transforms.inputs.input_files import FilesSource, checked
from shardwright.transforms.inputs.source import (
    InputSource,
    SourceRequest,
)

LIST_BYTES = 1 << 16  # read of a file that may name images
_LOG = logging.getLogger("shardwright.inputs")
_CONVERT = "export them as COCO, Pascal VOC or YOLO, or give a table with --labels"
# Extension of a file with an image's labels -> what reads it; others may be raw images.
_LABELS = {
    "json": _CONVERT,
    "txt": f"give --input-format yolo, {_CONVERT}",
    "xml": f"give --input-format voc, {_CONVERT}",
}
# Extension of a file that may name images -> what reads it.
_LISTS = {
    **dict.fromkeys(("csv", "tsv", "jsonl", "ndjson"), "give it as INPUT, or with --labels"),
    **dict.fromkeys(("json", "txt", "xml"), _CONVERT.replace("them", "it", 1)),
}
_MOST_LISTS = 16  # read in detection
_SEPARATORS = re.compile(r"[\"'<>,;|=/\\\t\r\n]+")
_LEAST_STEM = 8  # characters; shorter stems are also words and numbers


def may_be_list(path: str) -> bool:
    """Return whether a file may name images, by its extension."""
    return extension_of(path) in _LISTS


def refuse_unread(
    request: SourceRequest,
    found: Companions,
    name: str,
    labels: Collection[str | None],
    start_of: Callable[[str], bytes],
    *,
    fix: str = "",
) -> None:
    """Log the companions that a format of images alone leaves unread.

    Args:
        request: The request for INPUT.
        found: The companions of its images.
        name: The format's name.
        labels: The labels that images have by their folders.
        start_of: Returns the first `LIST_BYTES` of a file.
        fix: What reads the companions, if `--input-format` does not.

    Raises:
        UsageError: Masks would become images, or a folder such as images/ a class.
    """
    where, leave_out = f"{request.argument} {request.uri}", f"give --input-format {name}"
    if found.masks:
        raise UsageError(
            f"{where} has {_count(found, len(found.masks))} images that are masks of others by "
            f"their names, such as {found.masks[0]}: for segmentation, give a table with the "
            "columns image and mask, and --schema segmentation; for images alone, give their "
            f"folder as INPUT. If they are no masks, {leave_out}"
        )
    unread = " and ".join(_unread(request, found, start_of, fix))
    kinds = sorted({label for label in labels if label and label.lower() in KIND_FOLDERS})
    if unread and kinds and "--labels" not in request.read_elsewhere.values():
        raise UsageError(
            f"{where} has {unread}. Without them, the classes would be the folders "
            f"{', '.join(kinds)}; to leave them out, {leave_out}"
        )
    if unread:
        _LOG.warning("%s has %s; to leave them out, %s", where, unread, leave_out)


def _unread(
    request: SourceRequest, found: Companions, start_of: Callable[[str], bytes], fix: str
) -> Iterator[str]:
    """Yield each kind of companion with what reads it."""
    for extension, paths in sorted(found.named.items()):
        how = (fix or _LABELS[extension]) if extension in _LABELS else ""
        number = _count(found, len(paths))
        yield f"{number} .{extension} with names of images, which are not read{how and ': '}{how}"
    names = {path.rpartition("/")[2] for path in found.images}
    stems = {stem for name in names if len(stem := name.rpartition(".")[0]) >= _LEAST_STEM}
    lists = (
        path
        for path in filter(may_be_list, found.others)
        if f"{request.uri}/{path}" not in request.read_elsewhere
    )
    for path in islice(lists, _MOST_LISTS):
        text = start_of(path).decode("utf-8", "replace")
        plain = text.split()  # a list may have a class or more paths after each name
        words = {*map(str.strip, _SEPARATORS.split(text)), *plain}
        words |= {*_SEPARATORS.split("\n".join(plain))}
        if not (words.isdisjoint(names) and words.isdisjoint(stems)):
            yield f"{path}, which names images and is not read: {fix or _LISTS[extension_of(path)]}"


def _count(found: Companions, number: int) -> str:
    return f"{number:,}" if found.is_whole else f"at least {number:,}"


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
