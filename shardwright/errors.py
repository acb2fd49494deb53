"""Errors a user can cause or mend. Each message names what was found, the rule, and the fix."""

from __future__ import annotations


class ShardwrightError(Exception):
    """Base of every error this project raises on purpose."""


class UsageError(ShardwrightError, ValueError):
    """A wrong option or argument: the command exits with 2."""


class BuildError(ShardwrightError):
    """A build that cannot go on, or must not be published: the command exits with 1."""


class NotADatasetError(ShardwrightError):
    """A place with no finished dataset in it."""


class StorageError(ShardwrightError):
    """A file or an object could not be read or written."""


class RecordFault(ShardwrightError):
    """A TFRecord frame that does not hold: `offset` is where the bad record begins, in bytes."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(f"record at byte {offset}: {what}")
        self.offset = offset
        self.what = what
