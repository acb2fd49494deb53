"""Virtual environments that stand for container images and for workers: what is in them is what was put there, and no checkout is seen."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

INSTALL_S = 600.0
# What would let an environment see more than was installed in it.
_HIDDEN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
_PACKAGES = Path("lib") / Path(sysconfig.get_path("stdlib")).name / "site-packages"


class InstallError(Exception):
    """pip could not install; the message is the end of what it said."""


def clean_environment() -> dict[str, str]:
    """This process's environment, without what points Python at a checkout."""
    return {name: value for name, value in os.environ.items() if name not in _HIDDEN}


def beam_image(folder: Path) -> Path:
    """An environment with apache-beam[gcp] and all that it needs, at the versions installed here; gives its folder.

    Files are linked, not installed again: pip resolves and unpacks these hundred packages for a minute and more.
    """
    _make_environment(folder)
    for name in ["pip", "setuptools", *_closure("apache-beam", ("gcp",))]:
        _link_distribution(importlib.metadata.distribution(name), folder / _PACKAGES)
    return folder


def layer(folder: Path, below: Path) -> Path:
    """An environment that sees another one's packages, and may hold other versions over them; gives its folder."""
    _make_environment(folder)
    (folder / _PACKAGES / "below.pth").write_text(f"{below / _PACKAGES}\n" + _pth_of(below))
    pip = folder / "bin" / "pip"
    pip.write_text('#!/bin/sh\nexec "$(dirname "$0")/python" -m pip "$@"\n')
    pip.chmod(0o755)
    return folder


def python_of(environment: Path) -> Path:
    return environment / "bin" / "python"


def pip_install(environment: Path, arguments: Sequence[str | Path]) -> None:
    """Run `pip install` in an environment.

    Raises:
        InstallError: pip refuses.
    """
    command = [
        python_of(environment),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        *arguments,
    ]
    run = subprocess.run(
        command,
        cwd=environment,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    if run.returncode:
        raise InstallError(run.stderr[-2000:].strip())


def _make_environment(folder: Path) -> None:
    base = getattr(
        sys, "_base_executable", sys.executable
    )  # not this environment's own, whose packages it might show
    subprocess.run(
        [base, "-m", "venv", "--without-pip", folder],
        check=True,
        cwd=folder.parent,
        env=clean_environment(),
        timeout=60,
    )


def _pth_of(environment: Path) -> str:
    """What the environment itself lies over: Python reads no .pth file in a folder that a .pth file names."""
    lower = environment / _PACKAGES / "below.pth"
    return lower.read_text() if lower.exists() else ""


def _closure(name: str, extras: Iterable[str]) -> list[str]:
    """The distributions installed here that one needs, itself first."""
    from packaging.requirements import Requirement

    found: dict[str, set[str]] = {}
    waiting = [(name, frozenset(extras))]
    while waiting:
        wanted, options = waiting.pop()
        key = wanted.lower().replace("_", "-")
        if key in found and options <= found[key]:
            continue
        found.setdefault(key, set()).update(options)
        for text in importlib.metadata.requires(wanted) or ():
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *options)):
                waiting.append((requirement.name, frozenset(requirement.extras)))
    return list(found)


def _link_distribution(distribution: importlib.metadata.Distribution, packages: Path) -> None:
    for file in distribution.files or ():
        if ".." in file.parts:
            continue  # scripts
        source, target = Path(str(distribution.locate_file(file))), packages / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.exists() and not target.exists():
            _link(source, target)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
