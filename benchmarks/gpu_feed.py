#!/usr/bin/env python
"""Measure whether the reader keeps a GPU busy: ResNet-50 in bfloat16, against synthetic images.

    .torch/bin/python benchmarks/gpu_feed.py --dataset DATASET [--rounds 3] [--compile] [--write]

  synthetic     one batch of random uint8 images that stays on the GPU
  reader        shardwright.Reader with exact shuffle and random-resized crops to 224x224; a thread
                pins its NumPy batches and copies them to the GPU
  reader.torch  the same with Reader.torch() in a DataLoader
  workers       the same with worker processes, which share the cores
  processes     `reader` with processes, half as many

A step is forward, backward and SGD, with normalization on the GPU; warm-up steps are not measured.
The readers also run without a model: what they hand out if nothing else uses the CPU. The dataset
is read for as many epochs as needed. Rounds are interleaved. Exit code 1 if `workers` or
`processes` reach less than 0.97 of the synthetic rate, unless --no-check is given. --smoke is a
functional test on the CPU, with a few tiny batches in float32; its figures mean nothing. Needs
torch and torchvision (`make torch`).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import measure
import page
import raw_results
from page import Target, spread

sys.path.insert(0, str(page.REPO))
NEED = 0.97
SIDE, CLASSES = 224, 1000
_AHEAD = 2  # prefetched batches on the GPU
# Of ImageNet: torchvision's values, times 255.
_MEAN, _STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
SYNTHETIC, WORKERS, PROCESSES = "synthetic", "workers", "processes"
NO_MODEL, EAGER, COMPILED = "no model", "eager", "compiled"


class Run(NamedTuple):
    """Images a second, mean number of busy cores, and the share of time spent waiting for images.

    The cores are those of the process and its children.
    """

    rate: float
    cores: float
    waiting: float


Results = dict[tuple[str, str], list[Run]]  # by model and feed


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = page.parser(__doc__)
    add = parser.add_argument
    add("--dataset", required=True, help="path or address of a dataset of `shardwright build`")
    add("--split", default="train", help="split to read")
    add("--batch-size", type=int, default=256, help="images in a batch")
    add("--steps", type=int, default=100, help="measured steps per round")
    add("--warm-up-steps", type=int, default=20, help="steps before those")
    add(
        "--compile",
        action="store_true",
        help="also measure the model after torch.compile, with CUDA graphs: it needs more images "
        "per second",
    )
    add("--workers", type=int, default=8, help="worker processes of the DataLoader")
    add("--smoke", action="store_true", help="functional test with tiny batches on the CPU")
    args = parser.parse_args(argv)
    args.side = SIDE
    if args.smoke:
        args.batch_size, args.steps, args.warm_up_steps, args.rounds, args.side = 4, 2, 1, 1, 32
        args.no_check = True
    return args


class Ahead:
    """Prefetched batches on the device.

    A thread pins and copies them, on its own stream if there is a GPU.
    """

    def __init__(self, batches: Generator[tuple[Any, Any], None, None], device: Any) -> None:
        self._batches, self._device = batches, device
        self._ready: queue.Queue[Any] = queue.Queue(_AHEAD)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        import torch

        on_gpu = self._device.type == "cuda"
        stream = torch.cuda.Stream() if on_gpu else None
        try:
            for batch in self._batches:
                with torch.cuda.stream(stream) if on_gpu else contextlib.nullcontext():
                    pinned = [tensor.pin_memory() if on_gpu else tensor for tensor in batch]
                    moved = [tensor.to(self._device, non_blocking=True) for tensor in pinned]
                    copied = stream.record_event() if stream is not None else None
                if not self._put((moved, copied)):
                    return
        except BaseException as failure:  # raised again where the batches are used
            self._put(failure)

    def _put(self, item: Any) -> bool:
        while not self._stopped.is_set():
            with contextlib.suppress(queue.Full):
                self._ready.put(item, timeout=0.1)
                return True
        return False

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        import torch

        while True:
            item = self._ready.get()
            if isinstance(item, BaseException):
                raise item
            (images, labels), copied = item
            if copied is not None:
                torch.cuda.current_stream().wait_event(copied)
                for tensor in (images, labels):
                    tensor.record_stream(torch.cuda.current_stream())
            yield images, labels

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._batches.close()  # ends the reader's threads or workers


class Trainer:
    """ResNet-50 with SGD, channels last, bfloat16 by autocast."""

    def __init__(self, device: Any, *, compiled: bool) -> None:
        import torch
        from torchvision.models import resnet50

        torch.backends.cudnn.benchmark = True  # all batches have one shape
        self.device = device
        self.model = resnet50(num_classes=CLASSES).to(device, memory_format=torch.channels_last)
        # With CUDA graphs: otherwise decoders on all cores delay the thread that starts kernels.
        self.forward = torch.compile(self.model, mode="reduce-overhead") if compiled else self.model
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4
        )
        self.mean = torch.tensor(_MEAN, device=device).view(1, 3, 1, 1)
        self.std = torch.tensor(_STD, device=device).view(1, 3, 1, 1)

    def step(self, images: Any, labels: Any) -> None:
        """Run one step on uint8 images [batch, 3, height, width], channels last in memory."""
        import torch

        normal = (images - self.mean) / self.std
        # Not on a CPU, which may only emulate bfloat16.
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            loss = torch.nn.functional.cross_entropy(self.forward(normal), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()

    def wait(self) -> None:
        import torch

        if self.device.type == "cuda":
            torch.cuda.synchronize()


class NoModel:
    """Takes batches in the CPU's memory, and does nothing with them."""

    def __init__(self) -> None:
        import torch

        self.device = torch.device("cpu")

    def step(self, images: Any, labels: Any) -> None:
        pass

    def wait(self) -> None:
        pass


