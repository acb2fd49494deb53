"""The page of a manifest: sound HTML, and a section for each thing that the dataset has."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.records import FOOTER_BYTES, HEADER_BYTES
from shardwright.format.schema import Feature, FeatureKind
from shardwright.format.splits import ShardInfo, SplitInfo
from shardwright.images.signals import measure_picture
from shardwright.inspect.sample import SamplePlace
from shardwright.report import contact_sheet, pictures
from shardwright.report import page as pages
from shardwright.report.data import NearPair, ReportData
from shardwright.report.page import report_html
from shardwright.report.pictures import DrawnBox, Picture, Thumbnail
from shardwright.report.rejects import SHOWN, RejectedInput
from shardwright.schemas.ready import READY_SCHEMAS, image_classification
from shardwright.transforms.rejects import RejectReason
from tests.support.build_helpers import png_of
from tests.support.damage import example

VOID = {"meta", "img", "input"}
HOSTILE = '</script><img src=y onerror="x">'


class Page(HTMLParser):
    """The texts of a page; checks that every tag is closed and nothing comes from elsewhere."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.texts: list[str] = []
        self.tags: list[str] = []
        self.headings: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        self.text = "|".join(self.texts)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        sources = [value or "" for name, value in attrs if name in ("src", "href")]
        assert all(value.startswith(("data:image/", "#")) for value in sources)
        assert not [name for name, _ in attrs if name.startswith("on") or name == "style"]
        self.tags.append(tag)
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("style", "script"):
            self.texts.append(data)
            if self._open[-1] == "h2":
                self.headings.append(data)


def manifest_of(**changes: Any) -> Manifest:
    """Return a manifest with these changes."""
    stats = {
        "width": {"min": 3, "max": 5, "sum": 8, "count": 2},
        "height": {"min": 4, "max": 4, "sum": 8, "count": 2},
        "labels": {"1": 1500},
        "formats": {"jpeg": 1500},
    }
    shards = (
        ShardInfo(0, 1000, 2_000_000, 1, "d", 0, 0),
        ShardInfo(1, 500, 1_000_000, 1, "d", 0, 0),
    )
    manifest = Manifest(
        name="flowers",
        version="1.0.0",
        schema=image_classification().with_class_names(("a", '<b>&"bad"')),
        splits={"train": SplitInfo("train", shards, stats)},
        rejects={"corrupt": 2, "other_file": 1},
        num_inputs=1503,
        settings={"seed": 7, "encode": {"quality": 90, "resize": []}, "stratify": True},
        fingerprint="f",
        provenance={"input": HOSTILE, "packages": {"pyarrow": "25.0.1", "torch": None}},
    )
    return replace(manifest, **changes)


def page_of(data: ReportData | None = None, **changes: Any) -> Page:
    data = data or ReportData(manifest_of(**changes))
    page = Page(report_html(data))
    assert "cannot be shown" not in page.text
    return page


def picture(number: int, **changes: Any) -> Picture:
    """Return a picture of the sample."""
    shown = {"width": 30, "height": 20, "image_length": 600, "offset": 100 * number}
    place = SamplePlace(ShardName("flowers", "train", 0, 2), shown)
    bare = Picture(f"{number}.jpg", "train", 1, place, Thumbnail(b"data", "png", 30, 20))
    return bare._replace(**changes)


def test_figures_splits_classes_and_settings() -> None:
    page = page_of()
    for told in (
        "records|1,500",
        "bytes|3.0 MB",
        "rejects|2 (0.13%)",
        "listed, no faults|1",
        "train|1,500|100.0%|3.0 MB|2|500 to 1,000, median 750|1.0 MB to 2.0 MB, median 1.5 MB",
        "3 to 5|4|jpeg 1,500",
        '<b>&"bad"|1|1,500|1,500',
        "empty classes",
        "settings / encode / quality|90",
        "settings / encode / resize|none",
        "settings / stratify|yes",
        "packages / torch|none",
        "corrupt|2",
    ):
        assert f"|{told}|" in f"|{page.text}|", told
    assert page.headings == [
        *("Overview", "Rejects", "Splits", "Class balance", "Sizes", "Features"),
        "Source and settings",
    ]
    assert HOSTILE in page.texts


