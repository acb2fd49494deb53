"""Functions for `--transform` that tell which process ran them, and take their time."""

from __future__ import annotations

import os
import time
from pathlib import Path

from shardwright.transforms.user_code import Record

FOLDER, SLEEP = "ENGINE_TEST_FOLDER", "ENGINE_TEST_SLEEP"
WATCHED, FAILING = f"{__name__}:watched", f"{__name__}:failing"


def watched(record: Record) -> Record:
    """Add a line to $ENGINE_TEST_FOLDER/PID, and take $ENGINE_TEST_SLEEP seconds."""
    if folder := os.environ.get(FOLDER):
        with (Path(folder) / str(os.getpid())).open("a") as file:
            file.write(f"{record.id}\n")
    time.sleep(float(os.environ.get(SLEEP, "0")))
    return record


def failing(record: Record) -> Record:
    raise ValueError(f"no luck with {record.id}")
