"""Ask the metadata server of a Google machine, which knows the machine's service account.

See https://cloud.google.com/compute/docs/metadata/querying-metadata.
"""

from __future__ import annotations

import os
import time
from urllib.parse import quote

from shardwright.errors import CredentialsError

_HOST = "169.254.169.254"
_FLAVOR = {"Metadata-Flavor": "Google"}
_PROBE_SECONDS = 1.0
_TOKEN_SECONDS, _TOKEN_TRIES = 5.0, 4
_IDENTITY = "/computeMetadata/v1/instance/service-accounts/default/identity"


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

    host = os.environ.get("GCE_METADATA_HOST", _HOST)
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
