"""Read many small objects with each client, in the way that its own documentation recommends.

There are 64 requests at a time if the client allows a choice (shardwright: its default, 128). Each
reader is a function of the store and of rows (key, num_bytes, etag). It returns the number of bytes
read and keeps none of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

IN_FLIGHT = 64
_BATCH = 200  # keys per call of fsspec's cat, which has at most 128 requests in flight
_CHUNK = 50  # rows per chunk, as in the 4 MB of a build


@dataclass(frozen=True)
class Place:
    """A bucket and its storage options, with obstore's names."""

    scheme: str
    bucket: str
    options: dict[str, str]

    @property
    def endpoint(self) -> str:
        return self.options["endpoint" if self.scheme == "s3" else "base_url"]


Row = dict[str, Any]
Read = Callable[[Sequence[Row]], int]


def _batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _threads(read: Callable[[str], bytes]) -> Read:
    def run(rows: Sequence[Row]) -> int:
        with ThreadPoolExecutor(IN_FLIGHT) as pool:
            return sum(pool.map(lambda row: len(read(row["key"])), rows))

    return run


def shardwright(place: Place) -> Read:
    """Return a build's read path: chunks of references in order, checked against the listing."""
    import pyarrow as pa

    from shardwright.storage.options import StorageOptions
    from shardwright.transforms.write.image_reads import read_ahead

    options = StorageOptions.of(place.options)

    def chunk(rows: Sequence[Row]) -> pa.RecordBatch:
        uris = [f"{place.scheme}://{place.bucket}/{row['key']}" for row in rows]
        columns = {"uri": uris, "offset": pa.nulls(len(rows), pa.int64())}
        return pa.record_batch(
            columns | {name: [row[name] for row in rows] for name in ("num_bytes", "etag")}
        )

    def run(rows: Sequence[Row]) -> int:
        chunks: Iterable[pa.RecordBatch] = map(chunk, _batches(rows, _CHUNK))
        return sum(len(read()) for _, reads in read_ahead(chunks, options) for read in reads)

    return run


def obstore_threads(place: Place) -> Read:
    """Return a reader with only the underlying client, without checks."""
    import obstore
    from obstore.store import GCSStore, S3Store

    options: Any = {key: value for key, value in place.options.items() if key != "allow_http"}
    kind = S3Store if place.scheme == "s3" else GCSStore
    store = kind(place.bucket, config=options, client_options={"allow_http": True})
    return _threads(lambda key: bytes(obstore.get(store, key).bytes()))


def boto3_client(place: Place) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        endpoint_url=place.endpoint,
        aws_access_key_id=place.options["access_key_id"],
        aws_secret_access_key=place.options["secret_access_key"],
        region_name=place.options["region"],
        config=Config(max_pool_connections=IN_FLIGHT, s3={"addressing_style": "path"}),
    )


def boto3_threads(place: Place) -> Read:
    client = boto3_client(place)
    return _threads(lambda key: client.get_object(Bucket=place.bucket, Key=key)["Body"].read())


def google_bucket(place: Place) -> Any:
    import requests
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    client = storage.Client(
        "test", AnonymousCredentials(), client_options={"api_endpoint": place.endpoint}
    )
    # The default is 10 connections.
    adapter = requests.adapters.HTTPAdapter(pool_connections=IN_FLIGHT, pool_maxsize=IN_FLIGHT)
    client._http.mount("http://", adapter)
    return client.bucket(place.bucket)


def google_threads(place: Place) -> Read:
    bucket = google_bucket(place)
    return _threads(lambda key: bucket.blob(key).download_as_bytes())


def _fsspec(filesystem: Any, place: Place) -> Read:
    def run(rows: Sequence[Row]) -> int:
        paths = [f"{place.bucket}/{row['key']}" for row in rows]
        return sum(
            len(data)
            for some in _batches(paths, _BATCH)
            for data in filesystem.cat(list(some)).values()
        )

    return run


def s3fs_cat(place: Place) -> Read:
    from s3fs import S3FileSystem

    keys = {"key": place.options["access_key_id"], "secret": place.options["secret_access_key"]}
    client = {"endpoint_url": place.endpoint, "region_name": place.options["region"]}
    config = {"max_pool_connections": IN_FLIGHT}
    return _fsspec(S3FileSystem(**keys, client_kwargs=client, config_kwargs=config), place)


def gcsfs_cat(place: Place) -> Read:
    # It would query the bucket's type by gRPC for a minute; no emulator responds to that.
    os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
    from gcsfs import GCSFileSystem

    return _fsspec(GCSFileSystem(token="anon", endpoint_url=place.endpoint), place)


def beam_options(place: Place) -> list[str]:
    """Return Beam's options for the store; its GCS client reads STORAGE_EMULATOR_HOST.

    The runner is FnApiRunner, because DirectRunner would first try to download Prism.
    """
    if place.scheme == "gs":
        return ["--runner=FnApiRunner", "--no_auth"]
    keys = ("access_key_id", "secret_access_key")
    return [
        "--runner=FnApiRunner",
        f"--s3_endpoint_url={place.endpoint}",
        f"--s3_region_name={place.options['region']}",
        *(f"--s3_{key}={place.options[key]}" for key in keys),
    ]


_found: list[int] = []


def _keep(num_bytes: int) -> None:
    """Append to this process's list.

    A module-level function is pickled by its name, so the pipeline calls this very one.
    """
    _found.append(num_bytes)


def beam_read_matches(place: Place) -> Read:
    import apache_beam as beam
    from apache_beam.io import fileio
    from apache_beam.io.filesystem import FileMetadata
    from apache_beam.options.pipeline_options import PipelineOptions

    def run(rows: Sequence[Row]) -> int:
        files = [
            FileMetadata(f"{place.scheme}://{place.bucket}/{row['key']}", row["num_bytes"])
            for row in rows
        ]
        _found.clear()
        with beam.Pipeline(options=PipelineOptions(beam_options(place))) as pipeline:
            sizes = (
                pipeline
                | beam.Create(files)
                | fileio.ReadMatches()
                | beam.Map(lambda file: len(file.read()))
            )
            sizes | beam.CombineGlobally(sum) | beam.Map(_keep)
        return sum(_found)

    return run


READERS: dict[str, dict[str, Callable[[Place], Read]]] = {
    "s3": {
        "shardwright": shardwright,
        "obstore-threads": obstore_threads,
        "boto3-threads": boto3_threads,
        "s3fs": s3fs_cat,
        "beam-readmatches": beam_read_matches,
    },
    "gs": {
        "shardwright": shardwright,
        "obstore-threads": obstore_threads,
        "google-threads": google_threads,
        "gcsfs": gcsfs_cat,
        "beam-readmatches": beam_read_matches,
    },
}
