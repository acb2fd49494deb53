#!/usr/bin/env python
"""Estimate the cost of a build on Dataflow and print the table of docs/dataflow.md.

The cost is measured CPU per image times list prices. Nothing was run on Dataflow: CPU figures are
those of RESULTS.md, for images of 80 KB, on this project's machine. Prices are those of
`pipelines/estimates/prices.toml`, list prices of us-central1 in US dollars, so look them up again
before relying on them. Network traffic is free, because bucket and workers are in one region.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardwright.pipelines.estimates.estimator import Prices

PRICES = Prices.read().by_section
IMAGE_BYTES, SHARD_BYTES = 80_000, 150_000_000
VCPU_HOUR, GB_HOUR = PRICES["dataflow"]["vcpu_hour"], PRICES["dataflow"]["memory_gb_hour"]
SHUFFLE_GB, DISK_GB_HOUR = PRICES["dataflow"]["shuffle_gb"], 0.000054
# Class A (put, part, list) and class B (get) of Standard storage.
WRITE_REQUEST, READ_REQUEST = PRICES["gs"]["write"] / 1000, PRICES["gs"]["read"] / 1000
VCPUS, GB_PER_VCPU, DISK_GB = 4, 4, 30  # per worker
START_S = 240  # until a worker's first image: machine, container image and processes
UPLOAD_PART_BYTES = 5 << 20  # shardwright/storage/uploads.py
# Parts, begin and complete, sidecar.
REQUESTS_A_SHARD = SHARD_BYTES // UPLOAD_PART_BYTES + 1 + 2 + 1
KEYS_A_LISTING = 1000
# Per image in all shuffles: references only, a few hundred bytes packed; a high estimate.
SHUFFLE_BYTES = 1000
PLAN_CPU_S = 15e-6  # "Planning without the images" (8 us a row) and "Listing" (7 us a key)


@dataclass(frozen=True)
class Mode:
    """A way to write images.

    Attributes:
        name: Name in the table.
        cpu_s: CPU seconds per image on a worker.
        busy: Fraction of time in which vCPUs compute, 0 to 1; otherwise they wait for the store.
    """

    name: str
    cpu_s: float
    busy: float


# "Whole builds from S3": to S3, 0.68 cores at 915 images/s. That machine was 62 to 74 % busy; a
# lower value is assumed here.
AS_THEY_ARE = Mode("as they are", 0.68 / 915, 0.5)
# "Re-encoding", 500 x 375 to 256 x 256: 185 images/s per core, plus the reading and writing
# above.
ENCODED = Mode("`--encode jpeg --resize 256x256`", 1 / 185 + 0.68 / 915, 0.85)


@dataclass(frozen=True)
class Run:
    """A build with a number of images and of workers."""

    images: int
    mode: Mode
    workers: int

    @property
    def images_per_s(self) -> float:
        """The throughput in steady state, which is also the number of GET requests per second."""
        return self.workers * VCPUS * self.mode.busy / (self.mode.cpu_s + PLAN_CPU_S)

    @property
    def hours(self) -> float:
        return (self.images / self.images_per_s + START_S) / 3600

    def dollars(self) -> dict[str, float]:
        """Return the cost of each item in US dollars."""
        vcpu_hours = self.hours * self.workers * VCPUS
        shards = self.images * IMAGE_BYTES / SHARD_BYTES
        return {
            "vCPU": vcpu_hours * VCPU_HOUR,
            "memory and disk": vcpu_hours * GB_PER_VCPU * GB_HOUR
            + self.hours * self.workers * DISK_GB * DISK_GB_HOUR,
            "shuffle": self.images * SHUFFLE_BYTES / 1e9 * SHUFFLE_GB,
            "reads": self.images * READ_REQUEST,
            "writes and listing": (shards * REQUESTS_A_SHARD + self.images / KEYS_A_LISTING)
            * WRITE_REQUEST,
        }


RUNS = (
    Run(1_000_000, AS_THEY_ARE, 2),
    Run(1_000_000, ENCODED, 8),
    Run(100_000_000, AS_THEY_ARE, 8),
    Run(100_000_000, ENCODED, 25),
)


def table() -> str:
    """Return the table in Markdown."""
    parts = list(RUNS[0].dollars())
    head = [
        "images",
        "stored",
        f"workers of {VCPUS} vCPUs",
        "images/s",
        "hours",
        *(f"{part} $" for part in parts),
        "all $",
    ]
    rows = [head, ["---:", "---", *["---:"] * (len(head) - 2)]]
    for run in RUNS:
        dollars = run.dollars()
        costs = [f"{cost:,.2f}" for cost in (*dollars.values(), sum(dollars.values()))]
        rows.append(
            [
                f"{run.images:,}",
                run.mode.name,
                str(run.workers),
                f"{run.images_per_s:,.0f}",
                f"{run.hours:.1f}",
                *costs,
            ]
        )
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    print(table(), end="")
