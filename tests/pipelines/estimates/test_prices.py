"""The prices that users state, also with mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwright.errors import UsageError
from shardwright.pipelines.estimates.estimator import Prices


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[s3]\nread = -1", "read of [s3] must be a number of at least 0, got -1"),
        ("[s3]\nread = true", "must be a number of at least 0, got True"),
        ("[s3]\nread = inf", "must be a number of at least 0, got inf"),
        ("[s3]\nread = '1'", "must be a number of at least 0, got '1'"),
        ("[s3]\nreads = 1", "[s3] has no price 'reads', only list, read, write"),
        ("[s4]\nread = 1", "[s4] is not one of the sections s3, gs, az, dataflow"),
        ("read = 1", "[read] is not one of the sections"),
        ("[s3", "cannot be read: "),
    ],
)
def test_a_table_with_a_mistake(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        Prices.read(path)
    assert str(error.value).startswith(f"--prices {path}")
    assert told in str(error.value)


def test_a_table_that_is_missing_or_no_text(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")
    for name in ("none", "binary"):
        with pytest.raises(UsageError, match=r"--prices .* cannot be read"):
            Prices.read(tmp_path / name)


def test_prices_are_read(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text("[az]\nread = 1")
    prices = Prices.read(path)
    assert (prices.of("az", "read"), prices.of("az", "list"), prices.of("s3", "read")) == (
        1.0,
        None,
        None,
    )