def test_names_of_users_are_text_and_never_tags() -> None:
    schema = image_classification().with_class_names((HOSTILE, "--><script>"))
    leak = {"records": 1, "unchecked": 0, "examples": [[HOSTILE, HOSTILE]]}
    splits = {HOSTILE: SplitInfo(HOSTILE, (), {"duplicates": {HOSTILE: leak}, "labels": {"0": 9}})}
    manifest = manifest_of(name=HOSTILE, schema=schema, rejects={HOSTILE: 1}, splits=splits)
    thumbnail = Thumbnail(b"x", "png", 9, 9)
    shown = picture(0, id=HOSTILE, split=HOSTILE, label=0)
    data = ReportData(
        manifest,
        pictures=[shown],
        near=[NearPair(HOSTILE, HOSTILE, 1)],
        paired={HOSTILE: shown},
        rejects=[RejectedInput(HOSTILE, HOSTILE, HOSTILE, HOSTILE, thumbnail)],
    )
    page = page_of(data)
    assert page.tags.count("script") == 1
    assert page.tags.count("img") == 4
    assert {"Pictures", "Duplicates", "Rejects"} < {*page.headings}


def test_the_policy_allows_this_style_and_this_script() -> None:
    html = report_html(ReportData(manifest_of()))
    for name in ("style", "script"):
        content = html.partition(f"<{name}>")[2].partition(f"</{name}>")[0]
        digest = b64encode(sha256(content.encode()).digest()).decode()
        assert f"{name}-src &#x27;sha256-{digest}&#x27;" in html
    assert "default-src &#x27;none&#x27;" in html


def test_20_000_classes_are_a_small_page() -> None:
    names = tuple(f"class {number}" for number in range(20_000))
    schema = image_classification().with_class_names(names)
    page = page_of(schema=schema)
    assert len(page.html) < 900_000
    assert "class 19999" in page.html
    assert page.tags.count("tr") < 300


def test_an_unlabeled_dataset_without_rejects_or_provenance() -> None:
    train = SplitInfo("train", (ShardInfo(0, 1, 100, 1, "d", 0, 0),), {"labels": {}, "formats": {}})
    schema = image_classification().with_class_names(())
    page = page_of(schema=schema, rejects={}, splits={"train": train}, provenance={})
    assert "None." in page.texts
    assert "Class balance" not in page.headings


def test_a_section_that_fails_says_so_and_the_others_are_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: ReportData) -> None:
        raise ZeroDivisionError("<division>")

    monkeypatch.setattr(pages, "_SECTIONS", (broken, *pages._SECTIONS))
    page = Page(report_html(ReportData(manifest_of())))
    assert page.headings[:2] == ["Broken", "Overview"]
    told = "This section cannot be shown, because of ZeroDivisionError: <division>"
    assert told in page.texts
    assert f"report.html, broken: {told}" in caplog.text


def test_a_picture_that_cannot_be_encoded_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pictures, "encode_small", lambda *_: 1 / 0)
    monkeypatch.setattr(pictures, "check_record", lambda *_: None)
    data = bytes(HEADER_BYTES) + example({"image": [png_of(0)]}) + bytes(FOOTER_BYTES)
    place = picture(0).place
    place = place._replace(row={**place.row, "id": "a", "label": 1})
    found = pictures._look(image_classification(), (128, 75), place, data)
    assert found.thumbnail is None
    assert found.signals is not None  # the statistics have it
    assert "no picture of 'a', because of ZeroDivisionError" in caplog.text


