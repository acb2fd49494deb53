"""Start a Beam Python worker, as the boot program of Beam's container does.

It gets endpoints and options from the runner, then serves. The virtual environment has all
packages: nothing is installed.
"""

from __future__ import annotations

import argparse
import os
import threading
import time

import grpc
from apache_beam.portability.api import (
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    endpoints_pb2,
)
from apache_beam.runners.worker import sdk_worker_main
from google.protobuf import json_format, text_format

_ANSWER_S = 60


def main() -> None:
    """Serve until the runner closes the connection or is gone."""
    runner = os.getppid()
    threading.Thread(target=_end_with, args=(runner,), daemon=True).start()
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--id", required=True)
    parser.add_argument("--provision_endpoint", required=True)
    parser.add_argument("--semi_persist_dir", default="")
    args, _ = parser.parse_known_args()
    worker = args.id.strip("'")  # Prism 2.77 passes it with quotes
    info = _provision(args.provision_endpoint, worker)
    os.environ.update(_environment(worker, info))
    sdk_worker_main.main([])
    os._exit(0)  # threads of an abandoned bundle may still wait for the runner


def _provision(endpoint: str, worker: str) -> beam_provision_api_pb2.ProvisionInfo:
    """Return the runner's information for this worker: endpoints and pipeline options."""
    with grpc.insecure_channel(endpoint) as channel:
        stub = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
        request = beam_provision_api_pb2.GetProvisionInfoRequest()
        return stub.GetProvisionInfo(
            request, metadata=[("worker_id", worker)], timeout=_ANSWER_S, wait_for_ready=True
        ).info


def _environment(worker: str, info: beam_provision_api_pb2.ProvisionInfo) -> dict[str, str]:
    """Return the environment variables that `sdk_worker_main` reads."""
    return {
        "WORKER_ID": worker,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "LOGGING_API_SERVICE_DESCRIPTOR": _text(info.logging_endpoint),
        "CONTROL_API_SERVICE_DESCRIPTOR": _text(info.control_endpoint),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }


def _text(endpoint: endpoints_pb2.ApiServiceDescriptor) -> str:
    return str(text_format.MessageToString(endpoint, as_one_line=True))


def _end_with(runner: int) -> None:
    """End this process when its parent is gone: a killed runner does not close the connection."""
    while os.getppid() == runner:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    main()
