"""obstore's client of a test server, with one try for each request."""

from __future__ import annotations

from typing import Any

from obstore.store import GCSStore, S3Store

from tests.servers.store_server import StoreServer

PART_BYTES = 5 << 20  # the minimum of S3 and GCS for a part


def open_store(server: StoreServer, bucket: str, **changes: str) -> S3Store | GCSStore:
    """Return obstore's store of a bucket; `changes` replace storage options."""
    options: dict[str, Any] = {**server.options, **changes}
    client = {"allow_http": options.pop("allow_http") == "true"}
    store: Any = S3Store if server.scheme == "s3" else GCSStore
    opened: S3Store | GCSStore = store(
        bucket, config=options, client_options=client, retry_config={"max_retries": 0}
    )
    return opened
