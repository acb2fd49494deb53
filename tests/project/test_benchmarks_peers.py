"""The peers of the benchmarks: an environment for each, and how old their releases may be."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.support.benchmark_scripts import BENCHMARKS, load, peers_here

MAKEFILE = (ROOT / "Makefile").read_text()
environments, registry = load("environments"), load("registry")
TARGETS = {
    benchmark: "bench" if benchmark == "build" else f"bench-{benchmark.replace('_', '-')}"
    for benchmark in environments.PEERS
}


@pytest.mark.parametrize("benchmark", TARGETS)
def test_a_target_installs_the_peers_of_its_benchmark(benchmark: str) -> None:
    found = re.search(rf"^{TARGETS[benchmark]}:(.*?)##", MAKEFILE, re.MULTILINE)
    assert found
    installed = set(re.findall(r"peer-([\w-]+)", found[1]))
    assert installed == set(environments.PEERS[benchmark].values())


def test_every_peer_is_its_newest_release() -> None:
    """Neither a version nor our constraints holds one back."""
    files = {path.stem: path.read_text() for path in (BENCHMARKS / "peers").glob("*.txt")}
    assert set(files) == {name for of in environments.PEERS.values() for name in of.values()}
    assert [text for text in files.values() if re.search(r"[=<>~!]", text)] == []
    recipe = MAKEFILE[MAKEFILE.index("\npeer-%:") :].split("\n\n")[0]
    assert "--upgrade --requirement $<" in recipe
    assert "constraint" not in recipe


def test_releases_are_those_of_the_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers_here(tmp_path / "peers")
    monkeypatch.setattr(environments, "FOLDER", tmp_path / "peers")
    monkeypatch.setattr(registry, "days", lambda names: {name: {} for name in names})
    found = environments.releases("storage", ["shardwright", "s3fs", "boto3-loop"], dated=True)
    assert {name: list(packages) for name, packages in found.items()} == {
        "boto3": ["boto3", "tensorflow"],
        "s3fs": ["s3fs"],
    }
    assert all(release.version for packages in found.values() for release in packages.values())
    assert environments.python_of("storage", "shardwright") == sys.executable
    assert environments.python_of("storage", "s3fs") == str(tmp_path / "peers/s3fs/bin/python")


@pytest.mark.parametrize(
    ("known", "old"),
    [
        ({"1.0": "2024-01-01"}, False),
        ({"1.0": "2024-01-01", "2.0": "2024-12-31"}, False),
        ({"1.0": "2024-01-01", "2.0": "2025-01-02"}, True),
        # An upload for an older line of versions is not the newest release.
        ({"0.9": "2026-01-01", "1.0": "2024-01-01"}, False),
    ],
)
def test_a_release_is_too_old_if_the_newest_is_a_year_younger(
    known: dict[str, str], old: bool
) -> None:
    measured = {"peer": registry.Release("1.0", "2024-01-01")}
    assert list(registry.outdated(measured, {"peer": known})) == old * [
        "peer 1.0 of 2024-01-01 was measured; the registry has 2.0 of 2025-01-02"
    ]


def test_an_unreachable_registry_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("PIP_INDEX_URL", "http://127.0.0.1:9/simple"),
        ("PIP_NO_INDEX", "false"),
        ("PIP_RETRIES", "0"),
        ("PIP_FIND_LINKS", ""),
    ):
        monkeypatch.setenv(name, value)
    with pytest.raises(RuntimeError, match="pip finds no releases of webdataset"):
        registry.days(["webdataset"])


def measured_releases() -> dict[tuple[str, str], Any]:
    """Return (benchmark, peer) -> the release that was measured, None if none was."""
    results = {result.name: result for result in load("raw_results").load_all()}
    found = {}
    for benchmark, systems in environments.PEERS.items():
        about = results[benchmark].about if benchmark in results else {}
        for name in sorted(set(systems.values())):
            peer = environments.requirements(name)[0]
            release = about.get("peers", {}).get(name, {}).get(peer)
            found[benchmark, peer] = release and registry.Release(*release)
    return found


def test_every_peer_was_measured() -> None:
    lacking = {key for key, release in measured_releases().items() if not release}
    assert lacking == set(), "run `make bench-...` of these"


@pytest.mark.long
def test_measured_peers_are_at_most_a_year_older_than_the_newest() -> None:
    """Needs the package registry, as the installation does, and fails without it."""
    measured = measured_releases()
    known = registry.days(sorted({peer for _, peer in measured}))
    found = [
        f"{benchmark}: {line}"
        for (benchmark, peer), release in measured.items()
        for line in registry.outdated({peer: release}, known)
    ]
    assert found == []


def test_versions_are_printed() -> None:
    raw_results = load("raw_results")
    about = {"peers": {"litdata": {"litdata": ["0.2.76", "2026-09-30"], "torch": ["2.15.0", ""]}}}
    result = raw_results.Result("read", about, None)
    assert result.version("litdata") == "0.2.76"
    assert result.version("reader") == result.version("torch") == ""
    assert "litdata 0.2.76 (2026-09-30)" in environments.line(about["peers"])


@pytest.mark.parametrize(
    "script",
    [
        "peer_systems",
        "detection_feeds",
        "read_torch",
        "read_systems",
        "python_writers",
        "storage_clients",
        "storage_builds",
        "systems",
    ],
)
def test_a_script_of_the_peers_needs_none_of_our_packages(script: str) -> None:
    code = f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r}); import {script}"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
