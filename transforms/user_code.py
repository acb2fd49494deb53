"""Apply a user's function to each record, for `--transform package.module:function`.

`--transform path/to/file.py:function` loads a file, whatever other modules are called like it.

    def tiles(record: Record) -> list[Record]:
        tiles = enumerate(cut(record.pixels()))
        return [record.replace(image=tile, id=f"{record.id}#{n}") for n, tile in tiles]

The function returns one record, several, or None to drop it. An exception rejects the record with
its message. The function may run again for the same record, in another process, so it must be
deterministic and keep no state.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import inspect
import os
import sys
import tokenize
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from shardwright.errors import ImageFault, UsageError
from shardwright.transforms.images.pixels import decode_rgb
from shardwright.transforms.rejects import RejectReason

Picture = bytes | npt.NDArray[np.uint8]


class RejectRecord(Exception):  # noqa: N818 - names an action, as StopIteration does
    """An exception that a user's function raises to reject a record; its text is the detail."""


@dataclass(frozen=True, slots=True)
class Record:
    """The input and output of a user's function.

    Attributes:
        id: Unique in the dataset. Records made from one must begin with its id; if all of them
            have the same id, `#0`, `#1`, ... are appended.
        image: The image's bytes as read; or uint8 pixels [height, width] or
            [height, width, 1, 3 or 4], stored as `--encode` says, and as PNG with `keep`; None for
            a record without one.
        label: The class name, one of the dataset's, or None without labels.
        features: All other features by tf.Example key, as stored: int, float or bytes, or a list
            of one of them. No key of the schema may be missing.
        pictures: Additional images such as a mask, by feature name, in the forms of `image`; None
            for a missing one.
        uri: Where the image, or the row of a record without one, was read.
    """

    id: str
    image: Picture | None
    label: str | None = None
    features: dict[str, Any] = field(default_factory=dict)
    pictures: dict[str, Picture | None] = field(default_factory=dict)
    uri: str = ""

    def pixels(self) -> npt.NDArray[np.uint8]:
        """Return the image as upright uint8 [height, width, 3].

        Raises:
            ImageFault: The image cannot be decoded, or there is none.
        """
        if self.image is None:
            raise _fault("the record has no image")
        return self.image if isinstance(self.image, np.ndarray) else decode_rgb(self.image)

    def replace(self, **changes: Any) -> Record:
        """Return the record with some attributes changed."""
        return dataclasses.replace(self, **changes)


Transform = Callable[[Record], Record | Iterable[Record] | None]


@dataclass(frozen=True, slots=True)
class UserTransform:
    """A user's function by name, because functions travel to workers by name.

    Attributes:
        spec: `package.module:function`, or `file.py:function` without the folder of the file.
        digest: Hash of the module's source, so that a changed function makes new shards.
        path: Absolute path of the file; "" for a module.
    """

    spec: str
    digest: str
    path: str = ""

    @classmethod
    def find(cls, spec: str) -> UserTransform:
        """Import the function and hash the source of its module.

        Args:
            spec: `package.module:function` or `path/to/file.py:function`.

        Raises:
            UsageError: The module or the function does not exist, or its source is unreadable.
        """
        place, _, name = spec.rpartition(":")
        path = os.path.abspath(place) if place.endswith(".py") else ""
        # The folder does not count: the same file elsewhere makes the same dataset.
        spec = f"{os.path.basename(path)}:{name}" if path else spec
        function = _functions[spec, path] = _load(spec, path)
        try:
            digest = _source_digest(inspect.getmodule(function))
        except (OSError, TypeError) as error:
            raise UsageError(
                f"--transform {spec}: cannot read the source of its module, which the shards' "
                f"digests depend on: {error}"
            ) from error
        return cls(spec, digest, path)

    def apply(self, record: Record) -> list[Record]:
        """Return the records made from a record.

        Raises:
            ImageFault: The function returned no record or an invalid one, or it failed.
        """
        try:
            found = _loaded(self.spec, self.path)(record)
            results = [found] if isinstance(found, Record) else list(found or ())
        except RejectRecord as left_out:
            raise _fault(f"{self.spec}: {left_out}") from left_out
        except ImageFault:
            raise
        # SystemExit and KeyboardInterrupt, too: a user's function never ends the build, and signals
        # arrive in the main thread, which makes no records.
        except BaseException as error:
            raise _fault(f"{self.spec} failed: {type(error).__name__}: {error}") from error
        if not results:
            raise _fault(f"{self.spec} returned no record")
        return _checked(self.spec, record, results)


