"""Builds on Flink: the local runner's bytes, spread over workers, and errors in one line.

The parts of a real cluster, each a process: JobManager, TaskManagers, job server, Python workers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.flink.cluster import Cluster
from tests.engines.engine_builds import LOCAL, OPTIONS, build, shard_digests
from tests.engines.engine_images import add_bad_images, make_engine_images
from tests.engines.engine_transforms import FAILING, FOLDER, WATCHED
from tests.engines.flink_cluster import SECONDS, TEST_SECONDS
from tests.engines.growing import check_growing
from tests.support.buckets import Bucket
from tests.support.build_helpers import hashes_of, leftovers_of, png_of, rejects_of, stamps_of
from tests.support.object_stores import download_folder, upload_folder

SHARED = "--shared-filesystem"
pytestmark = pytest.mark.timeout(TEST_SECONDS)


def all_at_once(folder: Path) -> tuple[Path, tuple[str | Path, ...]]:
    """Labels, broken images, copies and near-copies, re-encoding, and splits drawn by class."""
    images = make_engine_images(folder / "in", names=("x", "y"))
    add_bad_images(images, names=("x", "y"))
    for number in range(4):
        (images / "x" / f"copy-{number}.png").write_bytes(png_of(number))
        (images / "y" / f"near-{number}.png").write_bytes(png_of(number) + b" another length")
    names = sorted(str(path.relative_to(images)) for path in images.rglob("*.*"))
    # The first one has no label.
    rows = (f"{name},{'abc'[number % 3]}\n" for number, name in enumerate(names[1:]))
    (folder / "labels.csv").write_text("image,label\n" + "".join(rows))
    options = "--encode jpeg --resize 32x32 --check decode --duplicates drop "
    options += "--near-duplicates drop --stratify"
    labels = ("--labels", folder / "labels.csv", "--max-reject-fraction", "0.5")
    return images, (*labels, *options.split())


def test_two_workers_make_the_bytes_of_the_local_runner(
    flink: Cluster, engine_images: Path, local_dataset: Path, tmp_path: Path
) -> None:
    runner, out = flink.arguments(2), tmp_path / "out"
    ended = build(runner, engine_images, out, *OPTIONS, SHARED, timeout=SECONDS)
    assert shard_digests(out) == shard_digests(local_dataset)
    assert leftovers_of(out) == []
    assert "60 records in 8 shards" in ended.log.splitlines()[-1]

    before = stamps_of(out)
    build(runner, engine_images, out, *OPTIONS, SHARED, timeout=SECONDS)
    assert stamps_of(out) == before


def test_four_python_workers_make_the_same_of_splits_joins_rejects_and_encoding(
    flink: Cluster, tmp_path: Path
) -> None:
    images, given = all_at_once(tmp_path)
    options = (*OPTIONS, *given, "--transform", WATCHED)
    here, there, folder = (tmp_path / name for name in ("here", "there", "processes"))
    build(LOCAL, images, here, *options)
    folder.mkdir()
    arguments = flink.arguments(4, python_processes=2, environment={FOLDER: str(folder)})
    build(arguments, images, there, *options, SHARED, timeout=SECONDS)

    assert shard_digests(there) == shard_digests(here)
    assert rejects_of(there) == rejects_of(here)
    assert {reject["reason"] for reject in rejects_of(there)} >= {"empty_file", "truncated"}
    written = {path.name: set(path.read_text().split()) for path in folder.iterdir()}
    assert len(written) >= 3, f"few of the four Python processes wrote most shards: {written}"


def test_a_dataset_grows_and_is_compacted(flink: Cluster, tmp_path: Path) -> None:
    check_growing([*flink.arguments(2), SHARED], tmp_path, SECONDS)


def test_input_and_output_in_an_object_store(
    flink: Cluster, engine_images: Path, local_dataset: Path, s3_bucket: Bucket, tmp_path: Path
) -> None:
    """The endpoint is given by the command, the keys by the workers' environment."""
    upload_folder(s3_bucket.server, engine_images, f"{s3_bucket.uri}/in")
    options = s3_bucket.server.options
    keys = {
        "AWS_ACCESS_KEY_ID": options["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": options["secret_access_key"],
    }
    known = ("endpoint", "region", "allow_http")
    given = [f"--storage-option={key}={options[key]}" for key in known]
    arguments = flink.arguments(2, environment=keys)
    source, output = f"{s3_bucket.uri}/in", f"{s3_bucket.uri}/out"
    build(arguments, source, output, *OPTIONS, *given, env=keys, timeout=SECONDS)
    download_folder(s3_bucket.server, output, tmp_path / "out")
    assert hashes_of(tmp_path / "out") == hashes_of(local_dataset)


def test_a_failing_function_ends_the_build_with_its_reason(
    flink: Cluster, engine_images: Path, tmp_path: Path
) -> None:
    options = (*OPTIONS, "--transform", FAILING, SHARED)
    # Another name for it, where a job server is given.
    runner = [*flink.arguments(2)[1:], "--runner=FlinkRunner"]
    ended = build(runner, engine_images, tmp_path / "out", *options, timeout=SECONDS, code=1)
    *lines, last = ended.log.splitlines()
    told = "INPUT has no images: every file is a reject (60 transform)"
    assert last == f"shardwright: error: {told}; {tmp_path}/out/rejects/ lists them"
    assert "ValueError: no luck with" in ended.log
    # No stack trace, of Python or Java.
    assert all(line.startswith("shardwright: ") for line in lines), ended.log
    assert not (tmp_path / "out" / "manifest.json").exists()
