"""Modules with a marked function in each form passes meet, beside unmarked work of the same kind."""

# ruff: noqa: RET504  (TVMScript's functions are read, not run: one op a line, as TVM prints them)

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from tvm import relax
from tvm.ir import IRModule
from tvm.relax.dpl import DFPattern, is_const, is_op, is_tuple_get_item, wildcard
from tvm.script import ir as I
from tvm.script import relax as R

IMAGE = (1, 4, 8, 8)


def byoc_module() -> IRModule:
    """What partitioning makes: a function with ``Codegen`` that holds one with ``Composite``.

    main computes conv2d → batch_norm → add → relu twice: first in the external function, then itself.
    """
    merged = relax.transform.MergeCompositeFunctions()(composite_module())
    assert isinstance(merged, IRModule)
    return merged


def composite_module() -> IRModule:
    """Before merging: a global function with ``Composite`` only, and an unmarked private one."""
    rng = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor(IMAGE, "float32"))
    w = relax.Var("w", R.Tensor((8, 8), "float32"))
    t = relax.Var("t", R.Tensor(IMAGE, "float32"))
    with builder.function("twin", [t], private=True):
        builder.emit_func_output(builder.emit(relax.op.exp(t)))
    twin = builder.get().get_global_var("twin")
    with builder.function("main", [x, w], attrs={"num_input": 1, "marker": "kept"}):
        with builder.dataflow():
            y = _emit_block(builder, x, relax.op.nn.relu, rng)
            y = _emit_block(builder, builder.emit(twin(y)), relax.op.tanh, rng)
            y = builder.emit(relax.op.matmul(y, builder.emit(relax.op.permute_dims(w))))
            y = builder.emit_output(y)
        builder.emit_func_output(y)
    fuse = relax.transform.FuseOpsByPattern(
        [("convoy.conv2d_bias_relu", _block_pattern())], bind_constants=True, annotate_codegen=False
    )
    fused = fuse(builder.get())
    assert isinstance(fused, IRModule)
    return fused


def _emit_block(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    activation: Callable[..., relax.Expr],
    rng: np.random.Generator,
) -> relax.Var:
    def weight(*shape: int) -> relax.Constant:
        return relax.const(rng.uniform(0.5, 1.5, shape).astype(np.float32))

    y = builder.emit(relax.op.nn.conv2d(x, weight(4, 4, 3, 3), padding=1))
    y = builder.emit(relax.op.nn.batch_norm(y, *(weight(4) for _ in range(4)), axis=1, training=False))
    bias = builder.emit(relax.op.reshape(weight(4), (1, 4, 1, 1)))
    y = builder.emit(relax.op.add(builder.emit(relax.TupleGetItem(y, 0)), bias))
    return builder.emit(activation(y))


def _block_pattern() -> DFPattern:
    conv = is_op("relax.nn.conv2d")(wildcard(), is_const())
    norm = is_op("relax.nn.batch_norm")(conv, *(is_const() for _ in range(4)))
    bias = is_op("relax.reshape")(is_const(), wildcard())
    return is_op("relax.nn.relu")(is_op("relax.add")(is_tuple_get_item(norm, 0), bias))


@cache  # parsing takes half a second
def flat_module() -> IRModule:
    """A function marked ``Codegen`` with its ops right inside, untidy, and an unmarked twin of it."""

    @I.ir_module
    class Module:
        @R.function(private=True)
        def external(
            pair: R.Tuple(R.Tensor((1, 4, 8, 8), "float32"), R.Tensor((1, 4, 8, 8), "float32")),
        ) -> R.Tuple(R.Tensor((1, 4, 8, 8), "float32"), R.Tensor((1, 4, 8, 8), "float32")):
            R.func_attr({"Codegen": "convoy"})
            with R.dataflow():
                x = pair[0]
                unread = R.exp(x)  # noqa: F841
                a = R.nn.relu(x)
                alias = a
                z = pair[1]
                again = R.nn.relu(x)
                b = R.add(alias, again)
                c = R.multiply(b, z)
                R.output(b, c)
            return (b, c)

        @R.function(private=True)
        def twin(
            pair: R.Tuple(R.Tensor((1, 4, 8, 8), "float32"), R.Tensor((1, 4, 8, 8), "float32")),
        ) -> R.Tuple(R.Tensor((1, 4, 8, 8), "float32"), R.Tensor((1, 4, 8, 8), "float32")):
            with R.dataflow():
                x = pair[0]
                unread = R.exp(x)  # noqa: F841
                a = R.nn.relu(x)
                alias = a
                z = pair[1]
                again = R.nn.relu(x)
                b = R.add(alias, again)
                c = R.multiply(b, z)
                R.output(b, c)
            return (b, c)

        @R.function
        def main(x: R.Tensor((1, 4, 8, 8), "float32"), z: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor(
            (1, 4, 8, 8), "float32"
        ):
            cls = Module
            with R.dataflow():
                p = cls.external((x, z))
                q = cls.twin((x, z))
                y = R.add(p[0], q[0])
                R.output(y)
            return y

    return Module


@cache
def unread_module() -> IRModule:
    """A local marked function of whose result nothing is read."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            @R.function
            def local(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                R.func_attr({"Codegen": "acme"})
                b = R.exp(a)
                return b

            with R.dataflow():
                unread = local(x)  # noqa: F841
                y = R.tan(x)
                R.output(y)
            return y

    return Module


def closure_module() -> IRModule:
    """``byoc_module`` and an unmarked function with a local function of its own."""
    module = byoc_module()
    module["host"] = _host()
    return module


@cache
def _host() -> relax.Function:
    @R.function
    def host(x: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 4, 8, 8), "float32"):
        @R.function
        def local(y: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 4, 8, 8), "float32"):
            z = R.exp(y)
            return z

        v = local(x)
        return v

    return host


@cache
def calling_module() -> IRModule:
    """A marked function that calls a private function nobody else does."""

    @I.ir_module
    class Module:
        @R.function(private=True)
        def callee(x: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 4, 8, 8), "float32"):
            y = R.exp(x)
            return y

        @R.function
        def external(x: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 4, 8, 8), "float32"):
            R.func_attr({"Codegen": "convoy"})
            cls = Module
            y = cls.callee(x)
            return y

        @R.function
        def main(x: R.Tensor((1, 4, 8, 8), "float32")) -> R.Tensor((1, 4, 8, 8), "float32"):
            cls = Module
            y = cls.external(x)
            return y

    return Module


@cache
def dynamic_module() -> IRModule:
    """A marked function for any number of images, and the same work outside it."""

    @I.ir_module
    class Module:
        @R.function(private=True)
        def external(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            R.func_attr({"Codegen": "convoy"})
            with R.dataflow():
                y = R.exp(x)
                R.output(y)
            return y

        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            cls = Module
            with R.dataflow():
                y = cls.external(x)
                z = R.exp(y)
                R.output(z)
            return z

    return Module
