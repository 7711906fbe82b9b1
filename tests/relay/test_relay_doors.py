"""The ways into Convoy from classic TVM: targets, ``partition_for_convoy``, options, errors."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from relay_modules import close, const, module, random, run, run_plain, weight
from tvm import relay
from tvm.relay import op

import convoy
from convoy.errors import ConvoyError, ModelError, RefusedError, TargetError
from convoy.options import Options
from convoy.relay.codegen import region_target
from convoy.relay.options import read_options
from convoy.relay.partition import external_functions
from convoy.report.decision import Report
from convoy.target import MACHINES, host
from convoy.toolchain import compiler

IMAGE = (1, 4, 8, 8)


def conv_relu(x):
    return op.nn.relu(op.nn.conv2d(x, weight(4, 4, 3, 3), padding=(1, 1)))


def conv_relu_sin(x):
    return op.sinh(conv_relu(x))


@pytest.fixture(scope="module")
def expected():
    return run_plain(module(conv_relu_sin, IMAGE), random(*IMAGE))[0]


@pytest.mark.parametrize(
    "target",
    [
        "convoy",
        "llvm -keys=convoy,cpu -mcpu=x86-64",
        "llvm -keys=convoy",
        {"kind": "llvm", "keys": ["convoy", "cpu"], "mcpu": "x86-64"},
        tvm.target.Target("convoy", host="llvm"),
    ],
    ids=["tag", "text", "one key", "dict", "host"],
)
def test_relay_build_takes_the_road_by_the_target(target, expected):
    report = Report()
    with convoy.relay.using(report=report):
        library = relay.build(module(conv_relu_sin, IMAGE), target=target)
    assert len(report.regions) == 1
    assert [d.reason for d in report.refusals] == ["Convoy has no kernel for sinh"]
    np.testing.assert_allclose(run(library, random(*IMAGE))[0], expected, rtol=1e-4, atol=1e-5)


def test_a_target_without_the_key_is_built_as_before():
    report = Report()
    with convoy.relay.using(report=report):
        library = relay.build(module(conv_relu, IMAGE), target="llvm")
    assert report == Report()
    assert not [m for m in library.get_lib().imported_modules if m.type_key == "static_library"]


def test_weights_given_as_params_are_not_kept_by_tvm():
    x, w = relay.var("x0", shape=IMAGE), relay.var("w", shape=(4, 4, 3, 3))
    made = tvm.IRModule.from_expr(relay.Function([x, w], op.nn.conv2d(x, w, padding=(1, 1))))
    array = random(4, 4, 3, 3)
    library = relay.build(made, target="convoy", params={"w": array})
    plain = relay.build(made, target="llvm", params={"w": array})
    assert not library.params
    np.testing.assert_allclose(
        run(library, random(*IMAGE))[0], run(plain, random(*IMAGE))[0], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), [[[0.5]], [[1.0]], [[2.0]], [[3.0]]]], ids=type)
def test_params_may_be_numbers_of_python(value):
    # which are float32, as for TVM
    x, factor = relay.var("x0", shape=IMAGE), relay.var("factor", shape=np.shape(value))
    made = tvm.IRModule.from_expr(relay.Function([x, factor], op.exp(op.multiply(x, factor))))
    got, want = (
        relay.build(made, target=target, params={"factor": value}) for target in ("convoy", "llvm")
    )
    close(run(got, random(*IMAGE)), run(want, random(*IMAGE)))


def test_partition_for_convoy_is_a_step_of_its_own(expected):
    report = Report()
    with convoy.relay.using(report=report):
        cut = convoy.relay.partition_for_convoy(module(conv_relu_sin, IMAGE))
    assert len(external_functions(cut)) == 1
    library = relay.build(cut, target="llvm")
    np.testing.assert_allclose(run(library, random(*IMAGE))[0], expected, rtol=1e-4, atol=1e-5)


def test_a_function_is_partitioned_as_a_module_of_it():
    x, w = relay.var("x0", shape=IMAGE), relay.var("w", shape=(4, 4, 3, 3))
    function = relay.Function([x, w], op.nn.relu(op.nn.conv2d(x, w, padding=(1, 1))))
    params = {"w": random(4, 4, 3, 3)}
    cut, whole = (
        convoy.relay.partition_for_convoy(given, params)
        for given in (function, tvm.IRModule.from_expr(function))
    )
    assert tvm.ir.structural_equal(cut, whole)
    assert len(external_functions(cut)) == 1


@pytest.mark.parametrize(
    ("given", "params", "problem"),
    [
        (
            "net.onnx",
            None,
            "import: str: expected a Relay IRModule or Function, got an object of this type",
        ),
        (None, ["w"], "import: params: expected a mapping of names to arrays, got an object of type list"),
        (None, 7, "import: params: expected a mapping of names to arrays, got an object of type int"),
        (None, {"w": None}, r"import: params\['w'\]: expected an array, got None"),
        (None, {1: random(4)}, r"import: params\[1\]: expected the name of a parameter, got 1"),
    ],
)
def test_what_is_no_module_and_no_params_is_an_error(given, params, problem):
    with pytest.raises(ModelError, match=problem):
        convoy.relay.partition_for_convoy(given or module(conv_relu, IMAGE), params)


@pytest.mark.parametrize("folding", [True, False, "false"])
def test_batch_norm_stays_whole_if_asked(folding):
    # conv2d -> batch_norm -> relu, folding=False  =>  all three ops come to codegen
    norm = [const(np.linspace(0.5, 1.5, 4))] * 4
    source = module(
        lambda x: op.nn.relu(op.nn.batch_norm(op.nn.conv2d(x, weight(4, 4, 3, 3)), *norm)[0]), IMAGE
    )
    cut = convoy.relay.partition_for_convoy(source, folding=folding)
    (function,) = external_functions(cut).values()
    assert ("nn.batch_norm" in str(function)) == (folding is not True)
    got, want = run(relay.build(cut, target="llvm"), random(*IMAGE)), run_plain(source, random(*IMAGE))
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-5)


def test_what_the_fold_keeps_is_no_refusal():
    # a gamma known only at run time cannot be folded; written out, all of the batch norm is taken
    values = [const(np.linspace(0.5, 1.5, 4))] * 3
    source = module(
        lambda x, gamma: op.nn.batch_norm(op.nn.conv2d(x, weight(4, 4, 3, 3)), gamma, *values)[0],
        IMAGE,
        (4,),
    )
    report = Report()
    with convoy.relay.using(report=report):
        convoy.relay.partition_for_convoy(source, strict=True)
    assert "expected a constant gamma" in report.decisions[0].reason
    assert (report.decisions[0].choice, report.refusals) == ("kept", [])


def test_params_by_position_are_taken_over():
    # as a caller of BuildModule.build may give them  =>  constants of the region, none left
    x, w = relay.var("x0", shape=IMAGE), relay.var("w", shape=(4, 4, 3, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x, w], op.nn.relu(op.nn.conv2d(x, w))))
    params = {"w": weight(4, 4, 3, 3).data}
    target = tvm.target.Target.canon_multi_target_and_host("convoy")
    graph, cpp = relay.backend.Executor("graph"), relay.backend.Runtime("cpp")
    builder, report = relay.build_module.BuildModule(), Report()
    with convoy.relay.using(report=report):
        builder.build(mod, target, None, graph, cpp, None, None, params, "default")
    assert (len(report.regions), report.refusals, len(builder.get_params())) == (1, [], 0)


def test_options_travel_from_partition_to_codegen(tmp_path):
    cut = convoy.relay.partition_for_convoy(module(conv_relu, IMAGE), threads="1", keep=str(tmp_path))
    relay.build(cut, target="llvm")
    assert "convoy_compiled_threads = 1" in (tmp_path / "settings.c").read_text()


@pytest.mark.parametrize(("accuracy", "tile"), [("direct", None), ("fast", "4"), ("fastest", "6")])
def test_the_accuracy_asked_for_travels_to_codegen(accuracy, tile, tmp_path):
    source = module(lambda x: op.nn.conv2d(x, weight(32, 32, 3, 3), padding=(1, 1)), (1, 32, 192, 192))
    cut = convoy.relay.partition_for_convoy(source, accuracy=accuracy, keep=str(tmp_path))
    relay.build(cut, target="llvm -mcpu=skylake-avx512")
    regions = [path for path in tmp_path.glob("*.c") if not path.name.startswith("kernels_")]
    (code,) = [text for text in map(Path.read_text, regions) if "conv2d_" in text]
    assert set(re.findall(r"CV_WINOGRAD\(winograd_(\d)", code)) == ({tile} if tile else set())


def test_options_reach_tvms_door():
    with convoy.relay.using(Options(strict=True)), pytest.raises(RefusedError, match="no kernel for sinh"):
        relay.build(module(conv_relu_sin, IMAGE), target="convoy")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"thread": 2}, "option 'thread': expected one of threads, accuracy.*, folding, got thread"),
        ({"threads": "two"}, "option 'threads': expected a number of threads, got 'two'"),
        ({"threads": 1.5}, "threads: expected a number of threads up to 256, got 1.5; take 0"),
        ({"threads": "1.5"}, "option 'threads': expected a number of threads, got '1.5'"),
        ({"threads": None}, "threads: expected a number of threads up to 256, got None; take 0"),
        ({"tune": -1}, "tune: expected a number of seconds, got -1.0; take 0"),
        ({"tune": "nan"}, "tune: expected a number of seconds, got nan; take 0"),
        ({"folding": "abc"}, "option 'folding': expected true or false, got 'abc'"),
        ({"folding": None}, "option 'folding': expected true or false, got None"),
        ({"strict": "perhaps"}, "option 'strict': expected true or false, got 'perhaps'"),
        ({"keep": 7}, "options: keep: expected a path or None, got 7"),
        ({"exclude": 7}, "exclude: expected names, got 7; write"),
        ({"exclude": [7]}, "exclude: expected names, got .7.; write"),
        ({"accuracy": "low"}, "accuracy: expected one of direct, fast, fastest, got 'low'"),
        ({"disabled_ops": "nn.softmaxx"}, "op 'nn.softmaxx': expected an op Convoy takes"),
        ({"exclude": "conv_17"}, "node 'conv_17': expected the name of a node after folding, such as %"),
    ],
)
def test_an_unknown_option_is_an_error(options, problem):
    with pytest.raises(ConvoyError, match=problem):
        convoy.relay.partition_for_convoy(module(conv_relu, IMAGE), **options)


@pytest.mark.parametrize("disabled", ["AnnotateTarget", "PartitionGraph"])
def test_a_context_without_the_passes_that_cut_is_an_error(disabled):
    problem = f"expected the passes that cut functions out, got {disabled} in disabled_pass; take it out"
    with (
        tvm.transform.PassContext(opt_level=3, disabled_pass=[disabled]),
        pytest.raises(ConvoyError, match=problem),
    ):
        relay.build(module(conv_relu, IMAGE), target="convoy")


def test_options_of_any_fitting_form_are_taken():
    given = {"threads": np.int64(2), "tune": "0", "folding": 1, "strict": "False", "exclude": ()}
    cut = convoy.relay.partition_for_convoy(module(conv_relu, IMAGE), **given)
    (function,) = external_functions(cut).values()
    assert read_options(function).threads == 2


def test_an_error_of_codegen_keeps_its_type(monkeypatch):
    # the C compiler is gone when TVM calls relay.ext.convoy  =>  no TVMError that only holds its text
    cut = convoy.relay.partition_for_convoy(module(conv_relu, IMAGE))
    monkeypatch.setenv("CC", "/nonexistent/cc")
    with pytest.raises(convoy.errors.ToolchainError, match="expected gcc or clang"):
        relay.build(cut, target="llvm")


def test_an_interrupt_of_codegen_stays_an_interrupt(monkeypatch):
    # Ctrl-C while TVM calls relay.ext.convoy  =>  KeyboardInterrupt
    def interrupt(*given, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(compiler, "compile_objects", interrupt)
    with pytest.raises(KeyboardInterrupt):
        relay.build(module(conv_relu, IMAGE), target="convoy")


def test_an_interrupt_of_a_fold_stays_an_interrupt(monkeypatch):
    def interrupt(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["convoy.relay.fold"], "normalize_function", interrupt)
    with pytest.raises(KeyboardInterrupt):
        relay.build(module(conv_relu, IMAGE), target="convoy")
    with pytest.raises(KeyboardInterrupt):
        convoy.relay.partition_for_convoy(module(conv_relu, IMAGE))


def test_a_partitioned_module_is_read_back_from_text(expected):
    options = Options(threads=1, keep='a folder/with "quotes" & more', accuracy="direct")
    with convoy.relay.using(options):
        cut = convoy.relay.partition_for_convoy(module(conv_relu_sin, IMAGE))
    read = relay.fromtext(cut.astext())
    (function,) = external_functions(read).values()
    assert read_options(function) == options
    plain = convoy.relay.partition_for_convoy(module(conv_relu_sin, IMAGE))
    close(run(relay.build(relay.fromtext(plain.astext()), target="llvm"), random(*IMAGE)), [expected])


def test_relay_optimize_takes_the_road(expected):
    optimized, params = relay.optimize(module(conv_relu_sin, IMAGE), target="convoy")
    assert 'Compiler="convoy"' in optimized["main"].astext()
    close(run(relay.build(optimized, target="llvm", params=params), random(*IMAGE)), [expected])
    close(run(relay.build(optimized, target="convoy", params=params), random(*IMAGE)), [expected])


def test_what_was_optimized_is_built_where_layouts_are_changed(expected):
    # relay.optimize writes the regions where they are called, open to the passes of what builds them
    cut = convoy.relay.partition_for_convoy(module(conv_relu_sin, IMAGE))
    with tvm.transform.PassContext(opt_level=3):
        once, _ = relay.optimize(cut, "llvm")
        twice, _ = relay.optimize(once, "llvm")
        library, machine = relay.build(twice, "llvm"), relay.vm.compile(once, "llvm")
    close(run(library, random(*IMAGE)), [expected])
    found = tvm.runtime.vm.VirtualMachine(machine, tvm.cpu()).run(tvm.nd.array(random(*IMAGE)))
    close([found.numpy()], [expected])


def test_bfloat16_is_left_as_it_is():
    weights = tvm.nd.empty((4, 8), "bfloat16")

    def make(given, w):
        x = relay.var("x", shape=(8, 4), dtype="bfloat16")
        return relay.transform.InferType()(
            tvm.IRModule.from_expr(relay.Function([x, *given], relay.add(x, relay.transpose(w))))
        )

    w = relay.var("w", shape=(4, 8), dtype="bfloat16")
    for mod, params in ((make([w], w), {"w": weights}), (make([], relay.Constant(weights)), None)):
        cut = convoy.relay.partition_for_convoy(mod, params)
        assert str(cut["main"].ret_type.dtype) == "bfloat16"
        assert not external_functions(cut)


def three_convs(x):
    y = op.sinh(conv_relu(x))
    y = op.sinh(op.nn.max_pool2d(op.nn.conv2d(y, weight(64, 4, 3, 3, seed=1)), (2, 2)))
    return op.nn.conv2d(y, weight(64, 64, 3, 3, seed=2))


def names(mod):
    """The names of a module's external functions, each TVM's two alike."""
    functions = external_functions(mod)
    assert all(var.name_hint == function.attrs["global_symbol"] for var, function in functions.items())
    return sorted(var.name_hint for var in functions)


def run_vm(mod, **given):
    executable = relay.vm.compile(mod, **given)
    return tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()).run(tvm.nd.array(random(*IMAGE))).numpy()


def run_ahead(mod, **given):
    library = relay.build(mod, executor=relay.backend.Executor("aot"), **given)
    runner = tvm.runtime.executor.AotModule(library["default"](tvm.cpu()))
    runner.set_input("x0", random(*IMAGE))
    runner.run()
    return runner.get_output(0).numpy()


FIRST = {
    "all": convoy.relay.partition_for_convoy,
    "but one": lambda mod: convoy.relay.partition_for_convoy(mod, exclude="%6"),
    "by steps": lambda mod: convoy.relay.partition(convoy.relay.fold()(mod)),
    "none": lambda mod: convoy.relay.partition_for_convoy(mod, disabled_ops="nn.conv2d,nn.max_pool2d"),
    "for another": lambda mod: convoy.relay.partition_for_convoy(mod, mod_name="other"),
}
AGAIN = {
    "build": lambda mod: run(relay.build(mod, target="convoy"), random(*IMAGE))[0],
    "named": lambda mod: run(relay.build(mod, target="convoy", mod_name="a"), random(*IMAGE), name="a")[0],
    "vm": lambda mod: run_vm(mod, target="convoy"),
    "aot": lambda mod: run_ahead(mod, target="convoy"),
    "partition": lambda mod: run_vm(convoy.relay.partition_for_convoy(mod), target="llvm"),
}


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ("all", "vm"),
        *((first, "build") for first in FIRST if first != "but one"),
        *(("but one", again) for again in AGAIN),
    ],
)
def test_what_is_partitioned_before_is_partitioned_again(first, again):
    cut = FIRST[first](module(three_convs, IMAGE))
    want = run_plain(module(three_convs, IMAGE), random(*IMAGE))[0]
    np.testing.assert_allclose(AGAIN[again](cut), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("left", ["%0", "%3", "%6"])
def test_what_is_cut_out_stays_and_what_is_left_gets_a_free_name(left):
    # three convs with a sinh between, at first without one  =>  what was cut out stays, the one is new
    first = convoy.relay.partition_for_convoy(module(three_convs, IMAGE), threads=1, exclude=left)
    second = convoy.relay.partition_for_convoy(first, threads=2)
    before, after = external_functions(first), external_functions(second)
    assert all(tvm.ir.structural_equal(after[var], function) for var, function in before.items())
    (new,) = set(after) - set(before)
    assert read_options(after[new]).threads == 2
    assert {read_options(function).threads for function in before.values()} == {1}
    assert tvm.ir.structural_equal(convoy.relay.partition_for_convoy(second), second)


def test_a_fresh_module_keeps_the_names_tvm_gives():
    cut = convoy.relay.partition_for_convoy(module(three_convs, IMAGE))
    assert all(re.fullmatch(r"tvmgen_default_convoy_main_\d+", name) for name in names(cut))
    assert names(cut) == names(convoy.relay.partition_for_convoy(module(three_convs, IMAGE)))


def test_functions_of_another_backend_stay_as_they_are():
    source = module(three_convs, IMAGE)
    other = convoy.relay.partition(
        source, codegen="acme", refuse=lambda call: None if call.op.name == "nn.max_pool2d" else "no kernel"
    )
    cut = convoy.relay.partition_for_convoy(other)
    (before,), (after,) = (external_functions(mod, "acme").items() for mod in (other, cut))
    assert before[0] == after[0]
    assert tvm.ir.structural_equal(before[1], after[1])
    assert external_functions(cut)


def test_an_unknown_machine_is_an_error():
    with pytest.raises(TargetError, match="expected one of"):
        relay.build(module(conv_relu, IMAGE), target="llvm -keys=convoy,cpu -mcpu=i386dx")


def test_what_is_wrong_with_the_target_is_said_before_any_work():
    report = Report()
    with convoy.relay.using(report=report), pytest.raises(TargetError, match="expected one of"):
        relay.build(module(conv_relu, IMAGE), target="llvm -keys=convoy,cpu -mcpu=i386dx")
    assert not report.decisions


def test_another_kind_of_target_is_an_error():
    with pytest.raises(TargetError, match="expected a CPU target of kind llvm, got c; leave the target"):
        relay.build(module(conv_relu, IMAGE), target="c -keys=convoy,cpu")


def test_a_function_for_the_vm_without_convoy_is_tvms_error():
    with pytest.raises(tvm.error.InternalError, match="Expected IRModule, but got"):
        relay.vm.compile(module(conv_relu, IMAGE)["main"], target="llvm")


def test_an_input_without_a_type_is_tvms_error():
    x = relay.var("x")
    with pytest.raises(tvm.error.DiagnosticError):
        relay.build(tvm.IRModule.from_expr(relay.Function([x], op.nn.relu(x))), target="convoy")


def test_a_module_partitioned_before_is_called_in_the_packed_convention_only():
    cut = convoy.relay.partition_for_convoy(module(conv_relu, IMAGE))
    executor = relay.backend.Executor("aot", {"unpacked-api": True, "interface-api": "packed"})
    with pytest.raises(TargetError, match="expected the packed calling convention, got unpacked-api"):
        relay.build(cut, target="llvm", executor=executor)


def test_another_architecture_is_an_error():
    with pytest.raises(TargetError, match="the architecture of this machine, got riscv64"):
        relay.build(module(conv_relu, IMAGE), target="llvm -keys=convoy,cpu -mtriple=riscv64-linux-gnu")


@pytest.mark.parametrize(
    "target", ["-mcpu=skylake-avx512 -mattr=-avx512f", "-mcpu=x86-64 -mattr=+avx2,+fma"]
)
def test_the_features_of_a_target_count(target):
    assert region_target(tvm.target.Target(f"llvm -keys=convoy,cpu {target}")).isa == "avx2"


def test_llvm_is_asked_for_a_cpu_without_a_row():
    found = region_target(tvm.target.Target("llvm -keys=convoy,cpu -mcpu=corei7-avx -num-cores=3"))
    assert (found.name, found.isa, found.cores) == ("corei7-avx", "portable", 3)
    assert "sse4.2" in found.features


def test_the_tag_is_this_machine_and_its_name_is_a_row():
    assert region_target(tvm.target.Target("convoy")) == host()
    named = tvm.target.Target("llvm -keys=convoy,cpu -mcpu=skylake-avx512")
    assert region_target(named) == MACHINES["skylake-avx512"]


def test_two_modules_in_one_process_keep_their_kernels():
    # equal names of functions, other weights  =>  each runs its own
    def conv(seed):
        return module(lambda x: op.nn.conv2d(x, weight(4, 4, 3, 3, seed=seed)), IMAGE)

    built = [relay.build(conv(seed), target="convoy") for seed in (1, 2)]
    for seed, library in zip((1, 2), built, strict=True):
        got, want = run(library, random(*IMAGE)), run_plain(conv(seed), random(*IMAGE))
        np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-5)


def test_a_batch_runs(expected):
    images = random(3, *IMAGE[1:])
    (got,) = run(relay.build(module(conv_relu, images.shape), target="convoy"), images)
    (want,) = run_plain(module(conv_relu, images.shape), images)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_several_regions_and_outputs():
    # conv -> sinh on the host -> conv, and both convs' results  =>  two regions, no cycle
    def make(x):
        y = conv_relu(x)
        return [y, op.nn.conv2d(op.add(op.sinh(y), y), weight(4, 4, 1, 1, seed=2)), op.add(x, const(1.0))]

    report = Report()
    with convoy.relay.using(report=report):
        library = relay.build(module(make, IMAGE), target="convoy")
    assert len(report.regions) == 2
    got, want = run(library, random(*IMAGE)), run_plain(module(make, IMAGE), random(*IMAGE))
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_a_depthwise_convolution_with_two_filters_a_channel():
    # NHWC depthwise conv, its weight [kh, kw, C, 2] -> batch norm -> relu  =>  one region
    def make(x):
        y = op.nn.conv2d(x, weight(3, 3, 4, 2), groups=4, channels=8, kernel_size=(3, 3),
                         data_layout="NHWC", kernel_layout="HWOI")  # fmt: skip
        values = [weight(8, seed=1), weight(8, seed=2), weight(8, seed=3), const(np.linspace(0.5, 2, 8))]
        return op.nn.relu(op.nn.batch_norm(y, *values, axis=3)[0])

    report, image = Report(), random(1, 8, 8, 4)
    with convoy.relay.using(report=report):
        library = relay.build(module(make, image.shape), target="convoy")
    assert len(report.regions) == 1
    assert not report.refusals
    close(run(library, image), run_plain(module(make, image.shape), image))


def test_an_average_pool_whose_last_windows_are_padding():
    # conv -> avg pool, padding counted, ceil mode: 5 pixels, 4 windows  =>  one region
    def make(x):
        y = op.nn.conv2d(x, weight(4, 4, 3, 3), padding=(1, 1))
        return op.nn.avg_pool2d(y, (2, 2), (2, 2), padding=(1, 1), ceil_mode=True, count_include_pad=True)

    report, image = Report(), random(1, 4, 5, 5)
    with convoy.relay.using(report=report):
        library = relay.build(module(make, image.shape), target="convoy")
    assert len(report.regions) == 1
    assert not report.refusals
    close(run(library, image), run_plain(module(make, image.shape), image))


@pytest.mark.parametrize("order", ["import tvm, convoy", "import convoy, tvm", "import convoy.graph, tvm"])
def test_the_door_opens_in_either_order_of_imports(order):
    code = f"{order}; assert 'convoy' in tvm.target.Target('convoy').keys; assert convoy.door() == 'relay'"
    subprocess.run([sys.executable, "-c", code], check=True)


AS_IN_0_14 = """
import numpy as np, tvm
from tvm import relay
from tvm.ir import BaseFunc, DictAttrs, IRModule
lacking = {
    IRModule: ("functions_items", "clone", "__delitem__", "__contains__", "without_attr", "with_attrs"),
    DictAttrs: ("get",),
    BaseFunc: ("with_attrs",),
}
for owner, names in lacking.items():
    for name in set(names) & set(vars(owner)):
        delattr(owner, name)
