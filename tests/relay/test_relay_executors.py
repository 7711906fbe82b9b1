"""The other executors, and libraries in a process that has only TVM."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
import tvm
from relay_modules import const, module, random, run_plain, weight
from tvm import relay
from tvm.relay import op
from tvm.relay.backend import Executor, Runtime

import convoy
from convoy.errors import TargetError
from convoy.options import Options
from convoy.relay.partition import external_functions, partition
from convoy.report.decision import Report

IMAGE = (1, 4, 8, 8)
CHANNELS = 512


def two_regions(x):
    y = op.nn.relu(op.nn.conv2d(x, weight(4, 4, 3, 3), padding=(1, 1)))
    return op.nn.conv2d(op.asinh(y), weight(CHANNELS, 4, 1, 1, seed=2))


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
    close(run_vm(executable), expected)


def run_vm(executable):
    return tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()).run(tvm.nd.array(random(*IMAGE))).numpy()


@pytest.mark.parametrize("merge", [True, False], ids=["one region", "several"])
def test_an_executable_of_nothing_but_regions_is_exported(merge, tmp_path):
    # TVM holds them by a C module of its own then, which asks for TVM's headers
    def net(x):
        y = op.nn.relu(op.nn.conv2d(x, weight(4, 4, 3, 3), padding=(1, 1)))
        return op.nn.conv2d(y, weight(4, 4, 3, 3, seed=2), padding=(1, 1))

    report = Report()
    with convoy.relay.using(Options(merge=merge), report):
        executable = relay.vm.compile(module(net, IMAGE), target="convoy")
    assert len(report.regions) == (1 if merge else 2)
    assert not report.refusals
    expected = run_plain(module(net, IMAGE), random(*IMAGE))[0]
    close(run_vm(executable), expected)
    executable.mod.export_library(str(tmp_path / "vm.so"))
    close(run_vm(tvm.runtime.load_module(str(tmp_path / "vm.so"))), expected)


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


def dynamic(make, *inputs):
    """A module whose inputs have axis 0 known only at run time, before the axes given."""
    params = [relay.var(f"x{i}", shape=(relay.Any(), *shape)) for i, shape in enumerate(inputs)]
    return tvm.IRModule.from_expr(relay.Function(params, make(*params)))


def compile_for_vm(mod, options=None):
    report = Report()
    with convoy.relay.using(options, report):
        executable = relay.vm.compile(mod, target="convoy")
    return tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()), report


def classifier(x):
    y = op.nn.bias_add(op.nn.conv2d(x, weight(4, 4, 3, 3), padding=(1, 1)), weight(4))
    pooled = op.nn.batch_flatten(op.nn.max_pool2d(op.nn.relu(op.add(y, x)), (2, 2), (2, 2)))
    return op.nn.softmax(op.nn.dense(pooled, weight(5, 64)))


@pytest.mark.slow
def test_a_number_of_images_known_at_run_time():
    # conv -> ... -> softmax of [?, 4, 8, 8]  =>  one region, called with any number of images
    machine, report = compile_for_vm(dynamic(classifier, IMAGE[1:]))
    assert len(report.regions) == 1
    assert not report.refusals
    for images in (1, 3):
        array = random(images, *IMAGE[1:])
        got = machine.run(tvm.nd.array(array)).numpy()
        close(got, run_plain(module(classifier, array.shape), array)[0])


NORMS = {
    "abs": op.abs,
    "erf": op.erf,
    "nn.lrn": op.nn.lrn,
    "nn.log_softmax": lambda x: op.nn.log_softmax(x, 1),
    "nn.layer_norm": lambda x: op.nn.layer_norm(x, weight(32), weight(32)),
    "nn.instance_norm": lambda x: op.nn.instance_norm(x, weight(16), weight(16)),
    "nn.batch_norm": lambda x: op.nn.batch_norm(x, *[weight(16), weight(16)], *[const(np.ones(16))] * 2)[0],
    "nn.dropout": op.nn.dropout,
    "qnn.quantize": lambda x: _in_bytes(x),
}


def _in_bytes(x):
    steps = relay.const(0.02, "float32"), relay.const(132, "int32")
    return relay.qnn.op.dequantize(relay.qnn.op.quantize(x, *steps, out_dtype="uint8"), *steps)


@pytest.mark.parametrize("name", NORMS)
def test_ops_that_tvm_has_no_shape_function_for(name):
    # as they are, without folds  =>  a region whose result the virtual machine knows the size of
    def make(x):
        return op.nn.relu(NORMS[name](op.exp(x)))

    cut = convoy.relay.partition_for_convoy(dynamic(make, (16, 32, 32)), folding=False)
    assert len(external_functions(cut)) == 1
    machine = tvm.runtime.vm.VirtualMachine(relay.vm.compile(cut, target="llvm"), tvm.cpu())
    array = random(2, 16, 32, 32)
    close(machine.run(tvm.nd.array(array)).numpy(), run_plain(module(make, array.shape), array)[0])


def test_images_known_at_run_time_pass_through_what_tvm_computes():
    # a tanh that is left between two convs  =>  two regions
    def make(x):
        y = op.nn.relu(op.nn.conv2d(x, weight(4, 4, 3, 3), padding=(1, 1)))
        return op.nn.conv2d(op.tanh(y), weight(8, 4, 1, 1, seed=2))

    options = Options(disabled_ops=frozenset({"tanh"}))
    machine, report = compile_for_vm(dynamic(make, IMAGE[1:]), options)
    assert len(report.regions) == 2
    array = random(2, *IMAGE[1:])
    close(machine.run(tvm.nd.array(array)).numpy(), run_plain(module(make, array.shape), array)[0])


def around_a_tanh(x):
    y = op.nn.relu(op.nn.conv2d(x, weight(4, 4, 3, 3), padding=(1, 1)))
    return op.nn.conv2d(op.add(op.tanh(y), y), weight(8, 4, 1, 1, seed=2))


def beside_one_image(x):
    first = op.strided_slice(x, [0, 0, 0, 0], [1, 4, 8, 8])
    one, all_ = (op.nn.conv2d(y, weight(4, 4, 3, 3, seed=i)) for i, y in enumerate((first, x)))
    return op.nn.conv2d(op.add(one, all_), weight(4, 4, 3, 3))


def of_two_inputs(x, y):
    return op.nn.conv2d(
        op.add(op.nn.conv2d(x, weight(4, 4, 3, 3)), op.nn.conv2d(y, weight(4, 4, 3, 3))), weight(4, 4, 1, 1)
    )


@pytest.mark.parametrize(
    ("make", "images", "regions"),
    [
        (around_a_tanh, (3,), 2),
        (beside_one_image, (3,), 3),
        (of_two_inputs, (3, 1), 3),
        (of_two_inputs, (2, 2), 3),
    ],
    ids=["around a tanh", "beside one image", "of two inputs", "of two inputs alike"],
)
def test_a_region_computes_one_number_of_images(make, images, regions):
    # what an op left to TVM passes on is of the same number, but for slices; inputs may differ
    mod = dynamic(make, *[IMAGE[1:]] * len(images))
    machine, report = compile_for_vm(mod, Options(disabled_ops=frozenset({"tanh"})))
    assert len(report.regions) == regions
    arrays = [random(n, *IMAGE[1:], seed=n) for n in images]
    got = machine.run(*map(tvm.nd.array, arrays)).numpy()
    close(got, run_plain(module(make, *[array.shape for array in arrays]), *arrays)[0])


def test_the_items_of_an_input_may_differ_in_number():
    # two items of one input of a tuple's type  =>  two regions, and one of their sum
    tensor = relay.TensorType((relay.Any(), *IMAGE[1:]))
    items = relay.Var("items", relay.TupleType([tensor, tensor]))
    body = of_two_inputs(*(relay.TupleGetItem(items, i) for i in range(2)))
    machine, report = compile_for_vm(tvm.IRModule.from_expr(relay.Function([items], body)))
    assert len(report.regions) == 3
    arrays = [random(n, *IMAGE[1:], seed=n) for n in (3, 1)]
    got = machine.run(tvm.runtime.container.tuple_object([tvm.nd.array(a) for a in arrays])).numpy()
    close(got, run_plain(module(of_two_inputs, *[array.shape for array in arrays]), *arrays)[0])


@pytest.mark.parametrize(
    ("make", "inputs", "reason"),
    [
        (lambda x: op.reshape(x, (-1, 2, 8, 8)), 1, "expected the images along axis 0 of every operand"),
        (lambda x: op.mean(x, 0), 1, "expected the images along axis 0 of every operand"),
        (
            op.add,
            2,
            "expected operands of one number of images, got several",
        ),
    ],
    ids=["reshape", "mean", "two inputs"],
)
def test_what_might_mix_images_known_at_run_time_is_left(make, inputs, reason):
    mod = relay.transform.InferType()(dynamic(make, *[IMAGE[1:]] * inputs))
    report = Report()
    partition(mod, report=report)
    assert report.refusals
    assert all(d.reason.startswith(reason) for d in report.refusals)


@pytest.mark.parametrize("executor", ["graph", "aot"])
def test_executors_that_plan_memory_before_a_run_need_fixed_shapes(executor):
    with pytest.raises(TargetError, match=r"input x0: expected a fixed shape .*, got \[\?, 4, 8, 8\]"):
        relay.build(dynamic(classifier, IMAGE[1:]), target="convoy", executor=Executor(executor))


def test_executors_that_plan_memory_look_into_tuples():
    items = relay.Var("items", relay.TupleType([relay.TensorType((relay.Any(), *IMAGE[1:]))]))
    mod = tvm.IRModule.from_expr(relay.Function([items], classifier(relay.TupleGetItem(items, 0))))
    with pytest.raises(TargetError, match=r"input items: expected a fixed shape .*, got \[\?, 4, 8, 8\]"):
        relay.build(mod, target="convoy")


@pytest.mark.parametrize("step", ["lower", "optimize"])
def test_the_vms_compiler_keeps_the_weights_it_was_given(step):
    x, w = relay.var("x", shape=IMAGE), relay.var("w", shape=(4, 4, 3, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x, w], op.nn.conv2d(x, w, padding=(1, 1))))
    compiler, report = relay.vm.VMCompiler(), Report()
    with convoy.relay.using(report=report):
        compiler.set_params({"w": random(4, 4, 3, 3)})
        getattr(compiler, step)(mod, target="convoy")
    assert len(report.regions) == 1
    assert not report.refusals
    assert not compiler.get_params()


def test_the_vm_stores_weights_once(tmp_path):
    # a tanh that is left, so that TVM writes constants of its own  =>  the weights in the region only
    weights = random(128, 64, 5, 5)
    x, w = relay.var("x", shape=(1, 64, 8, 8)), relay.var("w", shape=weights.shape)
    mod = tvm.IRModule.from_expr(relay.Function([x, w], op.exp(op.tanh(op.nn.conv2d(x, w)))))
    with convoy.relay.using(Options(disabled_ops=frozenset({"tanh"}))):
        executable = relay.vm.compile(mod, target="convoy", params={"w": weights})
    library = tmp_path / "once.so"
    executable.mod.export_library(str(library))
    assert library.stat().st_size < 1.5 * weights.nbytes


def test_a_region_refuses_different_numbers_of_images():
    # a function made by hand, called with 1 and 3 images  =>  an error, not what is beyond the first
    def add(name):
        inputs = [relay.var(f"{name}{i}", shape=(relay.Any(), *IMAGE[1:])) for i in range(2)]
        return inputs, op.add(*inputs)

    region = tvm.IRModule.from_expr(relay.Function(*add("a")))
    region = relay.transform.InferType()(region)["main"].with_attr("Primitive", tvm.tir.IntImm("int32", 1))
    region = region.with_attr("Compiler", "convoy").with_attr("global_symbol", "by_hand")
    inputs, _ = add("x")
    called = relay.GlobalVar("by_hand")
    main = relay.Function(inputs, relay.Call(called, inputs))
    mod = tvm.IRModule({called: region, relay.GlobalVar("main"): main})
    executable = relay.vm.compile(relay.transform.InferType()(mod), target="llvm")
    machine = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu())
    one, three = (tvm.nd.array(random(images, *IMAGE[1:])) for images in (1, 3))
    close(machine.run(three, three).numpy(), 2 * random(3, *IMAGE[1:]))
    with pytest.raises(tvm.TVMError, match=r"argument 1 .* where earlier arguments have N = 1; give all"):
        machine.run(one, three)


@pytest.mark.parametrize("images", [1, None], ids=["fixed", "any"])
@pytest.mark.parametrize(
    ("shape", "dtype", "problem"),
    [
        (IMAGE, "float64", "got float64 [1, 4, 8, 8]; convert it to float32"),
        (IMAGE, "int32", "got int32 [1, 4, 8, 8]; convert it to float32"),
        ((1, 4, 2, 2), "float32", "got float32 [1, 4, 2, 2]; pass a tensor of that shape"),
        ((1, 4, 9, 8), "float32", "got float32 [1, 4, 9, 8]; pass a tensor of that shape"),
        (IMAGE, "float32", None),
    ],
)
def test_the_vm_refuses_inputs_of_another_form(shape, dtype, problem, images):
    mod = dynamic(classifier, IMAGE[1:]) if images is None else module(classifier, IMAGE)
    machine, _ = compile_for_vm(mod)
    given = tvm.nd.array(np.ones(shape, dtype))
    if problem is None:
        close(machine.run(given).numpy(), run_plain(module(classifier, IMAGE), np.ones(shape, dtype))[0])
        return
    with pytest.raises(tvm.TVMError) as caught:
        machine.run(given)
    named = r"tvmgen_default_convoy_main_0 \(convoy_[0-9a-f]+\): argument 0 \(\w+\): "
    wanted = f"expected float32 [{'N' if images is None else 1}, 4, 8, 8], "
    assert re.search(named + re.escape(wanted + problem), str(caught.value))


@pytest.mark.parametrize("shape", [(2, 4, 8, 8), (1, 4)], ids=["images", "rank"])
def test_the_vm_refuses_another_number_of_images_or_rank_than_it_was_compiled_for(shape):
    machine, _ = compile_for_vm(module(classifier, IMAGE))
    wanted = re.escape(
        f"expected float32 [1, 4, 8, 8], got float32 {list(shape)}; pass a tensor of that shape"
    )
    with pytest.raises(tvm.TVMError, match=wanted):
        machine.run(tvm.nd.array(random(*shape)))


def build_ahead(mod):
    return relay.build(mod, target="convoy", executor=Executor("aot"))


def run_ahead(library):
    runner = tvm.runtime.executor.AotModule(library["default"](tvm.cpu()))
    runner.set_input("x0", random(*IMAGE))
    runner.run()
    return runner.get_output(0).numpy()


def test_the_ahead_of_time_executor_takes_the_road(expected, tmp_path):
    report = Report()
    with convoy.relay.using(report=report):
        library = build_ahead(module(two_regions, IMAGE))
    assert len(report.regions) == 2
    close(run_ahead(library), expected)  # in place; its code finds regions by name in the process
    library.export_library(str(tmp_path / "aot.so"))
    close(run_ahead(tvm.runtime.load_module(str(tmp_path / "aot.so"))), expected)


def test_the_guard_watches_a_build_ahead_of_time(expected):
    with tvm.transform.PassContext(opt_level=3, instruments=[convoy.relay.NoTouch()]):
        close(run_ahead(build_ahead(module(two_regions, IMAGE))), expected)


def test_modules_built_ahead_of_time_keep_to_their_own_regions(expected):
    # two modules whose functions TVM gives the same names, in one process
    def other(x):
        return op.nn.conv2d(op.asinh(op.nn.relu(x)), weight(CHANNELS, 4, 1, 1, seed=3))

    libraries = [build_ahead(module(make, IMAGE)) for make in (two_regions, other)]
    close(run_ahead(libraries[0]), expected)
    close(run_ahead(libraries[1]), run_plain(module(other, IMAGE), random(*IMAGE))[0])


def test_a_module_partitioned_before_is_built_ahead_of_time(expected):
    mod = convoy.relay.partition_for_convoy(module(two_regions, IMAGE))
    close(run_ahead(relay.build(mod, target="llvm", executor=Executor("aot"))), expected)


STARVED = """
import resource
import sys
from pathlib import Path
import numpy as np
import tvm
from tvm import relay
import convoy.relay
from convoy.report.decision import Report
executor, file = sys.argv[1:]
one, two = (relay.const(np.ones(shape, "f4")) for shape in ((64, 16, 1, 1), (4, 64, 3, 3)))
x = relay.var("x", shape=(1, 16, 2048, 2048))
y = relay.nn.conv2d(relay.nn.conv2d(x, one), two)
module, report = tvm.IRModule.from_expr(relay.Function([x], relay.nn.global_avg_pool2d(y))), Report()
with convoy.relay.using(report=report):
    library = relay.build(module, target="convoy", executor=relay.backend.Executor(executor))
