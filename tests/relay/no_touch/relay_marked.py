"""Modules whose marked functions hold what passes like to rewrite."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import tvm
from tvm import relay

X = (1, 4, 8, 8)
TYPE = relay.TensorType(X, "float32")
FORMS = ("global", "closure", "composite")
Change = Callable[[relay.Expr], relay.Expr]


def weight(*shape: int) -> relay.Constant:
    values = np.random.default_rng(list(shape)).uniform(-1, 1, shape)
    return relay.const(values.astype(np.float32))


def conv(x: relay.Expr) -> relay.Call:
    return relay.nn.conv2d(x, weight(4, 4, 3, 3), padding=(1, 1), channels=4, kernel_size=(3, 3))


def norm(x: relay.Expr) -> relay.Expr:
    parameters = [relay.const(np.linspace(0.5, 1.5, 4).astype(np.float32)) for _ in range(4)]
    return relay.nn.batch_norm(x, *parameters)[0]


def tempting(x: relay.Expr) -> relay.Expr:
    """bias_add → batch norm → a constant expression → a dead let → relu, after a convolution."""
    y = norm(relay.nn.bias_add(conv(x), weight(4)))
    y = relay.multiply(y, relay.exp(relay.const(np.full((4, 1, 1), 0.5, np.float32))))
    unused = relay.var("unused")
    return relay.Let(unused, relay.const(1.0), relay.nn.relu(y))


def marked(form: str, first: Change) -> relay.Function:
    """As a codegen gets it, marked ``Compiler`` outside and ``Composite`` inside; or a composite alone."""
    inner_x = relay.var("c", shape=X, dtype="float32")
    body = tempting(inner_x if form != "composite" else first(inner_x))
    composite = relay.Function([inner_x], body, TYPE).with_attr("Composite", "convoy.tempting")
    if form == "composite":
        return composite
    x = relay.var("e", shape=X, dtype="float32")
    body = relay.Call(composite, [relay.nn.relu(norm(conv(first(x))))])
    function = relay.Function([x], body, TYPE)
    return function.with_attr({"Compiler": "convoy", "global_symbol": "convoy_0"})


def module(form: str) -> tvm.IRModule:
    """main: the temptations, then the marked function, then them again; and a twin nobody calls."""
    return relay.transform.InferType()(_module(form, lambda x: x, lambda x: x))


def module_with_inlines(form: str) -> tvm.IRModule:
    """The same, and both main and the marked function call a function that asks to be inlined."""
    names = [relay.GlobalVar(name) for name in ("for_main", "for_marked")]
    made = _module(form, *(partial(_call, name) for name in names))
    for name in names:
        x = relay.var("h", shape=X, dtype="float32")
        function = relay.Function([x], relay.tanh(x), TYPE)
        made[name] = function.with_attr("Inline", tvm.tir.IntImm("int32", 1))
    return relay.transform.InferType()(made)


def _call(name: relay.GlobalVar, x: relay.Expr) -> relay.Call:
    return relay.Call(name, [x])


def _module(form: str, first_in_main: Change, first_in_marked: Change) -> tvm.IRModule:
    x = relay.var("x", shape=X, dtype="float32")
    function = marked(form, first_in_marked)
    made = tvm.IRModule()
    callee: relay.Expr = function
    if form == "global":
        callee = relay.GlobalVar("convoy_0")
        made[callee] = function
        made["convoy_dead"] = marked(form, lambda x: x).with_attr("global_symbol", "convoy_dead")
    body = tempting(relay.Call(callee, [tempting(first_in_main(x))]))
    made["main"] = relay.Function([x], body, TYPE)
    return made
