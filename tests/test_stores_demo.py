"""The job of `make demo` between stores: its digits built, verified, inspected and shown by the commands that it runs."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from shardwright import cli
from tests.build_helpers import build, hashes_of, shards_of
from tests.store_places import PAIR_IDS, PAIRS, Kind, Place, Places

EXAMPLES = Path(__file__).parents[1] / "examples"
OPTIONS = (
    "--name",
    "digits",
    "--split=train=0.8,validation=0.1,test=0.1",
    "--records-per-shard",
    "256",
)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("demo") / "digits"
    assert runpy.run_path(str(EXAMPLES / "demo_images.py"))["make_digits"](root) == 1797
    assert build(root, root.parent / "reference", *OPTIONS) == 0
    return root


@pytest.fixture(scope="module")
def sources(digits: Path, places: Places) -> dict[Kind, Place]:
    return {
        "local": Place(str(digits)),
        "s3": places.make("s3").fill(digits),
        "gs": places.make("gs").fill(digits),
    }


@pytest.mark.parametrize(("source_kind", "output_kind"), PAIRS, ids=PAIR_IDS)
def test_the_demo(
    digits: Path, sources: dict[Kind, Place], places: Places, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    source_kind: Kind, output_kind: Kind,
) -> None:  # fmt: skip
    source, output = sources[source_kind], places.make(output_kind)
    assert cli.main(["build", source.uri, output.uri, *source.args, *output.args, *OPTIONS]) == 0
    assert cli.main(["verify", output.uri, *output.args]) == 0
    assert "1,797 records" in capsys.readouterr().out
    assert cli.main(["inspect", output.uri, *output.args]) == 0
    assert "1,797" in capsys.readouterr().out
    assert (
        cli.main(
            ["show", output.uri, "3/0003.png", *output.args, "--save", str(tmp_path / "three.png")]
        )
        == 0
    )
    assert (tmp_path / "three.png").read_bytes() == (digits / "3/0003.png").read_bytes()
    root = output.download(tmp_path / "dataset")
    assert hashes_of(root) == hashes_of(digits.parent / "reference")
    assert len(shards_of(root)) == 8
