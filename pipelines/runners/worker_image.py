"""Compare the image of Dataflow's workers with this machine, before a job is submitted.

Python and Beam must agree: functions and their arguments are pickled here and loaded there.
"""

from __future__ import annotations

import logging
import re
import sys
from importlib import metadata
from typing import Any, NamedTuple

from shardwright.errors import UsageError

_LOG = logging.getLogger("shardwright.dataflow")
_SECONDS = 3.0  # per request; at most four
_BEAMS_OWN = re.compile(
    r"(?:docker\.io/)?(?:apache|gcr\.io/cloud-dataflow/v1beta3)/"
    r"beam_python(?P<python>\d+\.\d+)_sdk(?:_distroless)?(?::(?P<beam>\d+\.\d+\.\d+))?"
)
_BASE_LABEL = "org.opencontainers.image.base.name"
_MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)


class Versions(NamedTuple):
    """Versions in an image; None if unknown."""

    python: str | None
    beam: str | None


def is_beams_own(image: str) -> bool:
    """Return whether an image is Beam's own, by its name: it lacks this package.

    Raises:
        UsageError: It is of another Python or Beam.
    """
    match = _BEAMS_OWN.match(image)
    if match is None:
        return False
    _check(image, Versions(match["python"], match["beam"]))
    return True


def check_image(image: str) -> None:
    """Compare an image in its registry with this machine; skip a registry that does not respond.

    Raises:
        UsageError: The image is of another Python or Beam, or does not exist.
    """
    from google.auth.exceptions import GoogleAuthError

    try:
        config = _read_config(image)
    except (GoogleAuthError, OSError, ValueError, KeyError) as error:
        _LOG.info("%s was not checked: %s", image, error)
        return
    if config is None:
        raise UsageError(
            f"--sdk_container_image {image} does not exist: build deploy/Dockerfile and push it "
            "(docs/dataflow.md)"
        )
    variables = dict(text.partition("=")[::2] for text in config.get("Env") or ())
    base = _BEAMS_OWN.match((config.get("Labels") or {}).get(_BASE_LABEL, ""))
    python = ".".join(variables.get("PYTHON_VERSION", "").split(".")[:2])
    _check(image, Versions(python or (base and base["python"]), base and base["beam"]))


def _check(image: str, found: Versions) -> None:
    here = Versions("{}.{}".format(*sys.version_info), metadata.version("apache-beam"))
    if found.python in (None, here.python) and found.beam in (None, here.beam):
        return
    there = [
        f"{name} {version}"
        for name, version in (("Python", found.python), ("Beam", found.beam))
        if version
    ]
    raise UsageError(
        f"--sdk_container_image {image} has {' and '.join(there)}, this machine Python "
        f"{here.python} and Beam {here.beam}, and both must agree: build the image again "
        "(deploy/Dockerfile), or submit with the image's versions"
    )


def _read_config(image: str) -> dict[str, Any] | None:
    """Return the configuration of an image for linux/amd64, or None if there is no such image.

    See https://github.com/opencontainers/distribution-spec and image-spec.

    Raises:
        GoogleAuthError: There are no credentials of Google.
        OSError: The registry does not respond, or refuses.
        ValueError: The name has no registry, or the response is no JSON.
        KeyError: The response has another form.
    """
    root, host, reference = _address_of(image)
    session = _session(host)
    manifest = _get(session, f"{root}/manifests/{reference}")
    if manifest and "manifests" in manifest:
        digests = {
            (each["platform"]["os"], each["platform"]["architecture"]): each["digest"]
            for each in manifest["manifests"]
        }
        manifest = _get(session, f"{root}/manifests/{digests['linux', 'amd64']}")
    found = manifest and _get(session, f"{root}/blobs/{manifest['config']['digest']}")
    return found and found["config"]


def _address_of(image: str) -> tuple[str, str, str]:
    """Return an image's address in the API of its registry, the registry, and its tag or digest."""
    registry, _, rest = image.partition("/")
    host = registry.partition(":")[0]
    if not rest or not ("." in host or host == "localhost"):
        raise ValueError("its name has no registry")
    name, at, reference = rest.partition("@")
    if not at:
        name, _, reference = rest.partition(":")
    # As Docker does: a registry of this machine has no TLS.
    scheme = "http" if host in ("localhost", "127.0.0.1") else "https"
    return f"{scheme}://{registry}/v2/{name}", host, reference or "latest"


def _get(session: Any, url: str) -> Any:
    """Return a JSON document, or None if it does not exist."""
    answer = session.get(url, headers={"Accept": ", ".join(_MANIFESTS)}, timeout=_SECONDS)
    if answer.status_code == 404:
        return None
    answer.raise_for_status()
    return answer.json()


def _session(host: str) -> Any:
    """Return a session for a registry, with Google's credentials for Google's registries."""
    import google.auth
    from google.auth.credentials import AnonymousCredentials
    from google.auth.transport.requests import AuthorizedSession

    if not host.endswith(("docker.pkg.dev", "gcr.io")):
        return AuthorizedSession(AnonymousCredentials())
    scopes = ["https://www.googleapis.com/auth/cloud-platform"]
    return AuthorizedSession(google.auth.default(scopes=scopes)[0])
