"""Class names and words that only erased records had: placeholders of the same number."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import shardwright as sw
from shardwright.storage.folder import Folder
from tests.support.build_helpers import files_below, png_of
from tests.support.growing import Grown, Source
from tests.support.judge import judge
from tests.transforms.erasure.grown import check, erase, told

SCHEMA = """
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source, VocabularyRule

RULE = VocabularyRule(token_pattern=r"\\w+")
SCHEMA = ExampleSchema((
    Feature("image", FeatureKind.IMAGE, Source.IMAGE),
    Feature("id", FeatureKind.TEXT, Source.ID),
    Feature("label", FeatureKind.CLASS_LABEL, Source.LABEL),
    Feature("caption", FeatureKind.TOKENS, vocabulary=RULE),
    Feature("bag", FeatureKind.BAG_OF_WORDS, column="caption", vocabulary=RULE),
    Feature("kind", FeatureKind.CLASS_LABEL),
    Feature("sex", FeatureKind.CLASS_LABEL, names=("m", "secretsex", "w", "x")),
))
"""
ROWS = [
    *({"label": "cat", "caption": "a red bird", "kind": "old", "sex": "m"} for _ in range(4)),
    {"label": "zsecret", "caption": "a secretword", "kind": "asecret", "sex": "secretsex"},
    {"label": "fox", "caption": "a late bird", "kind": "new", "sex": "w"},
    {"label": "newsecret", "caption": "a bird", "kind": "newsecret", "sex": "w"},
]
GONE = ("a/4.png", "a/6.png")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two versions; the last of its rejects had a class of its own."""
    root = tmp_path_factory.mktemp("names")
    (root / "schema.py").write_text(SCHEMA)
    (root / "a").mkdir()
    for number in range(len(ROWS)):
        (root / "a" / f"{number}.png").write_bytes(png_of(number))
    append(root, len(ROWS) - 1, root / "out")
    append(root, len(ROWS), root / "out")
    return root


def append(root: Path, number: int, output: Path) -> None:
    table = root / "table.jsonl"
    rows = [{"path": f"a/{place}.png", **row} for place, row in enumerate(ROWS[:number])]
    table.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    options = ("--schema", f"{root}/schema.py", "--records-per-shard", "3", "--name", "grown")
    Grown(Folder(str(output)), options).append(Source(table))


def names_of(root: Path) -> dict[str, list[str]]:
    dataset = sw.open(str(root))
    features = ("caption", "bag", "kind", "sex")
    return {"label": list(dataset.class_names)} | {
        name: list(dataset.vocabulary(name)) for name in features
    }


def holds_a_secret(root: Path) -> list[str]:
    return [name for name, path in files_below(root).items() if b"secret" in path.read_bytes()]


def test_names_become_placeholders(made: Path, tmp_path: Path) -> None:
    root = tmp_path / "out"
    shutil.copytree(made / "out", root)
    before = names_of(root)
    assert before["label"] == ["cat", "fox", "zsecret", "newsecret"]
    assert holds_a_secret(root)
    assert erase(root, *GONE) == 0
    assert holds_a_secret(root) == []
    assert names_of(root) == {
        feature: [
            f"<erased {number}>" if "secret" in name else name for number, name in enumerate(names)
        ]
        for feature, names in before.items()
    }
    [labels] = root.glob("generations/*/label.labels.txt")
    assert labels.read_text() == "cat\nfox\n<erased 2>\n<erased 3>\n"
    assert told(root)["keeps_names"] is False
    assert "secret" not in (tmp_path / "receipt.json").read_text()
    assert judge(str(root)).is_sound
    assert check(root) == 0


def test_names_that_are_kept(made: Path, tmp_path: Path) -> None:
    root = tmp_path / "out"
    shutil.copytree(made / "out", root)
    before = names_of(root)
    assert erase(root, *GONE, also=("--keep-names",)) == 0
    assert names_of(root) == before
    assert told(root)["keeps_names"] is True
    assert check(root) == 0


def test_an_append_after_names_were_erased(made: Path, tmp_path: Path) -> None:
    """Also with a schema that gives a name; the class of a new record gets a new number."""
    root = tmp_path / "out"
    shutil.copytree(made / "out", root)
    assert erase(root, *GONE) == 0
    append(made, 5, root)  # `a/4.png` comes again
    names = names_of(root)
    assert names["label"] == ["cat", "fox", "<erased 2>", "<erased 3>", "zsecret"]
    assert names["sex"] == ["m", "<erased 1>", "w", "x", "secretsex"]
    assert judge(str(root)).is_sound
