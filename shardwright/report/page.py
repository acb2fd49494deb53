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

from shardwright.report.contact_sheet import contact_sheet
from shardwright.report.data import ReportData
from shardwright.report.features import classes, feature_list, feature_values, objects
from shardwright.report.markup import Html, Section, fill, join, name_of, warning
from shardwright.report.overview import changes, image_sizes, overview, provenance, splits
from shardwright.report.problems import duplicates, fixes, quality, rejected

_SECTIONS = (  # pictures before tables
    *(overview, contact_sheet, changes, quality, duplicates, rejected, splits, classes),
    *(image_sizes, objects, fixes, feature_values, feature_list, provenance),
)

_LINK = '<li><a href="#{anchor}">{title}</a></li>'
_SECTION = '<section aria-labelledby="{anchor}"><h2 id="{anchor}">{title}</h2>{content}</section>'
# The script enlarges pictures in the dialog.
_PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8">\
<meta http-equiv="Content-Security-Policy" content="{policy}">\
<meta name="viewport" content="width=device-width, initial-scale=1">\
<meta name="color-scheme" content="light dark">\
<title>{name} {version}</title><style>{style}</style></head>\
<body><header><h1>{shown_name} {version}</h1></header>\
<nav aria-label="Contents"><ul>{contents}</ul></nav>\
<main>{fault}{sections}</main>\
<dialog aria-label="Enlarged picture"><div class="large"></div><p class="told"></p>\
<div class="buttons"><button type="button" class="previous">Previous</button>\
<button type="button" class="next">Next</button>\
<button type="button" class="pick" aria-pressed="false">Select</button>\
<button type="button" class="close">Close</button></div></dialog>\
<script>{script}</script></body></html>
"""
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
    return fill(
        _PAGE,
        policy=_policy(),
        style=Html(_asset("style.css")),
        name=data.manifest.name,
        shown_name=name_of(data.manifest.name),
        version=data.manifest.version,
        contents=join(fill(_LINK, **section._asdict()) for section in sections),
        fault=warning(f"This page is incomplete, because of {data.fault}" if data.fault else ""),
        sections=join(fill(_SECTION, **section._asdict()) for section in sections),
        script=Html(_asset("page.js")),
    )


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
