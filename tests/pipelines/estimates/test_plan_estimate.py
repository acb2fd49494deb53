"""`plan --estimate`: from a folder, a store and an archive; requests as a real build makes them."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shardwright.pipelines.commands import plan
from tests.servers.fault_proxy import FaultProxy
from tests.support.buckets import Bucket
from tests.support.build_helpers import build, make_images
from tests.support.object_stores import upload_folder


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("in") / "zoo", 100, side=180)


def estimate(capsys: pytest.CaptureFixture[str], *argv: object) -> dict[str, Any]:
    capsys.readouterr()
    assert plan.main([*map(str, argv), "--estimate", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["build_estimate"]
    return found


def test_a_folder(images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = estimate(capsys, images, tmp_path / "out", "--check", "decode")
    assert list(found) == ["figures", "unknown", "warning"]
    figures = {name: figure["value"] for name, figure in found["figures"].items()}
    names = ["bytes read", "bytes written", "image", "CPU of image", "shard", "all", "memory"]
    assert list(figures) == names
    assert figures["all"] == figures["shard"] == pytest.approx(100 * figures["image"])
    assert figures["image"] > figures["CPU of image"] / 64 > 0
    assert (found["unknown"], found["warning"]) == ([], "")
    assert not (tmp_path / "out").exists()


def test_text_and_prices_of_ones_own(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("")
    assert plan.main([str(images), str(tmp_path / "out"), "--prices", str(prices)]) == 0
    out = capsys.readouterr().out
    assert "\nestimate for FnApiRunner:\n  bytes read " in out
    assert " = 100 x image, in one process\n" in out
    prices.write_text("[s3]\nread = 'x'")
    assert plan.main([str(images), str(tmp_path / "out"), "--prices", str(prices)]) == 2
    assert "read of [s3] must be a number of at least 0" in capsys.readouterr().err


def test_images_that_must_be_unpacked(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = shutil.make_archive(str(tmp_path / "photos"), "gztar", images)
    found = estimate(capsys, packed, tmp_path / "out")
    assert found["unknown"] == ["time: INPUT must be unpacked first"]
    assert found["figures"]["bytes spooled"]["value"] == found["figures"]["bytes read"]["value"]


def classes_of(requests: list[tuple[str, str]]) -> dict[str, int]:
    """Count requests as S3 bills them; removing is free."""
    kinds = {"GET": "reads", "HEAD": "reads", "PUT": "writes", "POST": "writes"}
    found: Counter[str] = Counter()
    for method, target in requests:
        query = target.partition("?")[2].split("&")
        if method == "GET" and any(part.startswith(("list-type", "prefix=")) for part in query):
            found["lists"] += 1
        elif method in kinds and not any(part.startswith("delete") for part in query):
            found[kinds[method]] += 1
    return dict(found)


@pytest.mark.long
def test_a_build_makes_the_requests_of_its_estimate(
    images: Path,
    s3_bucket: Bucket,
    s3_proxy: FaultProxy,
    capsys: pytest.CaptureFixture[str],
) -> None:
    upload_folder(s3_bucket.server, images, f"{s3_bucket.uri}/in")
    there = s3_bucket.behind(s3_proxy)
    for count in (1, 4):  # 9.8 MB: shards of two parts, and of less than one
        given = (f"{there.uri}/in", f"{there.uri}/out{count}", "--shard-count", count)
        found = estimate(capsys, *given, *there.args())
        s3_proxy.requests.clear()
        assert build(*map(str, given), *there.args()) == 0
        billed = classes_of(s3_proxy.requests)
        for kind, number in billed.items():
            estimated = found["figures"][f"s3 {kind}"]["value"]
            assert abs(estimated - number) <= 6 + 0.05 * number, (kind, estimated, number)
