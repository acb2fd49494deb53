"""The command `shardwright plan`: plan a build and show what it would write. Writes nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwright.errors import UsageError
from shardwright.format.schema import ExampleSchema
from shardwright.inspect.command_parts import EXIT_DONE, EXIT_FAULTS
from shardwright.inspect.describe import shard_view, spread_of
from shardwright.inspect.views import as_text
from shardwright.pipelines.commands.results import (
    ProgressDisplay,
    fail,
    run_command,
    say_rejects,
)
from shardwright.pipelines.job.build import (
    BuildJob,
    class_lines,
    class_names_of,
    classes_from,
    describe_job,
)
from shardwright.pipelines.local.build import BuildState, LocalPlan, plan_locally
from shardwright.pipelines.options.arguments import make_parser
from shardwright.pipelines.options.build import parse_options
from shardwright.pipelines.runners.beam_options import LOCAL_RUNNER, is_local, runner_of
from shardwright.sizes import counted, show_bytes
from shardwright.terminal import join_lines, print_safely, say, set_up_log
from shardwright.transforms.output_state import plan_json
from shardwright.transforms.progress import PROGRESS

_VERDICTS = {
    BuildState.NEW: "would write all shards",
    BuildState.RESUME: "would resume",
    BuildState.RESTART: "would start over: Beam's stock writer cannot resume",
    BuildState.UP_TO_DATE: "would find everything up to date",
    BuildState.OVERWRITE: "would replace the dataset in OUTPUT",
    BuildState.REFUSED: "would be refused",
    BuildState.FAILED: "would fail",
}
_STOPS = frozenset({BuildState.REFUSED, BuildState.FAILED})


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code.

    Returns:
        0 if a build would succeed, 1 if it would fail or be refused, 2 for wrong usage.
    """
    set_up_log()
    return run_command(lambda: _show(argv), fail)


def _show(argv: Sequence[str]) -> int:
    job, plan = _plan(argv)
    if make_parser("plan").parse_known_args(argv)[0].json:
        print(json.dumps(outline(job, plan), indent=1))
    else:
        print_safely(describe_plan(job, plan))
    if plan.state in _STOPS:
        say_rejects(f"a build {_VERDICTS[plan.state]}", plan.reason)
        return EXIT_FAULTS
    return EXIT_DONE


def _plan(argv: Sequence[str]) -> tuple[BuildJob, LocalPlan]:
    options = parse_options(argv, "plan")
    if options.if_exists == "append":
        raise UsageError(
            "plan cannot compare INPUT with a dataset that grows: leave --if-exists append out to "
            "plan all of INPUT"
        )
    job = describe_job(options)
    say(job.describe_inputs())
    runner = job.options.beam_args
    if not is_local(runner):
        say(f"planning on this machine ({LOCAL_RUNNER}), not on {runner_of(runner)}")
    with ProgressDisplay(PROGRESS):
        return job, plan_locally(job)


def outline(job: BuildJob, plan: LocalPlan) -> dict[str, Any]:
    """Return the object that `--json` prints.

    Keys: `fingerprint`, `settings` and `splits` as in `plan.json` (bytes are estimates);
    `num_records`, `num_shards`, `num_bytes` and `num_classes` of all splits, `class_names`, and
    `classes_from` ("the folders of INPUT", "column 'label'"); `shards`: least,
    median and largest records and bytes of a shard by split; `rejects` by reason so far;
    `warning` about the shard size, or ""; `shards_done` (finished and kept); `shards_to_write`;
    `estimate` (a `SizeEstimate`, only if images change their size); `state` (see `BuildState`);
    `reason` (why a build would fail, else ""). `fingerprint` needs a second pass over the
    references, so it is null if OUTPUT holds nothing to compare it with.
    """
    layout, schema = plan.shards.layout, _planned_schema(job, plan)
    return {
        **plan_json(job.options.settings, layout, plan.fingerprint),
        "num_records": layout.num_records,
        "num_shards": layout.num_shards,
        "num_bytes": sum(layout.num_bytes.values()),
        "shards": {
            split: {"records": spread_of(records), "bytes": spread_of(num_bytes)}
            for split, (records, num_bytes) in _shards_of(plan).items()
        },
        "num_classes": len(class_names_of(schema)),
        "class_names": list(class_names_of(schema)),
        "classes_from": classes_from(job, schema),
        "rejects": dict(plan.shards.rejects.tally.reasons),
        "warning": layout.warning,
        "shards_done": plan.shards_done,
        "shards_to_write": layout.num_shards - plan.shards_done,
        "state": str(plan.state),
        "reason": plan.reason,
    }


def describe_plan(job: BuildJob, plan: LocalPlan) -> str:
    """Return the plan as text, with a table of the splits."""
    layout, rejects = plan.shards.layout, plan.shards.rejects.tally.reasons
    lines = as_text(shard_view("Splits, with estimated bytes", _shards_of(plan)), None)
    num_bytes = show_bytes(sum(layout.num_bytes.values()))
    whole = f"{counted(layout.num_records, 'record')}, {counted(layout.num_shards, 'shard')}"
    lines.append(f"{job.options.root}: {whole}, about {num_bytes}")
    lines += class_lines(job, _planned_schema(job, plan)) if layout.num_records else []
    if layout.estimate:
        mean = sum(layout.num_bytes.values()) / max(layout.num_records, 1)
        sampled = counted(layout.estimate.num_sampled, "record")
        lines.append(f"about {show_bytes(mean)} per record, estimated by encoding {sampled}")
    if rejects:
        lines.append(
            "rejects so far: "
            + ", ".join(f"{number} {reason}" for reason, number in rejects.items())
        )
    if layout.warning:
        lines.append(f"warning: {layout.warning}")
    done, left = plan.shards_done, layout.num_shards - plan.shards_done
    lines.append(
        f"a build {_VERDICTS[plan.state]}: {counted(left, 'shard')} to write, "
        f"{done:,} already written"
    )
    return join_lines(lines)


def _planned_schema(job: BuildJob, plan: LocalPlan) -> ExampleSchema:
    return job.schema.with_vocabularies(plan.shards.vocabularies)


def _shards_of(plan: LocalPlan) -> dict[str, tuple[list[int], Sequence[int]]]:
    """Return the records and the estimated bytes of each shard, by split."""
    return {
        split: (np.diff(cuts.starts).tolist(), plan.shards.bytes_per_shard[split])
        for split, cuts in plan.shards.layout.cuts.items()
    }
