"""Fold: module → module, before anything is partitioned.

The folds in order; ``normalize_layout``, ``fold_scales`` and ``simplify`` are passes of their own
and may be used alone (``from convoy.relay.fold import simplify``):

``without_lets``
    what a let binds to a variable, in the variable's places, so that the rest sees dataflow
``compute_constants``
    constants that are expressions, such as weights cast from float16, become literals
``raise_quantised``
    ops on integers, as ``qnn.conv2d``, become ops on floats between ``qnn.dequantize`` and ``qnn.quantize``
``unstack``
    what TVM's CombineParallelDense stacked becomes dense layers again
``normalize_layout``
    channels-last convolutions and pools become channels-first, by TVM's ConvertLayout
``double``
    ``y + y`` becomes ``2·y``
``fold_scales``
    batch norms, scales, shifts, biases and add chains become weights and one bias
``simplify``
    TVM's own passes, for what is left: inference forms, constants, chains of reshapes

TVM's FoldScaleAxis has no place here. What it folds, ``fold_scales`` has folded, in float64 and for
every kind of convolution; what that left on purpose, FoldScaleAxis would spoil: a scale known only at
run time would end up on a weight, and a zero gamma before a convolution would become a NaN.

Functions that belong to an external codegen are not touched. Those written inside others are folded by
themselves: no scale goes from one into the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from tvm import IRModule, relay
from tvm.ir.transform import Pass, PassContext, module_pass
from tvm.relay import transform

from convoy.offload.settings import read_report
from convoy.relay.dataflow import Dataflow, op_name, rebuild
from convoy.relay.errors_through_tvm import remember_error
from convoy.relay.fold.computed import compute_constants
from convoy.relay.fold.doubled import double
from convoy.relay.fold.layout import cancel_turns, flatten_filters, normalize_function
from convoy.relay.fold.quantised import raise_quantised
from convoy.relay.fold.scale import ScaleWalk
from convoy.relay.fold.unstacked import unstack
from convoy.relay.lets import open_functions, without_lets
from convoy.relay.module import functions_of, replace_functions
from convoy.relay.no_touch import is_marked, is_open, no_touch
from convoy.report.decision import Report

Rewrite = Callable[[relay.Function], relay.Function]

__all__ = ["fold", "fold_scales", "normalize_layout", "simplify"]


_SIMPLIFIED = {
    "reshape", "contrib_reverse_reshape", "transpose", "layout_transform", "cast", "clip", "where",
    "full", "full_like", "ones", "ones_like", "zeros", "zeros_like", "reshape_like", "broadcast_to",
    "broadcast_to_like", "collapse_sum_like", "sqrt", "rsqrt", "power", "qnn.dequantize",
}  # fmt: skip
"""Ops that SimplifyExpr has rules for, but for the add and multiply chains that are folded by then.  It
takes 6.5 s for Inception-v3, where it finds nothing to do (2026-11-21)."""


def fold(report: Report | None = None) -> Pass:
    """All folds, whatever ``opt_level`` is in force.

    Parameters
    ----------
    report : Report | None
        Receives a ``Decision`` of step ``fold`` for each op folded, merged, kept or left.

    Raises
    ------
    ConvoyError
        For a report that is none.
    """
    report = read_report("fold", report)
    plain = _function_pass(without_lets, "convoy.without_lets")
    computed = _function_pass(_everywhere(compute_constants), "convoy.compute_constants")
    doubled = _function_pass(double, "convoy.double")
    typed = transform.InferType()
    unstacked = _function_pass(unstack, "convoy.unstack")
    quantised = _function_pass(_everywhere(raise_quantised), "convoy.raise_quantised")
    first = [typed, plain, computed, quantised, unstacked]
    steps = [*first, normalize_layout(report), doubled, fold_scales(report), simplify()]
    return _sequence(steps, "convoy.fold")


def normalize_layout(report: Report | None = None) -> Pass:
    """Channels-last ops to channels-first ones; what stands between them follows."""
    filled = report if report is not None else Report()

    def channels_first(module: IRModule, _: PassContext) -> IRModule:
        types = module.type_definitions
        normalize = _everywhere(lambda function: normalize_function(function, types, filled))
        return _function_pass(normalize, "convoy.channels_first")(module)

    turn = module_pass(remember_error(channels_first), opt_level=0, name="convoy.channels_first")
    cancel = _function_pass(cancel_turns, "convoy.cancel_turns")
    flatten = _function_pass(flatten_filters, "convoy.flatten_filters")
    steps = [transform.InferType(), transform.CanonicalizeOps(), turn, cancel, flatten]
    return no_touch(_sequence(steps, "convoy.normalize_layout"))


def fold_scales(report: Report | None = None) -> Pass:
    """Batch norm, scale, shift and bias into the weight and one bias of the anchor op beside it."""
    filled = report if report is not None else Report()
    walk = _everywhere(lambda function: ScaleWalk(filled).rewrite(function))
    steps = [transform.InferType(), _function_pass(walk, "convoy.fold_scales")]
    return _sequence(steps, "convoy.fold_scales")


def simplify() -> Pass:
    """TVM's simplifications: inference forms of what is left, constants, chains of reshapes and casts."""
    to_inference = no_touch(
        _sequence([transform.SimplifyInference(), transform.FoldConstant()], "inference")
    )
    simplify_chains = no_touch(_sequence([transform.SimplifyExpr(), transform.FoldConstant()], "chains"))
    fold_again = fold_scales()  # (conv + constant) · s is conv · s + constant now

    def run(module: IRModule, _: PassContext) -> IRModule:
        module = to_inference(module)
        own = [function for _, function in functions_of(module) if _is_own(function)]
        functions = [inner for function in own for inner in open_functions(function)]
        ops = {op_name(call) for function in functions for call in Dataflow(function.body).calls}
        return module if ops.isdisjoint(_SIMPLIFIED) else fold_again(simplify_chains(module))

    return module_pass(remember_error(run), opt_level=0, name="convoy.simplify")


def _sequence(passes: Sequence[Pass], name: str) -> Pass:
    """One after another; unlike TVM's Sequential it leaves none out at a low ``opt_level``."""

    def run(module: IRModule, _: PassContext) -> IRModule:
        for step in passes:
            module = step(module)
        return module

    return module_pass(remember_error(run), opt_level=0, name=name)


def _is_own(function: object) -> bool:
    return isinstance(function, relay.Function) and not is_marked(function)


def _everywhere(rewrite: Rewrite) -> Rewrite:
    """``rewrite`` for a function and those written inside it, each once, with the types they have."""

    def run(function: relay.Function) -> relay.Function:
        @cache
        def enter(inner: relay.Function) -> relay.Function:
            return renew(inner) if is_open(inner) else inner

        def renew(whole: relay.Function) -> relay.Function:
            return rebuild(rewrite(whole), lambda _, call: call, enter)

        return renew(function)

    return run


def _function_pass(rewrite: Rewrite, name: str) -> Pass:
    """Every function of a module that has types, rewritten if it is not marked."""

    def run(module: IRModule, _: PassContext) -> IRModule:
        own = {var: function for var, function in functions_of(module) if _is_own(function)}
        rewritten = {var: rewrite(function) for var, function in own.items()}
        changed = {var: new for var, new in rewritten.items() if not new.same_as(own[var])}
        return transform.InferType()(replace_functions(module, changed)) if changed else module

    return module_pass(remember_error(run), opt_level=0, name=name)
