#!/usr/bin/env python
"""Render RESULTS.md and the tables of README.md and docs/ from results/*.json.

Nothing is measured. A section without raw results stays as it is: an earlier commit, which it
names, printed it. A section whose code has changed since says so; these are listed, too.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import page
import raw_results
import summaries
from raw_results import Result

RESULTS = page.REPO / "benchmarks" / "RESULTS.md"
# Benchmark -> the module that reads its results, in the order of the targets.
REPORTS = {
    "build": "report",
    "startup": "startup",
    "growth": "growth_report",
    "writing": "writing",
    "plan": "plan",
    "join": "join",
    "encode": "encode",
    "peers": "peers",
    "runners": "runners_report",
    "storage": "storage_report",
    "read": "read_report",
    "scale": "scale",
    "detection": "detection",
    "decoders": "decoders_report",
    "write_python": "write_python",
    "damaged_images": "damaged_images",
    "gpu_feed": "gpu_feed",
}


class Loaded(NamedTuple):
    """The result of a benchmark, and the module that reads it."""

    result: Result
    report: Any
    found: Any

    @property
    def targets(self) -> Sequence[page.Target]:
        return self.report.targets(self.found)


def load_all() -> list[Loaded]:
    """Return all kept results in the order of REPORTS."""
    loaded = []
    for result in raw_results.load_all():
        # A run of some parts is kept as NAME-PARTS.
        report = importlib.import_module(REPORTS[result.name.partition("-")[0]])
        loaded.append(Loaded(result, report, report.unpack(result.raw)))
    names = list(REPORTS)
    return sorted(loaded, key=lambda each: names.index(each.result.name.partition("-")[0]))


def targets_table(loaded: Sequence[Loaded]) -> list[str]:
    """Return a line for each target: PASS, FAIL, or - if it was not measured."""
    rows = [
        [each.result.name, check.text, check.found, page.verdict(check.passed)]
        for each in loaded
        for check in each.targets
    ]
    missing = [name for name in REPORTS if name not in {each.result.name for each in loaded}]
    rows += [[name, "all", "no raw results yet", "-"] for name in missing]
    return page.table(["benchmark", "required", "found", ""], rows)


def rendered(loaded: Sequence[Loaded]) -> dict[Path, str]:
    """Return the text of every page."""
    text = page.with_section(
        RESULTS.read_text(), "targets", "\n".join(["## Targets", "", *targets_table(loaded)])
    )
    for each in loaded:
        section = each.report.render(each.found, each.result.lines)
        text = page.with_section(text, each.result.name, section)
    pages = {RESULTS: text}
    by_name = {each.result.name: each for each in loaded}
    for path, sections in summaries.PAGES.items():
        pages[path] = path.read_text()
        for name, (needs, summary) in sections.items():
            if all(need in by_name for need in needs):
                section = "\n".join(summary(by_name))
                pages[path] = page.with_section(pages[path], name, section)
    return pages


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="print all targets; exit code 1 if one fails"
    )
    args = parser.parse_args()
    loaded = load_all()
    for path, text in rendered(loaded).items():
        path.write_text(text)
    stale = [each.result.name for each in loaded if each.result.is_stale]
    if stale:
        print(f"older than the code that they measure: {', '.join(stale)}", file=sys.stderr)
    if args.check:
        print(*targets_table(loaded), sep="\n")
    failed = any(check.passed is False for each in loaded for check in each.targets)
    return int(args.check and failed)


if __name__ == "__main__":
    sys.exit(main())
