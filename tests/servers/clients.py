"""The same operations by three clients: boto3, google-cloud-storage and obstore."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import obstore
import requests
from botocore.exceptions import ClientError
from google.api_core.exceptions import PreconditionFailed
from google.cloud.storage import transfer_manager
from google.resumable_media.requests import XMLMPUContainer
from obstore.exceptions import AlreadyExistsError
from obstore.store import GCSStore, S3Store

from tests.servers.store_server import StoreServer

PART_BYTES = 5 << 20  # the least that S3 and GCS take for a part


class Client(Protocol):
    """One bucket."""

    def put(self, key: str, data: bytes) -> None: ...
    def create(self, key: str, data: bytes) -> bool:
        """False where the object exists."""

    def get(self, key: str) -> bytes: ...
    def get_range(self, key: str, start: int, end: int) -> bytes: ...
    def keys(self, prefix: str) -> list[str]:
        """In the order of the listing, all of its pages."""

    def folders(self, prefix: str) -> list[str]: ...
    def put_parts(self, key: str, data: bytes) -> None: ...
    def give_up(self, key: str, while_pending: Callable[[], None]) -> None:
        """Begins an upload by parts, calls `while_pending` and aborts the upload."""

    def copy(self, source: str, target: str) -> None: ...
    def delete(self, *keys: str) -> None: ...


class Boto3:
    def __init__(self, server: StoreServer, bucket: str) -> None:
        self._s3 = server.s3_client()
        self._bucket = bucket

    def put(self, key: str, data: bytes) -> None:
        self._s3.put_object(Bucket=self._bucket, Key=key, Body=data)

    def create(self, key: str, data: bytes) -> bool:
        try:
            self._s3.put_object(Bucket=self._bucket, Key=key, Body=data, IfNoneMatch="*")
        except ClientError as error:
            if error.response["Error"]["Code"] != "PreconditionFailed":
                raise
            return False
        return True

    def get(self, key: str) -> bytes:
        return bytes(self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read())

    def get_range(self, key: str, start: int, end: int) -> bytes:
        return bytes(
            self._s3.get_object(Bucket=self._bucket, Key=key, Range=f"bytes={start}-{end - 1}")[
                "Body"
            ].read()
        )

    def _pages(self, **options: Any) -> Iterator[dict[str, Any]]:
        paginator = self._s3.get_paginator("list_objects_v2")
        yield from paginator.paginate(
            Bucket=self._bucket, PaginationConfig={"PageSize": 7}, **options
        )

    def keys(self, prefix: str) -> list[str]:
        return [
            entry["Key"]
            for page in self._pages(Prefix=prefix)
            for entry in page.get("Contents", ())
        ]

    def folders(self, prefix: str) -> list[str]:
        pages = self._pages(Prefix=prefix, Delimiter="/")
        return [entry["Prefix"] for page in pages for entry in page.get("CommonPrefixes", ())]

    def put_parts(self, key: str, data: bytes) -> None:
        upload = {"Bucket": self._bucket, "Key": key}
        upload["UploadId"] = self._s3.create_multipart_upload(**upload)["UploadId"]
        parts = []
        for number, start in enumerate(range(0, len(data), PART_BYTES), 1):
            answer = self._s3.upload_part(
                **upload, PartNumber=number, Body=data[start : start + PART_BYTES]
            )
            parts.append({"PartNumber": number, "ETag": answer["ETag"]})
        self._s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})

    def give_up(self, key: str, while_pending: Callable[[], None]) -> None:
        upload = {"Bucket": self._bucket, "Key": key}
        upload["UploadId"] = self._s3.create_multipart_upload(**upload)["UploadId"]
        self._s3.upload_part(**upload, PartNumber=1, Body=b"some")
        while_pending()
        self._s3.abort_multipart_upload(**upload)

    def copy(self, source: str, target: str) -> None:
        self._s3.copy_object(
            Bucket=self._bucket, Key=target, CopySource={"Bucket": self._bucket, "Key": source}
        )

    def delete(self, *keys: str) -> None:
        answer = self._s3.delete_objects(
            Bucket=self._bucket, Delete={"Objects": [{"Key": key} for key in keys]}
        )
        assert "Errors" not in answer


class Google:
    def __init__(self, server: StoreServer, bucket: str) -> None:
        self._server = server
        self._client = server.gcs_client()
        self._bucket = self._client.bucket(bucket)

    def put(self, key: str, data: bytes) -> None:
        self._bucket.blob(key).upload_from_string(data)

    def create(self, key: str, data: bytes) -> bool:
        try:
            self._bucket.blob(key).upload_from_string(data, if_generation_match=0)
        except PreconditionFailed:
            return False
        return True

    def get(self, key: str) -> bytes:
        return bytes(self._bucket.blob(key).download_as_bytes())

    def get_range(self, key: str, start: int, end: int) -> bytes:
        return bytes(self._bucket.blob(key).download_as_bytes(start=start, end=end - 1))

    def keys(self, prefix: str) -> list[str]:
        return [blob.name for blob in self._bucket.list_blobs(prefix=prefix, page_size=7)]

    def folders(self, prefix: str) -> list[str]:
        listing = self._bucket.list_blobs(prefix=prefix, delimiter="/", page_size=7)
        return [folder for page in listing.pages for folder in sorted(page.prefixes)]

    def put_parts(self, key: str, data: bytes) -> None:
        """In one request after the other, which is Google's other way to upload much: it has no part uploads in JSON."""
        blob = self._bucket.blob(key, chunk_size=PART_BYTES)
        blob.upload_from_file(io.BytesIO(data), size=len(data))

    def give_up(self, key: str, while_pending: Callable[[], None]) -> None:
        url = f"{self._server.endpoint}/{self._bucket.name}/{key}"
        headers = {"Authorization": f"Bearer {self._server.options['bearer_token']}"}
        upload = XMLMPUContainer(url, __file__, headers=headers)
        upload.initiate(requests.Session(), "application/octet-stream")
        while_pending()
        upload.cancel(requests.Session())

    def copy(self, source: str, target: str) -> None:
        self._bucket.copy_blob(self._bucket.blob(source), self._bucket, target)

    def delete(self, *keys: str) -> None:
        with self._client.batch():
            for key in keys:
                self._bucket.blob(key).delete()


