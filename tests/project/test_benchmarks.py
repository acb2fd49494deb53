"""The benchmarks' own tools: photos, measurements and the page of results."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests import ROOT
from tests.support.benchmark_scripts import load, through_json

ALLOCATE = """
import os, subprocess, sys, time
inner = f'''
data = b"x" * 200_000_000
import os, time
while not os.path.exists({sys.argv[1]!r}):
    time.sleep(0.05)
'''
child = subprocess.Popen([sys.executable, "-c", inner])
end = time.process_time() + 0.4
while time.process_time() < end: pass
child.wait()
print("done")
"""


def test_photos_are_what_they_say(tmp_path: Path) -> None:
    photos = load("photos")
    made = photos.make_photos(tmp_path, photos=8, names=2)
    files = sorted(made.folder.rglob("*.jpg"))
    assert len(files) == made.files == 16
    assert made.num_bytes == sum(path.stat().st_size for path in files)
    assert len({path.read_bytes() for path in files}) == 8
    assert len({path.stat().st_ino for path in files}) == 8
    assert {Image.open(path).size for path in files} == {(500, 375)}
    assert all(40_000 < path.stat().st_size < 130_000 for path in files)


def test_photos_are_made_once_and_depend_on_the_seed_only(tmp_path: Path) -> None:
    photos = load("photos")
    first = photos.make_photos(tmp_path, photos=8)
    before = {path: path.stat().st_mtime_ns for path in first.folder.rglob("*.jpg")}
    assert photos.make_photos(tmp_path, photos=8) == first
    assert {path: path.stat().st_mtime_ns for path in first.folder.rglob("*.jpg")} == before
    assert photos.render_photo(3) == photos.render_photo(3) != photos.render_photo(3, seed=1)


def test_the_guard_runs_the_command_line() -> None:
    command = [sys.executable, *load("guard")._COMMAND, "plan", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert shown.startswith("usage: shardwright plan ")


@pytest.mark.long
def test_measure_sees_the_memory_and_cpu_of_a_grandchild(tmp_path: Path) -> None:
    """The child keeps its memory for as many looks as its PSS is read at one of."""
    measure, seen, looks = load("measure"), tmp_path / "seen", itertools.count(1)

    def look(rss_bytes: int) -> None:
        if rss_bytes > 200e6 and next(looks) > measure.PSS_EVERY:
            seen.touch()

    command = [sys.executable, "-c", ALLOCATE, str(seen)]
    usage = measure.measure(command, log=tmp_path / "log", each_look=look)
    assert 200e6 < usage.peak_rss_bytes < 300e6
    assert 150e6 < usage.peak_pss_bytes <= usage.peak_rss_bytes
    assert 0.4 < usage.cpu_s < 10
    assert usage.wall_s > 0.4
    assert usage.stdout.read_text() == "done\n"


def test_measure_refuses_failed_slow_and_unfinished_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = load("measure")
    monkeypatch.setattr(measure, "GRACE_S", 0.2)
    for script, timeout_s, message in [
        ("echo 'broken input' >&2; exit 1", 60, "exit code 1(.|\n)*broken input"),
        ("sleep 60", 0.3, "timed out"),
        ("sleep 60 & exit 0", 60, "stayed behind"),
    ]:
        with pytest.raises(measure.RunFailedError, match=message):
            measure.measure(["sh", "-c", script], log=tmp_path / "log", timeout_s=timeout_s)


def test_first_shard_is_timed_and_side_files_are_not_shards(tmp_path: Path) -> None:
    measure = load("measure")
    name = ".a.tfrecord-00000-of-00001.tmp"
    script = f"cd {tmp_path}; echo 1 >plan.json; sleep 0.3; echo 1 >{name}; sleep 60"
    command, log = ["sh", "-c", script], tmp_path / "run.log"
    seconds, found = measure.seconds_to_first_shard(command, tmp_path, log=log)
    assert (seconds >= 0.3, found) == (True, name)


def test_a_run_that_lost_images_does_not_count(tmp_path: Path) -> None:
    systems, outputs, measure = load("systems"), load("outputs"), load("measure")
    made = load("photos").make_photos(tmp_path, photos=8, names=2)
    out = tmp_path / "out"
    out.mkdir()
    measure.measure(systems.command("tar", made.folder, out), log=tmp_path / "log")
    outputs.check_output("tar", out, files=16, num_bytes=made.num_bytes)
    with pytest.raises(measure.RunFailedError, match="found 16 records"):
        outputs.check_output("tar", out, files=17, num_bytes=made.num_bytes)
    (out / "images.tar").rename(out / "images.tfrecord")
    with pytest.raises(measure.RunFailedError, match="cut off"):
        outputs.check_output("tf-loop", out, files=16, num_bytes=made.num_bytes)


def test_ballast_takes_over_what_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ballast_module = load("ballast")
    monkeypatch.setattr(ballast_module, "_PIECE_BYTES", 2**20)
    monkeypatch.setattr(ballast_module, "_AHEAD_BYTES", 2**20)
    out, pieces = tmp_path / "out", tmp_path / "ballast"
    ballast = ballast_module.Ballast(pieces, 8 * 2**20)
    ballast.swap(out)
    assert len(list(pieces.iterdir())) == 8
    out.mkdir()
    (out / "shard").write_bytes(bytes(3 * 2**20))
    ballast.follow(out, rss_bytes=2**20)
    assert len(list(pieces.iterdir())) == 8 - 3 - 1 - 1
    ballast.swap(out)
    assert not out.exists()
    assert len(list(pieces.iterdir())) == 8


def test_slopes_and_targets() -> None:
    report, usage_of = load("report"), load("measure").Usage
    results = report.Results()
    seconds = {
        "shardwright": (2.0, 6.0, 10.0),
        "two-processes": (3.0, 5.0, 7.5),
        "tf-loop": (4.0, 10.0, 17.0),
        "tar": (1.0, 4.0, 7.0),
    }
    for system, walls in seconds.items():
        for files, wall_s in zip((8_000, 40_000, 80_000), walls, strict=True):
            results.add(system, files, usage_of(wall_s, wall_s, 500_000_000, 400_000_000, Path()))
    for files, wall_s in ((8, 6.0), (8_000, 16.0)):
        usage = usage_of(wall_s, wall_s, 4_000_000_000, 4_000_000_000, Path())
        results.add("beam-stock", files, usage)
    assert report.slopes(results, "shardwright") == [10_000]
    assert report.slopes(results, "beam-stock") == [799.2]
    results.add_start_up(80_000, 4.9)
    assert through_json(report, results) == results
    found = [target.passed for target in report.targets(results)]
    assert found == [False, True, True, True, True, True, False, True]
    assert report.targets(results)[0].text == "slope at least 0.89x tar's"
    assert "beam-stock is not run above 8,000 files" in report.render(results, [])
    assert [check.passed for check in report.targets(report.Results())] == [None] * 8


@pytest.mark.parametrize(
    ("seconds", "passed"), [(3.0, False), (2.4, True), (2.0, True), (1.9, None)]
)
def test_two_processes_are_judged_by_a_slope_that_is_possible(
    seconds: float, passed: bool | None
) -> None:
    report, usage_of = load("report"), load("measure").Usage
    results = report.Results()
    for system, more in (("shardwright", 4.0), ("two-processes", seconds)):
        for files, wall_s in ((40_000, 5.0), (80_000, 5.0 + more)):
            results.add(system, files, usage_of(wall_s, wall_s, 1, 1, Path()))
    assert report.targets(results)[3].passed is passed


def test_the_page_keeps_what_stands_around_its_section() -> None:
    with_section = load("page").with_section
    page = with_section(with_section("# Results\n", "build", "one"), "plan", "two")
    page = with_section(page, "build", "three")
    assert page.index("three") < page.index("two")
    assert "one" not in page


def test_a_plan_and_a_join_are_held_against_their_limits() -> None:
    usage, plan, join = load("measure").Usage, load("plan"), load("join")
    slow, small = usage(26.0, 26.0, 1_300_000_000, 1), usage(10.0, 9.0, 100, 1)
    assert [check.passed for check in plan.targets({5_000_000: [slow]})] == [False, True]
    runs = {(9, False): [small], (9, True): [usage(56.0, 9.0, 5 * 10**9, 1)]}
    assert [check.passed for check in join.targets(runs)] == [False, False]
    assert "| 9 | yes | 56.0 | 9.0 | 5.00 | 0.00 |" in join.render(runs, [])


def test_steps_are_told_beside_those_of_an_earlier_commit() -> None:
    writing = load("writing")
    rounds = [{"frame it": 5.0, "write it": 8.0}, {"frame it": 4.0, "write it": 9.0}]
    best = writing.best_of(rounds)
    assert best == {"frame it": 4.0, "write it": 8.0}
    both = {"before": rounds[0], "now": best}
    text = writing.render({"commit": "c" * 40, "steps": both}, [])
    assert "| frame it | 5.0 | 4.0 |" in text
    assert "| write it | 8.0 |" in writing.render({"commit": "", "steps": {"now": best}}, [])


def test_a_system_runs_at_the_sizes_that_are_needed() -> None:
    build = load("build")
    args = build.parse_args([])
    sizes = {
        name: [files for files in (8, *args.sizes) if build._runs_at(name, files, args)]
        for name in args.systems
    }
    assert sizes["beam-stock"] == [8, 8000]
    assert sizes["shardwright"] == [8000, 40_000, 80_000]
    peers = ("tar", "webdataset", "tf-loop", "two-processes")
    assert all(sizes[name] == [40_000, 80_000] for name in peers)


def test_peers_are_compared_by_slope_and_memory() -> None:
    peers, usage = load("peers"), load("measure").Usage
    seconds = {"shardwright": (4.0, 8.0), "daft": (6.0, 12.0), "ray": (20.0, 25.9)}
    sizes = {"shardwright": 2, "daft": 5, "ray": 4}
    found = peers.Results({
        (name, files): [usage(wall_s, 1.0, 10**9, sizes[name] * 10**8)]
        for name, walls in seconds.items()
        for files, wall_s in zip((100, 200), walls, strict=True)
    })  # fmt: skip
    assert peers.best_peer(found) == "ray"
    checks = peers.targets(found)
    assert [check.passed for check in checks] == [False, True]
    assert checks[0].found == "1.47x (25 against ray's 17/s)"
    assert "| daft | 200 | 12.00 | 1.00 | 1.00 | 0.50 | 17 |" in peers.render(found, [])


@pytest.mark.long
def test_a_long_prefix_is_listed_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1 would say that keys are missing."""
    monkeypatch.setattr("sys.argv", ["listing.py", "--keys", "4321", "--msec", "0"])
    assert load("listing").main() == 0


