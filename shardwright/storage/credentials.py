"""Find credentials where each store's own tools look for them, in the same order.

S3: anonymous; `role_arn`, on Google machines by their identity token (botocore); other options;
environment keys; web identity and container roles (obstore); then profiles, SSO, credential
processes and the instance's role (boto3). GCS: options; the emulator;
`GOOGLE_APPLICATION_CREDENTIALS` or gcloud's default file (google-auth for types other than service
accounts and users); then the machine's account. A missing metadata server costs at most a second.

The metadata server: https://cloud.google.com/compute/docs/metadata/querying-metadata.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

from shardwright.errors import CredentialsError
from shardwright.storage.options import parse_bool

# boto3 may refresh its keys up to ten minutes before they expire: ask it again sooner than that.
_KEEP_KEYS = timedelta(minutes=5)
# Of the identity tokens that a role gets: its trust policy may require it as
# `accounts.google.com:oaud`.
_STS_AUDIENCE = "sts.amazonaws.com"
GOOGLE_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_BY_OBSTORE = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_NATIVE_GOOGLE_FILES = frozenset({"service_account", "authorized_user"})
_METADATA_HOST = "169.254.169.254"  # of Amazon and of Google
_FLAVOR = {"Metadata-Flavor": "Google"}
_PROBE_SECONDS = 1.0
_TOKEN_SECONDS, _TOKEN_TRIES = 5.0, 4
_IDENTITY = "/computeMetadata/v1/instance/service-accounts/default/identity"


@dataclass(frozen=True, slots=True)
class Login:
    """Credentials of a client.

    Attributes:
        config: Configuration for obstore.
        provider: Returns fresh credentials; None where obstore finds them itself.
    """

    config: dict[str, object] = field(default_factory=dict)
    provider: Callable[[], Any] | None = None


# Anonymous. The provider is never called: it keeps obstore from reading the environment's
# credentials file, which may be of a type that it does not support.
_NOBODY = Login({"skip_signature": True}, lambda: {"token": "", "expires_at": None})


def s3_login(store: str, values: dict[str, str]) -> Login:
    """Return the login for an S3 bucket.

    Args:
        store: `s3://BUCKET`, for messages.
        values: The bucket's storage options.

    Raises:
        CredentialsError: No credentials were found.
    """
    env = os.environ
    if parse_bool("skip_signature", values.get("skip_signature", "false")):
        return Login()
    if "role_arn" in values:
        # Before the look for a metadata server, which takes up to a second.
        if "web_identity_token_file" in values or env.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
            return Login()  # obstore exchanges the file's token
        if is_google_machine():
            return _google_role_login(store, values)
    if "access_key_id" in values:
        # Without a secret, obstore reports what is missing.
        return _keys_login(values.get) or Login()
    # A profile that the user names is preferred to keys in the environment, as in boto3.
    if "profile" not in values:
        if login := _keys_login(lambda name: env.get(f"AWS_{name.upper()}")):
            return login
        if any(env.get(name) for name in _BY_OBSTORE):
            return Login()
    return _boto3_login(store, values.get("profile"))


def _keys_login(value_of: Callable[[str], str | None]) -> Login | None:
    """Return the login of an access key and its secret, None if one is missing.

    As configuration, obstore would send keys of the options with the environment's session token,
    which belongs to other keys.
    """
    key, secret, token = map(value_of, ("access_key_id", "secret_access_key", "session_token"))
    keys = {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": None}
    return Login(provider=lambda: keys) if key and secret else None


def _boto3_login(store: str, profile: str | None) -> Login:
    try:
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        if _get("/", _PROBE_SECONDS)[0]:
            return Login()  # obstore reads the instance's metadata itself
        raise CredentialsError(
            _no_s3_keys(store) + "; profiles and SSO need boto3: pip install 'shardwright[aws]'"
        ) from None
    try:
        return Login(provider=Boto3CredentialProvider(Session(profile=profile), ttl=_KEEP_KEYS))
    except BotoCoreError as error:
        raise CredentialsError(f"{store}: could not obtain AWS credentials: {error}") from error
    except ValueError:
        raise CredentialsError(_no_s3_keys(store)) from None


def _google_role_login(store: str, values: dict[str, str]) -> Login:
    """Return the login of a role that trusts the service account of this Google machine.

    https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html
    """
    try:
        from botocore.credentials import (
            AssumeRoleWithWebIdentityCredentialFetcher,
            DeferredRefreshableCredentials,
        )
        from botocore.session import Session
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise CredentialsError(
            f"{store}: role_arn on a Google machine needs boto3: pip install 'shardwright[aws]'"
        ) from None
    region = values.get("region") or os.environ.get("AWS_REGION") or "us-east-1"
    fetcher = AssumeRoleWithWebIdentityCredentialFetcher(
        partial(
            Session().create_client, region_name=region, endpoint_url=values.get("endpoint_url_sts")
        ),
        partial(identity_token, _STS_AUDIENCE),
        values["role_arn"],
        extra_args={"RoleSessionName": values.get("role_session_name", "shardwright")},
    )
    credentials = DeferredRefreshableCredentials(
        fetcher.fetch_credentials, "assume-role-with-web-identity"
    )
    session: Any = SimpleNamespace(get_credentials=lambda: credentials)
    return Login(provider=Boto3CredentialProvider(session, ttl=_KEEP_KEYS))


def profile_settings(store: str, profile: str | None) -> dict[str, object]:
    """Return the region and endpoint of a profile, or of the environment's, in AWS's configuration.

    Raises:
        CredentialsError: The profile does not exist, or the file cannot be read.
    """
    if profile is None and not os.path.exists(
        os.path.expanduser(os.environ.get("AWS_CONFIG_FILE", "~/.aws/config"))
    ):
        return {}
    try:
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session
    except ImportError:
        return {}
    try:
        settings = Session(profile=profile).get_scoped_config()
    except BotoCoreError as error:
        raise CredentialsError(f"{store}: invalid AWS configuration: {error}") from error
    return {"region": settings.get("region"), "endpoint": settings.get("endpoint_url")}


def _no_s3_keys(store: str) -> str:
    return (
        f"{store}: no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
        "AWS_PROFILE, or --storage-option anonymous=true for a public bucket"
    )


def gcs_login(store: str, values: dict[str, str]) -> Login:
    """Return the login for a Google Cloud Storage bucket.

    Args:
        store: `gs://BUCKET`, for messages.
        values: The bucket's storage options.

    Raises:
        CredentialsError: No credentials were found, or their file is invalid.
    """
    given = ("bearer_token", "service_account", "service_account_key", "application_credentials")
    if parse_bool("skip_signature", values.get("skip_signature", "false")):
        return _NOBODY
    if any(key in values for key in given):
        return Login()
    path = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    # After the credentials of the options, and only without a file: a private endpoint may need a
    # login.
    if path is None and (os.environ.get("STORAGE_EMULATOR_HOST") or "base_url" in values):
        return _NOBODY  # as Google's own client does
    folder = os.environ.get("CLOUDSDK_CONFIG") or os.path.expanduser("~/.config/gcloud")
    gcloud = os.path.join(folder, "application_default_credentials.json")
    if path is None and os.path.exists(gcloud):
        path = gcloud
    if path is not None:
        return _google_file_login(store, path)
    if is_google_machine():
        return Login()
    raise CredentialsError(
        f"{store}: no Google credentials: run `gcloud auth application-default login`, or set "
        "GOOGLE_APPLICATION_CREDENTIALS, or --storage-option anonymous=true for a public bucket"
    )


def _google_file_login(store: str, path: str) -> Login:
    try:
        with open(path, "rb") as file:
            kind = json.load(file).get("type")
    except (OSError, ValueError, AttributeError) as error:
        raise CredentialsError(
            f"{store}: the Google credentials file {path} cannot be read: {error}"
        ) from error
    if kind in _NATIVE_GOOGLE_FILES:
        return Login({"application_credentials": path})
    return Login(provider=_google_auth_provider(store, path))


def _google_auth_provider(store: str, path: str) -> Callable[[], Any]:
    """Return a provider for workload identity federation and impersonation.

    google-auth exchanges and refreshes the tokens.
    """
    try:
        import google.auth
        from google.auth.exceptions import GoogleAuthError
        from obstore.auth.google import GoogleCredentialProvider

        credentials: Any = google.auth.load_credentials_from_file(path, scopes=[GOOGLE_SCOPE])[0]
        provider = GoogleCredentialProvider(credentials)
    except ImportError:
        raise CredentialsError(
            f"{store}: credentials of the kind in {path} need google-auth: "
            "pip install 'shardwright[gcp]'"
        ) from None
    except GoogleAuthError as error:
        raise CredentialsError(
            f"{store}: the Google credentials file {path} cannot be used: {error}"
        ) from error

    def fresh_token() -> Any:
        try:
            return provider()
        except GoogleAuthError as error:
            raise CredentialsError(google_message(error)) from None

    return fresh_token


def google_message(error: Exception) -> str:
    """Return the message of a google-auth error, whose text repeats it in the response."""
    return str(error.args[0]) if error.args else str(error)


def is_google_machine() -> bool:
    """Return whether a metadata server responds, within a second."""
    return _get("/", _PROBE_SECONDS)[1]


def identity_token(audience: str) -> str:
    """Return a new identity token of the machine's service account.

    Args:
        audience: The service that is to accept the token; its claim `aud`.

    Raises:
        CredentialsError: The metadata server returned none.
    """
    path = f"{_IDENTITY}?audience={quote(audience, safe='')}&format=full"
    answer = ""
    for attempt in range(_TOKEN_TRIES):
        time.sleep(2**attempt / 2 if attempt else 0)
        status, _, answer = _get(path, _TOKEN_SECONDS)
        if status == 200:
            return answer.strip()
        # Without a service account the server says so at once; a retry would only be slower.
        if 400 <= status < 500 and status != 429:
            break
    raise CredentialsError(
        "the metadata server gave no identity token of this machine's service account "
        f"({answer.strip()[:200]})"
    )


def _get(path: str, seconds: float) -> tuple[int, bool, str]:
    """Return the HTTP status, whether the server is Google's, and the body or the error."""
    # Imported here: its TLS and mail parsing are a third of the cost of `import shardwright`.
    from http.client import HTTPConnection, HTTPException

    host = os.environ.get("GCE_METADATA_HOST", _METADATA_HOST)
    connection = HTTPConnection(host, timeout=seconds)
    try:
        connection.request("GET", path, headers=_FLAVOR)
        answer = connection.getresponse()
        is_google = answer.getheader("Metadata-Flavor") == "Google"
        return answer.status, is_google, answer.read().decode(errors="replace")
    except (OSError, HTTPException) as error:
        return 0, False, f"{host}: {error}"
    finally:
        connection.close()