def upload_chunks(server: StoreServer, bucket: str, key: str, path: Path) -> None:
    """google-cloud-storage's upload by parts, in threads, by the XML API."""
    blob = server.gcs_client().bucket(bucket).blob(key)
    transfer_manager.upload_chunks_concurrently(
        str(path), blob, chunk_size=PART_BYTES, worker_type=transfer_manager.THREAD, max_workers=2
    )


def open_store(server: StoreServer, bucket: str, **changes: str) -> S3Store | GCSStore:
    """obstore's store of a bucket; `changes` replace storage options."""
    options: dict[str, Any] = {**server.options, **changes}
    client = {"allow_http": options.pop("allow_http") == "true"}
    store = S3Store if server.scheme == "s3" else GCSStore
    return store(bucket, config=options, client_options=client, retry_config={"max_retries": 0})  # type: ignore[arg-type]


class Obstore:
    def __init__(self, server: StoreServer, bucket: str) -> None:
        self._store = open_store(server, bucket)

    def put(self, key: str, data: bytes) -> None:
        obstore.put(self._store, key, data, use_multipart=False)

    def create(self, key: str, data: bytes) -> bool:
        try:
            obstore.put(self._store, key, data, mode="create")
        except AlreadyExistsError:
            return False
        return True

    def get(self, key: str) -> bytes:
        return bytes(obstore.get(self._store, key).bytes())

    def get_range(self, key: str, start: int, end: int) -> bytes:
        return bytes(obstore.get_range(self._store, key, start=start, end=end))

    def keys(self, prefix: str) -> list[str]:
        return [
            entry["path"]
            for entry in obstore.list(self._store, prefix or None, chunk_size=7).collect()
        ]

    def folders(self, prefix: str) -> list[str]:
        found = obstore.list_with_delimiter(self._store, prefix.rstrip("/") or None)[
            "common_prefixes"
        ]
        return [f"{folder}/" for folder in found]

    def put_parts(self, key: str, data: bytes) -> None:
        obstore.put(self._store, key, data, use_multipart=True, chunk_size=PART_BYTES)

    def give_up(self, key: str, while_pending: Callable[[], None]) -> None:
        with (
            contextlib.suppress(_GivenUpError),
            obstore.open_writer(self._store, key, buffer_size=PART_BYTES) as writer,
        ):
            writer.write(bytes(PART_BYTES + 1))
            writer.flush()
            while_pending()
            raise _GivenUpError

    def copy(self, source: str, target: str) -> None:
        obstore.copy(self._store, source, target)

    def delete(self, *keys: str) -> None:
        obstore.delete(self._store, list(keys))


class _GivenUpError(Exception):
    pass
