"""The environments of the peers: `make peer-NAME` installs the newest release into .peers/NAME.

`peers/NAME.txt` has the requirements, without versions; the peer itself comes first. Our own
constraints are not used, because one peer's requirements would hold back another's release.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import page
import registry

FOLDER = Path(os.environ.get("SHARDWRIGHT_PEERS", page.REPO / ".peers"))
_REQUIREMENTS = page.REPO / "benchmarks" / "peers"
# Benchmark -> what it runs in an environment of its own -> that environment.
PEERS: Mapping[str, Mapping[str, str]] = {
    "build": {"webdataset": "webdataset", "tf-loop": "tensorflow", "beam-stock": "beam"},
    "detection": {"tf.data": "tensorflow", "torch": "torch"},
    "peers": {"daft": "daft", "ray": "ray"},
    "read": {
        "tf.data": "tensorflow",
        "tfrecord": "tensorflow",
        "keras": "tensorflow",
        "grain": "grain",
        "grain-simplejpeg": "grain",
        "array_record": "grain",
        "lance": "lance",
        "webdataset": "webdataset-torch",
        **{name: name for name in ("torch", "streaming", "litdata", "lancedb")},
    },
    "scale": {"tf.data": "tensorflow", "grain": "grain"},
    "storage": {
        **{f"boto3-{task}": "boto3" for task in ("threads", "transfer", "paginator", "loop")},
        **{f"google-{task}": "google" for task in ("threads", "resumable")},
        **{f"beam-{task}": "beam" for task in ("readmatches", "match", "stock")},
        **{name: name for name in ("s3fs", "gcsfs")},
    },
    "write_python": {"tf.io.TFRecordWriter": "tensorflow", "webdataset ShardWriter": "webdataset"},
}
_LOOK = """import importlib.metadata, json, sys
print(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[1:]}))
"""
# Environment -> package -> its version, and the day of that release.
Releases = dict[str, dict[str, registry.Release]]


def requirements(environment: str) -> list[str]:
    """Return the names of the packages, the peer first."""
    lines = (_REQUIREMENTS / f"{environment}.txt").read_text().split()
    return [re.split(r"[\[<>=!~ ]", line)[0] for line in lines]


def python_of(benchmark: str, system: str) -> str:
    """Return the Python that runs a system: its environment's, or this one for our own."""
    environment = PEERS[benchmark].get(system)
    return str(FOLDER / environment / "bin" / "python") if environment else sys.executable


def releases(benchmark: str, systems: Iterable[str], *, dated: bool) -> Releases:
    """Return the installed releases of these systems' environments.

    Exits if an environment is missing. The days of the releases come from the registry; without
    `dated` they are empty, and no registry is needed.
    """
    of = PEERS[benchmark]
    wanted = sorted({of[system] for system in systems if system in of})
    if missing := [name for name in wanted if not (FOLDER / name / "bin" / "python").exists()]:
        sys.exit(
            f"{', '.join(missing)}: no environment in {FOLDER.name}/: "
            f"run `make {' '.join(f'peer-{name}' for name in missing)}`"
        )
    installed = {name: _installed(name) for name in wanted}
    names = sorted({package for packages in installed.values() for package in packages})
    days = registry.days(names) if dated else {}
    return {
        environment: {
            package: registry.Release(version, days.get(package, {}).get(version, ""))
            for package, version in packages.items()
        }
        for environment, packages in installed.items()
    }


def _installed(environment: str) -> dict[str, str]:
    words = [str(FOLDER / environment / "bin" / "python"), "-c", _LOOK, *requirements(environment)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def line(found: Mapping[str, Mapping[str, Iterable[str]]]) -> str:
    """Return a sentence with the releases, from their JSON."""
    texts = [
        ", ".join(
            f"{package} {version}" + f" ({day})" * bool(day)
            for package, (version, day) in packages.items()
        )
        for packages in found.values()
    ]
    return f"Peers, each in an environment of its own: {'; '.join(texts)}"
