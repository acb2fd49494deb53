"""Lightning, accelerate and torchrun read each record once: the real libraries, in processes."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch.utils.data import DataLoader

import shardwright as sw
from tests.support.trainer_datasets import NUM_PICTURES, read

pytestmark = pytest.mark.long


class Seen(lightning.LightningModule):
    """A model of one number that notes the records of each of its epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.trained: list[list[str]] = []
        self.validated: list[list[str]] = []

    def on_train_epoch_start(self) -> None:
        self.trained.append([])

    def on_validation_epoch_start(self) -> None:
        self.validated.append([])

    def training_step(self, batch: dict[str, Any]) -> torch.Tensor:
        self.trained[-1] += batch["id"]
        return self.weight * batch["label"].float().mean()

    def validation_step(self, batch: dict[str, Any]) -> None:
        self.validated[-1] += batch["id"]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def loader_of(reader: sw.Reader) -> DataLoader[dict[str, Any]]:
    return DataLoader(reader.torch(), batch_size=None)


def trainer(**options: Any) -> lightning.Trainer:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    quiet = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    return lightning.Trainer(accelerator="cpu", devices=1, **quiet, **options)


ONE_EPOCH: dict[str, Any] = {
    "epochs": 1, "remainder": "keep", "features": ["id", "label"], "image": None,
}  # fmt: skip


def test_lightning_validates_all_records_and_trains_on_new_ones(pictures: str) -> None:
    """After its check before training, and with epochs that it ends early."""
    model, train = Seen(), read(pictures, shuffle=True, **ONE_EPOCH)
    validation = read(pictures, **ONE_EPOCH)
    options = {"max_epochs": 3, "limit_train_batches": 4, "num_sanity_val_steps": 2}
    trainer(**options).fit(model, loader_of(train), loader_of(validation))
    checked, *validated = model.validated
    assert len(checked) < NUM_PICTURES
    assert [len(set(ids)) for ids in validated] == [NUM_PICTURES] * 3
    wanted: list[list[str]] = []
    again = read(pictures, shuffle=True, **ONE_EPOCH)
    for _ in range(3):  # a pass that is left is over
        wanted.append([name for batch in islice(again, 4) for name in batch["id"]])
    assert model.trained == wanted


def test_lightning_resumes_in_the_middle_of_an_epoch(pictures: str) -> None:
    whole = read(pictures, shuffle=True, **ONE_EPOCH)
    model, validation = Seen(), read(pictures, **ONE_EPOCH)
    train = read(pictures, shuffle=True, state=whole.state_after(3), **ONE_EPOCH)
    trainer(max_epochs=3).fit(model, loader_of(train), loader_of(validation))
    size = whole.options.global_batch_size
    assert [len(set(ids)) for ids in model.trained] == [NUM_PICTURES - 3 * size] + [
        NUM_PICTURES
    ] * 2
    assert [len(set(ids)) for ids in model.validated[1:]] == [NUM_PICTURES] * 3


TORCHRUN = """
import json, logging, sys
import accelerate, torch, torch.distributed as dist
from torch.utils.data import DataLoader
import shardwright as sw

class Told(logging.Handler):
    def emit(self, record):
        told.append(record.getMessage())

told = []
logging.getLogger("shardwright").addHandler(Told())
accelerator = accelerate.Accelerator(cpu=True)
here = {"host_index": dist.get_rank(), "host_count": dist.get_world_size()}
options = {"global_batch_size": 8, "epochs": 1, "remainder": "drop", "features": ["image"]}

def loader(**more):
    reader = sw.Reader(sys.argv[1], image=sw.EvalImage(8), **options, **more)
    return DataLoader(reader.torch(), batch_size=None)

def keys(batches):
    return [hash(image.numpy().tobytes()) for batch in batches for image in batch["image"]]

found = {"hosts": keys(loader(**here)), "whole": keys(accelerator.prepare(loader()))}
try:
    if dist.get_rank() == 0:  # which alone reads for accelerate
        keys(accelerator.prepare(loader(**here)))
except sw.errors.UsageError as error:
    found["refused"] = str(error)
with open(f"{sys.argv[2]}/{dist.get_rank()}", "w") as file:
    json.dump({**found, "told": told}, file)
# Without it, gloo's threads may end the process with SIGABRT at its exit.
dist.destroy_process_group()
"""


def test_processes_of_torchrun_and_accelerate(pictures: str, tmp_path: Path) -> None:
    """A host's reader is read as it is, and a whole one prepared; never both."""
    script = tmp_path / "script.py"
    script.write_text(TORCHRUN)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {"PYTHONHASHSEED": "0"}
    done = subprocess.run(
        ["env", *(f"{key}={value}" for key, value in environment.items()), *command, script,
         pictures, tmp_path],
        capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(2)]
    read_by_all = NUM_PICTURES // 8 * 8
    for way in ("hosts", "whole"):
        assert len({*found[0][way], *found[1][way]}) == read_by_all, way
        assert [len(each[way]) for each in found] == [read_by_all // 2] * 2, way
    assert "would divide the batches of this host again" in found[0]["refused"]
    assert [each["told"] for each in found] == [[], []]
