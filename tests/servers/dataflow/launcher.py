"""Flex Templates: the launcher in the template's image runs the program, which makes the job.

As Google's launcher does, it starts the program with its parameters as options, and with
`--template_location=STAGING/template_launches/JOB/job_object`: the program writes its job there
instead of submitting it, and the service runs it.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers.dataflow.service import FAILED, Job, Json
from tests.servers.dataflow.workers import read_object
from tests.servers.store_server import StoreServer

LAUNCH_S = 240.0
# Fields of FlexTemplateRuntimeEnvironment, and the options of Beam they become.
_ENVIRONMENT_OPTIONS = {
    "tempLocation": "temp_location", "stagingLocation": "staging_location",
    "serviceAccountEmail": "service_account_email", "maxWorkers": "max_num_workers",
    "numWorkers": "num_workers", "machineType": "machine_type", "network": "network",
    "subnetwork": "subnetwork", "diskSizeGb": "disk_size_gb",
    "sdkContainerImage": "sdk_container_image",
}  # fmt: skip


@dataclass
class Launcher:
    """Starts the program of a template.

    Attributes:
        command: Python and the program in the image.
        gcs: Holds specs and staged jobs.
        folder: For logs; the working directory of programs.
        environment: All environment variables of the program.
        commands: Every command line that was started.
    """

    command: Sequence[str]
    gcs: StoreServer
    folder: Path
    environment: Mapping[str, str]
    commands: list[list[str]] = field(default_factory=list)

    def check(self, parameters: Json) -> None:
        """Raise ValueError if there is no such template, or if it does not take the parameters."""
        try:
            spec = self._spec(parameters)
        except OSError as error:
            path = parameters["containerSpecGcsPath"]
            raise ValueError(f"Unable to open template file: {path}: {error}") from error
        check_parameters(spec, parameters.get("parameters", {}))

    def _spec(self, parameters: Json) -> Json:
        spec: Json = json.loads(read_object(self.gcs, parameters["containerSpecGcsPath"]))
        return spec

    def launch(self, job: Job, parameters: Json) -> None:
        """Run the program, and fill in the job's request; a program that fails ends the job."""
        options = self._options(job, parameters)
        job_object = f"{options['staging_location']}/template_launches/{job.id}/job_object"
        named = [f"--{name}={value}" for name, value in options.items()]
        command = [*self.command, *named, f"--template_location={job_object}"]
        self.commands.append(command)
        run = subprocess.run(
            command, cwd=self.folder, env=dict(self.environment), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=LAUNCH_S, check=False,
        )  # fmt: skip
        if run.returncode:
            failed = "Error occurred in the launcher container: Template launch failed: "
            failed += f"python failed with exit status {run.returncode}\n"
            job.end(FAILED, failed + run.stdout.decode(errors="replace")[-2000:])
        else:
            job.request = json.loads(read_object(self.gcs, job_object))

    def _options(self, job: Job, parameters: Json) -> dict[str, str]:
        defaults = self._spec(parameters).get("defaultEnvironment", {})
        environment = {**defaults, **parameters.get("environment", {})}
        fields = environment.keys() & _ENVIRONMENT_OPTIONS.keys()
        named = {_ENVIRONMENT_OPTIONS[name]: str(environment[name]) for name in fields}
        temp = named.get("temp_location", "gs://dataflow-staging")
        staging = named.get("staging_location", f"{temp}/staging").rstrip("/")
        fixed = {"project": job.project, "region": job.region, "job_name": job.name}
        if labels := environment.get("additionalUserLabels"):
            named["labels"] = json.dumps(labels)
        more = environment.get("additionalPipelineOptions", ())
        return {
            "runner": "DataflowRunner",
            **fixed,
            **named,
            "staging_location": staging,
            **dict(option.partition("=")[::2] for option in more),
            **parameters.get("parameters", {}),
        }


def check_parameters(spec: Json, parameters: Mapping[str, str]) -> None:
    """Raise ValueError if a parameter is missing, unknown, or does not match the spec."""
    known = {entry["name"]: entry for entry in spec["metadata"]["parameters"]}
    forms = {name: entry.get("regexes", ()) for name, entry in known.items()}
    required = [name for name, entry in known.items() if not entry.get("isOptional")]
    kinds = {
        "missing": [name for name in required if name not in parameters],
        "unrecognized": [name for name in parameters if name not in known],
        "of a wrong form": [
            name
            for name, value in parameters.items()
            if not all(re.fullmatch(form, value) for form in forms.get(name, ()))
        ],
    }
    faults = [f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names]
    if faults:
        raise ValueError(f"The template parameters are invalid: {'; '.join(faults)}")
