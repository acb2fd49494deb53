"""Builds on Flink: the same bytes as the local runner's, spread over workers, and errors in one line.

The parts are those of a real cluster, each a process of its own: JobManager, TaskManagers, Beam's job server, Python workers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.flink.cluster import Cluster
from tests.buckets import Bucket
from tests.build_helpers import hashes_of, leftovers_of, png_of, rejects_of, stamps_of
from tests.engines.engine_builds import LOCAL, OPTIONS, build, shard_digests
from tests.engines.engine_images import add_bad_images, make_engine_images
from tests.engines.engine_transforms import FAILING, FOLDER, WATCHED
from tests.engines.flink_cluster import SECONDS, TEST_SECONDS
from tests.object_stores import download_folder, upload_folder

SHARED = "--shared-filesystem"
pytestmark = pytest.mark.timeout(TEST_SECONDS)


def all_at_once(folder: Path) -> tuple[Path, tuple[str | Path, ...]]:
    """Images with labels in a table, some broken, some twice, encoded anew, in splits drawn by class."""
    images = make_engine_images(folder / "in", names=("x", "y"))
    add_bad_images(images, names=("x", "y"))
    for number in range(4):
        (images / "x" / f"copy-{number}.png").write_bytes(png_of(number))
    names = sorted(str(path.relative_to(images)) for path in images.rglob("*.*"))
    rows = (
        f"{name},{'abc'[number % 3]}\n" for number, name in enumerate(names[1:])
    )  # the first one has none
    (folder / "labels.csv").write_text("image,label\n" + "".join(rows))
    anew = (
        "--encode",
        "jpeg",
        "--resize",
        "32x32",
        "--check",
        "decode",
        "--max-reject-fraction",
        "0.5",
    )
    return images, ("--labels", folder / "labels.csv", "--duplicates", "drop", "--stratify", *anew)


def test_two_workers_make_the_bytes_of_the_local_runner(
    flink: Cluster, engine_images: Path, local_dataset: Path, tmp_path: Path
) -> None:
    ended = build(
        flink.arguments(2), engine_images, tmp_path / "out", *OPTIONS, SHARED, timeout=SECONDS
    )
    assert shard_digests(tmp_path / "out") == shard_digests(local_dataset)
    assert leftovers_of(tmp_path / "out") == []
    assert "60 records in 8 shards" in ended.log.splitlines()[-1]

    before = stamps_of(tmp_path / "out")
    build(flink.arguments(2), engine_images, tmp_path / "out", *OPTIONS, SHARED, timeout=SECONDS)
    assert stamps_of(tmp_path / "out") == before


def test_four_python_workers_make_the_same_of_splits_joins_rejects_and_encoding(
    flink: Cluster, tmp_path: Path
) -> None:
    images, options = all_at_once(tmp_path)
    build(LOCAL, images, tmp_path / "here", *OPTIONS, *options, "--transform", WATCHED)
    folder = tmp_path / "processes"
    folder.mkdir()
    arguments = flink.arguments(4, python_processes=2, environment={FOLDER: str(folder)})
    build(
        arguments,
        images,
        tmp_path / "there",
        *OPTIONS,
        *options,
        "--transform",
        WATCHED,
        SHARED,
        timeout=SECONDS,
    )

    assert shard_digests(tmp_path / "there") == shard_digests(tmp_path / "here")
    assert rejects_of(tmp_path / "there") == rejects_of(tmp_path / "here")
    assert {reject["reason"] for reject in rejects_of(tmp_path / "there")} >= {
        "empty_file",
        "truncated",
    }
    written = {path.name: set(path.read_text().split()) for path in folder.iterdir()}
    assert len(written) >= 3, (
        f"most shards were written by few of the four Python processes: {written}"
    )


def test_input_and_output_in_an_object_store(
    flink: Cluster, engine_images: Path, local_dataset: Path, s3_bucket: Bucket, tmp_path: Path
) -> None:
    """What reaches it is given both ways: the endpoint by the command, the keys by the workers' environment."""
    upload_folder(s3_bucket.server, engine_images, f"{s3_bucket.uri}/in")
    options = s3_bucket.server.options
    keys = {
        "AWS_ACCESS_KEY_ID": options["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": options["secret_access_key"],
    }
    given = [
        f"--storage-option={key}={options[key]}" for key in ("endpoint", "region", "allow_http")
    ]
    arguments = flink.arguments(2, environment=keys)
    build(
        arguments,
        f"{s3_bucket.uri}/in",
        f"{s3_bucket.uri}/out",
        *OPTIONS,
        *given,
        env=keys,
        timeout=SECONDS,
    )
    download_folder(s3_bucket.server, f"{s3_bucket.uri}/out", tmp_path / "out")
    assert hashes_of(tmp_path / "out") == hashes_of(local_dataset)


def test_a_failing_function_ends_the_build_with_its_reason(
    flink: Cluster, engine_images: Path, tmp_path: Path
) -> None:
    options = (*OPTIONS, "--transform", FAILING, SHARED)
    runner = [
        *flink.arguments(2)[1:],
        "--runner=FlinkRunner",
    ]  # another name for it, where a job server is given
    ended = build(runner, engine_images, tmp_path / "out", *options, timeout=SECONDS, code=1)
    assert (
        ended.log.splitlines()[-1]
        == "shardwright: error: INPUT has no images: every file is a reject (60 transform)"
    )
    assert "ValueError: no luck with" in ended.log
    assert all(line.startswith("shardwright: ") for line in ended.log.splitlines()), (
        ended.log
    )  # no stack trace, of Python or Java
    assert not (tmp_path / "out" / "manifest.json").exists()
