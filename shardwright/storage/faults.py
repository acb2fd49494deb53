"""What went wrong: obstore's errors, which are texts of an HTTP answer, as this project's typed ones.

Codes are those of the S3 and GCS XML interfaces:
https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html, https://cloud.google.com/storage/docs/xml-api/reference-status
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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
    WrongRegionError,
)
from shardwright.storage.addresses import key_problem, parse_address

_STATUS = re.compile(r"status code: (\d{3})|status: (\d{3})\b")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_REGION = re.compile(r"<Region>([\w-]+)</Region>")
_LOGIN = re.compile(
    r"credential provider|credential_provider|token request|security-credentials|computeMetadata|oauth2",
    re.IGNORECASE,
)
_BAD_KEYS = frozenset(
    (
        "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired", "RequestTimeTooSkewed",
        "AuthenticationRequired", "InvalidSecurity", "XAdminUserNotFound", "RequestExpired",
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


@dataclass(frozen=True, slots=True)
class Fault:
    """An error, and what it means for another try.

    Attributes:
        error: The typed error to raise when nothing is tried any more.
        passes: Another try may go well.
        kind: One word for counters: the status, "timeout" or "connection".
        answered: The store has answered, whatever it said.
        bodiless: The answer had no text that says why, as answers to HEAD have none.
    """

    error: StorageError
    passes: bool
    kind: str
    answered: bool = True
    bodiless: bool = False


def fault_of(error: Exception, uri: str, verb: str, endpoint: str) -> Fault | None:
    """What obstore's error means, or None where it is not a store's.

    Args:
        error: What obstore raised.
        uri: What was asked for.
        verb: What was to be done with it: "read", "write", "list" or "delete".
        endpoint: Where the store is.
    """
    if isinstance(error, (ShardwrightError, exceptions.InvalidPathError)) or not isinstance(
        error, (exceptions.BaseError, OSError, ValueError)
    ):
        return None
    text = str(error)
    match = _STATUS.search(text)
    status = int(match[1] or match[2]) if match else None
    found = _CODE.search(text)
    code = found[1] if found else ""
    bodiless = status is not None and not code
    if "Could not parse path" in text:
        problem = (
            key_problem(parse_address(uri).key)
            or "has a name that cannot be asked for: rename the object"
        )
        return Fault(StorageError(f"{uri!r} {problem}"), False, "name")
    if status is None:
        return _without_answer(error, uri, endpoint, text)
    settled = _settled(error, status, code, text, uri, verb, endpoint)
    if settled is not None:
        return Fault(settled, False, str(status), bodiless=bodiless)
    shown = f"{status} {code}".strip()
    if status in _PASSING_STATUS or code in _PASSING_CODES:
        return Fault(
            ThrottledError(f"{uri} cannot be {_done(verb)}: {endpoint} answers {shown}"),
            True,
            str(status),
            bodiless=bodiless,
        )
    return Fault(
        StorageError(f"{uri} cannot be {_done(verb)}: {endpoint} answers {shown}"),
        False,
        str(status),
        bodiless=bodiless,
    )


def is_past_end(error: Exception) -> bool:
    """Whether a range was refused because the object ends before it."""
    match = _STATUS.search(str(error))
    return match is not None and "416" in match.groups()


def is_whole_answer(error: Exception) -> bool:
    """Whether a range was answered with the whole object: by servers that know no ranges, and of empty objects by others too."""
    return "non-partial response" in str(error)


def _settled(
    error: Exception, status: int, code: str, text: str, uri: str, verb: str, endpoint: str
) -> StorageError | None:
    """An error that another try would not change."""
    store = parse_address(uri).store
    if code in ("NoSuchBucket", "InvalidBucketName"):
        name = store.partition("://")[2]
        return MissingBucketError(
            f"{uri}: there is no bucket {name!r} at {endpoint}: check name and endpoint"
        )
    if code in _BAD_KEYS or isinstance(error, exceptions.UnauthenticatedError) or status == 401:
        refused = f"{endpoint} does not accept the credentials ({code or status})"
        return CredentialsError(f"{store}: {refused}: check that they are its, and valid")
    if code in _WRONG_REGION or status in (301, 307):
        region = _REGION.search(text)
        fix = (
            f"it is in {region[1]}: give --storage-option region={region[1]}"
            if region
            else "give its --storage-option region=..."
        )
        return WrongRegionError(
            f"{store} is not in the region that was asked; {fix}, or set AWS_REGION"
        )
    if status == 403:
        return DeniedError(
            f"{uri}: access denied: these credentials may not {verb} it (403 {code or 'Forbidden'} from {endpoint})"
        )
    if status == 404:
        return MissingError(f"{uri}: there is no such object")
    if isinstance(error, exceptions.AlreadyExistsError):
        return ExistsError(f"{uri} is there already")
    return ChangedError(f"{uri} has changed since it was listed") if status in (304, 412) else None


def _without_answer(error: Exception, uri: str, endpoint: str, text: str) -> Fault:
    """A request that no HTTP answer belongs to."""
    first = text.partition("\n")[0]
    if isinstance(error, exceptions.NotSupportedError):
        return Fault(
            StorageError(f"{uri}: {endpoint} does not offer what this needs ({first[:200]})"),
            False,
            "unsupported",
        )
    if is_whole_answer(error):
        return Fault(
            StorageError(
                f"{uri}: {endpoint} serves files whole only, and this needs a part of one"
            ),
            False,
            "range",
        )
    if isinstance(error, FileNotFoundError):
        return Fault(MissingError(f"{uri}: there is no such object"), False, "404")
    if (
        "redirect without LOCATION" in text
    ):  # so S3 answers whoever asks in the wrong region; the right one is in a header that is lost
        fix = "give its --storage-option region=..., or set AWS_REGION"
        return Fault(
            WrongRegionError(
                f"{parse_address(uri).store} is not in the region that was asked; {fix}"
            ),
            False,
            "301",
        )
    if _LOGIN.search(text):
        message = f"{parse_address(uri).store}: credentials cannot be had: {first}"
        return Fault(CredentialsError(message), False, "credentials", answered=False)
    if "timed out" in text.lower() or "TimedOut" in text:
        return Fault(TimedOutError(f"{uri}: {endpoint} is silent"), True, "timeout", answered=False)
    if "error sending request" in text and isinstance(
        error, OSError
    ):  # of an upload nothing more is told
        return Fault(
            TimedOutError(f"{uri}: {endpoint} is silent, or cannot be reached any more"),
            True,
            "timeout",
            answered=False,
        )
    if "error sending request" in text or "dns error" in text:
        where = (
            "base_url=..., STORAGE_EMULATOR_HOST"
            if uri.startswith("gs://")
            else "endpoint=..., AWS_ENDPOINT_URL"
        )
        advice = f"check the endpoint (--storage-option {where}) and the network"
        return Fault(
            UnreachableError(f"{uri}: nobody answers at {endpoint}: {advice}"),
            True,
            "connection",
            answered=False,
        )
    return Fault(
        TimedOutError(f"{uri}: {endpoint} breaks off its answers ({first[:200]})"), True, "broken"
    )


def _done(verb: str) -> str:
    return {"write": "written", "list": "listed", "delete": "deleted"}.get(verb, verb)