def measure_feed(
    model: Trainer | NoModel, batches: Iterator[tuple[Any, Any]], args: argparse.Namespace
) -> Run:
    """Measure `args.steps`, after the warm-up."""
    for _ in range(args.warm_up_steps):
        model.step(*next(batches))
    model.wait()
    waiting_s, start, cpu_start = 0.0, time.perf_counter(), _cpu_seconds()
    for _ in range(args.steps):
        asked = time.perf_counter()
        batch = next(batches)
        waiting_s += time.perf_counter() - asked
        model.step(*batch)
    model.wait()
    wall_s, cpu_s = time.perf_counter() - start, _cpu_seconds() - cpu_start
    return Run(args.steps * args.batch_size / wall_s, cpu_s / wall_s, waiting_s / wall_s)


def _cpu_seconds() -> float:
    """Return the CPU seconds so far of this process and its running children."""
    return time.process_time() + sum(measure.cpu_seconds_of_children().values())


def _open_reader(args: argparse.Namespace, processes: int | None = None) -> Any:
    import shardwright as sw

    image = sw.TrainImage(args.side)
    return sw.Reader(
        args.dataset,
        args.split,
        global_batch_size=args.batch_size,
        shuffle=True,
        image=image,
        features=["image", "label"],
        processes=processes,
    )


@contextlib.contextmanager
def open_synthetic(args: argparse.Namespace, device: Any) -> Iterator[Iterator[tuple[Any, Any]]]:
    import torch

    shape = (args.batch_size, args.side, args.side, 3)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, device=device).movedim(-1, 1)
    labels = torch.randint(0, CLASSES, (args.batch_size,), device=device)

    def again() -> Iterator[tuple[Any, Any]]:
        while True:
            yield images, labels

    yield again()


