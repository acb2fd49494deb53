"""A job on other machines: its end, its counters, and what a runner's error says in one line."""

from __future__ import annotations

import apache_beam as beam
import grpc
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.remote import counters_of, follow, reason_of
from shardwright.errors import BuildError
from transforms.metrics import count

TRACE = """Error processing instruction 5. Original traceback is
Traceback (most recent call last):
  File "worker.py", line 1, in work
    do()
    ^^^^
ModuleNotFoundError: No module named 'my_package'
"""


class Ended:
    """A result as a runner gives it: `end` is what waiting for it does."""

    def __init__(self, end: object) -> None:
        self.end = end
        self.was_cancelled = False

    def wait_until_finish(self) -> object:
        if isinstance(self.end, BaseException):
            raise self.end
        return self.end

    def cancel(self) -> None:
        self.was_cancelled = True


def follow_to(end: object, said: list[str]) -> Ended:
    result = Ended(end)
    follow(result, PipelineOptions([]), said.append)
    return result


def test_a_job_that_is_done_says_nothing() -> None:
    said: list[str] = []
    assert not follow_to("DONE", said).was_cancelled
    assert said == []


def test_a_job_that_others_cancelled_is_no_success() -> None:
    with pytest.raises(BuildError, match="the job ended as CANCELLED; run the same command again to go on"):
        follow_to("CANCELLED", [])


def test_a_stop_on_this_side_cancels_the_job() -> None:
    said: list[str] = []
    result = Ended(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        follow(result, PipelineOptions([]), said.append)
    assert result.was_cancelled
    assert said == ["cancelling the job"]


def _count(number: int) -> int:
    count("images_in", number)
    return number


def test_counters_are_added_up_over_steps() -> None:
    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"]))
    _ = pipeline | beam.Create([1, 2]) | "A" >> beam.Map(_count) | "B" >> beam.Map(_count)
    result = pipeline.run()
    result.wait_until_finish()
    assert counters_of(result) == {"images_in": 6}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError(TRACE), "ModuleNotFoundError: No module named 'my_package'"),
        (RuntimeError("Dataflow pipeline failed. State: FAILED, Error:\nquota"), "Dataflow pipeline failed. State: FAILED, Error: quota"),
        (RuntimeError(TRACE.replace("\n", "\\n")), "ModuleNotFoundError: No module named 'my_package'"),
        (grpc.FutureTimeoutError(), "its job server does not answer"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_a_reason_is_one_line(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason
