"""The other executors, and libraries in a process that has only TVM."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import tvm
from relay_modules import module, random, run_plain, weight
from tvm import relay
from tvm.relay import op
from tvm.relay.backend import Executor

import convoy
from convoy.errors import TargetError
from convoy.report.decision import Report

IMAGE = (1, 4, 8, 8)
CHANNELS = 512


def two_regions(x):
    y = op.nn.relu(op.nn.conv2d(x, weight(4, 4, 3, 3), padding=(1, 1)))
    return op.nn.conv2d(op.sin(y), weight(CHANNELS, 4, 1, 1, seed=2))


@pytest.fixture(scope="module")
def expected():
    return run_plain(module(two_regions, IMAGE), random(*IMAGE))[0]


def close(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_the_vm_compiler_takes_the_road(expected):
    report = Report()
    with convoy.relay.using(report=report):
        executable = relay.vm.compile(module(two_regions, IMAGE), target="convoy")
    assert len(report.regions) == 2
    machine = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu())
    close(machine.run(tvm.nd.array(random(*IMAGE))).numpy(), expected)


def test_the_vm_compiler_takes_weights_as_params():
    x, w = relay.var("x", shape=IMAGE), relay.var("w", shape=(4, 4, 3, 3))
    made = tvm.IRModule.from_expr(relay.Function([x, w], op.nn.conv2d(x, w, padding=(1, 1))))
    report = Report()
    with convoy.relay.using(report=report):
        executable = relay.vm.compile(made, target="convoy", params={"w": random(4, 4, 3, 3)})
    assert len(report.regions) == 1
    machine = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu())
    same = module(lambda x: op.nn.conv2d(x, weight(4, 4, 3, 3), padding=(1, 1)), IMAGE)
    close(machine.run(tvm.nd.array(random(*IMAGE))).numpy(), run_plain(same, random(*IMAGE))[0])


def test_the_ahead_of_time_executor_takes_the_road(expected, tmp_path):
    report = Report()
    with convoy.relay.using(report=report):
        library = relay.build(module(two_regions, IMAGE), target="convoy", executor=Executor("aot"))
    assert len(report.regions) == 2
    library.export_library(str(tmp_path / "aot.so"))
    loaded = tvm.runtime.load_module(str(tmp_path / "aot.so"))
    runner = tvm.runtime.executor.AotModule(loaded["default"](tvm.cpu()))
    runner.set_input("x0", random(*IMAGE))
    runner.run()
    close(runner.get_output(0).numpy(), expected)


def test_unpacked_calls_are_refused():
    executor = Executor("aot", {"unpacked-api": True, "interface-api": "c"})
    with pytest.raises(TargetError, match="expected the packed calling convention"):
        relay.build(module(two_regions, IMAGE), target="convoy", executor=executor)


RELOAD = """
import sys
import numpy as np
import tvm
from tvm.contrib import graph_executor
assert not [name for name in sys.modules if name.startswith("convoy")]
library = tvm.runtime.load_module(sys.argv[1])
executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
executor.run(x0=np.load(sys.argv[2]))
np.save(sys.argv[3], executor.get_output(0).numpy())
library.get_function("convoy_set_num_threads", True)(1)
assert library.get_function("convoy_num_threads", True)() == 1
try:
    library.get_function("convoy_set_num_threads", True)("two")
except tvm.TVMError as error:
    assert "expected one int" in str(error)
else:
    raise AssertionError("a text was taken for a number")
"""


def test_an_exported_library_runs_where_only_tvm_is(expected, tmp_path):
    paths = [str(tmp_path / name) for name in ("net.so", "in.npy", "out.npy")]
    library = relay.build(module(two_regions, IMAGE), target="convoy")
    library.export_library(paths[0])
    np.save(paths[1], random(*IMAGE))
    subprocess.run([sys.executable, "-c", RELOAD, *paths], check=True)
    close(np.load(paths[2]), expected)


def test_weights_are_in_the_library_once(tmp_path):
    # a matrix of 1 MB  =>  a library of little more
    made = module(lambda x: op.nn.dense(x, weight(512, 512)), (1, 512))
    relay.build(made, target="convoy").export_library(str(tmp_path / "net.so"))
    assert 1 << 20 < (tmp_path / "net.so").stat().st_size < 1.5 * (1 << 20)