def apply_all(transforms: Sequence[UserTransform], record: Record) -> list[Record]:
    """Apply each function to the records that the one before it returned.

    Raises:
        ImageFault: As `UserTransform.apply`, for the whole record.
    """
    records = [record]
    for transform in transforms:
        records = [result for each in records for result in transform.apply(each)]
    return records


def _fault(detail: str) -> ImageFault:
    return ImageFault(detail, RejectReason.TRANSFORM)


def _checked(spec: str, given: Record, results: list[Record]) -> list[Record]:
    for result in results:
        if not isinstance(result, Record):
            raise _fault(f"{spec} returned a {type(result).__name__}; expected Record")
        if problem := _type_problem(result):
            raise _fault(f"{spec} returned {problem}")
        if not result.id.startswith(given.id):
            raise _fault(
                f"{spec} returned the id {result.id!r}, which must begin with {given.id!r}"
            )
    ids = [result.id for result in results]
    if len(results) > 1 and len(set(ids)) == 1:
        return [result.replace(id=f"{result.id}#{number}") for number, result in enumerate(results)]
    if len(set(ids)) < len(ids):
        raise _fault(
            f"{spec} returned equal ids: give each record its own id, or leave all ids unchanged"
        )
    return results


_PICTURE = bytes | np.ndarray | None
_TYPES: Mapping[str, Any] = {
    "id": str, "image": _PICTURE, "label": str | None, "features": dict, "pictures": dict,
}  # fmt: skip


def _type_problem(record: Record) -> str:
    """Return which attribute has a wrong type, or an empty string."""
    values = [(name, getattr(record, name), kind) for name, kind in _TYPES.items()]
    if isinstance(record.pictures, dict):
        values += [(f"pictures[{key!r}]", each, _PICTURE) for key, each in record.pictures.items()]
    for name, value, kind in values:
        if not isinstance(value, kind):
            expected = getattr(kind, "__name__", kind)
            return f"{name} of type {type(value).__name__}; expected {expected}"
    return ""


# By spec and path. `UserTransform.find` replaces an entry, so that a file edited within a process,
# such as a notebook, runs as its digest says.
_functions: dict[tuple[str, str], Transform] = {}


def _loaded(spec: str, path: str) -> Transform:
    if (spec, path) not in _functions:
        _functions[spec, path] = _load(spec, path)
    return _functions[spec, path]


@functools.cache  # a module is imported once, so its source then is the code that runs
def _source_digest(module: ModuleType | None) -> str:
    source = inspect.getsource(module) if module is not None else ""
    return hashlib.blake2b(source.encode(), digest_size=16).hexdigest()


def _load(spec: str, path: str) -> Transform:
    module_name, _, name = spec.rpartition(":")
    if not module_name or not name:
        raise UsageError(
            f"--transform {spec!r} is not a function; expected package.module:function "
            "or path/to/file.py:function"
        )
    function: Any = _import_file(spec, path) if path else _import_module(spec, module_name)
    # A method of a class, too.
    for part in name.split("."):
        function = getattr(function, part, None)
    if not callable(function):
        raise UsageError(f"--transform {spec}: {module_name} has no function {name!r}")
    found: Transform = function
    return found


def _import_module(spec: str, name: str) -> ModuleType:
    if name.partition(".")[0] == "shardwright":
        raise UsageError(
            f"--transform {spec}: 'shardwright' is this package; give the path of "
            f"your file instead, such as --transform ./{name.replace('.', '/')}.py:FUNCTION"
        )
    if os.getcwd() not in sys.path:  # `python -m` adds it, the installed command does not
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise _import_error(spec, name, error) from error


def _import_file(spec: str, path: str) -> ModuleType:
    """Import a file under a name of its own, whatever other modules are called like it."""
    if not os.path.isfile(path):
        raise UsageError(f"--transform {spec}: there is no file {path}")
    name = f"shardwright_transform_{hashlib.blake2b(path.encode(), digest_size=8).hexdigest()}"
    module = ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module  # dataclasses and inspect look it up there
    if (folder := os.path.dirname(path)) not in sys.path:
        sys.path.append(folder)  # for the modules beside it
    try:
        # Not by a loader: its bytecode may be that of a file which was edited within a second.
        with tokenize.open(path) as file:
            exec(compile(file.read(), path, "exec"), module.__dict__)
    except Exception as error:
        raise _import_error(spec, path, error) from error
    return module


def _import_error(spec: str, name: str, error: Exception) -> UsageError:
    """Return the error for a user's module that cannot be imported, whatever it raised."""
    return UsageError(
        f"--transform {spec}: could not import {name}: {type(error).__name__}: {error}"
    )
