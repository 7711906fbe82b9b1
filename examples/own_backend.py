"""A backend of your own in one file: Convoy folds, cuts regions out and guards them; yours computes them.

This one computes with NumPy.  What it takes, convolutions with bias and ReLU, it gets with batch norms
folded into the weights; TVM computes the rest.

    python examples/own_backend.py
"""

from __future__ import annotations

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.script import relax as R

import convoy
from convoy.graph import reference
from convoy.relax.lower import lower


def network() -> tvm.ir.IRModule:
    """conv2d → batch norm → relu → sigmoid."""
    rng = np.random.default_rng(0)

    def constant(*shape: int) -> relax.Constant:
        return relax.const(rng.uniform(0.1, 0.5, shape).astype("float32"))

    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((1, 3, 16, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, constant(8, 3, 3, 3), padding=1))
            y = builder.emit(
                relax.op.nn.batch_norm(y, *(constant(8) for _ in range(4)), axis=1, training=False)
            )
            y = builder.emit(relax.op.nn.relu(builder.emit(relax.TupleGetItem(y, 0))))
            y = builder.emit_output(builder.emit(relax.op.sigmoid(y)))
        builder.emit_func_output(y)
    return builder.get()


def refuse(call: relax.Call) -> str | None:
    """What the backend does not take, with the reason."""
    taken = ("relax.nn.conv2d", "relax.add", "relax.nn.relu")
    return None if call.op.name in taken else f"the NumPy backend has no {call.op.name}"


def compile_functions(functions, options, constants):
    """What TVM calls to have the regions compiled: here each becomes a function of this process."""
    for function in functions:
        graph = lower(function)
        print("compiling", [type(node).__name__ for node in graph.nodes])

        def run(*arguments, graph=graph):
            *inputs, output = arguments
            (result,) = reference.run(graph, [x.numpy() for x in inputs])
            output.copyfrom(result)

        tvm_ffi.register_global_func(str(function.attrs["global_symbol"]), run, override=True)
    return []


tvm_ffi.register_global_func("relax.ext.numpy", compile_functions, override=True)

report = convoy.Report()
module = convoy.relax.fold()(network())
module = convoy.relax.partition(report=report, codegen="numpy", refuse=refuse)(module)
for decision in report.refusals:
    print("left:", decision.node, "-", decision.reason)

# Passes of TVM would change what is in the regions: no_touch keeps one out, NoTouch names one that got in.
with tvm.transform.PassContext(instruments=[convoy.relax.NoTouch()]):
    module = convoy.relax.no_touch(relax.transform.LegalizeOps())(module)
module = relax.transform.RunCodegen()(module)


def compute(compiled: tvm.ir.IRModule) -> np.ndarray:
    x = np.random.default_rng(1).random((1, 3, 16, 16), dtype="float32")
    machine = relax.VirtualMachine(tvm.compile(compiled, target="llvm"), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(x)).numpy()


print("largest difference from plain TVM:", np.abs(compute(module) - compute(network())).max())
