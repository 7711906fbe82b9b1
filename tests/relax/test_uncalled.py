"""relax/uncalled.py: regions whose use a pass removed are no part of the library."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.relax import transform
from tvm.script import ir as I
from tvm.script import relax as R

import convoy
from convoy.options import Options
from convoy.relax.no_touch import marked_functions
from convoy.relax.uncalled import drop_uncalled
from convoy.report.decision import Report


@I.ir_module
class TwoResults:
    @R.function(private=True)
    def both(x: R.Tensor((1, 4, 8, 8), "float32")):
        with R.dataflow():
            a = R.nn.max_pool2d(x, (2, 2))
            b = R.nn.avg_pool2d(x, (3, 3))
            R.output(a, b)
        return (a, b)

    @R.function
    def main(x: R.Tensor((1, 4, 8, 8), "float32")):
        cls = TwoResults
        with R.dataflow():
            both = cls.both(x)
            first = both[0]
            R.output(first)
        return first


def with_a_use_removed() -> IRModule:
    """Two regions, of which guarded passes of TVM's removed one's only call."""
    module = convoy.relax.partition(Options(merge=False))(TwoResults)
    removes = [transform.RemoveUnusedOutputs(), transform.DeadCodeElimination()]
    return convoy.relax.no_touch(removes)(module)


def test_a_region_whose_use_a_pass_removed_is_dropped_and_the_report_says_so() -> None:
    module, report = with_a_use_removed(), Report()
    left, dropped = (str(var.name_hint) for var in marked_functions(module))
    if "max_pool2d" not in module[left].script():
        left, dropped = dropped, left
    assert [var.name_hint for var in marked_functions(drop_uncalled(report)(module))] == [left]
    said = [f"partition: function {dropped}: dropped: expected a call of it, got none"]
    assert list(map(str, report.decisions)) == said


def test_what_remains_compiles_and_is_right() -> None:
    x = np.random.default_rng(0).random((1, 4, 8, 8), "float32")
    executable = tvm.compile(with_a_use_removed(), target="convoy")
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x))
    np.testing.assert_array_equal(
        found.numpy(), np.lib.stride_tricks.sliding_window_view(x, (2, 2), (2, 3)).max((4, 5))
    )


def test_what_is_called_stays_and_so_does_a_module_of_marked_functions_alone() -> None:
    partitioned = convoy.relax.partition(Options(merge=False))(TwoResults)
    marked = IRModule(marked_functions(partitioned))
    for module in (partitioned, marked):
        tvm.ir.assert_structural_equal(drop_uncalled(Report())(module), module)


def test_a_marked_function_of_ops_stays() -> None:
    both = TwoResults["both"].with_attr("Codegen", "convoy").with_attr("global_symbol", "alone")
    builder = relax.BlockBuilder(with_a_use_removed())
    builder.add_func(both, "alone")
    kept = {var.name_hint for var in marked_functions(drop_uncalled(Report())(builder.get()))}
    assert len(kept) == 2
    assert "alone" in kept
