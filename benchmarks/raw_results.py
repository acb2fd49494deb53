"""Keep the raw results of each benchmark in results/NAME.json, which tables.py renders.

The files are public: they state the machine's type and the versions, never a host, a user or an
absolute path.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import environments
import page

FOLDER = page.REPO / "benchmarks" / "results"
SOURCES = ("shardwright", "schemas", "transforms", "pipelines")
STALE = " The code that it measures has changed since."
_PACKAGES = ("apache-beam", "tensorflow", "pyarrow")


class Result(NamedTuple):
    """The raw results of a benchmark, and the circumstances in which they were measured."""

    name: str
    about: dict[str, Any]
    raw: Any

    def save(self) -> None:
        FOLDER.mkdir(exist_ok=True)
        kept = {"about": self.about, "raw": self.raw}
        (FOLDER / f"{self.name}.json").write_text(json.dumps(kept, indent=1) + "\n")

    @property
    def is_stale(self) -> bool:
        """True if a measured folder differs from the one that was measured."""
        now = digests()
        return any(now[name] != found for name, found in self.about["sources"].items())

    @property
    def origin(self) -> str:
        """A sentence that names the commit, and says if the code has changed since."""
        return f"Measured at commit {self.about['commit']}.{STALE if self.is_stale else ''}"

    def version(self, system: str) -> str:
        """Return the version of a system's peer, if it is known."""
        releases = self.about.get("peers", {})
        packages = releases.get(
            environments.PEERS.get(self.name.partition("-")[0], {}).get(system), {}
        )
        return next((version for version, _ in packages.values()), "")

    @property
    def lines(self) -> list[str]:
        """Markdown about machine, versions and command."""
        about, machine = self.about, self.about["machine"]
        versions = ", ".join(f"{name} {version}" for name, version in about["packages"].items())
        rounds = about["rounds"]
        return [
            f"- {self.origin}",
            f"- Machine: {machine['cpu']}, {machine['cores']} cores, "
            f"{machine['memory_gb']} GB of memory, {machine['system']}",
            f"- Versions: {versions}",
            f"- Command: `{about['command']}`; {rounds} round{'s' * (rounds > 1)}; input and "
            f"output on {about['work_folder']}; {about['date']}",
            *([f"- {environments.line(about['peers'])}"] if about.get("peers") else []),
            *(f"- {note}" for note in about["notes"]),
        ]


def load_all() -> list[Result]:
    """Return all kept results."""
    files = sorted(FOLDER.glob("*.json"))
    return [Result(path.stem, **json.loads(path.read_text())) for path in files]


def pack(runs: Mapping[Any, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return runs (NamedTuples, by a case that is a tuple) as JSON."""
    return [
        {"case": list(case), "runs": [_figures(run) for run in of]} for case, of in runs.items()
    ]


def _figures(run: Any) -> dict[str, Any]:
    return {name: value for name, value in run._asdict().items() if not isinstance(value, Path)}


def unpack(
    packed: Sequence[Mapping[str, Any]],
    run: Callable[..., Any],
    case: Callable[[Sequence[Any]], Any] = tuple,
) -> dict[Any, list[Any]]:
    """Return the runs by case from the JSON of `pack`."""
    return {case(item["case"]): [run(**each) for each in item["runs"]] for item in packed}


def _git(*words: str, **env: str) -> str:
    command = ["git", "-C", str(page.REPO), *words]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})
    return done.stdout.strip() if done.returncode == 0 else ""


@functools.cache
def digests() -> dict[str, str]:
    """Return the git tree hash of each source folder as it is on disk, committed or not."""
    with tempfile.TemporaryDirectory() as folder:
        index = os.path.join(folder, "index")
        _git("add", "--all", "--", *SOURCES, GIT_INDEX_FILE=index)
        return {
            name: _git("write-tree", f"--prefix={name}/", GIT_INDEX_FILE=index) for name in SOURCES
        }


def _commit() -> str:
    sha = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--", *SOURCES, "benchmarks/*.py")
    return (sha + " with changes" if changed else sha) or "unknown"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _machine() -> dict[str, Any]:
    cpu = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "cpu": cpu.group(1).strip() if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(page.meminfo_bytes("MemTotal") / 1e9),
        "system": platform.system(),
    }


def _shown_command(argv: Sequence[str]) -> str:
    """Return the command as typed, without paths, which are private."""
    words = " ".join(["python", f"benchmarks/{Path(argv[0]).name}", *argv[1:]])
    return re.sub(
        r"--(dir|dataset)[= ]\S+", lambda found: f"--{found[1]} {found[1].upper()}", words
    )


def circumstances(
    folder: Path,
    rounds: int,
    *,
    packages: Sequence[str] = (),
    notes: Sequence[str] = (),
    sources: Sequence[str] = SOURCES,
    peers: environments.Releases | None = None,
) -> dict[str, Any]:
    """Return all that tells how this process measures, as JSON.

    Args:
        folder: The work folder.
        rounds: The number of rounds.
        packages: Packages to name besides those that every benchmark names.
        notes: Further lines, such as versions of servers.
        sources: The folders of this repository that are measured.
        peers: The releases in the peers' environments.
    """
    versions = {name: _version(name) for name in (*_PACKAGES, *packages)}
    return {
        "commit": _commit(),
        "sources": {name: digests()[name] for name in sources},
        "command": _shown_command(sys.argv),
        "rounds": rounds,
        "date": datetime.date.today().isoformat(),
        "work_folder": page.directory_kind(folder),
        "machine": _machine(),
        "packages": {"Python": platform.python_version(), **versions},
        "notes": list(notes),
        "peers": peers or {},
    }


def finish(result: Result, report: Any, args: argparse.Namespace) -> int:
    """Print the section and its targets, keep the result if asked; return the exit code.

    Args:
        result: The result of this run.
        report: A module with `unpack(raw)`, which returns the results from their JSON,
            `targets(results)`, and `render(results, lines)`, which returns a section of Markdown
            with the lines on circumstances below its title.
        args: The options of `page.parser`.
    """
    found = report.unpack(json.loads(json.dumps(result.raw)))
    checks = report.targets(found)
    verdicts = [[check.text, check.found, page.verdict(check.passed)] for check in checks]
    print(report.render(found, result.lines), end="\n\n")
    print(*(page.table(["required", "found", ""], verdicts) if verdicts else ()), sep="\n")
    if args.write:
        result.save()
        subprocess.run([sys.executable, str(page.REPO / "benchmarks" / "tables.py")], check=True)
    failed = any(check.passed is False for check in checks)
    return 1 if failed and not args.no_check else 0
