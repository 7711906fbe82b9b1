"""Fold: module → module, before anything is partitioned.

The folds in order; ``normalize_layout`` and ``fold_scales`` are passes of their own and may be used alone:

``compute_constants``
    constants that are expressions, such as weights cast from float16, become literals
``normalize_layout``
    channels-last convolutions and pools become channels-first; transposes cancel
``fold_scales``
    batch norms, scales, shifts, biases and add chains become weights and one bias
"""

from __future__ import annotations

import tvm
from tvm import IRModule, relax

from convoy.offload.settings import read_report
from convoy.relax.fold.computed import compute_constants
from convoy.relax.fold.layout import NormalizeLayout
from convoy.relax.fold.scale import ScaleWalk
from convoy.relax.no_touch import no_touch
from convoy.report.decision import Report

__all__ = ["fold", "fold_scales", "normalize_layout"]


def fold(report: Report | None = None) -> tvm.ir.transform.Pass:
    """All folds.

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
    computed = no_touch(tvm.ir.transform.module_pass(compute_constants, 0, "convoy.compute_constants"))
    passes = [computed, normalize_layout(report), fold_scales(report)]
    return tvm.ir.transform.Sequential(passes, name="convoy.fold")


def fold_scales(report: Report | None = None) -> tvm.ir.transform.Pass:
    """Batch norm, scale, shift and bias into the weight and one bias of the anchor op beside it."""
    return _module_pass(ScaleWalk, report, "convoy.fold_scales")


def normalize_layout(report: Report | None = None) -> tvm.ir.transform.Pass:
    """Channels-last ops to channels-first ones; transposes sunk and cancelled."""
    return _module_pass(NormalizeLayout, report, "convoy.normalize_layout")


def _module_pass(
    walk: type[ScaleWalk] | type[NormalizeLayout], report: Report | None, name: str
) -> tvm.ir.transform.Pass:
    filled = report if report is not None else Report()

    def run(module: IRModule, context: tvm.ir.transform.PassContext) -> IRModule:
        folded = {}
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function):
                new = walk(module, filled).rewrite(function)
                if not new.same_as(function):
                    folded[variable] = new
        if not folded:
            return module
        module = module.clone()
        for variable, function in folded.items():
            module.update_func(variable, function)
        return module

    return tvm.ir.transform.module_pass(run, opt_level=0, name=name)