assert report.regions[0].arena_bytes > 1 << 30
if file:
    library.export_library(file)
    library = tvm.runtime.load_module(file)
runner = library["default"](tvm.cpu())
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
# what is left is enough for TVM's traceback, which reads its own debug information
resource.setrlimit(resource.RLIMIT_AS, (size + (512 << 20), resource.RLIM_INFINITY))
runner["run"]()
"""


@pytest.mark.parametrize("exported", [False, True], ids=["in place", "exported"])
@pytest.mark.parametrize("executor", ["graph", "aot"])
def test_a_region_that_gets_no_memory_is_an_error_of_tvm(executor, exported, tmp_path):
    arguments = [executor, str(tmp_path / "net.so") if exported else ""]
    ended = subprocess.run([sys.executable, "-c", STARVED, *arguments], capture_output=True, text=True)
    assert ended.returncode == 1  # an exception, no signal
    assert "scratch memory: expected enough memory for one image, got none; free memory" in ended.stderr


def test_the_interpreter_calls_no_regions():
    cut = convoy.relay.partition_for_convoy(module(two_regions, IMAGE))
    executor = relay.create_executor("debug", mod=cut)
    with pytest.raises(TargetError, match=r"got TVM's interpreter .*; create the executor graph"):
        executor.evaluate()(random(*IMAGE))


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


LINKED = """
import ctypes, sys
import numpy as np
import tvm
from tvm.contrib import graph_executor
from pathlib import Path
ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
graph = Path(sys.argv[1] + ".json").read_text()
executor = graph_executor.create(graph, tvm.runtime.system_lib(), tvm.cpu())
executor.load_params(Path(sys.argv[1] + ".params").read_bytes())
executor.run(x0=np.load(sys.argv[2]))
np.save(sys.argv[3], executor.get_output(0).numpy())
"""


def test_a_system_library_has_its_regions(expected, tmp_path):
    # linked into a program, functions are found in tvm.runtime.system_lib()
    paths = [str(tmp_path / name) for name in ("net.so", "in.npy", "out.npy")]
    runtime = Runtime("cpp", {"system-lib": True})
    library = relay.build(module(two_regions, IMAGE), target="convoy", runtime=runtime)
    library.export_library(paths[0])
    (tmp_path / "net.so.json").write_text(library.get_graph_json())
    (tmp_path / "net.so.params").write_bytes(relay.save_param_dict(library.get_params()))
    np.save(paths[1], random(*IMAGE))
    subprocess.run([sys.executable, "-c", LINKED, *paths], check=True)
    close(np.load(paths[2]), expected)


def test_weights_are_in_the_library_once(tmp_path):
    # a matrix of 1 MB  =>  a library of little more
    made = module(lambda x: op.nn.dense(x, weight(512, 512)), (1, 512))
    relay.build(made, target="convoy").export_library(str(tmp_path / "net.so"))
    assert 1 << 20 < (tmp_path / "net.so").stat().st_size < 1.5 * (1 << 20)


def test_an_input_in_a_tuple_for_a_function_is_an_error_ahead_of_time():
    # TVM never puts it there: the function read whatever lay in that memory
    kind = relay.TensorType((1, 4), "float32")
    pair, x = relay.Var("pair", relay.TupleType([kind, kind])), relay.Var("x", kind)
    marked = relay.Function([pair], relay.TupleGetItem(pair, 0) + relay.TupleGetItem(pair, 1))
    marked = marked.with_attr("Compiler", "convoy").with_attr("global_symbol", "adds")
    main = relay.Function([x], relay.Call(marked, [relay.Tuple([x, relay.tanh(x)])]))
    with pytest.raises(TargetError, match="one with an input or a constant in a tuple for a codegen's"):
        relay.build(tvm.IRModule.from_expr(main), "convoy", executor=relay.backend.Executor("aot"))
    relay.build(tvm.IRModule.from_expr(main), "convoy")  # the twin: the graph executor runs it
