"""Runs a staged pipeline in the environment this file is started in, as Dataflow's workers would, but in one process.

`python -I run_staged.py PIPELINE.PB RESULT.JSON`, started by workers.py in a folder apart from any checkout. What the file written
last says is where the project was imported from.
"""

import json
import sys
from pathlib import Path


def main(pipeline: Path, result: Path) -> None:
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.portability import python_urns
    from apache_beam.portability.api import beam_runner_api_pb2
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    proto = beam_runner_api_pb2.Pipeline.FromString(pipeline.read_bytes())
    for environment in proto.components.environments.values():
        del environment.dependencies[:]  # they are installed
        environment.urn, environment.payload = python_urns.EMBEDDED_PYTHON, b""
    FnApiRunner().run_via_runner_api(proto, PipelineOptions([])).wait_until_finish()
    names = (
        "transforms",
        "shardwright",
        "schemas",
        "tfx_bsl",
        "apache_beam",
        "tensorflow",
        "pipelines",
    )
    result.write_text(
        json.dumps({name: sys.modules[name].__file__ for name in names if name in sys.modules})
    )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
