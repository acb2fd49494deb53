"""Virtual environments in place of container images and workers; they see no checkout."""

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
# Variables that show an environment more than was installed in it.
_HIDDEN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
_PACKAGES = Path("lib") / Path(sysconfig.get_path("stdlib")).name / "site-packages"


class InstallError(Exception):
    """pip failed; the message is the end of its output."""


def clean_environment() -> dict[str, str]:
    """Return this process's environment, without variables that point Python at a checkout."""
    return {name: value for name, value in os.environ.items() if name not in _HIDDEN}


def beam_image(folder: Path) -> Path:
    """Make an environment with apache-beam[gcp], at the versions installed here; return its folder.

    Files are linked: installing these hundred packages takes pip more than a minute.
    """
    _make_environment(folder)
    for name in ["pip", "setuptools", *_closure("apache-beam", ("gcp",))]:
        _link_distribution(importlib.metadata.distribution(name), folder / _PACKAGES)
    return folder


def layer(folder: Path, below: Path) -> Path:
    """Make an environment over another one's packages; return its folder."""
    _make_environment(folder)
    (folder / _PACKAGES / "below.pth").write_text(f"{below / _PACKAGES}\n" + _pth_of(below))
    pip = folder / "bin" / "pip"
    pip.write_text('#!/bin/sh\nexec "$(dirname "$0")/python" -m pip "$@"\n')
    pip.chmod(0o755)
    return folder


def python_of(environment: Path) -> Path:
    return environment / "bin" / "python"


def pip_install(environment: Path, arguments: Sequence[str | Path]) -> None:
    """Run `pip install` in an environment; raise InstallError if it fails."""
    pip = [python_of(environment), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    command, variables = [*pip, "install", *arguments], clean_environment()
    try:
        subprocess.run(
            command, cwd=environment, env=variables, capture_output=True, text=True,
            timeout=INSTALL_S, check=True,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        raise InstallError(error.stderr[-2000:].strip()) from error


def _make_environment(folder: Path) -> None:
    # The base Python: this environment's own one might show its packages.
    base, variables = getattr(sys, "_base_executable", sys.executable), clean_environment()
    command = [base, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True, cwd=folder.parent, env=variables, timeout=60)


def _pth_of(environment: Path) -> str:
    """Return the lines for the layers below: Python reads no .pth file named by a .pth file."""
    lower = environment / _PACKAGES / "below.pth"
    return lower.read_text() if lower.exists() else ""


def _closure(name: str, extras: Iterable[str]) -> list[str]:
    """Return the distributions installed here that one needs, itself first."""
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
