#!/usr/bin/env python
"""What a build on Dataflow costs: measured CPU an image, times list prices. Prints the table of docs/runners.md.

Nothing here was run on Dataflow: CPU is that of RESULTS.md, of images of 80 KB, on this project's machine. Prices are list prices of
us-central1 in US dollars; cloud.google.com/storage/pricing as read on 2026-09-20; cloud.google.com/dataflow/pricing as it is quoted
elsewhere, to be looked up again before it is relied on. No network is charged: bucket and workers are in one region.
"""

from __future__ import annotations

from dataclasses import dataclass

IMAGE_BYTES, SHARD_BYTES = 80_000, 150_000_000
VCPU_HOUR, GB_HOUR, DISK_GB_HOUR, SHUFFLE_GB = 0.056, 0.003557, 0.000054, 0.011
WRITE_REQUEST, READ_REQUEST = (
    0.005 / 1000,
    0.0004 / 1000,
)  # class A (put, part, list) and class B (get) of Standard storage
VCPUS, GB_PER_VCPU, DISK_GB = 4, 4, 30  # of a worker
START_S = 240  # a worker's machine, image and processes, before its first image
UPLOAD_PART_BYTES = 5 << 20  # shardwright/storage/uploads.py
REQUESTS_A_SHARD = (
    SHARD_BYTES // UPLOAD_PART_BYTES + 1 + 2 + 1
)  # parts, begin and complete, sidecar
KEYS_A_LISTING = 1000
SHUFFLE_BYTES = 1000  # an image, in all shuffles together: references only, a few hundred bytes packed; taken high
PLAN_CPU_S = 15e-6  # "Planning without the images" (8 us a row) and "Listing" (7 us a key)


@dataclass(frozen=True)
class Mode:
    """How images are written.

    Attributes:
        name: What the table calls it.
        cpu_s: Of a worker, an image.
        busy: The part of their time in which vCPUs compute; the rest waits for the store.
    """

    name: str
    cpu_s: float
    busy: float


# "Whole builds from S3": to S3, 0.68 cores at 915 images/s; there 62 to 74 % of the machine were at work, here less is assumed.
AS_THEY_ARE = Mode("as they are", 0.68 / 915, 0.5)
# "Encoding anew", 500 x 375 to 256 x 256, 185 images/s a core, beside the reading and writing above.
ENCODED = Mode("`--encode jpeg --resize 256x256`", 1 / 185 + 0.68 / 915, 0.85)


@dataclass(frozen=True)
class Run:
    """A build of `images` with so many workers."""

    images: int
    mode: Mode
    workers: int

    @property
    def images_per_s(self) -> float:
        """While images are read, which is also the number of GET requests a second."""
        return self.workers * VCPUS * self.mode.busy / (self.mode.cpu_s + PLAN_CPU_S)

    @property
    def hours(self) -> float:
        return (self.images / self.images_per_s + START_S) / 3600

    def dollars(self) -> dict[str, float]:
        """The parts of the bill."""
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
    """Markdown."""
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
