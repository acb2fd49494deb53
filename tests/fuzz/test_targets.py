"""Random changes to what every parser reads: each is read, or ends with an error that it states.

`make fuzz` looks for changes by the branches that they reach. Its findings are kept here.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.fuzz.targets import NAMES, make_target

NUM_CHANGES = 25
TOKENS = (
    *(b"", b"\0", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"-1", b"1e999", b"NaN", b"null", b"[]"),
    *(b"{}", b'"', b"\n", b"\r\n", b",", b"../", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"9" * 30),
    b"[" * 2000,
)  # fmt: skip


# Of `make fuzz`: a target, bytes that it reads, and what replaced them when it broke.
FINDINGS = (
    ("addresses", b"file:///a", b"~a\0"),
    ("zip", b"train/cat/0.png", b"\0rain/cat/0.png"),
    ("parquet", b"path", b"p\xa7th"),
    ("jsonl", b'{"path": "images/0.png"', b'null"images/0.png"'),  # ended the process
    ("hub-parquet", b"2.png", b"2.p\x9ag"),
)


def changed(data: bytes, rng: np.random.Generator) -> bytes:
    """Return the bytes with a few bytes changed, removed, repeated or replaced by a token."""
    for _ in range(rng.integers(1, 4)):
        start, stop = sorted(int(place) for place in rng.integers(len(data) + 1, size=2))
        stop = min(stop, start + int(rng.integers(1, 40)))
        part = data[start:stop]
        parts = (
            bytes(rng.integers(256, size=len(part), dtype=np.uint8)),
            b"",
            part * 2,
            TOKENS[int(rng.integers(len(TOKENS)))],
        )
        data = data[:start] + parts[int(rng.integers(len(parts)))] + data[stop:]
    return data[: int(rng.integers(len(data) + 1))] if rng.integers(8) == 0 else data


@pytest.mark.long_but_first
@pytest.mark.parametrize("name", NAMES)
def test_changed_bytes(name: str, tmp_path: Path, rng: np.random.Generator) -> None:
    target = make_target(name, tmp_path)
    for seed in target.seeds:
        target.parse(seed)
        for _ in range(NUM_CHANGES // len(target.seeds)):
            data = changed(seed, rng)
            try:
                target.run(data)
            except Exception as error:
                raise AssertionError(f"{name} raised {error!r} for {data[:2000]!r}") from error


@pytest.mark.parametrize(("name", "before", "after"), FINDINGS)
def test_mended_findings(name: str, before: bytes, after: bytes, tmp_path: Path) -> None:
    target = make_target(name, tmp_path)
    [seed] = [seed for seed in target.seeds if before in seed]
    target.run(seed.replace(before, after))
