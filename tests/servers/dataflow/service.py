"""What Dataflow's REST API (v1b3) answers, as far as Beam's client, gcloud and Airflow's operators ask it; without HTTP.

Written after https://cloud.google.com/dataflow/docs/reference/rest: names of fields and of states are those of that page. Numbers of
workers, quotas and machines do not exist here; a job does what `execute` does with it, or stays as it is until a test ends it.
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
RUNNING, DONE, FAILED, CANCELLED = (
    f"JOB_STATE_{state}" for state in ("RUNNING", "DONE", "FAILED", "CANCELLED")
)
_ENDED = frozenset({DONE, FAILED, CANCELLED})
_JOBS = re.compile(
    r"/v1b3/projects/(?P<project>[^/]+)(?:/locations/(?P<region>[^/]+))?/jobs(?:/(?P<id>[^/:]+)(?:/(?P<part>\w+))?)?"
)
_LAUNCH = re.compile(
    r"/v1b3/projects/(?P<project>[^/]+)/locations/(?P<region>[^/]+)/flexTemplates:launch"
)
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    503: "UNAVAILABLE",
}
_numbers = itertools.count(1)


@dataclass
class Job:
    """A job, and what was asked for.

    Attributes:
        request: The Job that was posted, as JSON; of a launched template, the one that the launcher made, {} until then.
        state: `JOB_STATE_...`
        messages: What `messages` lists, oldest first.
        cancelled: Set when somebody asks for it: whoever runs the job stops then.
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
        """Give it its last state; of two that try, the first one decides."""
        if self.ended:
            return
        if error is not None:
            self.say(error, "ERROR")
        self.state = state

    def resource(self) -> Json:
        kept = {
            key: self.request[key]
            for key in ("labels", "environment", "clientRequestId", "type")
            if key in self.request
        }
        where = {
            "id": self.id,
            "projectId": self.project,
            "location": self.region,
            "name": self.name,
        }
        return {
            **kept,
            **where,
            "currentState": self.state,
            "currentStateTime": _now(),
            "createTime": _now(),
        }


class Service:
    """Dataflow's jobs, in memory.

    Args:
        execute: Runs a job and ends it, in a thread of its own; None leaves jobs running.
        check: Raises ValueError for launch parameters that a Flex Template does not take.
        launch: Runs a Flex Template's launcher for a job, in a thread of its own; it fills in the job's request, or ends the job.
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
        """Answer the next request for a new job, or for a launch, by an error."""
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
        if match["id"] is None:
            if method == "POST":
                return self._create(
                    match["project"], match["region"] or "us-central1", json.loads(body)
                )
            return 200, {"jobs": [job.resource() for job in self.jobs.values()]}
        job = self.jobs.get(match["id"])
        if job is None or job.project != match["project"]:
            return error(
                404,
                f"(fake): Information about job {match['id']} could not be found in our system.",
            )
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
            except Exception as fault:  # of the fake: the client must not wait for ever
                job.end(FAILED, f"the fake of Dataflow: {type(fault).__name__}: {fault}")

    def _update(self, job: Job, request: Json) -> None:
        if (
            request.get("requestedState") in (CANCELLED, 5) and not job.ended
        ):  # gapic clients may send the number
            job.cancelled.set()
            job.say("Cancel request is committed for workflow job")
            job.end(CANCELLED)


def error(status: int, message: str) -> Answer:
    return status, {
        "error": {"code": status, "message": message, "status": _STATUS.get(status, "ABORTED")}
    }


def _part(job: Job, part: str) -> Answer:
    if part == "messages":
        return 200, {"jobMessages": job.messages}
    if part == "metrics":
        return 200, {"metricTime": _now(), "metrics": []}
    return error(404, f"the fake of Dataflow does not know {part} of jobs")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