def test_features_have_their_first_words() -> None:
    extras = (
        Feature("scenes", FeatureKind.MULTI_LABEL),
        Feature("crop", FeatureKind.BOX, shape=(None, 4)),
    )
    names = {"label": ("cat", "dog"), "scenes": ("<indoor>", *(f"w{n:04}" for n in range(99)))}
    page = page_of(schema=image_classification(extras=extras).with_vocabularies(names))
    for told in ("any x 4", "100: <indoor>, w0000, ", "w0008, ..."):
        assert told in page.text, told


def test_pictures_stand_under_their_split_and_class() -> None:
    shown = [picture(number) for number in range(12)]
    page = page_of(ReportData(manifest_of(), pictures=[*shown, picture(12, thumbnail=None)]))
    assert page.tags.count("img") == 12
    assert "3 more" in page.texts
    assert " 12 of 1,500" in page.texts
    assert "1 picture more cannot be decoded" in page.text


def test_the_pictures_of_many_classes_are_behind_a_click() -> None:
    names = tuple(f"class {number}" for number in range(70))
    shown = [picture(number, label=number) for number in range(70)]
    schema = image_classification().with_class_names(names)
    page = page_of(ReportData(manifest_of(schema=schema), pictures=shown))
    assert "10 more classes" in page.texts
    assert page.tags.count("img") == 70


def test_boxes_are_drawn_and_counted_by_class() -> None:
    schema = (
        READY_SCHEMAS["detection"]
        .make("tfds", (), ())
        .with_vocabularies({"objects/label": ("cat", "<dog>")})
    )
    boxes = (DrawnBox(0.1, 0.2, 0.6, 0.7, 1), DrawnBox(0.5, 0.5, 0.4, 0.9, None))
    shown = [picture(0, label=None, boxes=boxes), picture(1, label=None)]
    page = page_of(ReportData(manifest_of(schema=schema), pictures=shown))
    assert '<rect x="0.2000" y="0.1000" width="0.5000" height="0.5000" class="box1">' in page.html
    assert "Boxes" in page.headings
    assert "<dog>" in page.texts
    assert "(no class)" in page.texts


def test_rejects_have_their_message_path_and_picture() -> None:
    thumbnail = Thumbnail(b"x", "jpeg", 90, 60)
    rejects = [
        RejectedInput("a.jpg", "/in/a.jpg", "corrupt", HOSTILE, thumbnail),
        RejectedInput("", "/in/b", "other_file", "no image"),
    ]
    page = page_of(ReportData(manifest_of(), rejects=rejects))
    assert {"/in/a.jpg", HOSTILE, "no image"} <= set(page.texts)
    assert page.tags.count("img") == 1


@pytest.mark.parametrize(("key", "sign"), [("duplicates", "="), ("near_duplicates", "\u2248")])
def test_duplicates_are_pairs(key: str, sign: str) -> None:
    leak = {"records": 1, "unchecked": 0, "examples": [["a", "b"]]}
    shard = (ShardInfo(0, 1, 100, 1, "d", 0, 0),)
    splits = {
        "test": SplitInfo("test", shard, {key: {"train": leak}}),
        "train": SplitInfo("train", shard, {key: {"test": leak | {"examples": [["b", "a"]]}}}),
    }
    paired = {"a": picture(0), "b": picture(1)}
    page = page_of(ReportData(manifest_of(splits=splits), paired=paired))
    assert "Duplicates" in page.headings
    assert page.tags.count("img") == 2
    assert page.html.count(f"<bdi>a</bdi> {sign} <bdi>b</bdi>") == 1


def test_near_duplicates_are_pairs_with_what_stands_for_them() -> None:
    near = [
        NearPair("a", "b", 3),
        NearPair("c", "b", 1),
        NearPair("d", "b", 0),
    ]
    rejects = [
        RejectedInput("c", "/in/c", "dropped_near_duplicate", "told", Thumbnail(b"x", "png", 9, 9))
    ]
    paired = {"a": picture(0), "b": picture(1)}
    page = page_of(ReportData(manifest_of(), near=near, paired=paired, rejects=rejects))
    assert page.html.count('class="pair"') == 2  # nothing is known of d but its id
    assert "|a| \u2248 |b|, 3 bits|" in page.text
    assert "|rejected|" in page.text
    assert "Duplicates" not in page_of(ReportData(manifest_of(), near=near)).headings


