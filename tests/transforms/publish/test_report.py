"""The report: one sound page, whatever names stand in it."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

from schemas.image_classification import image_classification
from shardwright.format.manifest import Manifest, ShardInfo, SplitInfo
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind
from transforms.publish.report import report_html


class _Page(HTMLParser):
    """The cells of a page; checks that every tag is closed and nothing comes from elsewhere."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.text = "|".join(self.cells)
        assert [tag for tag in self._open if tag != "meta"] == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not [value for _, value in attrs if value and "://" in value]
        self.tags.append(tag)
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open[-1] == "meta":
            self._open.pop()
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.cells.append(data)


def page_of(**changes: Any) -> _Page:
    """Return the page of a manifest with these changes."""
    stats = {
        "width": {"min": 3, "max": 5, "sum": 8, "count": 2},
        "height": {"min": 4, "max": 4, "sum": 8, "count": 2},
        "labels": {"1": 1500},
    }
    shards = (ShardInfo(0, 1000, 2_000_000, 1, "d"), ShardInfo(1, 500, 1_000_000, 1, "d"))
    manifest = Manifest(
        name="flowers",
        version="1.0.0",
        schema=schema_of("a", '<b>&"bad"'),
        splits={"train": SplitInfo("train", shards, stats)},
        rejects={"corrupt": 2, "other_file": 1},
        num_inputs=1503,
        settings={"seed": 7},
        fingerprint="f",
        provenance={"input": "<script>alert(1)</script>"},
    )
    return _Page(report_html(replace(manifest, **changes)))


def schema_of(*class_names: str) -> ExampleSchema:
    return image_classification().with_class_names(class_names)


def test_the_page_tells_records_shards_rejects_and_classes() -> None:
    text = page_of().text
    assert "1,500 records in 3.0 MB; 3 of 1,503 inputs are rejects." in text
    assert "train|1,500|2|3.0 MB|500 to 1000|3x4 to 5x4" in text
    assert "corrupt|2" in text
    assert '<b>&"bad"|1,500' in text


def test_names_of_users_are_text_and_never_tags() -> None:
    page = page_of(name="x</h1><img src=y>")
    assert not {"script", "img", "b", "link"} & set(page.tags)
    assert "<script>alert(1)</script>" in page.cells


def test_a_dataset_without_labels_or_rejects_has_a_page_too() -> None:
    train = SplitInfo("train", (ShardInfo(0, 1, 100, 1, "d"),), {"labels": {}, "formats": {}})
    page = page_of(schema=schema_of(), rejects={}, splits={"train": train}, num_inputs=1)
    assert "None." in page.cells
    assert not [cell for cell in page.cells if cell.startswith("Classes of")]


def test_a_great_many_classes_are_cut_short_and_counted() -> None:
    page = page_of(schema=schema_of(*(f"class {number}" for number in range(1203))))
    assert "... and 1,003 more classes." in page.cells
    assert "class 199" in page.cells
    assert "class 200" not in page.cells


def test_classes_and_words_of_other_features_are_counted_and_named() -> None:
    extras = (
        Feature("scenes", FeatureKind.MULTI_LABEL),
        Feature("bag", FeatureKind.BAG_OF_WORDS),
        Feature("crop", FeatureKind.BOX, shape=(None, 4)),
    )
    words = tuple(f"w{number:04}" for number in range(1234))
    names = {"label": ("cat", "dog"), "scenes": ("<indoor>", "outdoor"), "bag": words}
    text = page_of(schema=image_classification(extras=extras).with_vocabularies(names)).text
    for part in (
        "|scenes|multi_label|[]|2|",
        "|bag|bag_of_words|[]|1,234|",
        "|crop|box|[None, 4]|",
        "2 names of scenes|<indoor>, outdoor",
        "1,234 names of bag|w0000, w0001",
        "w0199 ... and 1,034 more",
    ):
        assert part in text
    assert "w0200" not in text
