"""Where the cache is, and how much it may hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shardwright.cache import files as cache_files
from shardwright.cache.settings import CAP, PLACE, CacheSettings
from shardwright.errors import UsageError


def make(root: Path, name: str, num_bytes: int, last_use: int, build: str = "data/new") -> Path:
    path = root / build / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(num_bytes))
    os.utime(path, (last_use, last_use))
    return path


@pytest.mark.parametrize(
    ("env", "arguments", "folder", "max_bytes"),
    [
        ({}, {}, "HOME/.cache/shardwright", None),
        ({"XDG_CACHE_HOME": "/x"}, {}, "/x/shardwright", None),
        ({PLACE: "/c", "XDG_CACHE_HOME": "/x", CAP: "200GB"}, {}, "/c", 200 * 10**9),
        ({PLACE: "~/c", CAP: "1GiB"}, {"max_bytes": 7}, "HOME/c", 7),
        ({PLACE: "/c"}, {"folder": Path("/d"), "max_bytes": "5MB"}, "/d", 5 * 10**6),
        ({PLACE: "", CAP: ""}, {}, "HOME/.cache/shardwright", None),
    ],
)
def test_settings(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    env: dict[str, str],
    arguments: dict[str, str],
    folder: str,
    max_bytes: int | None,
) -> None:
    for name in (PLACE, CAP, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**env, "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)

    assert CacheSettings.of(**arguments) == CacheSettings(
        folder.replace("HOME", str(tmp_path)), max_bytes
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("env", "arguments", "message"),
    [
        (
            {CAP: "lots"},
            {},
            r"SHARDWRIGHT_CACHE_BYTES 'lots' is no size; write a number above 0 with a unit",
        ),
        ({}, {"max_bytes": 0}, r"cache_bytes '0' is no size"),
        (
            {},
            {"max_bytes": True},
            r"cache_bytes=True must be a number of bytes, or a size such as '200GB'",
        ),
        ({}, {"max_bytes": 1.5}, r"cache_bytes=1.5 must be a number"),
        (
            {PLACE: "s3://b/c"},
            {},
            r"'s3://b/c' is the address of a store, and this must be a local path",
        ),
    ],
)
def test_settings_that_are_none(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], arguments: dict[str, object], message: str
) -> None:
    for name in (PLACE, CAP):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=message):
        CacheSettings.of(**arguments)  # type: ignore[arg-type]


def test_the_default_cap_is_half_of_what_the_disk_could_give(tmp_path: Path) -> None:
    make(tmp_path, "a", 10**6, 1000)
    status = os.statvfs(tmp_path)
    free = status.f_bavail * status.f_frsize
    assert CacheSettings(str(tmp_path)).open().max_bytes == pytest.approx(
        (free + 10**6) / 2, rel=0.05
    )
    assert (
        (tmp_path / "CACHEDIR.TAG")
        .read_text()
        .startswith("Signature: 8a477f597d28d172789f06886806bc55")
    )


def test_only_its_owner_sees_a_cache_that_is_made(tmp_path: Path) -> None:
    CacheSettings(str(tmp_path / "deep" / "cache"), 5).open()
    assert (tmp_path / "deep" / "cache").stat().st_mode & 0o777 == 0o700
    assert cache_files.ROOM_SECONDS < 60
