"""Errors that a user can cause or fix. Each message states what is wrong, the rule, and the fix."""

from __future__ import annotations


class ShardwrightError(Exception):
    """Base class of every error that this project raises on purpose."""


class UsageError(ShardwrightError, ValueError):
    """An invalid option or argument; the command exits with 2."""


class BuildError(ShardwrightError):
    """A build that failed or must not be published; the command exits with 1."""


class TooManyRejectsError(BuildError):
    """More rejects than the limits allow; the command shows some of them."""


class NotADatasetError(ShardwrightError):
    """A folder without a finished dataset."""


class NotFoundError(ShardwrightError):
    """A split or record that the dataset does not have."""


class StorageError(ShardwrightError):
    """A file or object that could not be read or written; the message includes its name."""


class MissingError(StorageError, FileNotFoundError):
    """A missing file or object."""


class MissingBucketError(StorageError):
    """A bucket that does not exist at the endpoint."""


class ExistsError(StorageError):
    """A file or object that should be created but already exists."""


class LinkError(StorageError):
    """A link in the place of a file or folder of a dataset or a cache, which is never followed."""


class TooLargeError(StorageError):
    """A file that decodes to much more than its own size, or a table wider than is read."""


class ChangedError(StorageError):
    """An object that changed since it was listed, or does not match its store's checksum."""


class DeniedError(StorageError):
    """Valid credentials without permission for the request."""


class CredentialsError(StorageError):
    """Missing, unknown or expired credentials of a store."""


class WrongRegionError(StorageError):
    """A bucket in another region than the configured one."""


class UnreachableError(StorageError):
    """An endpoint that does not respond."""


class ThrottledError(StorageError):
    """A store that rejected requests, for their rate or its own failure, until the deadline."""


class TimedOutError(StorageError):
    """A store that responded too slowly, or closed connections mid-response, until the deadline."""


class UnreadableError(StorageError):
    """An object that the store failed to serve until the deadline, while it served others."""


class UnsupportedError(StorageError):
    """A request that the store does not support, such as one for a range of a file."""


class MissingPeerError(StorageError):
    """A missing client library of a store, or a store without the needed function."""


class ClientError(StorageError):
    """A storage client with incompatible options, or one used in a forked process."""


class LostProcessError(ShardwrightError):
    """A process of a reader that ended before it had made its batch."""


class RecordFault(ShardwrightError):  # noqa: N818 - a fault of the data, as the reports call it
    """An invalid TFRecord frame.

    Attributes:
        offset: Start of the bad record, in bytes.
        what: Description of the fault.
        next_offset: Start of the next record, in bytes; None if the record's length is unreliable.
        is_truncated: True if the file ends inside the record.
    """

    def __init__(
        self,
        offset: int,
        what: str,
        next_offset: int | None = None,
        is_truncated: bool = False,
    ) -> None:
        # Pickling calls the class with `args`, so these must be the constructor's arguments.
        super().__init__(offset, what, next_offset, is_truncated)
        self.offset = offset
        self.what = what
        self.next_offset = next_offset
        self.is_truncated = is_truncated

    def __str__(self) -> str:
        return f"record at byte {self.offset}: {self.what}"


class BadRecordError(ShardwrightError):
    """More damaged records than `max_bad_records` allows.

    Attributes:
        record: The record above the limit: its shard, its offset and its fault.
        count: Number of damaged records so far.
        allowed: `max_bad_records`.
        is_as_built: The record has its checksum, so its image was damaged before the build.
    """

    def __init__(
        self, record: str, count: int = 1, allowed: int = 0, is_as_built: bool = False
    ) -> None:
        super().__init__(record, count, allowed, is_as_built)
        self.record = record
        self.count = count
        self.allowed = allowed
        self.is_as_built = is_as_built

    @property
    def _fix(self) -> str:
        if self.is_as_built:
            return (
                "the record's checksum is right, so the image was already damaged when the dataset "
                "was built: build it with --check decode, which rejects such images"
            )
        return "copy that shard again, or run `shardwright repair` on the dataset"

    def __str__(self) -> str:
        met = "" if self.count == 1 else f" ({self.count} bad records so far)"
        return (
            f"{self.record}{met}; max_bad_records={self.allowed}: {self._fix}; "
            "raise max_bad_records to skip such records"
        )


class BadExampleError(BadRecordError):
    """A damaged record that was read by number, so that it cannot be skipped."""

    def __str__(self) -> str:
        return (
            f"{self.record}; max_bad_records does not skip records that are read by number: "
            f"{self._fix}; or exclude the record with where="
        )


class ImageFault(ShardwrightError):  # noqa: N818 - a fault of the data, as the reports call it
    """An image that a reader cannot decode, or that a build cannot store.

    Attributes:
        what: One line for a person: what was found, and the fix if there is one.
        reason: The reason of the reject in a build.
    """

    def __init__(self, what: str, reason: str = "corrupt") -> None:
        # A message may hold lone surrogates, which UTF-8, and so a reject's row, cannot.
        self.what = what.encode("utf-8", "backslashreplace").decode()
        self.reason = reason
        super().__init__(self.what, reason)

    def __str__(self) -> str:
        return self.what