import convoy.relay
x = relay.var("x", shape=(1, 4, 8, 8))
w = relay.const(np.ones((4, 4, 3, 3), "float32"))
mod = tvm.IRModule.from_expr(relay.nn.relu(relay.nn.conv2d(x, w)))
relay.build(mod, target="convoy")
relay.vm.compile(mod, target="convoy")
cut = convoy.relay.partition_for_convoy(mod)
with tvm.transform.PassContext(instruments=[convoy.relay.NoTouch()]):
    cut = convoy.relay.no_touch(relay.transform.SimplifyInference())(cut)
print(len(cut.functions))
"""


def test_what_the_python_of_older_tvms_lacks_is_not_used():
    # TVM 0.14 and 0.15 have all else that Convoy calls
    ran = subprocess.run([sys.executable, "-c", AS_IN_0_14], capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == "2", ran.stderr


@pytest.mark.parametrize("module", ["convoy.relax", "convoy.deploy.runner"])
def test_what_needs_the_other_tvm_says_which_it_found(module):
    with pytest.raises(ImportError, match=r"expected a modern TVM \(Relax\), got a classic TVM") as error:
        importlib.import_module(module)
    assert "use convoy.relay" in str(error.value)
    assert "docs/running.md" in str(error.value)


def test_the_compiler_of_the_other_door_is_not_there():
    with pytest.raises(ImportError, match=r"expected a modern TVM \(Relax\), got a classic TVM"):
        _ = convoy.compile


@pytest.mark.parametrize("build", [relay.build, relay.vm.compile])
def test_functions_that_nobody_calls_cost_nothing(build):
    # TVM's builds drop them first, and the Prelude has 240 of them
    mod = module(conv_relu, IMAGE)
    x = relay.var("x", shape=IMAGE)
    mod["unused"] = relay.Function([x], op.sinh(x))
    report = Report()
    with convoy.relay.using(report=report):
        build(mod, target="convoy")
    assert not report.refusals
    cut = convoy.relay.partition_for_convoy(mod)  # no build: what becomes of it, nobody knows
    assert "unused" in {var.name_hint for var in cut.get_global_vars()}