@pytest.mark.long
def test_a_manifest_of_50_000_shards_opens_within_its_limits(tmp_path: Path) -> None:
    million = load("million")
    usage = million.open_manifest(tmp_path / "large", 50_000)
    assert usage.wall_s < million.MAX_OPEN_S
    assert usage.peak_rss_bytes < million.MAX_OPEN_BYTES


@pytest.mark.long
def test_rejects_and_summaries_are_published(tmp_path: Path) -> None:
    usage = load("publishing").publish_many(tmp_path / "many", 30_000, 30, 50)
    assert usage.peak_rss_bytes < load("publishing").MAX_BYTES


def test_tiny_images_are_all_different_names(tmp_path: Path) -> None:
    images = load("million").make_images(tmp_path, 1500)
    files = [path for path in images.rglob("*.png") if path.stat().st_size]
    assert len(files) == 1500
    assert len({path.stat().st_ino for path in files}) == 1000


def test_a_scratch_folder_is_removed_on_sigterm(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; sys.path.insert(0, sys.argv[1]); import page\n"
        "with page.scratch_folder('x-', sys.argv[2]) as root:\n"
        "    (root / 'file').touch(); print(root, flush=True); os.kill(os.getpid(), signal.SIGTERM)"
    )
    command = [sys.executable, "-c", script, str(ROOT / "benchmarks"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.startswith(f"{tmp_path}/x-")) == (143, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_coco_json_is_made_and_planned(tmp_path: Path) -> None:
    coco = load("coco")
    path = coco.make_input(tmp_path, 1200)
    content = json.loads(path.read_text())
    assert (len(content["images"]), len(content["annotations"])) == (1200, 8400)
    assert path.stat().st_size == pytest.approx(1200 * coco.BYTES_PER_IMAGE, rel=0.05)
    assert coco.plan(tmp_path, path, 1200).peak_rss_bytes < coco.MAX_BYTES


@pytest.mark.long
def test_splits_of_different_images_are_compared(tmp_path: Path) -> None:
    assert load("leaks").compare(tmp_path, 40_000).peak_rss_bytes < load("leaks").MAX_BYTES


def test_every_target_runs_its_benchmark_as_the_file_imports_its_neighbors() -> None:
    """A script finds them by bare names, a module (`python -m`) by those of the package."""
    makefile = (ROOT / "Makefile").read_text()
    found = re.findall(r"python (?:benchmarks/(\w+)\.py|-m benchmarks\.(\w+))", makefile)
    assert len(found) > 15
    for script, module in found:
        text = (ROOT / "benchmarks" / f"{script or module}.py").read_text()
        imported = set(re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE))
        neighbors = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
        wrong = {"benchmarks"} if script else neighbors - set(sys.stdlib_module_names)
        assert imported.isdisjoint(wrong), f"{script or module}: {imported & wrong}"
