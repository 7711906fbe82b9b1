"""A function that a user marked is called as the user likes: no name of it is one of C's."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import convoy
from convoy.offload.faults import RegionWarning
from convoy.relax.mark import mark
from convoy.text import region_name
from relax.sketch import random, weight

X = (1, 16, 9, 9)


def module_of(*names: str) -> tvm.IRModule:
    """Convolutions one after the other, each a function."""
    b = relax.BlockBuilder()
    layers = []
    for name in names:
        a = relax.Var("a", relax.TensorType(X, "float32"))
        with b.function(name, [a]):
            with b.dataflow():
                y = b.emit_output(b.emit(op.nn.conv2d(a, weight(16, 16, 3, 3), padding=1)))
            b.emit_func_output(y)
        layers.append(b.get().get_global_var(name))
    x = relax.Var("x", relax.TensorType(X, "float32"))
    with b.function("main", [x]):
        with b.dataflow():
            z = b.emit(op.sinh(x))
            for layer in layers:
                z = b.emit(relax.Call(layer, [z]))
            z = b.emit_output(z)
        b.emit_func_output(z)
    return b.get()


def run(executable, x):
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["mmap", "sched_getaffinity", "pthread_create", "int", "malloc", "expf", "convoy_barrier"]
)
def test_a_name_of_c_is_a_name(name):
    # on the runtime's road to the C library a region of that name was called: SIGSEGV
    x = random(*X)
    want = run(tvm.compile(module_of(name), target="llvm"), x)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RegionWarning)
        executable = convoy.compile(mark(name, "convoy")(module_of(name)))
    np.testing.assert_allclose(run(executable, x), want, rtol=1e-4, atol=1e-4)
    assert name in {region.symbol for region in executable.report.regions}


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [("layer", "layer_weights"), ("layer", "layer_entry"), ("layer_0", "layer"), ("settings", "tvm_entry")],
)
def test_names_made_of_one_another_are_apart(names):
    # the weights of `layer` were the function `layer_weights`: SIGSEGV; of `layer_entry` there was one file
    x = random(*X)
    module = module_of(*names)
    want = run(tvm.compile(module, target="llvm"), x)
    for name in names:
        module = mark(name, "convoy")(module)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RegionWarning)
        executable = convoy.compile(module)
    np.testing.assert_allclose(run(executable, x), want, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a-b", "conv/1", "1a", "über", "convoy_num_threads", "convoy_trace"])
def test_what_no_symbol_can_be_is_given_back_with_what_to_do(name):
    x = random(*X)
    want = run(tvm.compile(module_of(name), target="llvm"), x)
    with pytest.warns(
        RegionWarning,
        match=r"given back: .*(letters, digits and underscores|every library).*; give the function",
    ):
        executable = convoy.compile(mark(name, "convoy")(module_of(name)))
    np.testing.assert_allclose(run(executable, x), want, rtol=1e-4, atol=1e-4)


def test_what_convoy_names_keeps_its_name():
    assert region_name("convoy_0123456789abcdef") == "convoy_0123456789abcdef"
    assert re.fullmatch("convoy_[0-9a-f]{16}", region_name("convoy_barrier"))
    assert region_name("layer") != region_name("layer_weights")


@pytest.mark.parametrize("value", [tvm.tirx.IntImm("int64", 1), "yes", 1])
def test_a_function_is_primitive_in_whatever_type(value: object) -> None:
    """TVM's fusion ends over a mark that is no plain number; its own pipeline for llvm does not look."""
    module = module_of("layer")
    layer = module.get_global_var("layer")
    module.update_func(layer, module["layer"].with_attr("Primitive", value))
    x = random(*X)
    np.testing.assert_allclose(
        run(convoy.compile(module), x), run(tvm.compile(module, "llvm"), x), rtol=1e-4, atol=1e-5
    )
