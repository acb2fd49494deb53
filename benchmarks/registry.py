"""Look up releases in the package registry, through pip and so with pip's own configuration."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

MAX_DAYS = 365
# `pip index versions` states no days: this is what it does, and reads the days.
_LOOK = """import json, sys
from pip._internal.commands import create_command

command, found = create_command("index"), {}
options, names = command.parse_args(sys.argv[1:])
with command.main_context():
    finder = command._build_package_finder(options, command.get_default_session(options))
    for name in names:
        days = found[name] = {}
        for candidate in sorted(finder.find_all_candidates(name), key=lambda each: each.version):
            if not (candidate.version.is_prerelease or candidate.link.is_yanked):
                uploaded = candidate.link.upload_time
                days.setdefault(str(candidate.version), []).append(uploaded.date().isoformat())
        if not days:
            sys.exit(f"the registry has no release of {name}")
        found[name] = {version: min(found[name][version]) for version in found[name]}
print(json.dumps(found))
"""


class Release(NamedTuple):
    """A version, and the day of its first upload, such as 2026-11-23; "" if it is unknown."""

    version: str
    day: str


def days(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return package -> version, in order -> the day of its first upload, of what runs here.

    Raises:
        RuntimeError: The registry cannot be reached, or does not have a package.
    """
    done = subprocess.run([sys.executable, "-c", _LOOK, *names], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"pip finds no releases of {', '.join(names)}: {done.stderr[-2000:]}")
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


def outdated(
    measured: Mapping[str, Release], known: Mapping[str, Mapping[str, str]]
) -> Iterable[str]:
    """Yield a line for each package whose newest release is over a year younger."""
    for package, (version, day) in measured.items():
        newest, last = list(known[package].items())[-1]
        age = datetime.date.fromisoformat(last) - datetime.date.fromisoformat(day)
        if age.days > MAX_DAYS:
            yield f"{package} {version} of {day} was measured; the registry has {newest} of {last}"
