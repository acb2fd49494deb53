"""Remember what Beam asks again and again: two fifths of a small build's time.

A build asks 14,000 times for the parameters of a method, and makes 650 parsers for the same flags.
Once this module is imported, Beam asks once. The answers are Beam's own (test_quick_beam.py). The
tests of engines and the demo run without it.
"""

from __future__ import annotations

import argparse
import copy
import functools
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import core, userstate

Parameters = tuple[list[str], list[Any]]  # names, default values
Specs = tuple[set[Any], set[Any]]  # of states, of timers

beams_parameters = core.get_function_args_defaults
beams_specs = userstate.get_dofn_specs
beams_init = PipelineOptions.__init__
# By function: as it is, and bound to an object, which is no parameter then.
_free: weakref.WeakKeyDictionary[Any, Parameters] = weakref.WeakKeyDictionary()
_bound: weakref.WeakKeyDictionary[Any, Parameters] = weakref.WeakKeyDictionary()
_specs: weakref.WeakKeyDictionary[core.DoFn, Specs] = weakref.WeakKeyDictionary()


def parameters_of(function: Callable[..., Any]) -> Parameters:
    """Return `beams_parameters` of a function or method."""
    is_bound = isinstance(function, types.MethodType)
    plain = function.__func__ if is_bound else function
    if not isinstance(plain, types.FunctionType):
        return beams_parameters(function)
    known = _bound if is_bound else _free
    if plain not in known:
        known[plain] = beams_parameters(function)
    names, defaults = known[plain]
    return [*names], [*defaults]


def specs_of(dofn: core.DoFn) -> Specs:
    """Return `beams_specs` of a DoFn: it is asked for each when a step is made, sent and run."""
    if type(dofn).__hash__ is not object.__hash__:
        return beams_specs(dofn)
    if dofn not in _specs:
        _specs[dofn] = beams_specs(dofn)
    states, timers = _specs[dofn]
    return {*states}, {*timers}


@functools.lru_cache(200)
def _parsed(kind: type[PipelineOptions], flags: tuple[str, ...]) -> argparse.Namespace:
    options = kind.__new__(kind)
    beams_init(options, list(flags))
    return options._visible_options


def init(options: PipelineOptions, flags: Sequence[str] | None = None, **given: Any) -> None:
    """Do as `beams_init`: without flags it reads those of this process, and is left alone."""
    if flags is None or isinstance(flags, str):
        return beams_init(options, flags, **given)
    options._flags = flags
    options._visible_options = copy.deepcopy(_parsed(type(options), tuple(flags)))
    options._all_options = {**vars(options._visible_options), **given}
    return None


core.get_function_args_defaults = parameters_of
userstate.get_dofn_specs = specs_of
PipelineOptions.__init__ = init
