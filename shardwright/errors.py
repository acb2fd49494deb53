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
    """A file or an object could not be read or written. The message names it."""


class MissingError(StorageError, FileNotFoundError):
    """There is no such file or object."""


class MissingBucketError(StorageError):
    """There is no such bucket at that endpoint."""


class ExistsError(StorageError):
    """A file or object that was to be created is there already."""


class ChangedError(StorageError):
    """An object is not the one that was listed, or arrives with another content than its store states."""


class DeniedError(StorageError):
    """The store knows who asks, and refuses."""


class CredentialsError(StorageError):
    """There are no credentials for a store, or it does not know them, or they have expired."""


class WrongRegionError(StorageError):
    """The bucket is in another region than the one that was asked."""


class UnreachableError(StorageError):
    """Nobody answers at the store's endpoint."""


class ThrottledError(StorageError):
    """The store went on refusing, for too many requests or a failure of its own, until the deadline."""


class TimedOutError(StorageError):
    """The store answered too slowly, or broke off its answers, until the deadline."""


class UnreadableError(StorageError):
    """The store went on failing for one object, while it served others."""


class MissingPeerError(StorageError):
    """This needs a store's own client, which is not installed."""


class ClientError(StorageError):
    """A client cannot be made or used: its options do not go together, or the process was forked."""


class RecordFault(ShardwrightError):  # noqa: N818 - a fault of the data, as the reports call it
    """A TFRecord frame that does not hold.

    Attributes:
        offset: Where the bad record begins, in bytes.
        what: What is wrong with it.
        next_offset: Where the next record begins, None where the record's length cannot be trusted.
    """

    def __init__(self, offset: int, what: str, next_offset: int | None = None) -> None:
        super().__init__(
            offset, what, next_offset
        )  # the arguments themselves, so that it can be pickled
        self.offset = offset
        self.what = what
        self.next_offset = next_offset

    def __str__(self) -> str:
        return f"record at byte {self.offset}: {self.what}"


class BadRecordError(ShardwrightError):
    """More records are damaged than `max_bad_records` allows.

    Attributes:
        record: The one that was too many: its shard, its place and what is wrong with it.
        count: How many have been met.
        allowed: `max_bad_records`.
    """

    def __init__(self, record: str, count: int, allowed: int) -> None:
        super().__init__(record, count, allowed)
        self.record = record
        self.count = count
        self.allowed = allowed

    def __str__(self) -> str:
        met = "" if self.count == 1 else f" ({self.count} bad records so far)"
        return (
            f"{self.record}{met}; max_bad_records={self.allowed}: copy that shard again, or `shardwright verify` the dataset and run the "
            "build that made it again; to leave such records out, allow more"
        )


class BadExampleError(BadRecordError):
    """A damaged record was asked for by its number, where none can be left out."""

    def __init__(self, record: str, count: int = 1, allowed: int = 0) -> None:
        super().__init__(record, count, allowed)

    def __str__(self) -> str:
        return (
            f"{self.record}: a record that is asked for by its number cannot be left out by max_bad_records: copy that shard again, or "
            "`shardwright verify` the dataset and run the build that made it again; or leave the record out by where="
        )


class ImageFault(ShardwrightError):  # noqa: N818 - a fault of the data, as the reports call it
    """Image bytes that do not decode: damaged, cut short, of no format that is read, or too large.

    Attributes:
        what: What is wrong with them.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
