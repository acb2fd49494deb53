"""Time the work on a sample of a build's own images, for the estimates of `shardwright plan`."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from shardwright.pipelines.local.even_sample import MOST_SAMPLED
from shardwright.storage.addresses import is_remote
from shardwright.storage.folder import Folder
from shardwright.transforms.plan.sizing import measure
from shardwright.transforms.write.write_job import WriteJob

_SECONDS = 2.0
_WARM_UP = 2  # imports, connections, threads
_FEWEST = 8  # read and made at a time, after these


@dataclass(frozen=True, slots=True)
class TimedSample:
    """The work on a sample.

    Attributes:
        num_rows: Rows sampled.
        stores: Share of the rows with an image in a store, by scheme, such as `{"s3": 1.0}`.
        spooled: Share of the rows with an image in the spool.
        num_timed: Images that were read and made into records; 0 if none could be.
        wall_seconds: The time that it took.
        cpu_seconds: The CPU time of all threads meanwhile.
        cores: Cores of this machine.
    """

    num_rows: int = 0
    stores: Mapping[str, float] = field(default_factory=dict)
    spooled: float = 0.0
    num_timed: int = 0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    cores: int = 1

    @property
    def wall_of_image(self) -> float | None:
        """Seconds an image on this machine; None if none was timed."""
        return self.wall_seconds / self.num_timed if self.num_timed else None

    @property
    def cpu_of_image(self) -> float | None:
        """CPU seconds an image; None if none was timed."""
        return self.cpu_seconds / self.num_timed if self.num_timed else None


def time_sample(rows: pa.RecordBatch | None, job: WriteJob, spool: Folder) -> TimedSample:
    """Read, check and encode images as the build would, for at most about two seconds.

    Args:
        rows: References, with final features.
        job: How records are made, with vocabularies.
        spool: The spool; a plan does not fill it, so its images are not timed.
    """
    if rows is None:
        return TimedSample()
    uris = [uri or "" for uri in rows.column("uri").to_pylist()]
    in_spool = np.array([uri.startswith(f"{spool}/") for uri in uris])
    schemes = Counter(
        uri.partition("://")[0] for uri in uris if is_remote(uri) and not uri.startswith("http")
    )
    to_time = rows.filter(pa.array(~in_spool))
    num_timed, wall, cpu = _time(to_time, job)
    return TimedSample(
        rows.num_rows,
        {scheme: number / rows.num_rows for scheme, number in schemes.items()},
        float(in_spool.mean()),
        num_timed,
        wall,
        cpu,
        os.cpu_count() or 1,
    )


def _time(rows: pa.RecordBatch, job: WriteJob) -> tuple[int, float, float]:
    """Return the number of records made, and the wall and CPU seconds that they took."""
    num_timed, wall, cpu = 0, 0.0, 0.0
    first, wanted, last = 0, _WARM_UP, 0.0
    # Twice as many each time, while they should fit: the last ones show the steady state.
    while first < min(rows.num_rows, MOST_SAMPLED) and wall + 2 * last < _SECONDS:
        began, cpu_began = time.perf_counter(), time.process_time()
        made = int(np.count_nonzero(measure(rows.slice(first, wanted), job)))
        last = time.perf_counter() - began
        if first or rows.num_rows <= _WARM_UP:
            num_timed += made
            wall += last
            cpu += time.process_time() - cpu_began
        first += wanted
        wanted = max(_FEWEST, 2 * wanted)
    return num_timed, wall, cpu
