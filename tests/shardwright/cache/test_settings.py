"""The place of the cache, and its cap."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from shardwright.cache.settings import CAP, PLACE, CacheSettings
from shardwright.errors import UsageError


def set_environment(monkeypatch: pytest.MonkeyPatch, env: dict[str, str]) -> None:
    for name in (PLACE, CAP, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(("env", "arguments", "folder", "max_bytes"), [
    ({}, {}, "HOME/.cache/shardwright", None),
    ({"XDG_CACHE_HOME": "/x"}, {}, "/x/shardwright", None),
    ({PLACE: "/c", "XDG_CACHE_HOME": "/x", CAP: "200GB"}, {}, "/c", 200 * 10**9),
    ({PLACE: "~/c", CAP: "1GiB"}, {"max_bytes": 7}, "HOME/c", 7),
    ({PLACE: "/c"}, {"folder": Path("/d"), "max_bytes": "5MB"}, "/d", 5 * 10**6),
    ({PLACE: "", CAP: ""}, {}, "HOME/.cache/shardwright", None),
])  # fmt: skip
def test_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, env: Any, arguments: Any, folder: str,
    max_bytes: int | None,
) -> None:  # fmt: skip
    set_environment(monkeypatch, {**env, "HOME": str(tmp_path)})
    place = folder.replace("HOME", str(tmp_path))
    assert CacheSettings.of(**arguments) == CacheSettings(place, max_bytes)


@pytest.mark.parametrize(("env", "max_bytes", "message"), [
    ({CAP: "lots"}, None, f"{CAP} 'lots' is not a size: write a number above 0 with a unit"),
    ({}, 0, "cache_bytes '0' is not a size"),
    ({}, True, "cache_bytes 'True' is not a size"),
    ({PLACE: "s3://b"}, None, "'s3://b' is in an object store, but must be a local path"),
])  # fmt: skip
def test_invalid_settings(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], max_bytes: Any, message: str
) -> None:
    set_environment(monkeypatch, env)
    with pytest.raises(UsageError, match=message):
        CacheSettings.of(max_bytes=max_bytes)


def test_the_default_cap_is_half_of_the_disks_free_space_and_the_cache(tmp_path: Path) -> None:
    used = tmp_path / "data/new/a"
    used.parent.mkdir(parents=True)
    used.write_bytes(bytes(10**6))
    status = os.statvfs(tmp_path)
    wanted = (status.f_bavail * status.f_frsize + 10**6) / 2
    assert CacheSettings(str(tmp_path)).open() == pytest.approx(wanted, rel=0.05)
    tag = "Signature: 8a477f597d28d172789f06886806bc55\n"
    assert (tmp_path / "CACHEDIR.TAG").read_text().startswith(tag)


def test_only_its_owner_sees_a_new_cache(tmp_path: Path) -> None:
    CacheSettings(str(tmp_path / "deep" / "cache"), 5).open()
    assert (tmp_path / "deep" / "cache").stat().st_mode & 0o777 == 0o700
