"""The answers that the tests remember are those of Beam."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    StandardOptions,
    WorkerOptions,
)
from apache_beam.transforms.core import CallableWrapperDoFn
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

from tests.support import quick_beam


class Steps(beam.DoFn):
    def process(self, element: Any, window: Any = beam.DoFn.WindowParam, *more: Any) -> Any:
        yield element, window, more

    @classmethod
    def of_class(cls, one: int = 1) -> None: ...

    @staticmethod
    def of_none(one: int, *, two: int = 2) -> None: ...


FUNCTIONS = [
    Steps().process, Steps.process, Steps().setup, Steps.of_class, Steps.of_none, Steps,
    lambda one, two=2: one + two, str.upper, len,
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
def test_parameters(function: Callable[..., Any]) -> None:
    wanted = quick_beam.beams_parameters(function)
    for _ in range(2):
        names, defaults = found = quick_beam.parameters_of(function)
        assert found == wanted
        names.append("changed")
        defaults.append("changed")


STATE = ReadModifyWriteStateSpec("state", VarIntCoder())

GIVEN = beam.DoFn.StateParam(STATE)


class Stateful(beam.DoFn):
    def process(self, element: Any, state: Any = GIVEN) -> Any:
        yield element, state


@dataclass
class Unhashable(Stateful):
    number: int = 1


@pytest.mark.parametrize(
    "dofn", [Steps(), Stateful(), Unhashable(), CallableWrapperDoFn(lambda one: [one])]
)
def test_specs(dofn: beam.DoFn) -> None:
    wanted = quick_beam.beams_specs(dofn)
    assert (STATE in wanted[0]) == isinstance(dofn, Stateful)
    for _ in range(2):
        found = quick_beam.specs_of(dofn)
        assert found == wanted
        found[0].clear()


FLAGS = ["--runner=FnApiRunner", "--experiment=a", "--experiment=b", "--region=r", "--other=1"]


@pytest.mark.parametrize("kind", [PipelineOptions, GoogleCloudOptions, WorkerOptions])
@pytest.mark.parametrize("given", [{}, {"runner": "other", "more": 1}])
def test_options(kind: type[PipelineOptions], given: dict[str, Any]) -> None:
    wanted = kind.__new__(kind)
    quick_beam.beams_init(wanted, FLAGS, **given)
    for _ in range(2):
        found = kind(FLAGS, **given)
        assert found._flags is FLAGS
        assert vars(found) == vars(wanted)
        assert found.get_all_options() == wanted.get_all_options()
        found.view_as(StandardOptions).runner = "changed"
        (found.view_as(PipelineOptions)._all_options.get("experiments") or []).append("changed")
