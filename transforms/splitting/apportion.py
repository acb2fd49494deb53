"""Whole numbers near exact shares: how many records of each class go to each split."""

from __future__ import annotations

import numpy as np

_TINY = 1e-9  # a share of 0.1 of 30 is a hair more or less than 3


def whole_parts(exact: np.ndarray) -> np.ndarray:
    """Whole numbers that add up as `exact` does, by largest remainder; of equal remainders the first ones are rounded up.

    Args:
        exact: Parts of a whole number, shape [splits], float64.
    """
    parts = np.floor(exact + _TINY).astype(np.int64)
    spare = round(float(exact.sum())) - int(parts.sum())
    parts[np.argsort(parts - exact, kind="stable")[:spare]] += 1
    return parts


def apportion(counts: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """How many records of each class go to each split: each class is used up, each split gets its total, and each cell is within one
    of its exact share `counts[c] * totals[s] / sum(totals)`.

    Shares are rounded class by class, and what rounding takes from a split is owed to it by the classes that follow, so that
    totals are off by little at the end; then single records change sides, where it does the shares the least harm.

    Args:
        counts: Records of each class, shape [classes], int64.
        totals: Records of each split, shape [splits], int64, of the same sum.

    Returns:
        Shape [classes, splits], int64.
    """
    exact = counts[:, None] * (totals / max(int(totals.sum()), 1))
    cells = np.floor(exact + _TINY).astype(np.int64)
    spare = counts - cells.sum(axis=1)
    remains = np.where(exact - cells > _TINY, exact - cells, 0.0)
    owed = np.zeros(len(totals))
    for row in np.flatnonzero(spare):
        owed += remains[row]
        chosen = np.argsort(np.where(remains[row] > 0, -owed, np.inf), kind="stable")[: spare[row]]
        cells[row, chosen] += 1
        owed[chosen] -= 1
    _settle(cells, exact, totals)
    return cells


def _settle(cells: np.ndarray, exact: np.ndarray, totals: np.ndarray) -> None:
    """Move single records between splits, in place, until every split has its total."""
    excess = cells.sum(axis=0) - totals
    while excess.any():
        giver, taker = int(excess.argmax()), int(excess.argmin())
        worst = np.maximum(exact[:, giver] - cells[:, giver], cells[:, taker] - exact[:, taker])
        row = int(np.where(cells[:, giver] > 0, worst, np.inf).argmin())
        cells[row, giver] -= 1
        cells[row, taker] += 1
        excess[giver] -= 1
        excess[taker] += 1
