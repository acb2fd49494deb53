"""`report.html` in a real Chromium: it works, loads nothing, and is accessible at every width."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGES = ("shapes", "boxes", "masks", "table", "single", "hostile", "many", "changes", "near")
WIDTHS = (390, 1280)
AXE = ROOT / ".browser" / "node_modules" / "axe-core" / "axe.min.js"

Open = Callable[..., "Page"]


@pytest.fixture
def open_page(browser: Browser, pages: Path) -> Iterator[Open]:
    """Yield a function that opens a page; errors and requests of the page fail the test."""
    faults: list[str] = []
    contexts = []

    def opened(name: str, width: int = 1280, scheme: Any = "light", **options: Any) -> Page:
        size: Any = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, color_scheme=scheme, **options)
        contexts.append(context)
        page = context.new_page()
        url = (pages / f"{name}.html").as_uri()
        page.on("console", lambda told: faults.append(f"console: {told.text}"))
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
        page.on("request", lambda sent: _check_request(sent.url, url, faults))
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


def _check_request(sent: str, url: str, faults: list[str]) -> None:
    if sent != url and not sent.startswith("data:image/"):
        faults.append(f"request: {sent[:100]}")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_without_errors_requests_or_sideways_scrolling(
    open_page: Open, name: str, width: int
) -> None:
    page = open_page(name, width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("h2").count() >= 5
    for link in page.locator("a").all():
        assert page.locator(str(link.get_attribute("href"))).count() == 1
    broken = "[...document.images].filter((image) => !image.complete || !image.naturalWidth).length"
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.wait_for_function(f"({broken}) === 0")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["shapes", "boxes", "table", "hostile", "changes", "near"])
def test_axe_finds_nothing(open_page: Open, name: str, scheme: str, width: int) -> None:
    page = open_page(name, width, scheme, bypass_csp=True)  # the policy would stop axe, too
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    if name != "table":
        page.locator(".choose:visible").first.check()
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    told = {
        one["id"]: [one["help"], [node["html"][:200] for node in one["nodes"]][:3]]
        for one in found["violations"]
    }
    assert told == {}
    assert found["passes"]


def test_dark_and_light_differ(open_page: Open) -> None:
    color = "getComputedStyle(document.body).backgroundColor"
    light, dark = (open_page("shapes", scheme=one).evaluate(color) for one in ("light", "dark"))
    assert light != dark


def test_a_long_table_is_filtered_sorted_and_shown_in_steps(open_page: Open) -> None:
    page = open_page("many")
    box = page.locator(".table", has=page.locator("caption", has_text="Classes"))
    rows = box.locator("tbody tr")
    assert rows.count() == 100
    assert box.locator(".status").text_content() == "100 of 20,000 rows"
    box.get_by_role("button", name="Show more rows of Classes").click()
    assert rows.count() == 600
    box.get_by_label("Filter Classes").fill("CLASS 01234")
    assert rows.all_text_contents()[0].startswith("class 01234")
    assert box.locator(".status").text_content() == "1 of 1 rows"
    box.get_by_label("Filter Classes").fill("")
    head = box.locator("thead th", has_text="all")
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert rows.first.locator("th").text_content() == "class 00000"
    head.get_by_role("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    counts = [row.locator("td").nth(3).text_content() for row in rows.all()[:5]]
    assert len(set(counts)) == 1
    label = box.locator("thead th", has_text="label")
    label.get_by_role("button").click()
    assert rows.first.locator("th").text_content() == "class 19999"
    assert head.get_attribute("aria-sort") is None


def test_pictures_are_filtered_by_split_class_and_text(open_page: Open) -> None:
    page = open_page("shapes")
    box = page.locator(".pictures")
    shown = box.locator("figure:visible")
    box.get_by_label("Split").select_option("test")
    assert shown.count() == 2
    assert box.locator("h3:visible").all_text_contents() == ["test"]
    box.get_by_label("Split").select_option("")
    box.get_by_label("Filter").fill("Triangle")
    captions = shown.locator("figcaption").all_text_contents()
    assert len(captions) > 9  # those behind "more", too
    assert all(caption.startswith("triangle/") for caption in captions)
    assert box.locator(".status").text_content() == f"{len(captions)} pictures"
    box.get_by_label("Filter").fill("")
    box.get_by_label("Class").select_option("triangle")
    assert shown.locator("figcaption").all_text_contents() == captions
    box.get_by_label("Class").select_option("")
    assert shown.count() > len(captions)


def test_pictures_come_before_tables(open_page: Open) -> None:
    before = (
        "document.querySelector('img').compareDocumentPosition(document.querySelector('table'))"
    )
    assert open_page("shapes").evaluate(before) & 4  # Node.DOCUMENT_POSITION_FOLLOWING


def test_ids_of_selected_pictures_are_copied(open_page: Open) -> None:
    page = open_page("shapes", permissions=["clipboard-read", "clipboard-write"])
    box, ids = page.locator(".pictures"), page.get_by_label("Ids of the selected pictures")
    assert ids.is_hidden()
    box.get_by_label("Select circle/z1.jpg").check()
    page.locator("#duplicates ~ .pairs").get_by_label("Select triangle/002.jpg").check()
    assert box.get_by_label("Select triangle/002.jpg").count() <= 1  # the sample may lack it
    page.get_by_role("button", name="Copy ids").click()
    page.get_by_text("copied").wait_for()
    expected = "circle/z1.jpg\ntriangle/002.jpg"
    assert ids.input_value() == expected == page.evaluate("navigator.clipboard.readText()")
    assert "--ids ids.txt" in str(page.locator(".selection").text_content())
    every = page.locator("[aria-label='Select circle/z1.jpg']")
    assert every.count() > 1
    assert all(one.is_checked() for one in every.all())
    page.get_by_role("button", name="Clear", exact=True).click()
    assert ids.is_hidden()
    box.get_by_label("Split").select_option("test")
    box.get_by_role("button", name="Select all shown").click()
    assert sorted(ids.input_value().split("\n")) == ["circle/z1.jpg", "circle/z2.jpg"]
    assert page.locator("#rejects ~ * .choose").count() == 0  # they are in no split


def test_ids_with_line_breaks_are_copied_as_a_json_list(open_page: Open) -> None:
    page = open_page("near")
    page.get_by_label("Filter").first.fill("two")
    shown = page.locator(".pictures figure:visible")
    assert "\\u202egpj.jpg" in str(shown.locator("figcaption").text_content())
    shown.locator(".zoom").click()
    page.get_by_role("dialog").get_by_role("button", name="Select").click()
    page.keyboard.press("Escape")
    ids = page.get_by_label("Ids of the selected pictures").input_value()
    assert json.loads(ids) == ["circle/two\nlines \u202egpj.jpg"]
    assert "--split-ids SPLIT=ids.json" in str(page.locator(".selection").text_content())


def test_rejects_and_near_duplicates_are_shown(open_page: Open) -> None:
    page = open_page("shapes")
    groups = page.locator("section[aria-labelledby=rejects] .group")
    assert groups.locator("h3").all_text_contents() == ["policy_cmyk", "truncated"]
    groups.nth(1).locator(".zoom").click()
    told = page.get_by_role("dialog").locator(".told")
    assert "truncated: the jpeg file has no end-of-image marker" in str(told.text_content())
    pairs = open_page("near").locator(".pair")
    assert pairs.count() == 3
    assert all(pair.locator("img").count() == 2 for pair in pairs.all())


def test_changes_have_pictures_of_what_is_there_now(open_page: Open) -> None:
    section = open_page("changes").locator("section[aria-labelledby=changes]")
    counts = {
        str(group.locator("h3").text_content()): group.locator("img").count()
        for group in section.locator(".group").all()
    }
    assert counts == {"new": 3, "changed": 1}
    assert section.locator(".choose").count() == 4


def test_charts_have_axes(open_page: Open) -> None:
    page = open_page("shapes")
    charts = page.locator("section[aria-labelledby=quality] .chart svg")
    assert charts.count() == 9
    for chart in charts.all():
        count, *_ = chart.locator("text[y='9']").all_text_contents()
        assert f"most in one bin {count}" in str(chart.get_attribute("aria-label"))
        assert chart.locator("text:not([y='9'])").count() == 3


def test_a_picture_is_enlarged_by_keyboard_and_gives_the_focus_back(open_page: Open) -> None:
    page = open_page("shapes")
    first = page.locator("main .zoom").first
    first.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    assert dialog.is_visible()
    told = dialog.locator(".told").text_content()
    assert "circle/" in str(told)
    box = dialog.locator(".large img").bounding_box()
    assert box is not None
    assert max(box["width"], box["height"]) > 250
    assert dialog.evaluate("(one) => one.scrollHeight - one.clientHeight") <= 1
    page.keyboard.press("ArrowRight")
    assert dialog.locator(".told").text_content() != told
    page.keyboard.press("ArrowLeft")
    assert dialog.locator(".told").text_content() == told
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert first.evaluate("(button) => button === document.activeElement")


def test_boxes_lie_in_their_pictures_and_can_be_hidden(open_page: Open) -> None:
    page = open_page("boxes")
    drawn = page.locator(".pictures .boxes:visible")
    assert drawn.count() > 0
    assert page.locator(".pictures .boxes rect").count() == 60  # as many as are in the dataset
    frame, over = drawn.first.locator("xpath=..").bounding_box(), drawn.first.bounding_box()
    assert frame is not None
    assert over is not None
    assert all(abs(frame[side] - over[side]) < 1 for side in ("x", "y", "width", "height"))
    page.get_by_label("boxes and masks").uncheck()
    assert drawn.count() == 0


def test_masks_lie_over_their_pictures(open_page: Open) -> None:
    page = open_page("masks")
    assert page.locator(".pictures figure").count() == 12
    assert page.locator(".pictures .mask").count() == 12


def test_the_worst_pictures_are_those_of_the_sheet(open_page: Open) -> None:
    page = open_page("shapes")
    again = page.locator("[data-of] img")
    assert again.count() > 20
    assert all(str(one.get_attribute("src")).startswith("data:image/") for one in again.all())


def test_hostile_names_are_texts(open_page: Open) -> None:
    """An alert would be a dialog, and an image a request: both fail a test."""
    page = open_page("hostile")
    names = page.locator("table", has_text="of the largest class").locator("tbody th bdi")
    found = set(names.all_text_contents())
    assert found >= {"</script><img src=x onerror=alert(1)>", "<!--", "مرحبا بالعالم", "a" * 300}
    assert "\\u202egnp.exe" in found
    assert page.locator("svg[onload], img[onerror], [onmouseover]").count() == 0
    page.get_by_label("Filter Classes").fill("<!--")
    assert page.locator("img[src=x]").count() == 0


def test_the_policy_allows_nothing_but_this_page(open_page: Open) -> None:
    page = open_page("shapes")
    policy = page.locator("meta[http-equiv]").get_attribute("content")
    assert str(policy).startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in str(policy)


def test_a_page_is_readable_without_javascript(open_page: Open) -> None:
    page = open_page("shapes", java_script_enabled=False)
    assert page.locator("table tbody tr").count() > 10
    assert page.locator(".pictures img").count() > 50
    assert not page.locator(".pictures .tools").first.is_visible()
    assert page.locator(".choose, .selection").count() == 0
    many = open_page("many", java_script_enabled=False)
    assert "19,900 more rows need JavaScript." in many.locator("main").inner_text()


def test_the_axe_that_judges_is_the_pinned_one() -> None:
    lock = json.loads((AXE.parent / "package.json").read_text())
    assert f"axe-core@{lock['version']}" in (ROOT / "Makefile").read_text()
