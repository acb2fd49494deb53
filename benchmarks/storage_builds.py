#!/usr/bin/env python
"""The whole builds from S3 that `storage.py` compares: `storage_builds.py SYSTEM IN OUT`.

IN is an s3:// bucket, OUT a folder or a prefix in one.

  shardwright  `shardwright build IN OUT --shard-size 150MB`, its defaults
  boto3-loop   a paginator, 64 threads with one shared client, tf.train.Example,
               tf.io.TFRecordWriter, shards of 150 MB. For an OUT on S3, boto3's transfer manager
               uploads each shard from a local file, because TensorFlow does not support S3
  beam-stock   Beam's transforms: MatchFiles | ReadMatches | Map(to tf.train.Example) |
               WriteToTFRecord, on the in-memory runner

The endpoint and the credentials are environment variables, such as AWS_ENDPOINT_URL.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import environments
from storage_reads import IN_FLIGHT, Place, beam_options, boto3_client
from systems import HERE, SHARD_BYTES, _example, shardwright_command

OURS, BOTO3, BEAM = "shardwright", "boto3-loop", "beam-stock"
NAMES = (OURS, BOTO3, BEAM)


def build_command(name: str, source: str, out: str) -> list[str]:
    """Return the command of a system."""
    if name == OURS:
        return shardwright_command("build", source, out, "--shard-size", "150MB")
    python = environments.python_of("storage", name)
    return [python, str(HERE / "storage_builds.py"), name, source, out]


def _place(uri: str) -> Place:
    env = os.environ
    options = {"endpoint": env["AWS_ENDPOINT_URL"], "region": env["AWS_REGION"]}
    keys = {
        "access_key_id": env["AWS_ACCESS_KEY_ID"],
        "secret_access_key": env["AWS_SECRET_ACCESS_KEY"],
    }
    return Place("s3", uri.removeprefix("s3://"), options | keys)


def _objects(client: Any, bucket: str) -> Iterator[tuple[str, int]]:
    """Yield (key, label) in key order, which is also the order of labels."""
    names: list[str] = []
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for row in page.get("Contents", ()):
            name = row["Key"].split("/")[0]
            if not names or names[-1] != name:
                names.append(name)
            yield row["Key"], len(names) - 1


def _images(client: Any, bucket: str) -> Iterator[tuple[bytes, str, int]]:
    """Yield (image, key, label) in order, with at most 128 images requested ahead."""
    waiting: deque[tuple[Future[bytes], str, int]] = deque()
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        for key, label in _objects(client, bucket):
            future = pool.submit(
                lambda key=key: client.get_object(Bucket=bucket, Key=key)["Body"].read()
            )  # type: ignore[misc]
            waiting.append((future, key, label))
            if len(waiting) == 2 * IN_FLIGHT:
                future, key, label = waiting.popleft()
                yield future.result(), key, label
        for future, key, label in waiting:
            yield future.result(), key, label


class _Shards:
    """TFRecord files of at most 150 MB, in a folder or, via a temporary file, in a bucket."""

    def __init__(self, client: Any, out: str, folder: str) -> None:
        self._client, self._remote = client, out.startswith("s3://")
        self._bucket, _, self._prefix = out.removeprefix("s3://").partition("/")
        self._folder = folder if self._remote else out
        self._writer: Any = None
        self._number = self._used = 0

    def write(self, record: bytes) -> None:
        import tensorflow as tf

        if self._writer is None or self._used + len(record) > SHARD_BYTES:
            self.close()
            self._writer, self._used = tf.io.TFRecordWriter(self._path()), 0
        self._writer.write(record)
        self._used += len(record)

    def _path(self) -> str:
        return f"{self._folder}/images-{self._number:05d}.tfrecord"

    def close(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        if self._remote:
            self._client.upload_file(
                self._path(), self._bucket, f"{self._prefix}/{Path(self._path()).name}"
            )
            os.remove(self._path())
        self._number += 1


def run_boto3_loop(source: str, out: str) -> None:
    place = _place(source)
    client = boto3_client(place)
    with tempfile.TemporaryDirectory() as folder:
        shards = _Shards(client, out, folder)
        for image, key, label in _images(client, place.bucket):
            shards.write(_example(image, key, label))
        shards.close()


def run_beam_stock(source: str, out: str) -> None:
    import apache_beam as beam
    from apache_beam.io import fileio
    from apache_beam.options.pipeline_options import PipelineOptions

    place = _place(source)

    def to_example(file: fileio.ReadableFile) -> bytes:
        class_name, name = file.metadata.path.split("/")[-2:]
        return _example(file.read(), f"{class_name}/{name}", int(class_name.rpartition("_")[2]))

    with beam.Pipeline(options=PipelineOptions(beam_options(place))) as pipeline:
        images = (
            pipeline
            | fileio.MatchFiles(f"{source}/**")
            | fileio.ReadMatches()
            | beam.Map(to_example)
        )
        images | beam.io.WriteToTFRecord(
            f"{out}/images", file_name_suffix=".tfrecord", num_shards=1
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=NAMES, help="the system")
    parser.add_argument("source", metavar="IN", help="s3://BUCKET with CLASS/NAME.jpg")
    parser.add_argument("out", metavar="OUT", help="an empty folder or s3://BUCKET/PREFIX")
    args = parser.parse_args()
    if args.name == OURS:
        words = build_command(OURS, args.source, args.out)
        os.execv(words[0], words)
    {BOTO3: run_boto3_loop, BEAM: run_beam_stock}[args.name](args.source, args.out)


if __name__ == "__main__":
    main()
