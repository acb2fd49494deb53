"""Compare quality signals with CleanVision on photographs with made faults.

`make test-signals` runs it in an environment with CleanVision. Prints, for each property, the share
of photographs on which both agree, and how often each agrees with the fault that was made. The exit
code is 1 if they agree on fewer than 95% for a property.

CleanVision 0.3.7 measures blur by the deviation of Pillow's FIND_EDGES, which leaves the pixels of
the border as they are: they alone exceed its limit, and it misses blurred photographs. So blur is
judged with the border cut off, as well as without that.
"""

from __future__ import annotations

import argparse
import importlib
import os
import tempfile
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardwright.images.decode import StoredImage
from shardwright.images.previews import decode_preview
from shardwright.images.signals import SIGNALS, measure_picture
from tests.signals.faulty_photos import make_photo

_NEEDED = 0.95
# Our fault -> CleanVision's issue.
_ISSUES = {
    "dark": "dark",
    "bright": "light",
    "blurry": "blurry",
    "low_information": "low_information",
    "odd_size": "odd_size",
    "odd_aspect": "odd_aspect_ratio",
    "gray": "grayscale",
}
_CUT = "blurry, border cut"
_UNJUDGED = "blurry"  # by CleanVision as it is
# Where a limit on blur lies is a matter of taste, so it is in no agreement on blur.
_SLIGHT = "slightly_blurry"


class Judged(NamedTuple):
    """The verdicts on all photographs, bool [photographs] by fault, and the made fault of each."""

    ours: Mapping[str, NDArray[np.bool_]]
    theirs: Mapping[str, NDArray[np.bool_]]
    made: NDArray[np.str_]


def main() -> int:
    """Print the table; return 1 if the verdicts differ too often."""
    os.environ["TQDM_DISABLE"] = "1"  # CleanVision's progress
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--photos", type=int, default=2000, help="photographs (default: 2000)")
    parser.add_argument("--seed", type=int, default=0, help="their seed (default: 0)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        judged = _judge(Path(folder), args.photos, args.seed)
    agreements = {fault: _print_row(fault, judged) for fault in judged.theirs}
    slight = judged.made == _SLIGHT
    print(
        f"slight blur: ours {judged.ours['blurry'][slight].mean():.1%}, "
        f"CleanVision {judged.theirs['blurry'][slight].mean():.1%}, "
        f"with its border cut {judged.theirs[_CUT][slight].mean():.1%}"
    )
    del agreements[_UNJUDGED]
    return 0 if min(agreements.values()) >= _NEEDED else 1


def _judge(folder: Path, photos: int, seed: int) -> Judged:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(partial(_make, folder, seed), range(photos), chunksize=20))
    values = np.array([_measure(path) for path in sorted(folder.iterdir())])
    return Judged(_verdicts(values), _verdicts_of_cleanvision(folder), np.array(made))


def _make(folder: Path, seed: int, number: int) -> str:
    photo = make_photo(number, seed)
    (folder / f"{number:06d}.jpg").write_bytes(photo.data)
    return photo.fault


def _measure(path: Path) -> tuple[float, ...]:
    preview = decode_preview(path.read_bytes(), StoredImage())
    return measure_picture(preview.pixels, width=preview.width, height=preview.height).signals


def _verdicts(values: NDArray[np.float64]) -> dict[str, NDArray[np.bool_]]:
    found = {
        signal.fault: np.array([signal.is_fault(value) for value in values[:, number]])
        for number, signal in enumerate(SIGNALS)
    }
    sizes = values[:, [signal.name for signal in SIGNALS].index("size")]
    low, high = np.percentile(sizes, [25, 75])
    most = 3 * (high - low)
    return found | {"odd_size": (sizes < low - most) | (sizes > high + most)}


def _verdicts_of_cleanvision(folder: Path) -> dict[str, NDArray[np.bool_]]:
    found = _found_issues(folder, _ISSUES)
    properties: Any = importlib.import_module("cleanvision.issue_managers.image_property")
    edges_of = properties.get_edges
    properties.get_edges = lambda image: _without_border(edges_of(image))
    try:
        return found | {_CUT: _found_issues(folder, {"blurry": "blurry"})["blurry"]}
    finally:
        properties.get_edges = edges_of


def _found_issues(folder: Path, wanted: Mapping[str, str]) -> dict[str, NDArray[np.bool_]]:
    lab: Any = importlib.import_module("cleanvision").Imagelab(data_path=str(folder))
    # In one process, which has the changed function.
    lab.find_issues({issue: {} for issue in wanted.values()}, n_jobs=1, verbose=False)
    issues = lab.issues.sort_index()
    return {fault: issues[f"is_{issue}_issue"].to_numpy(bool) for fault, issue in wanted.items()}


def _without_border(edges: Any) -> Any:
    return edges.crop((1, 1, max(2, edges.width - 1), max(2, edges.height - 1)))


def _print_row(fault: str, judged: Judged) -> float:
    """Print how the verdicts on a fault compare, and return the share that agrees."""
    mine = fault.partition(",")[0]
    left_out = judged.made == _SLIGHT if mine == "blurry" else np.zeros(len(judged.made), bool)
    counted = ~left_out
    ours, theirs = judged.ours[mine][counted], judged.theirs[fault][counted]
    truth = judged.made[counted] == mine
    agreement = float((ours == theirs).mean())
    print(
        f"{fault:<18} agree {agreement:.4f} on {counted.sum():,}   made {truth.sum():>4}   "
        f"ours {ours.sum():>4}, right {(ours == truth).mean():.4f}   "
        f"CleanVision {theirs.sum():>4}, right {(theirs == truth).mean():.4f}"
    )
    return agreement


if __name__ == "__main__":
    raise SystemExit(main())