@contextlib.contextmanager
def open_reader(
    args: argparse.Namespace, device: Any, *, with_processes: bool = False
) -> Iterator[Iterator[tuple[Any, Any]]]:
    import torch

    def tensors() -> Generator[tuple[Any, Any], None, None]:
        for batch in _open_reader(args, max(1, args.workers // 2) if with_processes else None):
            yield torch.from_numpy(batch["image"]).movedim(-1, 1), torch.from_numpy(batch["label"])

    ahead = Ahead(tensors(), device)
    try:
        yield iter(ahead)
    finally:
        ahead.close()


@contextlib.contextmanager
def open_reader_torch(
    args: argparse.Namespace, device: Any, *, with_workers: bool = False
) -> Iterator[Iterator[tuple[Any, Any]]]:
    from torch.utils.data import DataLoader

    def tensors() -> Generator[tuple[Any, Any], None, None]:
        batches = _open_reader(args).torch()
        for batch in DataLoader(batches, None, num_workers=args.workers if with_workers else 0):
            yield batch["image"], batch["label"]

    ahead = Ahead(tensors(), device)
    try:
        yield iter(ahead)
    finally:
        ahead.close()


Feed = Callable[
    [argparse.Namespace, Any], contextlib.AbstractContextManager[Iterator[tuple[Any, Any]]]
]
FEEDS: dict[str, Feed] = {
    SYNTHETIC: open_synthetic,
    "reader": open_reader,
    "reader.torch": open_reader_torch,
    WORKERS: functools.partial(open_reader_torch, with_workers=True),
    PROCESSES: functools.partial(open_reader, with_processes=True),
}


def measure_all(args: argparse.Namespace, device: Any) -> Results:
    """Measure each feed of each model per round; every round starts with another feed."""
    models: dict[str, Trainer | NoModel] = {
        NO_MODEL: NoModel(),
        EAGER: Trainer(device, compiled=False),
    }
    if args.compile:
        models[COMPILED] = Trainer(device, compiled=True)
    found: Results = {(name, feed): [] for name in models for feed in FEEDS}
    del found[NO_MODEL, SYNTHETIC]
    for number in range(args.rounds):
        for name, model in models.items():
            for feed in page.turned(list(FEEDS), number):
                if (name, feed) in found:
                    with FEEDS[feed](args, model.device) as batches:
                        run = measure_feed(model, batches, args)
                    found[name, feed].append(run)
                    page.say(f"round {number + 1}: {name}, {feed}: {run}")
    return found


def ratios(found: Results, model: str, feed: str) -> list[float]:
    """Return a feed's rate divided by the synthetic one, per round."""
    pairs = zip(found[model, feed], found[model, SYNTHETIC], strict=True)
    return [own.rate / ideal.rate for own, ideal in pairs]


def unpack(raw: dict[str, Any]) -> dict[str, Any]:
    return {**raw, "runs": raw_results.unpack(raw["runs"], Run)}


def targets(found: dict[str, Any]) -> list[Target]:
    checks = []
    for model, feed in found["runs"]:
        # One process leaves half of 16 cores idle: that is what `processes` are for.
        if model != NO_MODEL and feed in (WORKERS, PROCESSES):
            values = ratios(found["runs"], model, feed)
            text = f"ResNet-50, {model}: `{feed}` at least {NEED}x synthetic images"
            checks.append(Target(text, f"{spread(values, '.3f')}x", median(values) >= NEED))
    return checks


def render(found: dict[str, Any], lines: Sequence[str]) -> str:
    runs: Results = found["runs"]
    rows = []
    for (model, feed), of in runs.items():
        share = "" if model == NO_MODEL else spread(ratios(runs, model, feed), ".3f")
        rates, cores, waiting = (
            spread(each, form)
            for each, form in zip(zip(*of, strict=True), (",.0f", ".1f", ".1%"), strict=True)
        )
        rows.append([f"{model}, {feed}", rates, share, cores, waiting])
    head = ["model, images", "images/s", "of synthetic", "cores busy", "waiting for images"]
    return "\n".join([
        "## Feeding a GPU", "", *lines, "", *page.table(head, rows), "",
        f"ResNet-50 in bfloat16 at batch {found['batch_size']}, channels last: forward, backward "
        "and SGD. Random-resized crops of 224x224 from",
        f"{found['records']:,} photographs of 500x375 and 80 KB in exact shuffle, which stay in "
        'memory: no disk is measured. "No model" is what',
        "a reader hands out by itself; `workers` is `reader.torch` with "
        f"{found['workers']} worker processes, and `processes` is `reader` with half as many. The "
        "busy cores include what torch uses.",
    ])  # fmt: skip


def _describe_gpu() -> str:
    """Return the GPU's name, and the versions of its driver and of CUDA."""
    import torch

    words = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(words, capture_output=True, text=True).stdout.strip()
    return f"{torch.cuda.get_device_name()}, driver {driver}, CUDA {torch.version.cuda}"


def main() -> int:
    args = parse_args(sys.argv[1:])
    try:
        import torch
        import torchvision  # noqa: F401
    except ImportError as failure:
        sys.exit(
            f"{failure}: run this with torch and torchvision, such as .torch/bin/python after "
            "`make torch`"
        )
    if not args.smoke and not torch.cuda.is_available():
        sys.exit(
            "torch finds no GPU, so there is nothing to measure; --smoke runs a few tiny batches "
            "on the CPU"
        )
    import shardwright as sw

    found = measure_all(args, torch.device("cpu" if args.smoke else "cuda"))
    about = raw_results.circumstances(
        Path(args.dataset),
        args.rounds,
        packages=["torch", "torchvision", "numpy", "simplejpeg", "opencv-python-headless"],
        notes=["GPU: none, smoke test" if args.smoke else f"GPU: {_describe_gpu()}"],
        sources=["shardwright"],
    )
    raw = {
        "batch_size": args.batch_size,
        "workers": args.workers,
        "records": sw.open(args.dataset).splits[args.split].num_records,
        "runs": raw_results.pack(found),
    }
    return raw_results.finish(
        raw_results.Result("gpu_feed", about, raw), sys.modules[__name__], args
    )


if __name__ == "__main__":
    sys.exit(main())
