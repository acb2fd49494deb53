"""Configure obstore's clients from storage options, the environment and AWS profiles."""

from __future__ import annotations

import os

from shardwright.storage.credentials import Login, gcs_login, profile_settings, s3_login
from shardwright.storage.options import AZURE_KEYS, GCS_KEYS, S3_KEYS, typed


def configure(store: str, values: dict[str, str]) -> tuple[Login, dict[str, object]]:
    """Return the login and obstore's configuration, with the environment's endpoint and region."""
    scheme = store.partition("://")[0]
    if scheme == "s3":
        login = s3_login(store, values)
        found, known = _s3_environment(store, values.get("profile")), S3_KEYS - {"profile"}
    elif scheme == "gs":
        login = gcs_login(store, values)
        found, known = _gcs_environment(), GCS_KEYS
    else:
        return Login(), {
            key: typed(key, value)
            for key, value in values.items()
            if key in AZURE_KEYS and scheme == "az"
        }
    given = {key: typed(key, value) for key, value in values.items() if key in known}
    config = {
        key: value for key, value in {**login.config, **found, **given}.items() if value is not None
    }
    if "endpoint" in config:
        config["endpoint"] = str(config["endpoint"]).rstrip("/")
    return login, config


def _s3_environment(store: str, profile: str | None) -> dict[str, object]:
    env, settings = os.environ, profile_settings(store, profile)
    return {
        "endpoint": env.get("AWS_ENDPOINT_URL_S3")
        or env.get("AWS_ENDPOINT_URL")
        or settings.get("endpoint"),
        "region": env.get("AWS_REGION")
        or env.get("AWS_DEFAULT_REGION")
        or settings.get("region")
        or "us-east-1",
    }


def _gcs_environment() -> dict[str, object]:
    emulator = os.environ.get("STORAGE_EMULATOR_HOST")
    return {"base_url": emulator if emulator is None or "://" in emulator else f"http://{emulator}"}
