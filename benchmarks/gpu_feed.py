#!/usr/bin/env python
"""Measure whether the reader keeps a GPU busy: ResNet-50 in bfloat16, against synthetic images.

    .torch/bin/python benchmarks/gpu_feed.py --dataset DATASET [--rounds 3] [--compile]

  synthetic     one batch of random uint8 images that stays on the GPU
  reader        shardwright.Reader with exact shuffle and random-resized crops to 224x224; a thread
                pins its NumPy batches and copies them to the GPU
  reader.torch  the same with Reader.torch() in a DataLoader

A step is forward, backward and SGD, with normalization on the GPU; warm-up steps are not measured.
Rounds are interleaved. Exit code 1 if `reader` or `reader.torch` reaches less than 0.97 of the
synthetic rate. --smoke is a functional test on the CPU, with a few tiny batches in float32; its
figures mean nothing. Needs torch and torchvision (`make torch`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

NEED = 0.97
SIDE, CLASSES = 224, 1000
_AHEAD = 2  # prefetched batches on the GPU
# Of ImageNet: torchvision's values, times 255.
_MEAN, _STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--dataset", required=True, help="path or address of a dataset of `shardwright build`")
    add("--split", default="train", help="(default %(default)s)")
    add("--batch-size", type=int, default=256, help="(default %(default)s)")
    add("--steps", type=int, default=100, help="measured steps per round (default %(default)s)")
    add("--warm-up-steps", type=int, default=20, help="steps before those (default %(default)s)")
    add("--rounds", type=int, default=3, help="(default %(default)s)")
    add(
        "--compile",
        action="store_true",
        help="torch.compile the model: it then needs more images per second",
    )
    add("--smoke", action="store_true", help="functional test with tiny batches on the CPU")
    add("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args(argv)
    args.side = SIDE
    if args.smoke:
        args.batch_size, args.steps, args.warm_up_steps, args.rounds, args.side = 4, 2, 1, 1, 32
    return args


class Ahead:
    """Prefetched batches on the device.

    A thread pins and copies them, on its own stream if there is a GPU.
    """

    def __init__(self, batches: Iterator[tuple[Any, Any]], device: Any) -> None:
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


class Trainer:
    """ResNet-50 with SGD, channels last, bfloat16 by autocast."""

    def __init__(self, device: Any, *, compiled: bool) -> None:
        import torch
        from torchvision.models import resnet50

        self.device = device
        self.model = resnet50(num_classes=CLASSES).to(device, memory_format=torch.channels_last)
        self.forward = torch.compile(self.model) if compiled else self.model
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

    def rate(self, batches: Iterator[tuple[Any, Any]], args: argparse.Namespace) -> float:
        """Return the images per second over `args.steps`, after the warm-up."""
        for _ in range(args.warm_up_steps):
            self.step(*next(batches))
        self.wait()
        start = time.perf_counter()
        for _ in range(args.steps):
            self.step(*next(batches))
        self.wait()
        return float(args.steps * args.batch_size / (time.perf_counter() - start))


def _open_reader(args: argparse.Namespace) -> Any:
    import shardwright as sw

    image = sw.TrainImage(args.side)
    return sw.Reader(
        args.dataset,
        args.split,
        global_batch_size=args.batch_size,
        shuffle=True,
        image=image,
        features=["image", "label"],
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
def open_reader(args: argparse.Namespace, device: Any) -> Iterator[Iterator[tuple[Any, Any]]]:
    import torch

    def tensors() -> Iterator[tuple[Any, Any]]:
        for batch in _open_reader(args):
            yield torch.from_numpy(batch["image"]).movedim(-1, 1), torch.from_numpy(batch["label"])

    ahead = Ahead(tensors(), device)
    try:
        yield iter(ahead)
    finally:
        ahead.close()


@contextlib.contextmanager
def open_reader_torch(args: argparse.Namespace, device: Any) -> Iterator[Iterator[tuple[Any, Any]]]:
    from torch.utils.data import DataLoader

    def tensors() -> Iterator[tuple[Any, Any]]:
        for batch in DataLoader(_open_reader(args).torch(), batch_size=None):
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
    "synthetic": open_synthetic,
    "reader": open_reader,
    "reader.torch": open_reader_torch,
}


def measure_all(args: argparse.Namespace, device: Any) -> dict[str, list[float]]:
    """Return the images/s of each feed per round; every round starts with another feed."""
    trainer = Trainer(device, compiled=args.compile)
    rates: dict[str, list[float]] = {name: [] for name in FEEDS}
    names = list(FEEDS)
    for number in range(args.rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            with FEEDS[name](args, device) as batches:
                rates[name].append(trainer.rate(batches, args))
            print(
                f"round {number + 1}: {name:<12} {rates[name][-1]:8,.4g} images/s",
                file=sys.stderr,
                flush=True,
            )
    return rates


def ratios(rates: dict[str, list[float]]) -> dict[str, float]:
    """Return the median over the rounds of each feed's rate divided by the synthetic rate."""
    base = rates["synthetic"]
    return {
        name: median(own / ideal for own, ideal in zip(found, base, strict=True))
        for name, found in rates.items()
        if found is not base
    }


def main() -> int:
    args = parse_args(sys.argv[1:])
    try:
        import torch
        import torchvision
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
    device = torch.device("cpu" if args.smoke else "cuda")
    rates = measure_all(args, device)
    found = ratios(rates)
    name = "CPU, smoke" if args.smoke else torch.cuda.get_device_name()
    print(
        f"{name}; torch {torch.__version__}, torchvision {torchvision.__version__}; ResNet-50, "
        f"batch {args.batch_size}"
    )
    for feed, values in rates.items():
        share = f", {found[feed]:.3f} of synthetic" if feed in found else ""
        print(
            f"{feed:<12} {median(values):8,.4g} images/s "
            f"({min(values):,.4g}-{max(values):,.4g}){share}"
        )
    if args.json:
        args.json.write_text(json.dumps({"device": name, "rates": rates, "ratios": found}))
    return 1 if not args.smoke and min(found.values()) < NEED else 0


if __name__ == "__main__":
    sys.exit(main())
