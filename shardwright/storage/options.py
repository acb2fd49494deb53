"""Storage options, `--storage-option KEY=VALUE`, and their keys.

Keys are those of obstore's store and client configuration (https://developmentseed.org/obstore),
and a few aliases. Defaults come from the environment, as in each store's own tools.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from shardwright.errors import UsageError
from shardwright.storage.addresses import HIDDEN, parse_address, redact

S3_KEYS = frozenset(
    (
        "access_key_id", "secret_access_key", "session_token", "region", "endpoint",
        "skip_signature", "virtual_hosted_style_request", "role_arn", "role_session_name",
        "web_identity_token_file", "endpoint_url_sts", "checksum_algorithm", "request_payer",
        "server_side_encryption", "sse_kms_key_id", "sse_bucket_key_enabled", "unsigned_payload",
        "profile",
    )
)  # fmt: skip
GCS_KEYS = frozenset(
    (
        "base_url",
        "bearer_token",
        "service_account",
        "service_account_key",
        "application_credentials",
        "skip_signature",
    )
)
AZURE_KEYS = frozenset(
    (
        "account_name", "account_key", "client_id", "client_secret", "tenant_id", "sas_key",
        "token", "endpoint", "skip_signature", "use_emulator", "use_azure_cli",
    )
)  # fmt: skip
CLIENT_KEYS = frozenset(
    (
        "allow_http", "allow_invalid_certificates", "connect_timeout", "read_timeout", "timeout",
        "proxy_url", "root_certificate", "user_agent", "http1_only", "http2_only",
    )
)  # fmt: skip
_SECONDS_KEYS = frozenset({"connect_timeout", "read_timeout", "timeout", "deadline"})
# Values that let their owner in; others with these names, such as a key's id, are hidden as well.
SECRET_KEYS = frozenset(
    (
        "secret_access_key", "session_token", "bearer_token", "service_account_key", "account_key",
        "client_secret", "sas_key", "token",
    )
)  # fmt: skip
_SECRET = re.compile("key|secret|token|password", re.IGNORECASE)
_ALIASES = {
    "anonymous": "skip_signature",
    "endpoint_url": "endpoint",
    "no_sign_request": "skip_signature",
    "sts_endpoint": "endpoint_url_sts",  # obstore documents this name, but does not know it
}
_KEYS = S3_KEYS | GCS_KEYS | AZURE_KEYS | CLIENT_KEYS | set(_ALIASES) | {"deadline", "path_style"}
_FORM = re.compile(
    r"(?:(?P<scope>[a-z0-9]+://[^:/]+(?::\d+)?):)?(?P<key>\w+)=(?P<value>.*)", re.DOTALL
)
_BOOLS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_BOOL_KEYS = frozenset(
    (
        "allow_http", "allow_invalid_certificates", "http1_only", "http2_only", "skip_signature",
        "virtual_hosted_style_request", "unsigned_payload", "sse_bucket_key_enabled",
        "request_payer", "use_emulator", "use_azure_cli",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class StorageOptions:
    """Options for stores, in the given order. Picklable, without clients.

    Attributes:
        settings: (scope, key, value) each. A scope is a store such as `s3://bucket`, or "" for all.
    """

    settings: tuple[tuple[str, str, str], ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> StorageOptions:
        """Parse `KEY=VALUE`, or `s3://BUCKET:KEY=VALUE` for one bucket.

        Raises:
            UsageError: The form, the key or the value is invalid.
        """
        settings = []
        for text in texts:
            match = _FORM.fullmatch(text)
            if match is None:
                raise UsageError(
                    f"--storage-option{_shown(text.partition('=')[0])} must be KEY=VALUE, "
                    "or s3://BUCKET:KEY=VALUE for one bucket"
                )
            scope = parse_address(match["scope"]).store if match["scope"] else ""
            settings.append((scope, *_check(match["key"].lower(), match["value"])))
        return cls(tuple(settings))

    @classmethod
    def of(cls, values: Mapping[str, object] | StorageOptions | None) -> StorageOptions:
        """Convert a mapping of keys to values. Raises as `parse`."""
        if isinstance(values, StorageOptions):
            return values
        return cls.parse(f"{key}={value}" for key, value in (values or {}).items())

    def for_store(self, store: str) -> dict[str, str]:
        """Return a store's values; those of its own scope take precedence."""
        general = {key: value for scope, key, value in self.settings if not scope}
        return general | {key: value for scope, key, value in self.settings if scope == store}

    def __repr__(self) -> str:
        shown = (
            f"{scope}{':' if scope else ''}{key}={HIDDEN if is_secret(key) else redact(value)}"
            for scope, key, value in self.settings
        )
        return f"StorageOptions({', '.join(shown)})"


NO_OPTIONS = StorageOptions()


def is_secret(key: str) -> bool:
    """Return whether the values of a key must not be shown."""
    return _SECRET.search(key) is not None


def _check(key: str, value: str) -> tuple[str, str]:
    if key not in _KEYS:
        guess = difflib.get_close_matches(key, _KEYS, 1)
        hint = (
            f"did you mean {guess[0]!r}?"
            if guess
            else f"known keys include {', '.join(sorted(S3_KEYS)[:4])}, allow_http"
        )
        raise UsageError(f"--storage-option{_shown(key)} is unknown; {hint}")
    if key == "path_style":
        return "virtual_hosted_style_request", str(not parse_bool(key, value)).lower()
    key = _ALIASES.get(key, key)
    if key in _BOOL_KEYS:
        parse_bool(key, value)
    if key in _SECONDS_KEYS:
        parse_seconds(key, value)
    return key, value


def _shown(key: str) -> str:
    """Return a key for a message, after a space; "" for what may be a secret without its key."""
    known = difflib.get_close_matches(key.rpartition(":")[2].lower(), _KEYS, 1)
    return f" {redact(key)!r}" if known else ""


def parse_bool(key: str, value: str) -> bool:
    """Parse a boolean value.

    Raises:
        UsageError: It is neither true nor false.
    """
    if value.lower() not in _BOOLS:
        raise UsageError(f"--storage-option {key} must be true or false")
    return _BOOLS[value.lower()]


def parse_seconds(key: str, value: str) -> timedelta:
    """Parse a number of seconds, such as `30` or `30s`.

    Raises:
        UsageError: It is not a number above 0.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*s?", value.strip())
    if match is None or not float(match[1]):
        raise UsageError(f"--storage-option {key} must be a number of seconds above 0, such as 30")
    return timedelta(seconds=float(match[1]))


def typed(key: str, value: str) -> object:
    """Convert a value to the type that obstore expects: a boolean, seconds or text."""
    if key in _SECONDS_KEYS:
        return parse_seconds(key, value)
    return parse_bool(key, value) if key in _BOOL_KEYS else value
