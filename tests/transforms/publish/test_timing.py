"""Times of a build, from the times of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwright.transforms.publish.found_statistics import MAX_POINTS, Finished, timing_of
from tests.support.build_helpers import build, manifest_of, png_of


def test_shards_count_in_the_order_of_their_times() -> None:
    shards = [Finished(130, 2, 20), Finished(110.25, 5, 50), Finished(99, 7, 70)]
    assert timing_of(100, 108, shards) == {
        "planning_s": 8,
        "writing_s": 22,
        "reused_shards": 1,
        "written": [[2.25, 5, 50], [22, 7, 70]],
    }


def test_clocks_that_disagree_give_no_negative_time() -> None:
    assert timing_of(100, 99, [Finished(100, 1, 1)]) == {
        "planning_s": 0,
        "writing_s": 1,
        "reused_shards": 0,
        "written": [[1, 1, 1]],
    }
    assert timing_of(100, 110, [Finished(105, 1, 1)])["written"] == [[0, 1, 1]]


def test_nothing_was_written() -> None:
    assert timing_of(100, 110, [])["written"] == []
    assert timing_of(100, 110, [Finished(5, 1, 1)])["reused_shards"] == 1


@pytest.mark.parametrize("number", [1, 59, 60, 61, 1000, 100_000])
def test_many_shards_give_few_points_and_the_last(number: int) -> None:
    shards = [Finished(float(at), 1, 2) for at in range(number)]
    written = timing_of(0, 0, shards)["written"]
    assert len(written) <= MAX_POINTS + 1
    assert written[0][1:] == [1, 2]
    assert written[-1][1:] == [number, 2 * number]


def test_a_build_records_its_times_and_command(tmp_path: Path) -> None:
    (tmp_path / "in/a").mkdir(parents=True)
    for number in range(7):
        (tmp_path / f"in/a/{number}.png").write_bytes(png_of(number))
    out = tmp_path / "out"
    assert build(tmp_path / "in", out, "--records-per-shard", "3") == 0
    provenance = manifest_of(out)["provenance"]
    timing = provenance["timing"]
    assert (timing["written"][-1][1], timing["reused_shards"]) == (7, 0)
    assert 0 <= timing["planning_s"] < 60
    assert provenance["command"] in (out / "report.html").read_text()
