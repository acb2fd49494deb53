"""Assemble the page: sections, style, script, and the policy that lets it load nothing else.

The policy is that of Content Security Policy Level 3 (w3.org/TR/CSP3): only the style and the
script with these hashes run, and only pictures inside of the page are shown.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

from shardwright.report.changes import changes
from shardwright.report.contact_sheet import contact_sheet
from shardwright.report.data import ReportData
from shardwright.report.features import classes, feature_list, feature_values, objects
from shardwright.report.markup import Html, Section, name_of, tag, warning
from shardwright.report.overview import image_sizes, overview, provenance, splits, timing
from shardwright.report.problems import duplicates, fixes, quality, rejected

_SECTIONS = (  # pictures before tables
    *(overview, contact_sheet, changes, quality, duplicates, rejected, splits, classes),
    *(image_sizes, objects, fixes, feature_values, feature_list, timing, provenance),
)

_LOG = logging.getLogger("shardwright.report")


def report_html(data: ReportData) -> str:
    """Return the page as text; it needs no server, network or other file.

    A section that cannot be made states its error, because a build must not fail for its report.
    """
    sections = []
    for make in _SECTIONS:
        try:
            section = make(data)
        except Exception as error:
            told = f"This section cannot be shown, because of {type(error).__name__}: {error}"
            _LOG.warning("report.html, %s: %s", make.__name__, told)
            title = make.__name__.replace("_", " ").title()
            section = Section(make.__name__, title, warning(told))
        sections += [] if section is None else [section]
    manifest = data.manifest
    title = f"{manifest.name} {manifest.version}"
    head = (
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy()),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        Html(f"<style>{_asset('style.css')}</style>"),
    )
    heading = tag("header", tag("h1", name_of(manifest.name), " ", manifest.version))
    told = f"This page is incomplete, because of {data.fault}" if data.fault else ""
    shown = (
        tag("section", tag("h2", one.title, id=one.anchor), one.content, aria_labelledby=one.anchor)
        for one in sections
    )
    main = tag("main", warning(told), *shown)
    items = (tag("li", tag("a", section.title, href=f"#{section.anchor}")) for section in sections)
    contents = tag("nav", tag("ul", *items), aria_label="Contents")
    body = (heading, contents, main, _dialog())
    script = Html(f"<script>{_asset('page.js')}</script>")
    page = tag("html", tag("head", *head), tag("body", *body, script), lang="en")
    return f"<!doctype html>\n{page}\n"


def _dialog() -> Html:
    """Return the box in which the script enlarges a picture."""
    buttons = (
        tag("button", "Previous", type="button", class_="previous"),
        tag("button", "Next", type="button", class_="next"),
        tag("button", "Select", type="button", class_="pick", aria_pressed="false"),
        tag("button", "Close", type="button", class_="close"),
    )
    told = tag("p", class_="told")
    inner = (tag("div", class_="large"), told, tag("div", *buttons, class_="buttons"))
    return tag("dialog", *inner, aria_label="Enlarged picture")


@cache
def _asset(name: str) -> str:
    return files("shardwright.report").joinpath(name).read_text("utf-8").strip()


@cache
def _policy() -> str:
    allowed = {"script-src": _asset("page.js"), "style-src": _asset("style.css")}
    hashes = "; ".join(
        f"{kind} 'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"
        for kind, content in allowed.items()
    )
    return f"default-src 'none'; {hashes}; img-src data:; base-uri 'none'; form-action 'none'"
