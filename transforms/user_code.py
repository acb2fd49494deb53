"""A user's own function on each record, between reading an image and writing its record (`--transform package.module:function`).

    def tiles(record: Record) -> list[Record]:
        pixels = record.pixels()
        return [record.replace(image=tile, id=f"{record.id}#{n}") for n, tile in enumerate(cut(pixels))]

It gives one record, several, or None for none; what it raises leaves the record out, with the message. It runs where shards are
written, so it may run again for the same record, in another process: it must give the same for the same, and keep nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shardwright.errors import UsageError
from transforms.images import ImageFault, decode_rgb
from transforms.rejects import RejectReason

Picture = bytes | npt.NDArray[np.uint8]


class RejectRecord(Exception):  # noqa: N818 - says what is to happen, as StopIteration does
    """Raised by a user's function to leave a record out; its text becomes the reject's detail."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a user's function is given and gives.

    Attributes:
        id: Unique in the dataset. Of several records made of one, each must begin with that one's; those that are equal get
            `#0`, `#1`, ... behind.
        image: The image's bytes as they were read; or pixels, uint8 [height, width] or [height, width, 1, 3 or 4], which are
            stored as `--encode` says, and as PNG with `keep`.
        label: Its class name, or None where the dataset has no labels. Only names that the dataset has are known.
        features: The other features by their keys in tf.Example, as they are stored: int, float or bytes, or a list of one.
            Every key that the schema has must be there.
        pictures: Further pictures by feature name, such as a mask, in the same forms as `image`; None for one that is not there.
        uri: Where the image was read.
    """

    id: str
    image: Picture
    label: str | None = None
    features: dict[str, Any] = field(default_factory=dict)
    pictures: dict[str, Picture | None] = field(default_factory=dict)
    uri: str = ""

    def pixels(self) -> npt.NDArray[np.uint8]:
        """The image as uint8 [height, width, 3], upright.

        Raises:
            ImageFault: It does not decode.
        """
        return self.image if isinstance(self.image, np.ndarray) else decode_rgb(self.image)

    def replace(self, **changes: Any) -> Record:
        """The same record with other values of some attributes."""
        return dataclasses.replace(self, **changes)


Transform = Callable[[Record], Record | Iterable[Record] | None]


@dataclass(frozen=True, slots=True)
class UserTransform:
    """A user's function: by name, because functions travel to workers by name.

    Attributes:
        spec: `package.module:function`.
        digest: Of the module's source, so that another version of it makes other shards.
    """

    spec: str
    digest: str

    @classmethod
    def find(cls, spec: str) -> UserTransform:
        """
        Raises:
            UsageError: There is no such module or function; the message says which.
        """
        function = _load(spec)
        module = inspect.getmodule(function)
        try:
            source = inspect.getsource(module) if module is not None else ""
        except (OSError, TypeError) as error:
            raise UsageError(
                f"--transform {spec}: the source of its module cannot be read, and shards are named by it: {error}"
            ) from error
        return cls(spec, hashlib.blake2b(source.encode(), digest_size=16).hexdigest())

    def apply(self, record: Record) -> list[Record]:
        """What becomes of a record.

        Raises:
            ImageFault: It is left out: the function gave nothing, raised something, or gave what is no record.
        """
        try:
            found = _load(self.spec)(record)
            results = [found] if isinstance(found, Record) else list(found or ())
        except RejectRecord as left_out:
            raise ImageFault(RejectReason.TRANSFORM, f"{self.spec}: {left_out}") from left_out
        except ImageFault:
            raise
        except (
            Exception,
            SystemExit,
        ) as error:  # whatever a user's code does to one record, the build goes on
            raise ImageFault(
                RejectReason.TRANSFORM, f"{self.spec} failed: {type(error).__name__}: {error}"
            ) from error
        if not results:
            raise ImageFault(RejectReason.TRANSFORM, f"{self.spec} gave no record")
        return _checked(self.spec, record, results)


def apply_all(transforms: Sequence[UserTransform], record: Record) -> list[Record]:
    """Each function on what the one before it gave.

    Raises:
        ImageFault: As `UserTransform.apply`; then none of the records made of this one stays.
    """
    records = [record]
    for transform in transforms:
        records = [result for each in records for result in transform.apply(each)]
    return records


def _checked(spec: str, given: Record, results: list[Record]) -> list[Record]:
    for result in results:
        if not isinstance(result, Record):
            raise ImageFault(
                RejectReason.TRANSFORM,
                f"{spec} gave a {type(result).__name__}, and must give records",
            )
        if problem := _type_problem(result):
            raise ImageFault(RejectReason.TRANSFORM, f"{spec} gave {problem}")
        if not result.id.startswith(given.id):
            raise ImageFault(
                RejectReason.TRANSFORM,
                f"{spec} gave the id {result.id!r}, which must begin with {given.id!r}",
            )
    ids = [result.id for result in results]
    if len(results) > 1 and len(set(ids)) == 1:
        return [result.replace(id=f"{result.id}#{number}") for number, result in enumerate(results)]
    if len(set(ids)) < len(ids):
        raise ImageFault(
            RejectReason.TRANSFORM,
            f"{spec} gave several records the same id; give each its own, or none of them",
        )
    return results


def _type_problem(record: Record) -> str:
    """Name the attribute of a record that has another type than `Record` states, "" for none."""
    values: list[tuple[str, Any, tuple[type, ...]]] = [
        ("id", record.id, (str,)),
        ("image", record.image, (bytes, np.ndarray)),
        ("label", record.label, (str, type(None))),
        ("features", record.features, (dict,)),
        ("pictures", record.pictures, (dict,)),
    ]
    if isinstance(record.pictures, dict):
        values += [
            (f"pictures[{name!r}]", picture, (bytes, np.ndarray, type(None)))
            for name, picture in record.pictures.items()
        ]
    for name, value, types in values:
        if not isinstance(value, types):
            return f"{name} of type {type(value).__name__}; expected {' or '.join(kind.__name__ for kind in types)}"
    return ""


@functools.cache
def _load(spec: str) -> Transform:
    module_name, colon, name = spec.partition(":")
    if not colon or not module_name or not name:
        raise UsageError(f"--transform {spec!r} is no function: write package.module:function")
    if os.getcwd() not in sys.path:  # as `python -m` has it, and the installed command has not
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UsageError(
            f"--transform {spec}: {module_name} cannot be imported: {error}"
        ) from error
    function: Any = module
    for part in name.split("."):
        function = getattr(function, part, None)
    if not callable(function):
        raise UsageError(f"--transform {spec}: {module_name} has no function {name!r}")
    found: Transform = function
    return found
