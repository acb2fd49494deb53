"""Round exact shares to whole numbers of records, per class and split."""

from __future__ import annotations

import numpy as np

_TINY = 1e-9  # floating-point slack: 0.1 * 30 may be slightly less than 3


def whole_parts(exact: np.ndarray) -> np.ndarray:
    """Round parts by largest remainder, keeping their sum; ties go to the first parts.

    Args:
        exact: Parts of a whole number, float64 [splits].
    """
    parts = np.floor(exact + _TINY).astype(np.int64)
    spare = round(float(exact.sum())) - int(parts.sum())
    parts[np.argsort(parts - exact, kind="stable")[:spare]] += 1
    return parts


def apportion(counts: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Return the number of records of each class in each split, as int64 [classes, splits].

    Each class is used up, each split gets its total, and each cell is within one of its exact share
    `counts[c] * totals[s] / sum(totals)`. Shares are rounded class by class. The following classes
    repay what rounding takes from a split, so totals are almost right at the end. Then single
    records move between splits where this changes the shares least.

    Args:
        counts: Records of each class, int64 [classes].
        totals: Records of each split, int64 [splits], with the same sum.
    """
    exact = counts[:, None] * (totals / max(int(totals.sum()), 1))
    cells = np.floor(exact + _TINY).astype(np.int64)
    spare = counts - cells.sum(axis=1)
    remains = np.where(exact - cells > _TINY, exact - cells, 0.0)
    owed = np.zeros(len(totals))
    for row in np.flatnonzero(spare):
        owed += remains[row]
        # Only splits with a fraction left may get a record more: the others have their share
        # exactly.
        chosen = np.argsort(np.where(remains[row] > 0, -owed, np.inf), kind="stable")[: spare[row]]
        cells[row, chosen] += 1
        owed[chosen] -= 1
    _settle(cells, exact, totals)
    return cells


def _settle(cells: np.ndarray, exact: np.ndarray, totals: np.ndarray) -> None:
    """Move single records between splits, in place, until every split has its total."""
    excess = cells.sum(axis=0) - totals
    while excess.any():  # ends: each move brings two splits one record closer to their totals
        giver, taker = int(excess.argmax()), int(excess.argmin())
        # The larger of the two errors that the move would leave in each class, less one.
        worst = np.maximum(exact[:, giver] - cells[:, giver], cells[:, taker] - exact[:, taker])
        row = int(np.where(cells[:, giver] > 0, worst, np.inf).argmin())
        cells[row, giver] -= 1
        cells[row, taker] += 1
        excess[giver] -= 1
        excess[taker] += 1
