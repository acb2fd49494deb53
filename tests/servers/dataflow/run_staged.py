"""Run a staged pipeline in this file's environment, as Dataflow's workers would, in one process.

workers.py starts `python -I run_staged.py PIPELINE.PB RESULT.JSON` in a folder apart from any
checkout. The result, written last, is where the project was imported from.
"""

import json
import sys
from pathlib import Path

MODULES = "shardwright shardwright.transforms tfx_bsl apache_beam tensorflow transforms"


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
    imported = [name for name in MODULES.split() if name in sys.modules]
    result.write_text(json.dumps({name: sys.modules[name].__file__ for name in imported}))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
