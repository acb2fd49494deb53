"""Translate obstore's errors, which hold an HTTP response as text, into typed errors.

Error codes are those of the S3 and GCS XML APIs:
https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
https://cloud.google.com/storage/docs/xml-api/reference-status
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from obstore import exceptions

from shardwright.errors import (
    ChangedError,
    CredentialsError,
    DeniedError,
    ExistsError,
    MissingBucketError,
    MissingError,
    ShardwrightError,
    StorageError,
    ThrottledError,
    TimedOutError,
    UnreachableError,
    UnsupportedError,
    WrongRegionError,
)
from shardwright.storage.addresses import key_problem, parse_address, redact

_STATUS = re.compile(r"status code: (\d{3})|status: (\d{3})\b")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_REGION = re.compile(r"<Region>([\w-]+)</Region>")
_URL = re.compile(r"https?://[^\s,]+")
_LOGIN = re.compile(
    r"credential provider|credential_provider|token request|security-credentials|"
    r"computeMetadata|oauth2",
    re.IGNORECASE,
)
_BAD_KEYS = frozenset(
    (
        "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken",
        "TokenRefreshRequired", "RequestTimeTooSkewed", "AuthenticationRequired", "InvalidSecurity",
        "XAdminUserNotFound", "RequestExpired",
    )
)  # fmt: skip
_WRONG_REGION = frozenset(
    {
        "PermanentRedirect",
        "TemporaryRedirect",
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
    }
)
_PASSING_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_PASSING_CODES = frozenset(
    {"RequestTimeout", "SlowDown", "InternalError", "ServiceUnavailable", "OperationAborted"}
)
_SILENT = frozenset({"timeout", "connection", "credentials"})
_PASSING_KINDS = frozenset({"timeout", "connection", "broken"})
_DONE = {"write": "written", "list": "listed", "delete": "deleted"}


@dataclass(frozen=True, slots=True)
class StoreFault:
    """A typed error, and whether to retry.

    Attributes:
        error: The error to raise when there are no more retries.
        passes: Whether the error is transient.
        kind: One word for counters, such as the HTTP status, "timeout" or "connection".
        bodiless: Whether the response had no error text, as with HEAD.
    """

    error: StorageError
    passes: bool
    kind: str
    bodiless: bool = False

    @property
    def answered(self) -> bool:
        """True if the store responded at all."""
        return self.kind not in _SILENT

    @property
    def refused(self) -> bool:
        """True if the store refused the request because there are too many."""
        return self.kind in ("429", "503")


def fault_of(error: Exception, uri: str, verb: str, endpoint: str) -> StoreFault | None:
    """Return the fault for an error that obstore raised, or None if it is not the store's.

    Args:
        error: The error.
        uri: The object of the request.
        verb: The operation: "read", "write", "list" or "delete".
        endpoint: The store's endpoint, for messages.
    """
    if isinstance(error, (ShardwrightError, exceptions.InvalidPathError)) or not isinstance(
        error, (exceptions.BaseError, OSError, ValueError)
    ):
        return None
    # obstore's text has the whole request, with the query of a signed URL.
    text = redact(str(error))
    match = _STATUS.search(text)
    status = int(match[1] or match[2]) if match else None
    code = (_CODE.findall(text) or [""])[0]
    bodiless = status is not None and not code
    # Before the status: no request was sent.
    if "Could not parse path" in text:
        problem = (
            key_problem(parse_address(uri).key)
            or "has a name that the storage client does not support: rename the object"
        )
        return StoreFault(StorageError(f"{uri!r} {problem}"), False, "name")
    if status is None:
        kind, found = _refused(error, uri, endpoint, text) or _silent(error, uri, endpoint, text)
        return StoreFault(found, kind in _PASSING_KINDS, kind)
    settled = _settled(error, status, code, uri, verb, endpoint)
    if settled is not None:
        return StoreFault(settled, False, str(status), bodiless=bodiless)
    message = (
        f"{uri} cannot be {_DONE.get(verb, verb)}: {endpoint} returned {f'{status} {code}'.strip()}"
    )
    passes = status in _PASSING_STATUS or code in _PASSING_CODES
    unsettled = ThrottledError(message) if passes else StorageError(message)
    return StoreFault(unsettled, passes, str(status), bodiless=bodiless)


def cause_of(error: BaseException) -> BaseException | None:
    """Return an error for `raise ... from`, or None if a traceback with its text had a secret."""
    # A traceback prints the cause with its own text.
    return error if redact(str(error)) == str(error) else None


def is_past_end(error: Exception) -> bool:
    """Return whether a range request failed because the object ends before the range."""
    match = _STATUS.search(str(error))
    return match is not None and "416" in match.groups()


def is_whole_answer(error: Exception) -> bool:
    """Return whether a range request was answered with the whole object.

    Servers without range support do so; others do so for empty objects.
    """
    return "non-partial response" in str(error)


def _settled(
    error: Exception, status: int, code: str, uri: str, verb: str, endpoint: str
) -> StorageError | None:
    """Return the typed error of a response that no retry would change, or None."""
    store = parse_address(uri).store
    if code in ("NoSuchBucket", "InvalidBucketName"):
        name = store.partition("://")[2]
        return MissingBucketError(
            f"{uri}: bucket {name!r} does not exist at {endpoint}: check the name and the endpoint"
        )
    # Before 403, which S3 returns for a wrong key, too: the fix is another one.
    if code in _BAD_KEYS or isinstance(error, exceptions.UnauthenticatedError) or status == 401:
        refused = f"{endpoint} rejected the credentials ({code or status})"
        return CredentialsError(
            f"{store}: {refused}: check that they are for this store and have not expired"
        )
    if code in _WRONG_REGION or status in (301, 307):
        return _wrong_region(store, str(error))
    if status == 403:
        may_not = f"these credentials may not {verb} it"
        reason = "a signed URL may have expired" if uri.startswith("http") else may_not
        return DeniedError(
            f"{uri}: access denied: {reason} (403 {code or 'Forbidden'} from {endpoint})"
        )
    if status == 404:
        return MissingError(f"{uri}: there is no such object")
    if isinstance(error, exceptions.AlreadyExistsError):
        return ExistsError(f"{uri} already exists")
    # Of conditional requests: the etag is another one.
    return ChangedError(f"{uri} has changed since it was listed") if status in (304, 412) else None


def _wrong_region(store: str, text: str) -> WrongRegionError:
    region = _REGION.search(text)
    fix = (
        f"it is in {region[1]}: set --storage-option region={region[1]}"
        if region
        else "set --storage-option region=..."
    )
    return WrongRegionError(f"{store} is not in the configured region; {fix} or AWS_REGION")


def _refused(
    error: Exception, uri: str, endpoint: str, text: str
) -> tuple[str, StorageError] | None:
    """Return kind and error of a request without a status that no retry would change, or None."""
    first, lacks = text.partition("\n")[0], ""
    if is_whole_answer(error) or "Range request not supported" in text:
        lacks = "range requests"
    if "Content-Length Header missing" in text:
        lacks = "answers with a Content-Length, as of uncompressed files"
    if lacks:
        return "range", UnsupportedError(
            f"{uri}: {endpoint} does not support {lacks}, which are needed: set the server up for "
            "it, or copy the dataset to a folder, S3 or Google Cloud Storage"
        )
    if isinstance(error, exceptions.NotSupportedError):
        lacks = f"{endpoint} does not support this operation ({first[:200]})"
        return "unsupported", UnsupportedError(f"{uri}: {lacks}")
    if isinstance(error, FileNotFoundError):
        return "404", MissingError(f"{uri}: there is no such object")
    store = parse_address(uri).store
    # S3's response in the wrong region; the right one is in a header that obstore drops.
    if "redirect without LOCATION" in text:
        return "301", _wrong_region(store, text)
    if _LOGIN.search(_without_object(text, uri)):
        return "credentials", CredentialsError(f"{store}: could not obtain credentials: {first}")
    return None


def _without_object(text: str, uri: str) -> str:
    """Return a request's text without the object's URL: the name of an object is no login."""
    key = parse_address(uri).key

    def without(url: re.Match[str]) -> str:
        address = unquote(url[0].partition("?")[0])  # listings have names in their query
        return "" if address.endswith(f"/{key}") else address

    return _URL.sub(without, text)


def _silent(error: Exception, uri: str, endpoint: str, text: str) -> tuple[str, StorageError]:
    """Return kind and error of a request that the store did not answer, or not to the end."""
    if "timed out" in text.lower() or "TimedOut" in text:
        return "timeout", TimedOutError(f"{uri}: {endpoint} did not respond")
    # For an upload obstore gives no further detail.
    if "error sending request" in text and isinstance(error, OSError):
        silence = "did not respond, or became unreachable"
        return "timeout", TimedOutError(f"{uri}: {endpoint} {silence}")
    if "error sending request" in text or "dns error" in text:
        where = (
            "base_url=..., STORAGE_EMULATOR_HOST"
            if uri.startswith("gs://")
            else "endpoint=..., AWS_ENDPOINT_URL"
        )
        advice = f"check the endpoint (--storage-option {where}) and the network"
        return "connection", UnreachableError(f"{uri}: no response from {endpoint}: {advice}")
    first = text.partition("\n")[0][:200]
    cut = f"{uri}: {endpoint} closed the connection mid-response ({first})"
    return "broken", TimedOutError(cut)
