"""A process that is killed: from some change of a local file on, none is made any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

import pytest

from shardwright.storage.folder import Folder, Sink
from tests.support.folder_patches import wrap_method


class Killed(BaseException):
    """The end of the process; no `except Exception` catches it."""


@dataclass
class Kill:
    """The moment of a kill.

    Attributes:
        after: Number of changes of files that succeed.
        is_dead: It has come.
    """

    after: int
    is_dead: bool = False

    def __post_init__(self) -> None:
        self._lock = Lock()

    def count(self) -> None:
        """Count a change. Raises `Killed` if it, or an earlier one, is one too many."""
        with self._lock:
            self.is_dead = self.is_dead or self.after == 0
            self.after -= 1
            if self.is_dead:
                raise Killed


@contextmanager
def killed(after: int) -> Iterator[Kill]:
    """Let `after` changes of local files succeed inside the block, and end it at the next one."""
    kill = Kill(after)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("write_bytes", "create_bytes", "copy", "remove"):
            wrap_method(name, partial(_dying, kill=kill), patch.setattr)
        patch.setattr(Folder, "remove_all", _remove_all)
        wrap_method("open_sink", partial(_dying_sink, kill=kill), patch.setattr)
        with suppress(Killed):
            yield kill


def _dying(change: Callable[..., Any], kill: Kill) -> Callable[..., Any]:
    def run(*args: Any, **options: Any) -> Any:
        kill.count()
        return change(*args, **options)

    return run


def _remove_all(folder: Folder, names: list[str]) -> None:
    for name in names:
        folder.remove(name)


def _dying_sink(
    open_sink: Callable[..., AbstractContextManager[Sink]], kill: Kill
) -> Callable[..., AbstractContextManager[Sink]]:
    @contextmanager
    def run(*args: Any, **options: Any) -> Iterator[Sink]:
        with open_sink(*args, **options) as sink:
            yield sink
            kill.count()

    return run
