"""The facts that estimates of a build follow from: its plan, its workers, a timed sample."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from shardwright.pipelines.local.batches import MOST_SAMPLED
from shardwright.pipelines.runners.beam_options import is_dataflow, is_local, option_of
from shardwright.sizes import show_bytes, show_seconds
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
        in_store: True if images are in a store.
        spooled: Share of the rows with an image in the spool.
        num_timed: Images that were read and made into records; 0 if none could be.
        wall_seconds: The time that it took.
        cpu_seconds: The CPU time of all threads meanwhile.
        cores: Cores of this machine.
    """

    in_store: bool = False
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
    to_time = rows.filter(pa.array(~in_spool))
    num_timed, wall, cpu = 0, 0.0, 0.0
    first, wanted, last = 0, _WARM_UP, 0.0
    # Twice as many each time, while they should fit: the last ones show the steady state.
    while first < min(to_time.num_rows, MOST_SAMPLED) and wall + 2 * last < _SECONDS:
        began, cpu_began = time.perf_counter(), time.process_time()
        made = int(np.count_nonzero(measure(to_time.slice(first, wanted), job)))
        last = time.perf_counter() - began
        if first or to_time.num_rows <= _WARM_UP:
            num_timed += made
            wall += last
            cpu += time.process_time() - cpu_began
        first += wanted
        wanted = max(_FEWEST, 2 * wanted)
    return TimedSample(
        any(map(is_remote, uris)),
        float(in_spool.mean()),
        num_timed,
        wall,
        cpu,
        os.cpu_count() or 1,
    )


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers of a build.

    Attributes:
        is_local: They are processes of this machine.
        is_dataflow: They are Dataflow's, which charges for them.
        machines: Number of machines; None if no option says it.
        processes: Worker processes per machine; None if no option says it.
        threads: Shards that a process writes at a time.
    """

    is_local: bool = False
    is_dataflow: bool = False
    machines: int | None = None
    processes: int | None = None
    threads: int = 1

    @property
    def num_processes(self) -> int | None:
        """The number of all processes; None if it is unknown."""
        if self.machines is None or self.processes is None:
            return None
        return self.machines * self.processes


def workers_of(beam_args: Sequence[str]) -> Workers:
    """Return the workers that Beam's options describe."""
    if is_local(beam_args):
        return Workers(is_local=True, machines=1, processes=1)
    if not is_dataflow(beam_args):
        return Workers(machines=_number(beam_args, "parallelism"), processes=1)
    machine = option_of(beam_args, "worker_machine_type") or option_of(beam_args, "machine_type")
    vcpus = machine.rpartition("-")[2]
    machines = _number(beam_args, "max_num_workers") or _number(beam_args, "num_workers")
    return Workers(
        is_dataflow=True,
        machines=machines,
        processes=int(vcpus) if vcpus.isdecimal() else None,
        threads=_number(beam_args, "number_of_worker_harness_threads") or 2,
    )


def _number(beam_args: Sequence[str], name: str) -> int | None:
    text = option_of(beam_args, name)
    return int(text) if re.fullmatch(r"[1-9]\d{0,6}", text) else None


@dataclass(frozen=True, kw_only=True)
class PlannedWork:
    """The facts about a build that the estimates follow from.

    Attributes:
        num_records: Number of records.
        shard_bytes: Bytes of each shard, of all splits.
        largest_records: Most records of a shard.
        bytes_read: Bytes of all images and features.
        to_store: OUTPUT is in a store.
        decodes: Images are decoded.
        sample: The timed sample.
        workers: Workers of the runner.
    """

    num_records: int
    shard_bytes: Sequence[int]
    largest_records: int
    bytes_read: int
    to_store: bool
    decodes: bool
    sample: TimedSample
    workers: Workers


@dataclass(frozen=True, slots=True)
class Figure:
    """One estimate.

    Attributes:
        name: What is estimated.
        value: The estimate.
        unit: "bytes", "seconds" or "hours".
        formula: How it follows from other figures.
    """

    name: str
    value: float
    unit: str
    formula: str

    @property
    def shown(self) -> str:
        """The value with its unit."""
        match self.unit:
            case "bytes":
                return show_bytes(self.value)
            case "hours":
                return f"{self.value:,.2f} h"
        if self.value >= 60:
            return show_seconds(self.value)
        return f"{self.value:.3g} s" if self.value >= 1 else f"{1000 * self.value:.3g} ms"


@dataclass(frozen=True, slots=True)
class BuildEstimate:
    """All estimates of a build, and what is unknown or a reason to change the plan."""

    figures: Sequence[Figure]
    unknown: Sequence[str] = ()
    warning: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the object that `plan --estimate --json` prints as `build_estimate`."""
        return {
            "figures": {
                each.name: {"value": each.value, "unit": each.unit, "formula": each.formula}
                for each in self.figures
            },
            "unknown": list(self.unknown),
            "warning": self.warning,
        }

    def to_lines(self, runner: str) -> list[str]:
        """Return the estimates as lines of text, each with its formula."""
        width = max(len(each.name) for each in self.figures)
        lines = [f"estimate for {runner}:"]
        lines += [
            f"  {each.name:<{width}}  {each.shown:>10} = {each.formula}" for each in self.figures
        ]
        lines += [f"  unknown: {told}" for told in self.unknown]
        return [*lines, *([f"warning: {self.warning}"] if self.warning else [])]
