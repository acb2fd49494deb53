"""Put the simulated store, clock, threads and random numbers below the modules of shardwright."""

from __future__ import annotations

import os
import random
import secrets
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import datetime, tzinfo
from types import SimpleNamespace
from typing import Any

import obstore
import pyarrow as pa

from shardwright.format import index
from shardwright.pipelines.commands import repair
from shardwright.pipelines.local import build
from shardwright.report import data
from shardwright.storage import clients, peers
from shardwright.transforms.publish import report_file
from shardwright.transforms.write import watchdog
from tests.simulator.history import Simulation
from tests.simulator.scheduler import InlinePool, Scheduler
from tests.simulator.store import Requests

_REMEMBERED = 5000


def make_simulation() -> tuple[Simulation, Scheduler]:
    """Return the simulation of this process, whose modules are changed for good."""
    os.environ.update(AWS_ACCESS_KEY_ID="simulated", AWS_SECRET_ACCESS_KEY="simulated")
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    scheduler = InlinePool.scheduler = Scheduler()
    requests = Requests(scheduler)
    _replace(
        (obstore, requests),
        (ThreadPoolExecutor, InlinePool),
        (time, _namespace_of(time, scheduler)),
        (time.monotonic, scheduler.monotonic),
        (datetime, _datetime_of(scheduler)),
        (random, SimpleNamespace(random=_draw(scheduler), uniform=_draw(scheduler))),
        (secrets, SimpleNamespace(token_hex=scheduler.hexadecimal)),
        (index.parse_index, _remembered(index.parse_index)),  # a third of the time
    )
    patched: Any = (peers, clients, build, repair, watchdog, data, report_file)
    peers_, clients_, build_, repair_, watchdog_, data_, report_ = patched
    peers_._PEERS = {"s3": requests}
    clients_.S3Store = lambda bucket, **_: bucket
    # What only shows or watches goes: threads that wait for real seconds, and the page's pictures.
    build_.reporting_death = repair_.ProgressDisplay = nullcontext
    watchdog_._watchdog = lambda _: SimpleNamespace(add=id, remove=id)
    data_.can_decode = lambda: False
    report_.report_html = lambda _: "<html></html>\n"
    return Simulation(scheduler, requests), scheduler


def _replace(*pairs: tuple[Any, Any]) -> None:
    """Give all modules of shardwright the second one of each pair instead of the first one."""
    replaced = {id(real): simulated for real, simulated in pairs}
    for name, module in list(sys.modules.items()):
        if name.startswith("shardwright"):
            for key, value in list(vars(module).items()):
                if id(value) in replaced:
                    setattr(module, key, replaced[id(value)])


def _namespace_of(module: Any, scheduler: Scheduler) -> SimpleNamespace:
    simulated = {name: getattr(scheduler, name) for name in ("time", "monotonic", "sleep")}
    return SimpleNamespace(**{**vars(module), **simulated, "thread_time": scheduler.monotonic})


def _datetime_of(scheduler: Scheduler) -> type:
    def now(zone: tzinfo | None = None) -> datetime:
        return datetime.fromtimestamp(scheduler.time(), zone)

    return type("datetime", (datetime,), {"now": staticmethod(now)})


def _draw(scheduler: Scheduler) -> Callable[..., float]:
    """Return `random.random` and `random.uniform` in one."""
    return lambda low=0.0, high=1.0: scheduler.random.uniform(low, high)


def _remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a pure function that is fast for arguments that it has had before."""
    found: dict[Any, Any] = {}

    def run(*args: Any) -> Any:
        key = tuple(tuple(arg) if isinstance(arg, list) else arg for arg in args)
        if key not in found:
            found[key] = function(*args)
            if len(found) > _REMEMBERED:
                del found[next(iter(found))]
        return found[key]

    return run
