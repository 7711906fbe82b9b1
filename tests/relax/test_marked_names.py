"""A function that a user marked is called as the user likes: no name of it is one of C's."""

from __future__ import annotations

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


def module_of(name: str) -> tvm.IRModule:
    b = relax.BlockBuilder()
    a, x = (relax.Var(v, relax.TensorType(X, "float32")) for v in "ax")
    with b.function(name, [a]):
        with b.dataflow():
            y = b.emit_output(b.emit(op.nn.conv2d(a, weight(16, 16, 3, 3), padding=1)))
        b.emit_func_output(y)
    layer = b.get().get_global_var(name)
    with b.function("main", [x]):
        with b.dataflow():
            z = b.emit_output(b.emit(relax.Call(layer, [b.emit(op.sin(x))])))
        b.emit_func_output(z)
    return b.get()


def run(executable, x):
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()


@pytest.mark.parametrize(
    "name", ["mmap", "sched_getaffinity", "pthread_create", "int", "malloc", "expf", "convoy_num_threads"]
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


@pytest.mark.parametrize("name", ["a-b", "conv/1", "1a", "über"])
def test_what_no_symbol_can_be_is_given_back_with_what_to_do(name):
    x = random(*X)
    want = run(tvm.compile(module_of(name), target="llvm"), x)
    with pytest.warns(
        RegionWarning, match=r"given back: .*letters, digits and underscores.*; give the function"
    ):
        executable = convoy.compile(mark(name, "convoy")(module_of(name)))
    np.testing.assert_allclose(run(executable, x), want, rtol=1e-4, atol=1e-4)


def test_what_convoy_names_keeps_its_name():
    assert region_name("convoy_0123456789abcdef") == "convoy_0123456789abcdef"
    assert region_name("convoy_barrier") == "convoy_fn_convoy_barrier"
