"""Flex Templates: a launcher in the template's image is given the parameters as options, and makes the job that then runs.

As Google's launcher does, it starts the program with `--template_location=STAGING/template_launches/JOB/job_object`: the program
writes its job there instead of submitting it, and the service goes on with what it finds.
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
    "tempLocation": "temp_location", "stagingLocation": "staging_location", "serviceAccountEmail": "service_account_email",
    "maxWorkers": "max_num_workers", "numWorkers": "num_workers", "machineType": "machine_type", "network": "network",
    "subnetwork": "subnetwork", "diskSizeGb": "disk_size_gb", "sdkContainerImage": "sdk_container_image",
}  # fmt: skip


@dataclass
class Launcher:
    """Starts the program of a template.

    Attributes:
        command: What the image starts: Python and the program.
        gcs: Where specs lie and jobs are staged.
        folder: Where programs are started, and their logs.
        environment: All environment variables of the program.
        commands: Every command line that was started.
    """

    command: Sequence[str]
    gcs: StoreServer
    folder: Path
    environment: Mapping[str, str]
    commands: list[list[str]] = field(default_factory=list)

    def check(self, parameters: Json) -> None:
        """What the service checks before it starts anything.

        Raises:
            ValueError: There is no such template, or it does not take these parameters.
        """
        try:
            spec = self._spec(parameters)
        except OSError as error:
            raise ValueError(
                f"Unable to open template file: {parameters['containerSpecGcsPath']}: {error}"
            ) from error
        check_parameters(spec, parameters.get("parameters", {}))

    def _spec(self, parameters: Json) -> Json:
        spec: Json = json.loads(read_object(self.gcs, parameters["containerSpecGcsPath"]))
        return spec

    def launch(self, job: Job, parameters: Json) -> None:
        """Run the program, and fill in the job's request; a program that fails ends the job."""
        options = self._options(job, parameters)
        job_object = f"{options['staging_location']}/template_launches/{job.id}/job_object"
        command = [
            *self.command,
            *(f"--{name}={value}" for name, value in options.items()),
            f"--template_location={job_object}",
        ]
        self.commands.append(command)
        log = self.folder / f"launcher-{job.id}.log"
        with log.open("wb") as output:
            code = subprocess.run(
                command,
                cwd=self.folder,
                env=dict(self.environment),
                stdout=output,
                stderr=output,
                timeout=LAUNCH_S,
                check=False,
            ).returncode
        if code:
            text = log.read_text(errors="replace")[-2000:]
            job.end(
                FAILED,
                f"Error occurred in the launcher container: Template launch failed: python failed with exit status {code}\n{text}",
            )
        else:
            job.request = json.loads(read_object(self.gcs, job_object))

    def _options(self, job: Job, parameters: Json) -> dict[str, str]:
        environment = {
            **self._spec(parameters).get("defaultEnvironment", {}),
            **parameters.get("environment", {}),
        }
        named = {
            option: str(environment[name])
            for name, option in _ENVIRONMENT_OPTIONS.items()
            if name in environment
        }
        staging = named.get(
            "staging_location", f"{named.get('temp_location', 'gs://dataflow-staging')}/staging"
        )
        fixed = {
            "runner": "DataflowRunner",
            "project": job.project,
            "region": job.region,
            "job_name": job.name,
        }
        if labels := environment.get("additionalUserLabels"):
            named["labels"] = json.dumps(labels)
        more = dict(
            option.partition("=")[::2]
            for option in environment.get("additionalPipelineOptions", ())
        )
        return {
            **fixed,
            **named,
            "staging_location": staging.rstrip("/"),
            **more,
            **parameters.get("parameters", {}),
        }


def check_parameters(spec: Json, parameters: Mapping[str, str]) -> None:
    """What the service checks before a launch, by the metadata in the template's spec.

    Raises:
        ValueError: A parameter is missing, unknown, or not of its form.
    """
    known = {entry["name"]: entry for entry in spec["metadata"]["parameters"]}
    missing = [
        name
        for name, entry in known.items()
        if not entry.get("isOptional") and name not in parameters
    ]
    unknown = [name for name in parameters if name not in known]
    wrong = [
        name
        for name, value in parameters.items()
        if name in known
        and not all(re.fullmatch(form, value) for form in known[name].get("regexes", ()))
    ]
    kinds = {"missing": missing, "unrecognized": unknown, "of a wrong form": wrong}
    faults = [f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names]
    if faults:
        raise ValueError(f"The template parameters are invalid: {'; '.join(faults)}")
