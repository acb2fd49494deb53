"""The processes of a training, looked at when a pass begins: a reader may be opened before them."""

from __future__ import annotations

import json
import logging
import os
import sys
from dataclasses import dataclass

from shardwright.errors import UsageError
from shardwright.reader.options import ReaderOptions
from shardwright.reader.steps import Steps

_LOG = logging.getLogger("shardwright.reader")
_TORCH = ("torch.distributed.get_rank()", "torch.distributed.get_world_size()")
_JAX = ("jax.process_index()", "jax.process_count()")
_TENSORFLOW = (
    'json.loads(os.environ["TF_CONFIG"])["task"]["index"]',
    'len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])',
)
_VARIABLES = ('int(os.environ["RANK"])', 'int(os.environ["WORLD_SIZE"])')


@dataclass(frozen=True)
class Process:
    """This process of a training.

    Attributes:
        index: From 0.
        count: Number of processes.
        arguments: What `host_index` and `host_count` of its reader are, as code.
    """

    index: int
    count: int
    arguments: tuple[str, str]


def this_process() -> Process | None:
    """Return this process of torch.distributed, JAX, torchrun or TensorFlow; None if alone."""
    dist, jax = sys.modules.get("torch.distributed"), sys.modules.get("jax")
    index, count = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    found = _of_tensorflow()
    if dist is not None and dist.is_available() and dist.is_initialized():
        found = Process(dist.get_rank(), dist.get_world_size(), _TORCH)
    elif jax is not None and jax.distributed.is_initialized():
        found = Process(jax.process_index(), jax.process_count(), _JAX)
    elif index.isdecimal() and count.isdecimal():
        found = Process(int(index), int(count), _VARIABLES)
    return found if found and found.count > 1 else None


def check_hosts(
    options: ReaderOptions, steps: Steps, told: set[str], *, is_divided: bool = False
) -> None:
    """Warn of a pass that each process reads whole, or that gives one no rows.

    Args:
        options: Of the reader whose pass begins.
        steps: Its batches.
        told: The reader's warnings so far, which do not come again; new ones are added.
        is_divided: Others share its batches: the workers of a DataLoader, or those of a
            `tf.distribute` strategy.

    Raises:
        UsageError: The reader is one of several hosts, and accelerate divides its batches again.
    """
    here = this_process()
    if here is not None and _is_in_accelerate():
        if options.host_count > 1:
            raise UsageError(
                "accelerate's prepare() would divide the batches of this host again, and most "
                "records would never be read: prepare the model and the optimizer, and use the "
                "DataLoader as it is, or open its reader without host_index and host_count"
            )
        return  # it gives each process its part
    shared = is_divided and here is not None and here.arguments == _TENSORFLOW
    if here is not None and options.host_count == 1 and not shared:
        _warn(
            told,
            f"this is process {here.index} of {here.count}, and its reader has all of each batch: "
            f"unless the others are to get the same, open it with host_index={here.arguments[0]}, "
            f"host_count={here.arguments[1]}, and the same seed",
        )
    data = None if is_divided else sys.modules.get("torch.utils.data")
    worker = data and data.get_worker_info()
    if worker is not None and worker.num_workers > 1 and options.host_count == 1:
        _warn(
            told,
            f"this is worker {worker.id} of {worker.num_workers} of a DataLoader, and its reader "
            "has all records, as those of the other workers: give the DataLoader reader.torch(), "
            "which divides them",
        )
    if steps.fewest_rows == 0:
        _warn(
            told,
            "the last batch of each epoch has fewer records than there are hosts, "
            f"{options.host_count}, so that some host gets none of it, and a mean over it is NaN: "
            "use remainder='pad' with its mask, or 'drop'",
        )


def _warn(told: set[str], message: str) -> None:
    if message not in told:
        told.add(message)
        _LOG.warning(message)


def _of_tensorflow() -> Process | None:
    """Return this worker of https://www.tensorflow.org/guide/distributed_training#TF_CONFIG."""
    try:
        found = json.loads(os.environ.get("TF_CONFIG", ""))
        workers, task = found["cluster"]["worker"], found["task"]
        return Process(int(task["index"]), len(workers), _TENSORFLOW)
    except (ValueError, KeyError, TypeError):  # of another kind: it is TensorFlow's to say so
        return None


def _is_in_accelerate() -> bool:
    """Return whether accelerate asks for the batches, through a loader that it has prepared."""
    frame = sys._getframe() if "accelerate" in sys.modules else None
    while frame is not None:
        if frame.f_globals.get("__name__") == "accelerate.data_loader":
            return True
        frame = frame.f_back
    return False
