"""The report is one sound page, whatever names stand in it."""

from __future__ import annotations

from html.parser import HTMLParser

from schemas.image_classification import image_classification
from shardwright.manifest import Manifest, ShardInfo, SplitInfo
from shardwright.schema import Feature, FeatureKind
from transforms.publishing.report import report_html


class _Page(HTMLParser):
    """Collects cells, and checks that every tag that is opened is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        assert [tag for tag in self._open if tag != "meta"] == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not [value for _, value in attrs if value and "://" in value], (
            "nothing is loaded from elsewhere"
        )
        self.tags.append(tag)
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open[-1] == "meta":
            self._open.pop()
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.cells.append(data)


def make_manifest(**changes: object) -> Manifest:
    stats = {
        "width": {"min": 3, "max": 5, "sum": 8, "count": 2},
        "height": {"min": 4, "max": 4, "sum": 8, "count": 2},
        "labels": {"1": 1500},
    }
    fields: dict[str, object] = {
        "name": "flowers",
        "version": "1.0.0",
        "schema": image_classification().with_class_names(("a", '<b>&"bad"')),
        "splits": {
            "train": SplitInfo(
                "train",
                (ShardInfo(0, 1000, 2_000_000, 1, "d"), ShardInfo(1, 500, 1_000_000, 1, "d")),
                stats,
            )
        },
        "rejects": {"corrupt": 2, "other_file": 1},
        "num_inputs": 1503,
        "settings": {"seed": 7},
        "fingerprint": "f",
        "provenance": {"input": "<script>alert(1)</script>"},
        **changes,
    }
    return Manifest(**fields)  # type: ignore[arg-type]


def test_the_page_tells_records_shards_rejects_and_classes() -> None:
    page = _Page(report_html(make_manifest()))
    text = "|".join(page.cells)
    assert "1,500 records in 3.0 MB; 3 of 1,503 inputs are rejects." in text
    assert "train|1,500|2|3.0 MB|500 to 1000|3x4 to 5x4" in text
    assert "corrupt|2" in text
    assert '<b>&"bad"|1,500' in text


def test_names_of_users_are_text_and_never_tags() -> None:
    page = _Page(report_html(make_manifest(name="x</h1><img src=y>")))
    assert not {"script", "img", "b", "link"} & set(page.tags)
    assert "<script>alert(1)</script>" in page.cells


def test_a_dataset_without_labels_or_rejects_has_a_page_too() -> None:
    splits = {
        "train": SplitInfo("train", (ShardInfo(0, 1, 100, 1, "d"),), {"labels": {}, "formats": {}})
    }
    manifest = make_manifest(
        schema=image_classification().with_class_names(()), rejects={}, splits=splits, num_inputs=1
    )
    page = _Page(report_html(manifest))
    assert "None." in page.cells
    assert not [cell for cell in page.cells if cell.startswith("Classes of")]


def test_a_great_many_classes_are_cut_short_and_counted() -> None:
    names = tuple(f"class {number}" for number in range(1203))
    page = _Page(report_html(make_manifest(schema=image_classification().with_class_names(names))))
    assert "... and 1003 more classes." in page.cells
    assert "class 200" not in page.cells


def test_classes_and_words_of_other_features_are_counted_and_named() -> None:
    extras = (
        Feature("scenes", FeatureKind.MULTI_LABEL),
        Feature("bag", FeatureKind.BAG_OF_WORDS),
        Feature("crop", FeatureKind.BOX, shape=(None, 4)),
    )
    names = {
        "label": ("cat", "dog"),
        "scenes": ("<indoor>", "outdoor"),
        "bag": tuple(f"w{number:04}" for number in range(1234)),
    }
    page = _Page(
        report_html(
            make_manifest(schema=image_classification(extras=extras).with_vocabularies(names))
        )
    )
    text = "|".join(page.cells)
    assert "|scenes|multi_label|[]|2|" in text
    assert "|bag|bag_of_words|[]|1,234|" in text
    assert "|crop|box|[None, 4]|" in text
    assert "2 names of scenes|<indoor>, outdoor" in text
    assert "1,234 names of bag|w0000, w0001" in text
    assert "w0199 ... and 1,034 more" in text
    assert "w0200" not in text
