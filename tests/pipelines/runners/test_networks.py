"""Hosts that Beam's own processes reach without the user's proxy."""

from __future__ import annotations

import os

import pytest

from shardwright.pipelines.runners.run import keep_proxies_out

NAMES = ("no_grpc_proxy", "no_proxy", "NO_PROXY")
HERE = "localhost,127.0.0.1,::1"


@pytest.mark.parametrize(("given", "expected"), [
    ({}, HERE),
    ({"no_proxy": "example.com,localhost"}, "example.com,localhost,127.0.0.1,::1"),
    ({"NO_PROXY": "a", "no_proxy": "b"}, f"b,{HERE}"),
    ({"NO_PROXY": "a"}, f"a,{HERE}"),
    ({"no_grpc_proxy": "c", "no_proxy": "b"}, f"c,{HERE}"),
])  # fmt: skip
def test_hosts_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], expected: str
) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, given.get(name, ""))
    for _ in range(2):
        keep_proxies_out()
        assert os.environ[NAMES[0]] == expected