def test_ids_are_exact_whatever_can_be_seen_of_them() -> None:
    hostile = 'a\u202e\n"</script>'
    for name, exact in (("plain \u00e9.jpg", None), (hostile, hostile), ("a\rb", "a\rb")):
        page = report_html(ReportData(manifest_of(), pictures=[picture(0, id=name)]))
        stated = re.findall('data-json="([^"]*)"', page)
        assert [json.loads(unescape(one)) for one in stated] == ([exact] if exact else [])


def test_changes_have_pictures_and_tables() -> None:
    changes = {
        "old": {"name": "o", "version": "1.0.0", "num_records": 3},
        "records": {"same": 0, "new": 1, "gone": 1, "changed": 1, "reannotated": 0},
        "features": {},
        "examples": {"new": ["n"], "gone": ["g"], "changed": ["c"]},
        "drift": {"classes": 0.1, "image_length": 0.2, "width": 0.3},
        "splits": {},
        "class_counts": {"a": [5, 1], '<b>&"bad"': [1, 5]},
        "schema": {"added": [], "removed": [], "changed": []},
        "classes": {"added": [], "removed": [], "renumbered": {}},
        "rejects": {"old": {}, "new": {}},
    }
    found = {name: picture(0, id=name) for name in "nc"}
    data = ReportData(manifest_of(), paired=found, difference=changes)
    page = page_of(data)
    assert page.tags.count("img") == 2  # what is gone is not there
    assert "Changes: Drift, from 0 to 1" in page.texts
    assert "5|1" in page.text


def test_sizes_are_those_of_the_statistics_and_of_the_sample() -> None:
    page = page_of(ReportData(manifest_of(), pictures=[picture(0), picture(1, thumbnail=None)]))
    assert "Charts are of 2 pictures of the sample." in page.text
    assert "Width in pixels|30 in all 2|" in page.text
    assert "|train|width|2|3|4|5|" in page.text


def test_values_of_features_and_channels_are_those_of_the_statistics() -> None:
    summary = {"of": "characters", "count": 9, "min": 1, "max": 8, "mean": 3.25, "std": 0.5}
    histogram = {"edges": [0, 4, 8], "counts": [6, 3]}
    channels = {"basis": "all", "pixels": 5, "mean": [0.5, 0.25, 0.125], "std": [0.1, 0.2, 0.3]}
    signals = {"sharpness": summary | {"basis": "sample of 9", "faults": 2}}
    stats = {
        "features": {"<title>": summary | {"zeros": 2, "histogram": histogram}},
        "channels": channels,
        "signals": signals,
    }
    splits = {"train": SplitInfo("train", (ShardInfo(0, 9, 100, 1, "d", 0, 0),), stats)}
    pixels = np.zeros((8, 8, 3), np.uint8)
    shown = [picture(0, measured=measure_picture(pixels))]
    page = page_of(ReportData(manifest_of(splits=splits), pictures=shown))
    assert "|<title>|characters|train|9|1|3.25|8|0.5|2|" in page.text
    assert "|train|all|0.5000, 0.2500, 0.1250|0.1000, 0.2000, 0.3000|" in page.text
    assert "4 to 8: 3" in page.texts
    assert "|sharpness|train|sample of 9|9|1|3.25|8|0.5|2 blurry (< 0.1)|" in page.text


def test_without_pillow_there_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contact_sheet, "can_decode", lambda: False)
    assert "pip install 'shardwright[reader]'" in page_of().text


def test_only_rejects_that_are_safe_to_open_are_shown() -> None:
    assert set(map(str, RejectReason)) > SHOWN
    assert {"crashed", "outside_input", "internal_error"}.isdisjoint(SHOWN)
