"""Functions that a user marked for Convoy and that cannot become objects: TVM gets them, with a warning."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import convoy
from convoy.errors import LoweringError
from convoy.offload.faults import RegionWarning
from convoy.relax.mark import mark
from relax.sketch import module, random, weight

X = (1, 4, 6, 6)
FORMS = {
    "softplus": lambda bind, x: bind(op.nn.softplus(x, beta=2.0)),
    "axes": lambda bind, x: bind(
        op.nn.group_norm(bind(op.nn.relu(x)), weight(4), weight(4), 2, channel_axis=1, axes=[2])
    ),
    "type": lambda bind, x: bind(
        op.astype(bind(op.add(bind(op.astype(x, "float64")), relax.const(1.0, "float64"))), "float32")
    ),
}


def calls(make, composite=False, alone=False):
    """A convolution and a function ``layer`` of what ``make`` makes; called twice, beside ops of TVM's."""
    layer = module(make, X)["main"].without_attr("global_symbol")
    if composite:
        inner = layer.with_attr("Composite", "convoy.own")
        layer = module(lambda bind, x: bind(bind(inner)(x)), X)["main"].without_attr("global_symbol")
    b = relax.BlockBuilder()
    called, x = b.add_func(layer, "layer"), relax.Var("x", relax.TensorType(X, "float32"))
    with b.function("main", [x]):
        with b.dataflow():
            y = b.emit(op.nn.relu(b.emit(op.nn.conv2d(x, weight(4, 4, 3, 3), padding=1))))
            made = called(y)
            if not alone:
                made = op.add(b.emit(made), b.emit(called(b.emit(op.sinh(y)))))
            z = b.emit_output(b.emit(made))
        b.emit_func_output(z)
    return b.get()


def run(executable, x):
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("composite", [False, True], ids=["alone", "composite"])
@pytest.mark.parametrize("form", FORMS)
def test_tvm_computes_it(form, composite):
    x = random(*X)
    want = run(tvm.compile(calls(FORMS[form]), target="llvm"), x)
    marked = mark("layer", "convoy")(calls(FORMS[form], composite))
    with pytest.warns(RegionWarning, match="function layer: given back: expected a function that compiles"):
        executable = convoy.compile(marked)
    np.testing.assert_allclose(run(executable, x), want, rtol=1e-4, atol=1e-4)
    (left,) = (d for d in executable.report.decisions if d.node == "function layer")
    assert (left.step, left.choice) == ("partition", "left")
    assert any(d.choice == "taken" and "conv2d" in d.node for d in executable.report.decisions)


@pytest.mark.slow
def test_tvms_own_door_does_the_same():
    x, make = random(*X), FORMS["softplus"]
    want = run(tvm.compile(calls(make), target="llvm"), x)
    with pytest.warns(RegionWarning, match="softplus gv: expected beta 1, got 2.0; leave what it names"):
        executable = tvm.compile(mark("layer", "convoy")(calls(make)), target="convoy")
    np.testing.assert_allclose(run(executable, x), want, rtol=1e-4, atol=1e-4)


def test_strict_raises_it():
    marked = mark("layer", "convoy")(calls(FORMS["softplus"], alone=True))
    with pytest.raises(LoweringError, match=r"function layer, softplus .*: expected beta 1, got 2.0"):
        convoy.compile(marked, strict=True)


def test_what_has_a_kernel_stays_convoys_and_strict_takes_its_call():
    marked = mark("layer", "convoy")(calls(lambda bind, x: bind(op.nn.softplus(x)), alone=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RegionWarning)
        executable = convoy.compile(marked, strict=True)
    assert {region.symbol for region in executable.report.regions} >= {"layer"}


@pytest.mark.parametrize("rows", ["open", 3], ids=str)
def test_images_that_are_no_axis_of_their_own(rows):
    rows = tvm.tirx.Var("n", "int64") if rows == "open" else rows
    x, b = relax.Var("x", relax.TensorType((rows, 4), "float32")), relax.BlockBuilder()
    a = relax.Var("a", relax.TensorType((rows, 4), "float32"))
    with b.function("halves", [a], private=True):
        with b.dataflow():
            y = b.emit_output(b.emit(op.exp(b.emit(op.reshape(a, (rows * 2, 2))))))
        b.emit_func_output(y)
    halves = b.get().get_global_var("halves")
    with b.function("main", [x]):
        with b.dataflow():
            z = b.emit_output(b.emit(relax.Call(halves, [x])))
        b.emit_func_output(z)
    with warnings.catch_warnings(record=True) as given_back:
        warnings.simplefilter("always")
        executable = convoy.compile(mark("halves", "convoy")(b.get()))
    words = [str(one.message) for one in given_back if one.category is RegionWarning]
    assert ["images along an axis 0" in one for one in words] == ([] if rows == 3 else [True])
    x = random(3, 4)
    np.testing.assert_allclose(run(executable, x), np.exp(x.reshape(6, 2)), rtol=1e-6)
