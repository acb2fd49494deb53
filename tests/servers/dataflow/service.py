"""Dataflow's REST API (v1b3), for Beam's client, gcloud and Airflow's operators; without HTTP.

Names of fields and states are those of https://cloud.google.com/dataflow/docs/reference/rest. There
are no quotas and no machines: `execute` runs a job, or it stays running until a test ends it.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]
Answer = tuple[int, Json]
RUNNING, DONE = "JOB_STATE_RUNNING", "JOB_STATE_DONE"
FAILED, CANCELLED = "JOB_STATE_FAILED", "JOB_STATE_CANCELLED"
_ENDED = frozenset({DONE, FAILED, CANCELLED})
_PROJECT, _REGION = r"/v1b3/projects/(?P<project>[^/]+)", r"/locations/(?P<region>[^/]+)"
_JOBS = re.compile(rf"{_PROJECT}(?:{_REGION})?/jobs(?:/(?P<id>[^/:]+)(?:/(?P<part>\w+))?)?")
_LAUNCH = re.compile(rf"{_PROJECT}{_REGION}/flexTemplates:launch")
_STATUS = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
    503: "UNAVAILABLE",
}  # fmt: skip
_numbers = itertools.count(1)


@dataclass
class Job:
    """A job.

    Attributes:
        request: The Job that was posted, as JSON; of a template, {} until the launcher has made it.
        state: `JOB_STATE_...`
        messages: Answer to `messages`, oldest first.
        cancelled: Set when a client cancels the job; its runner stops then.
    """

    id: str
    project: str
    region: str
    name: str
    request: Json
    state: str = RUNNING
    messages: list[Json] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def ended(self) -> bool:
        return self.state in _ENDED

    def say(self, text: str, importance: str = "BASIC") -> None:
        message = {"id": f"m{len(self.messages):04d}", "time": _now(), "messageText": text}
        self.messages.append({**message, "messageImportance": f"JOB_MESSAGE_{importance}"})

    def end(self, state: str, error: str | None = None) -> None:
        """Set the last state, once."""
        if self.ended:
            return
        if error is not None:
            self.say(error, "ERROR")
        self.state = state

    def resource(self) -> Json:
        kept = self.request.keys() & {"labels", "environment", "clientRequestId", "type"}
        return {
            **{key: self.request[key] for key in kept},
            "id": self.id,
            "projectId": self.project,
            "location": self.region,
            "name": self.name,
            "currentState": self.state,
            "currentStateTime": _now(),
            "createTime": _now(),
        }


class Service:
    """Dataflow's jobs, in memory.

    Args:
        execute: Runs and ends a job, in a thread of its own; None leaves jobs running.
        check: Raises ValueError for launch parameters that a Flex Template does not take.
        launch: Fills in the request of a Flex Template's job, or ends it, in a thread of its own.
    """

    def __init__(
        self,
        execute: Callable[[Job], None] | None,
        check: Callable[[Json], None],
        launch: Callable[[Job, Json], None],
    ) -> None:
        self.jobs: dict[str, Job] = {}
        self.requests: list[str] = []  # "METHOD path", in order
        self._execute, self._check, self._launch = execute, check, launch
        self._refusals: deque[tuple[int, str]] = deque()
        self._failures: deque[str] = deque()

    def refuse_next(
        self, status: int = 403, message: str = "The caller does not have permission to create jobs"
    ) -> None:
        """Answer the next request for a new job or a launch with an error."""
        self._refusals.append((status, message))

    def fail_next(self, message: str) -> None:
        """Let the next job fail with this error, without running it."""
        self._failures.append(message)

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        self.requests.append(f"{method} {path}")
        if (match := _LAUNCH.fullmatch(path)) and method == "POST":
            return self._launch_template(match["project"], match["region"], json.loads(body))
        match = _JOBS.fullmatch(path)
        if match is None:
            return error(404, f"the fake of Dataflow does not know {method} {path}")
        project, region = match["project"], match["region"] or "us-central1"
        if match["id"] is None:
            if method == "POST":
                return self._create(project, region, json.loads(body))
            return 200, {"jobs": [job.resource() for job in self.jobs.values()]}
        job = self.jobs.get(match["id"])
        if job is None or job.project != project:
            about = f"Information about job {match['id']}"
            return error(404, f"(fake): {about} could not be found in our system.")
        if match["part"] is not None:
            return _part(job, match["part"])
        if method == "PUT":
            self._update(job, json.loads(body))
        return 200, job.resource()

    def _create(self, project: str, region: str, request: Json) -> Answer:
        if self._refusals:
            return error(*self._refusals.popleft())
        if any(job.name == request["name"] and not job.ended for job in self.jobs.values()):
            return error(409, f"There is already an active job named {request['name']}")
        job = self._add(project, region, request["name"], request)
        answer = job.resource()  # before anything can have happened
        threading.Thread(target=self._run, args=(job,), daemon=True).start()
        return 200, answer

    def _launch_template(self, project: str, region: str, body: Json) -> Answer:
        if self._refusals:
            return error(*self._refusals.popleft())
        parameters = body["launchParameter"]
        try:
            self._check(parameters)
        except ValueError as fault:
            return error(400, str(fault))
        job = self._add(project, region, parameters["jobName"], {})
        job.state = "JOB_STATE_QUEUED"
        answer = job.resource()

        def launch() -> None:
            self._launch(job, parameters)
            if not job.ended:
                job.state = RUNNING
                self._run(job)

        threading.Thread(target=launch, daemon=True).start()
        return 200, {"job": answer}

    def _add(self, project: str, region: str, name: str, request: Json) -> Job:
        identity = f"{datetime.now(UTC):%Y-%m-%d_%H_%M_%S}-{next(_numbers)}"
        job = self.jobs[identity] = Job(identity, project, region, name, request)
        return job

    def _run(self, job: Job) -> None:
        if self._failures:
            job.end(FAILED, self._failures.popleft())
        elif self._execute is not None:
            try:
                self._execute(job)
            except Exception as fault:  # of the fake: the client must not wait forever
                job.end(FAILED, f"the fake of Dataflow: {type(fault).__name__}: {fault}")

    def _update(self, job: Job, request: Json) -> None:
        if request.get("requestedState") in (CANCELLED, 5) and not job.ended:  # 5: gapic clients
            job.cancelled.set()
            job.say("Cancel request is committed for workflow job")
            job.end(CANCELLED)


def error(status: int, message: str) -> Answer:
    name = _STATUS.get(status, "ABORTED")
    return status, {"error": {"code": status, "message": message, "status": name}}


def _part(job: Job, part: str) -> Answer:
    if part == "messages":
        return 200, {"jobMessages": job.messages}
    if part == "metrics":
        return 200, {"metricTime": _now(), "metrics": []}
    return error(404, f"the fake of Dataflow does not know {part} of jobs")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
