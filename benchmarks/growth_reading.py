"""Time `sw.Reader` on a dataset that has grown, before and after `compact`, for `growth.py`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import page
from growth_report import CROPS, RECORDS
from measure import RunFailedError
from page import say, turned
from read_feeds import SIDE, check_images, check_records, time_batches

sys.path.insert(0, str(page.REPO))
import shardwright as sw

_BATCH = 64
# 3 epochs of records take 1.4 s, and byte-equal shards differed by 3 % then.
_CROPS_A_RUN, _EPOCHS_OF_RECORDS = 8_000, 9


@dataclass(frozen=True)
class View:
    """A version of a dataset to read."""

    name: str
    path: Path
    version: int | str = "latest"

    @property
    def facts(self) -> dict[str, int]:
        """The numbers of records and of shards."""
        dataset = sw.open(str(self.path), version=self.version)
        return {"records": dataset.num_records, "shards": len(dataset.named_shards())}

    def rate(self, kind: str, items: int) -> float:
        """Return crops, or records without decoding, a second, in shuffled order."""
        options: dict[str, Any] = {"image": sw.TrainImage(SIDE) if kind == CROPS else None}
        check = check_images if kind == CROPS else check_records
        with sw.Reader(
            str(self.path),
            "train",
            global_batch_size=_BATCH,
            shuffle=True,
            seed=0,
            features=["image"],
            version=self.version,
            **options,
        ) as reader:
            batches = (batch["image"] for batch in reader)
            check(next(batches), _BATCH)
            found = time_batches(batches, warm_up_items=items // 10, items=items)
        return float(found["items"] / found["wall_s"])


def read_all(views: list[View], rounds: int) -> dict[tuple[str, str], list[float]]:
    """Return the rates by kind and view, in rounds in which the views take turns.

    Raises:
        RunFailedError: The views do not have the same number of records.
    """
    sizes = {view.name: view.facts["records"] for view in views}
    if len(set(sizes.values())) != 1:
        raise RunFailedError(f"the datasets must have the same records, got {sizes}")
    records = sizes[views[0].name]
    items = {CROPS: min(records, _CROPS_A_RUN), RECORDS: _EPOCHS_OF_RECORDS * records}
    rates: dict[tuple[str, str], list[float]] = {}
    for view in views:  # imports, and the first reads of the files
        view.rate(CROPS, _BATCH)
        view.rate(RECORDS, records)
    for number in range(rounds):
        for kind, count in items.items():
            for view in turned(views, number):
                rate = view.rate(kind, count)
                rates.setdefault((kind, view.name), []).append(rate)
                say(f"round {number + 1}: {kind} of {view.name}: {rate:,.0f}/s")
    return rates
