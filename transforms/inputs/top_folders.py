"""Decide whether top folders are splits or classes, and whether names state splits."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence

from shardwright.errors import UsageError
from shardwright.storage.addresses import redact
from shardwright.transforms.inputs.file_rules import SPLIT_FOLDERS
from shardwright.transforms.inputs.source import SourceRequest

# Among as many folders, one called `train` or `test` is a class like the others, such as a vehicle.
_MANY = 10
_SHOWN = 5  # names in a message
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


def split_folders_of(
    request: SourceRequest,
    names: Sequence[str],
    *,
    has_loose: bool,
    is_nested: Callable[[str], bool],
) -> tuple[str, ...]:
    """Return the top folders if they are splits, () if they are classes.

    They are splits if all have names such as `train`, and classes if none has. If some have, they
    are classes only if one split alone is named among many folders, and images lie in its folder.

    Args:
        request: The request for INPUT, perhaps with `--top-folders`.
        names: The names of the top folders.
        has_loose: True if images lie beside them.
        is_nested: Returns whether a top folder has folders in it.

    Raises:
        UsageError: They may be splits or classes; or `--top-folders` is given and there are none.
    """
    if request.top_folders is not None:
        if not names:
            raise UsageError(
                f"--top-folders {request.top_folders}: {request.argument} {request.uri} has no "
                "folders with images"
            )
        return tuple(names) if request.top_folders == "splits" else ()
    exact = [name for name in names if name.lower() in SPLIT_FOLDERS]
    if len(exact) == len(names) and not has_loose:
        return tuple(names)
    is_few = len(names) < _MANY
    named = [name for name in (names if is_few else exact) if _splits_in(name)]
    splits = {split for name in named for split in _splits_in(name)}
    if len(splits) > 1 or (exact and (is_few or any(map(is_nested, exact)))):
        others = [name for name in names if name not in named]
        others += ["images"] * has_loose
        beside = f" beside {shown(others)}" if others else ""
        command = f"shardwright build {shlex.quote(redact(request.uri))} OUTPUT --top-folders"
        raise UsageError(
            f"{request.argument} {request.uri} has {shown(named)}{beside}, so its top folders may "
            f"be splits or classes. If they are splits, which hold class folders: `{command} "
            f"splits`. If they are classes: `{command} classes`"
        )
    return ()


def names_state_splits(request: SourceRequest, parts: Mapping[str, str | None]) -> bool:
    """Return whether the names of all parts of INPUT state their splits.

    Args:
        request: The request for INPUT.
        parts: Name -> the split that it states, or None.

    Raises:
        UsageError: Some names state a split other than train, and some state none, so that the
            images of all would be in one.
    """
    others = [name for name, split in parts.items() if split is None]
    if others and {*parts.values()} - {None, "train"}:
        named = [name for name, split in parts.items() if split is not None]
        raise UsageError(
            f"{request.argument} {request.uri} has {shown(named)}, whose names state splits, "
            f"beside {shown(others)}, without a split: move or rename what is in no split, or give "
            "only the others as INPUT, for example by a wildcard"
        )
    return bool(parts) and not others


def _splits_in(name: str) -> set[str]:
    """Return the splits among the words of a name, such as "seg_train", "train2017" or "testA"."""
    words = map(str.lower, _WORD.findall(name))
    return {SPLIT_FOLDERS[word] for word in words if word in SPLIT_FOLDERS}


def shown(names: Sequence[str]) -> str:
    """Return the first names for a message."""
    return ", ".join([*names[:_SHOWN], *["..."] * (len(names) > _SHOWN)])


def rule_of_labels(split_folders: Sequence[str], whole: str = "INPUT") -> str:
    """Return where labels come from: the top folders, or those below the split folders."""
    if not split_folders:
        return f"the folders of {whole}"
    *others, last = (f"{name}/" for name in split_folders)
    return f"the folders below {' and '.join([*filter(None, [', '.join(others)]), last])}"
