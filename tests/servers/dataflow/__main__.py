"""The fake as a process of its own; see `python -m tests.servers.dataflow --help`, and this package's docstring."""

from __future__ import annotations

import argparse
import json
import signal
import threading
from pathlib import Path

from tests.servers.dataflow import LAUNCHER, start_dataflow
from tests.servers.store_server import StoreServer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--gcs", required=True, metavar="URL", help="a GCS server that asks for no token"
    )
    parser.add_argument(
        "--folder",
        required=True,
        type=Path,
        help="for keys, what was staged, and workers' environments",
    )
    parser.add_argument(
        "--port", type=int, default=0, help="on the loopback interface; 0 lets the system choose"
    )
    parser.add_argument(
        "--launcher",
        default=LAUNCHER,
        metavar="COMMAND",
        help="what a Flex Template's image starts",
    )
    parser.add_argument(
        "--image", action="append", default=[], metavar="NAME=FOLDER", help="a virtual environment that plays a container image; without "
        "one, jobs stay as they are until they are cancelled"
    )  # fmt: skip
    args = parser.parse_args()
    images = {
        name: Path(folder) for name, _, folder in (image.partition("=") for image in args.image)
    }
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    gcs = StoreServer("gs", args.gcs.rstrip("/"), {})
    with start_dataflow(
        gcs, args.folder, images=images or None, launcher=args.launcher, port=args.port
    ) as fake:
        print(
            json.dumps(
                {
                    "endpoint": fake.endpoint,
                    "arguments": fake.arguments,
                    "environment": fake.environment,
                }
            ),
            flush=True,
        )
        stopped.wait()


if __name__ == "__main__":
    main()
