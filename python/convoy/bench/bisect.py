"""The smallest network within one that Convoy refuses, or answers otherwise than ONNX Runtime."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx

from convoy.bench.accuracy import BOUND, compare_outputs, reference_outputs
from convoy.bench.doubles import MOST_FLOPS, Verdict, judge_in_doubles
from convoy.bench.draws import hold_draws
from convoy.bench.inputs import Arrays, forget_shape, model_inputs, seeded_inputs
from convoy.bench.nudged import allow_for_ties
from convoy.bench.smaller import shrink
from convoy.bench.units import count_units, is_quantised
from convoy.errors import ConvoyError, ModelError
from convoy.onnx_file import Shapes
from convoy.options import Options
from convoy.report.decision import Report


@dataclass(frozen=True)
class Failure:
    """How a network fails."""

    kind: str
    """By which failures are told apart: ``wrong``, or the step and the type of an error."""
    text: str
    """In words."""
    verdict: Verdict | None = None
    """What float64 says of a wrong answer, where that is computed."""


@dataclass(frozen=True)
class Bisected:
    """A network that fails, and is as small as was found."""

    model: onnx.ModelProto
    failure: Failure
    report: Report
    """What became of it; empty where it does not compile."""
    tried: int
    """Networks that were compiled on the way."""
    ended: bool
    """Whether all smaller ones were tried, before time was up."""


def bisect(
    model: onnx.ModelProto,
    *,
    shapes: Shapes | None = None,
    seed: int = 0,
    bound: float = BOUND,
    options: Options | None = None,
    seconds: float = math.inf,
    progress: Callable[[str], None] = lambda _: None,
) -> Bisected | None:
    """Reduce a network to the fewest nodes that fail in the same way; None for one that does not fail.

    Each network that is tried is compiled and run in this process, on seeded random inputs.

    Parameters
    ----------
    model : onnx.ModelProto
        With its external data loaded.
    seconds : float
        After which no other network is tried: what is found is then the smallest so far.

    Raises
    ------
    ModelError
        If ONNX Runtime refuses the network as it is.
    """
    end = time.monotonic() + seconds
    model, _ = hold_draws(model)
    fixed = _fix_sizes(model, seeded_inputs(model, shapes, seed))
    first = find_failure(fixed, seed, bound, options, Report())
    if first is None:
        return None
    tried, ended = 0, True

    def fails(smaller: onnx.ModelProto) -> bool:
        nonlocal tried, ended
        if time.monotonic() >= end:
            ended = False
            return False
        tried += 1
        progress(f"tried {tried} networks; this one has {len(smaller.graph.node)} nodes")
        try:
            onnx.checker.check_model(smaller)
            found = find_failure(smaller, seed, bound, options, Report())
        except (ModelError, onnx.checker.ValidationError):
            return False  # it is no network any more
        return found is not None and found.kind == first.kind

    small = shrink(fixed, fails)
    report = Report()
    failure = find_failure(small, seed, bound, options, report, judged=True)
    assert failure is not None
    return Bisected(small, failure, report, tried, ended)


def find_failure(
    model: onnx.ModelProto,
    seed: int,
    bound: float,
    options: Options | None,
    report: Report,
    *,
    judged: bool = False,
) -> Failure | None:
    """How the network fails; None if it does not.

    Parameters
    ----------
    judged : bool
        A wrong answer is compared with one in float64, if the network is small and rounds nowhere else.

    Raises
    ------
    ModelError
        If ONNX Runtime refuses it.
    """
    import convoy
    from convoy.deploy.runner import Runner

    inputs = seeded_inputs(model, {}, seed)
    reference = reference_outputs(model, inputs)
    try:
        executable = convoy.compile(model, options=options, report=report)
        outputs = Runner(executable).run(list(inputs.values()))
        names = [output.name for output in model.graph.output]
        differences = compare_outputs(names, outputs, reference)
    except ConvoyError as error:
        return Failure(f"{error.step} {type(error).__name__}", str(error))
    precision = options.precision if options else "float32"
    problems = {d.output: d.problem(bound, precision) for d in differences}
    judged &= precision == "float32" and not is_quantised(model) and report.flops_total <= MOST_FLOPS
    if is_quantised(model):  # which rounds, so that one byte is off at a tie
        other = reference_outputs(model, inputs, optimised=True)
        units = count_units(model, outputs, other, reference)
        problems = {u.output: u.problem for u in allow_for_ties(model, inputs, reference, units)}
    wrong = next((name for name, text in problems.items() if text), None)
    if wrong is None:
        return None
    verdicts = judge_in_doubles(model, inputs, outputs, reference) if judged else {}
    return Failure("wrong", f"{wrong}: {problems[wrong]}", verdicts.get(wrong))


def _fix_sizes(model: onnx.ModelProto, inputs: Arrays) -> onnx.ModelProto:
    """The model with the shapes of its inputs said, and none of its outputs'."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for value in model_inputs(fixed):
        sizes = [onnx.TensorShapeProto.Dimension(dim_value=n) for n in np.shape(inputs[value.name])]
        del value.type.tensor_type.shape.dim[:]
        value.type.tensor_type.shape.dim.extend(sizes)
    for value in fixed.graph.output:
        forget_shape(value)
    return fixed
