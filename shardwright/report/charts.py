"""Draw charts as SVG, which needs no script and no library."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from shardwright.images.signals import Outside
from shardwright.report.markup import Html, fill, join

_WIDTH, _HEIGHT, _BASE = 320, 132, 112  # of a histogram; its bars stand on _BASE
_BAR = """\
<rect x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}" class="fill">\
<title>{told}</title></rect>"""
_CELL = """\
<rect x="{x:.1f}" y="{y:.1f}" width="{side}" height="{side}" class="shade{shade}">\
<title>{told}</title></rect>"""
_AXES = """\
<line x1="0" x2="320" y1="112" y2="112" class="axis"></line>\
<line x1="0" x2="320" y1="12" y2="12" class="grid"></line>\
<text x="0" y="127" text-anchor="start">{low}</text>\
<text x="320" y="127" text-anchor="end">{high}</text><text x="0" y="9">{top}</text>"""
_MIDDLE = '<text x="{x:g}" y="127" text-anchor="middle">{told}</text>'
_SQUARE = """\
<rect x="60" y="6" width="204.8" height="204.8" class="frame"></rect>{cells}\
<line x1="60" y1="210.8" x2="264.8" y2="6" class="axis" stroke-dasharray="3"></line>\
<text x="60" y="225.8">{low:.0f}</text>\
<text x="264.8" y="225.8" text-anchor="end">{across} {high:.0f}</text>\
<text x="55" y="210.8" text-anchor="end">{low:.0f}</text>\
<text x="55" y="18" text-anchor="end">{up}</text>\
<text x="55" y="33" text-anchor="end">{high:.0f}</text>"""
_AREA = '<polygon points="0,112 {points} 320,112" class="area"></polygon>'
_LIST = '<figure class="chart"><figcaption>{title}</figcaption><p>{told}</p></figure>'
_FIGURE = """\
<figure class="chart"><figcaption>{title}</figcaption>\
<svg viewBox="0 0 320 {height}" role="img" aria-label="{label}">{content}</svg></figure>"""
_SHADES = 5
_BINS = 32  # of a histogram at most
_LISTED = 4  # numbers that are listed instead of drawn
_RANKS = 160  # points of a curve over many classes


def histogram(
    title: str,
    edges: Sequence[float],
    counts: Sequence[int],
    show: Callable[[float], str],
    outside: Outside = "",
) -> Html:
    """Return a histogram with the ends of its axis, and the count of each bin on hover.

    Args:
        title: Names it.
        edges: One more than `counts`, ascending.
        counts: Of each bin.
        show: Formats an edge.
        outside: Where values lie outside, which are in the first or last bin.
    """
    names = [f"{show(start)} to {show(stop)}" for start, stop in pairwise(edges)]
    low, high = show(edges[0]), show(edges[-1])
    if outside:
        names[-1], high = f"{show(edges[-2])} and more", f"{high} and more"
    if outside == "both":
        names[0], low = f"up to {show(edges[1])}", f"{low} and less"
    most, width = max(max(counts), 1), _WIDTH / len(counts)
    bars = []
    for number, found in enumerate(counts):
        height = max(100 * found / most, 1.5) if found else 0
        told = f"{names[number]}: {found:,}"
        x, y = number * width, _BASE - height
        bars.append(fill(_BAR, x=x, y=y, width=max(width - 1, 0.6), height=height, told=told))
    label = f"{title}: {low} to {high}, most in one bin {max(counts):,}"
    middle = len(counts) // 2
    if middle > 1:
        bars.append(fill(_MIDDLE, x=middle * width, told=show(edges[middle])))
    return _figure(title, label, join((*bars, _axes(low, high, f"{max(counts):,}"))))


def density(
    title: str,
    edges: Sequence[float],
    counts: Sequence[int],
    ends: tuple[float, float],
    show: Callable[[float], str],
) -> Html:
    """Return a histogram of bins with different widths: the area of a bar is its count.

    Args:
        title: Names it.
        edges: One more than `counts`, ascending.
        counts: Of each bin.
        ends: The least and the largest value; the outer bins end there.
        show: Formats an edge.
    """
    low, high = ends
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        told = f"{show(low)} in all {sum(counts):,}"
        return fill(_LIST, title=title, told=told)
    edges, counts = _joined(edges, counts, (high - low) / _BINS)
    places = [(min(max(edge, low), high) - low) / (high - low) for edge in edges]
    # A bin that ends up without a width holds the ends only.
    widths = [max(stop - start, 1e-3) for start, stop in pairwise(places)]
    heights = [found / width for found, width in zip(counts, widths, strict=True)]
    most = max(*heights, 1e-9)
    bars = join(
        fill(
            _BAR,
            x=_WIDTH * places[number],
            y=_BASE - 100 * height / most,
            width=max(_WIDTH * widths[number] - 0.5, 0.5),
            height=100 * height / most,
            told=f"{show(edges[number])} to {show(edges[number + 1])}: {found:,}",
        )
        for number, (found, height) in enumerate(zip(counts, heights, strict=True))
        if found
    )
    label = f"{title}: {show(low)} to {show(high)}"
    axes = _axes(show(low), show(high), f"{sum(counts):,} values")
    return _figure(title, label, join((bars, axes)))


