"""Report the labels and masks that formats of images alone would leave unread."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator
from itertools import islice

from shardwright.errors import UsageError
from shardwright.transforms.inputs.companions import KIND_FOLDERS, Companions
from shardwright.transforms.inputs.file_rules import extension_of
from shardwright.transforms.inputs.source import SourceRequest

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
