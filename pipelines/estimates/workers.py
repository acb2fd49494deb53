"""Describe the workers of a runner, from its options, for the estimates of `shardwright plan`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardwright.pipelines.runners.beam_options import is_dataflow, is_local, option_of, runner_of


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers of a build.

    Attributes:
        runner: Name of the runner.
        is_local: They are processes of this machine.
        is_dataflow: They are Dataflow's, with a price.
        machines: Number of machines; None if no option says it.
        processes: Worker processes per machine; None if no option says it.
        threads: Shards that a process writes at a time.
        memory_gb_per_process: Memory of the machine for each process; None if it is unknown.
    """

    runner: str
    is_local: bool
    is_dataflow: bool = False
    machines: int | None = None
    processes: int | None = None
    threads: int = 1
    memory_gb_per_process: float | None = None

    @property
    def num_processes(self) -> int | None:
        """The number of all processes; None if it is unknown."""
        if self.machines is None or self.processes is None:
            return None
        return self.machines * self.processes


def workers_of(beam_args: Sequence[str], memory_gb_per_vcpu: Mapping[str, float]) -> Workers:
    """Return the workers that Beam's options describe.

    Args:
        beam_args: Options for Beam.
        memory_gb_per_vcpu: Memory by machine family, such as `n2-standard`.
    """
    runner = runner_of(beam_args)
    if is_local(beam_args):
        return Workers(runner, is_local=True, machines=1, processes=1)
    if not is_dataflow(beam_args):
        return Workers(runner, False, machines=_number(beam_args, "parallelism"), processes=1)
    machine = option_of(beam_args, "worker_machine_type") or option_of(beam_args, "machine_type")
    family, _, vcpus = machine.rpartition("-")
    machines = _number(beam_args, "max_num_workers") or _number(beam_args, "num_workers")
    return Workers(
        runner,
        is_local=False,
        is_dataflow=True,
        machines=machines,
        processes=int(vcpus) if vcpus.isdecimal() else None,
        threads=_number(beam_args, "number_of_worker_harness_threads") or 2,
        memory_gb_per_process=memory_gb_per_vcpu.get(family),
    )


def _number(beam_args: Sequence[str], name: str) -> int | None:
    text = option_of(beam_args, name)
    return int(text) if re.fullmatch(r"[1-9]\d{0,6}", text) else None
