"""Draw histograms as SVG, which needs no script and no library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from shardwright.report.markup import Html, fill, join

_BAR = """\
<rect x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}" class="fill">\
<title>{told}</title></rect>"""
_FIGURE = """\
<figure class="chart"><figcaption>{title}</figcaption>\
<svg viewBox="0 0 320 132" role="img" \
aria-label="{title}: {low} to {high}, most in one bin {most}">\
{bars}<line x1="0" x2="320" y1="112" y2="112" class="axis"></line>\
<line x1="0" x2="320" y1="12" y2="12" class="grid"></line>\
<text x="0" y="127" text-anchor="start">{low}</text>\
<text x="{place:g}" y="127" text-anchor="middle">{middle}</text>\
<text x="320" y="127" text-anchor="end">{high}</text>\
<text x="0" y="9">{most}</text></svg></figure>"""
_ONE = """\
<figure class="chart"><figcaption>{title}</figcaption><p>{value} in all {number}</p></figure>"""
_BINS = 32  # at most


def histogram(
    title: str, edges: Sequence[float], counts: Sequence[int], show: Callable[[float], str]
) -> Html:
    """Return a histogram with the ends of its axis, and the count of each bin on hover.

    All bars are equally wide, whatever their bins are.

    Args:
        title: Names it.
        edges: One more than `counts`, ascending.
        counts: Of each bin.
        show: Formats an edge.
    """
    names = [show(edge) for edge in edges]
    most, width, middle = max(counts), 320 / len(counts), len(counts) // 2
    bars = []
    for number, (found, (low, high)) in enumerate(zip(counts, pairwise(names), strict=True)):
        height = max(100 * found / most, 1.5) if found else 0  # the least count can be seen
        bar = {"x": number * width, "y": 112 - height, "width": max(width - 1, 0.6)}
        bars.append(fill(_BAR, **bar, height=height, told=f"{low} to {high}: {found:,}"))
    return fill(
        _FIGURE,
        title=title,
        bars=join(bars),
        low=names[0],
        place=middle * width,
        middle=names[middle] if middle > 1 else "",
        high=names[-1],
        most=f"{most:,}",
    )


def histogram_of(title: str, values: np.ndarray, show: Callable[[float], str]) -> Html:
    """Return the histogram of numbers, in at most 32 bins; a sentence if all are equal."""
    least, most = float(values.min()), float(values.max())
    if least == most:
        return fill(_ONE, title=title, value=show(least), number=f"{len(values):,}")
    is_whole = values.dtype.kind in "iu"
    counts, edges = np.histogram(values, min(_BINS, int(most - least) + 1) if is_whole else _BINS)
    return histogram(title, edges.tolist(), counts.tolist(), show)
