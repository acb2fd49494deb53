"""A running object store, seen from outside."""

from __future__ import annotations

import functools
import json
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal


@dataclass(frozen=True)
class StoreServer:
    """A running object store, and the storage options that reach it."""

    scheme: Literal["s3", "gs"]
    endpoint: str  # http://127.0.0.1:PORT
    options: Mapping[str, str]  # obstore's configuration keys

    def at(self, endpoint: str, **options: str) -> StoreServer:
        """Return the server at another endpoint, such as a proxy's, with more options."""
        key = "endpoint" if self.scheme == "s3" else "base_url"
        return replace(self, endpoint=endpoint, options={**self.options, key: endpoint, **options})

    def make_bucket(self, name: str) -> None:
        if self.scheme == "s3":
            self.s3_client().create_bucket(Bucket=name)
        else:
            self.request("POST", "/storage/v1/b?project=test", json.dumps({"name": name}).encode())

    def pending_uploads(self, bucket: str) -> list[str]:
        """Return the keys of multipart uploads that were neither completed nor aborted."""
        if self.scheme == "s3":
            pages = self.s3_client().get_paginator("list_multipart_uploads").paginate(Bucket=bucket)
            return sorted(upload["Key"] for page in pages for upload in page.get("Uploads", ()))
        listing = ElementTree.fromstring(self.request("GET", f"/{bucket}?uploads"))
        return sorted(key.text or "" for key in listing.iterfind(".//{*}Upload/{*}Key"))

    def s3_client(self, **changes: str) -> Any:
        """Return a boto3 client; `changes` replace storage options."""
        options = {**self.options, **changes}
        keys = ("endpoint", "access_key_id", "secret_access_key", "region")
        return _s3_client(*(options[key] for key in keys))

    def gcs_client(self, *, token: str | None = None) -> Any:
        """Return a google-cloud-storage client; `token` replaces the bearer token."""
        return _gcs_client(self.endpoint, token or self.options["bearer_token"])

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> bytes:
        """Return the answer's body to a plain request with the right bearer token."""
        all_headers = {"Authorization": f"Bearer {self.options.get('bearer_token', '')}", **headers}
        request = urllib.request.Request(self.endpoint + path, body, all_headers, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=120) as answer:
            return bytes(answer.read())


# Clients are shared, between threads too: making one takes 50 ms and more.
@functools.cache
def _s3_client(endpoint: str, access_key_id: str, secret_access_key: str, region: str) -> Any:
    import boto3
    from botocore.config import Config

    config = Config(s3={"addressing_style": "path"}, proxies={}, retries={"max_attempts": 1})
    session = boto3.session.Session(access_key_id, secret_access_key, region_name=region)
    return session.client("s3", endpoint_url=endpoint, config=config)


@functools.cache
def _gcs_client(endpoint: str, token: str) -> Any:
    from google.cloud import storage
    from google.oauth2.credentials import Credentials

    options = {"api_endpoint": endpoint}
    return storage.Client("test", Credentials(token=token), client_options=options)