def _joined(
    edges: Sequence[float], counts: Sequence[int], width: float
) -> tuple[list[float], list[int]]:
    """Return the bins with those joined to their neighbors that are narrower than `width`."""
    ends, found = [edges[0]], [0]
    for edge, count in zip(edges[1:], counts, strict=True):
        if ends[-1] - ends[max(len(ends) - 2, 0)] >= width:
            found.append(0)
            ends.append(edge)
        elif len(ends) > 1:
            ends[-1] = edge
        else:
            ends.append(edge)
        found[-1] += count
    return ends, found


def _axes(low: str, high: str, top: str) -> Html:
    """Return both axes: the texts below the ends of the one, and what is the top of the other."""
    return fill(_AXES, low=low, high=high, top=top)


def _figure(title: str, label: str, content: Html, *, height: int = _HEIGHT) -> Html:
    return fill(_FIGURE, title=title, label=label, content=content, height=height)


def histogram_of(title: str, values: np.ndarray, show: Callable[[float], str]) -> Html:
    """Return the histogram of numbers, in at most 32 bins; a sentence if few numbers differ."""
    least, most = float(values.min()), float(values.max())
    if least == most or len(values) <= _LISTED:
        told = (
            f"{show(least)} in all {len(values):,}"
            if least == most
            else ", ".join(map(show, sorted(values.tolist())))
        )
        return fill(_LIST, title=title, told=told)
    whole = values.dtype.kind in "iu"
    bins = min(_BINS, int(most - least) + 1) if whole else _BINS
    counts, edges = np.histogram(values, bins=bins)
    return histogram(title, edges.tolist(), counts.tolist(), show)


def heatmap(title: str, x: np.ndarray, y: np.ndarray, axes: tuple[str, str]) -> Html:
    """Return a 2-D histogram of pairs of positive numbers, on logarithmic axes with equal scales.

    Args:
        title: Names it.
        x: Numbers, [n].
        y: Numbers, [n].
        axes: The names of both.
    """
    low, high = float(min(x.min(), y.min())), float(max(x.max(), y.max()))
    apart = 1.05 if high / low > 1.5 else 1.5  # the ends hold all numbers, even if they are equal
    low, high = low / apart, high * apart
    edges = np.geomspace(low, high, 33)
    counts, _, _ = np.histogram2d(x, y, bins=(edges, edges))
    side, left, top = 6.4, 60, 6
    most = math.log1p(counts.max())
    cells = []
    for column, row in np.argwhere(counts):
        found = int(counts[column, row])
        shade = min(int(_SHADES * math.log1p(found) / most) + 1, _SHADES)
        told = (
            f"{axes[0]} {edges[column]:.0f} to {edges[column + 1]:.0f}, "
            f"{axes[1]} {edges[row]:.0f} to {edges[row + 1]:.0f}: {found:,}"
        )
        at = {"x": left + int(column) * side, "y": top + (31 - int(row)) * side}
        cells.append(fill(_CELL, **at, side=side - 0.4, shade=shade, told=told))
    across, up = axes
    drawn = fill(_SQUARE, cells=join(cells), low=low, high=high, across=across, up=up)
    label = f"{title}, {low:.0f} to {high:.0f} pixels on both axes"
    return _figure(title, label, drawn, height=232)


def rank_curve(title: str, counts: Sequence[int]) -> Html:
    """Return the counts from the largest to the least, on a logarithmic axis."""
    ordered = np.sort(np.asarray(counts))[::-1]
    top = math.log1p(int(ordered[0])) or 1.0
    places = np.unique(np.linspace(0, len(ordered) - 1, _RANKS).round().astype(int))
    last = max(len(ordered) - 1, 1)
    points = " ".join(
        f"{_WIDTH * place / last:.1f},{_BASE - 100 * math.log1p(int(ordered[place])) / top:.1f}"
        for place in places
    )
    area = fill(_AREA, points=points)
    first, last_one = (f"{int(ordered[place]):,}" for place in (0, -1))
    axes = _axes(f"most: {first}", f"least: {last_one}", first)
    label = f"{title}: most {first}, least {last_one}"
    return _figure(title, label, join((area, axes)))
