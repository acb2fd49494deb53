"""Errors a user can cause or mend. Each message names what was found, the rule, and the fix."""

from __future__ import annotations


class ShardwrightError(Exception):
    """Base of every error this project raises on purpose."""


class UsageError(ShardwrightError, ValueError):
    """A wrong option or argument: the command exits with 2."""


class BuildError(ShardwrightError):
    """A build that cannot go on, or must not be published: the command exits with 1."""


class TooManyRejectsError(BuildError):
    """More inputs were left out than `--max-reject-fraction` allows. Some of them are worth showing."""


class NotADatasetError(ShardwrightError):
    """A place with no finished dataset in it."""


class NotFoundError(ShardwrightError):
    """A split or record that the dataset does not have."""


class StorageError(ShardwrightError):
    """A file or an object could not be read or written."""


class RecordFault(ShardwrightError):  # noqa: N818 - a fault of the data, as the reports call it
    """A TFRecord frame that does not hold.

    Attributes:
        offset: Where the bad record begins, in bytes.
        what: What is wrong with it.
        next_offset: Where the next record begins, None where the record's length cannot be trusted.
    """

    def __init__(self, offset: int, what: str, next_offset: int | None = None) -> None:
        super().__init__(offset, what, next_offset)  # the arguments themselves, so that it can be pickled
        self.offset = offset
        self.what = what
        self.next_offset = next_offset

    def __str__(self) -> str:
        return f"record at byte {self.offset}: {self.what}"
