"""Both doors to the road: ``convoy.compile`` and TVM's own ``tvm.compile``."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op
from tvm.relax.dpl import is_const, is_op, wildcard

import convoy
from convoy.errors import ConvoyError, RefusedError, TargetError
from convoy.options import Options
from convoy.relax.codegen import region_target
from convoy.relax.compile import resolve_target
from convoy.relax.partition import partition
from convoy.report.decision import Report
from convoy.target import MACHINES, host
from relax.sketch import module, random, weight

IMAGE = (1, 4, 8, 8)


def conv_relu(bind, x):
    return bind(op.nn.relu(bind(op.nn.conv2d(x, weight(4, 4, 3, 3), padding=1))))


def conv_relu_sin(bind, x):
    return bind(op.sinh(conv_relu(bind, x)))


def run(executable, *arrays):
    result = relax.VirtualMachine(executable, tvm.cpu())["main"](*map(tvm.runtime.tensor, arrays))
    return result.numpy()


@pytest.fixture(scope="module")
def expected():
    return run(tvm.compile(module(conv_relu_sin, IMAGE), target="llvm"), random(*IMAGE))


@pytest.mark.slow
def test_convoy_compile_takes_a_relax_module(expected):
    report = Report()
    executable = convoy.compile(module(conv_relu_sin, IMAGE), report=report)
    assert len(report.regions) == 1
    assert [d.reason for d in report.refusals] == ["Convoy has no kernel for sinh"]
    np.testing.assert_allclose(run(executable, random(*IMAGE)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "target",
    ["convoy", {"kind": "llvm", "keys": ["convoy", "cpu"], "mcpu": "x86-64"}],
    ids=["tag", "key"],
)
def test_tvm_compile_takes_the_road_by_the_target(target, expected):
    report = Report()
    with convoy.relax.using(report=report):
        executable = tvm.compile(module(conv_relu_sin, IMAGE), target=tvm.target.Target(target))
    assert len(report.regions) == 1
    np.testing.assert_allclose(run(executable, random(*IMAGE)), expected, rtol=1e-4, atol=1e-5)


def test_functions_that_main_calls_are_offloaded_too():
    # main(x) = conv_relu(helper(x)), helper private: TVM's RunCodegen alone visits public functions only
    helper = module(conv_relu, IMAGE)["main"].without_attr("global_symbol")
    bind = relax.BlockBuilder()
    called = bind.add_func(helper, "helper")
    x = relax.Var("x", relax.TensorType(IMAGE, "float32"))
    with bind.function("main", [x]):
        with bind.dataflow():
            y = bind.emit_output(conv_relu(bind.emit, bind.emit(called(x))))
        bind.emit_func_output(y)
    report = Report()
    executable = convoy.compile(bind.get(), report=report)
    assert len(report.regions) == 1  # both are the same
    assert sum(d.choice == "taken" for d in report.decisions) == 4
    expected = run(tvm.compile(bind.get(), target="llvm"), random(*IMAGE))
    np.testing.assert_allclose(run(executable, random(*IMAGE)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("image", [IMAGE, (2, *IMAGE[1:])])
def test_composites_that_no_codegen_takes_are_tvms(image):
    # another backend's patterns, matched and never merged; their weights are constants in them
    conv = is_op("relax.nn.conv2d")(wildcard(), is_const())
    patterns = [("acme.conv2d_relu", is_op("relax.nn.relu")(conv))]
    source = module(lambda bind, x: bind(op.sinh(conv_relu(bind, bind(op.sinh(x))))), image)
    composites = relax.transform.FuseOpsByPattern(patterns, bind_constants=True)(source)
    assert len(composites.functions) == 2
    found = run(convoy.compile(composites), random(*image))
    expected = run(tvm.compile(source, target="llvm"), random(*image))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


LARGE = (1, 32, 192, 192)


def large_conv(bind, x):
    return bind(op.nn.conv2d(x, weight(32, 32, 3, 3), padding=1))


@pytest.mark.slow
@pytest.mark.parametrize("accuracy", ["direct", "fast", "fastest"])
def test_accuracy_is_asked_for_through_both_ways(accuracy):
    options, source = Options(accuracy=accuracy), module(large_conv, LARGE)
    algorithms = {"direct": "direct", "fast": "winograd F(4x4, 3x3)", "fastest": "winograd F(6x6, 3x3)"}
    ours, theirs = Report(), Report()
    executable = convoy.compile(source, options=options, target="skylake-avx512", report=ours)
    del executable
    with convoy.relax.using(options, theirs):
        tvm.compile(source, target=tvm.target.Target({"kind": "llvm", "keys": ["convoy", "cpu"],
                                                      "mcpu": "skylake-avx512"}))  # fmt: skip
    for report in (ours, theirs):
        assert algorithms[accuracy] in [decision.choice for decision in report.decisions]


def test_an_accuracy_that_does_not_exist_is_an_error():
    with pytest.raises(
        ConvoyError, match="options: accuracy: expected one of direct, fast, fastest, got 'low'; take"
    ):
        Options(accuracy="low")


def test_a_target_without_the_key_gets_tvms_own_pipeline():
    target = tvm.target.Target("llvm")
    source = module(conv_relu_sin, IMAGE)
    with target:
        theirs = relax.pipeline.default_build_pipeline()(source)
        ours = relax.get_pipeline("default")(source)
    tvm.ir.assert_structural_equal(ours, theirs)


def test_weights_are_not_stored_twice():
    with tvm.target.Target("convoy"):
        built = relax.get_pipeline("default")(module(conv_relu, IMAGE))
    assert "const_name_to_constant" not in (built.attrs or {})
    assert built.attrs["external_mods"]


def test_options_reach_tvms_door():
    with convoy.relax.using(Options(strict=True)), pytest.raises(RefusedError, match="no kernel for sinh"):
        tvm.compile(module(conv_relu_sin, IMAGE), target="convoy")


def test_strict_is_an_argument_too():
    with pytest.raises(RefusedError, match="no kernel for sinh"):
        convoy.compile(module(conv_relu_sin, IMAGE), strict=True)


def test_the_callers_pass_context_stays_in_force(monkeypatch):
    seen = []

    def spied(*given):
        context = tvm.transform.PassContext.current()
        seen.append((context.opt_level, dict(context.config), list(context.disabled_pass)))
        return partition(*given)

    monkeypatch.setattr("convoy.relax.compile.partition", spied)
    config = {"relax.backend.use_cuda_graph": True}
    with tvm.transform.PassContext(opt_level=3, config=config, disabled_pass=["FuseTIR"]):
        tvm.compile(module(conv_relu, IMAGE), target="convoy")
    assert seen == [(3, config, ["FuseTIR"])]


def test_the_callers_instruments_are_entered_once():
    timing = tvm.ir.instrument.PassTimingInstrument()
    with tvm.transform.PassContext(instruments=[timing]):
        tvm.compile(module(conv_relu, IMAGE), target="convoy")
        profile = timing.render()
    assert "convoy.road" in profile
    assert "FoldConstant" in profile


def test_progress_is_told_in_words():
    told: list[str] = []
    convoy.compile(module(conv_relu, IMAGE), progress=told.append)
    assert told[0] == "folding and partitioning"
    assert any(text.startswith("compiled ") for text in told)


@pytest.mark.parametrize("at", ["folding", "generating", "compiled", "building"])
def test_what_progress_raises_comes_out_as_it_was(at):
    class StopError(ValueError):
        pass

    def stop(text: str) -> None:
        if text.startswith(at):
            raise StopError(text)

    with pytest.raises(StopError, match=at):
        convoy.compile(module(conv_relu, IMAGE), progress=stop)


def test_targets_by_name():
    assert "convoy" in resolve_target(None).keys
    assert region_target(resolve_target(None)) == host()
    assert region_target(resolve_target("haswell")).isa == "avx2"
    assert region_target(resolve_target("portable")).isa == "portable"
    assert list(resolve_target(tvm.target.Target("llvm")).keys) == ["convoy", "cpu"]


@pytest.mark.parametrize(("target", "reason"), [("i386dx", "expected one of"), ("cuda", "expected one of")])
def test_an_unknown_machine_is_an_error(target, reason):
    with pytest.raises(TargetError, match=reason):
        convoy.compile(module(conv_relu, IMAGE), target)


def test_another_architecture_is_an_error():
    other = tvm.target.Target({"kind": "llvm", "keys": ["convoy"], "mtriple": "riscv64-linux-gnu"})
    with pytest.raises(TargetError, match="the architecture of this machine, got riscv64"):
        tvm.compile(module(conv_relu, IMAGE), target=other)


def test_the_features_of_a_target_count():
    given = {"kind": "llvm", "keys": ["convoy", "cpu"], "mcpu": "skylake-avx512", "mattr": ["-avx512f"]}
    assert region_target(tvm.target.Target(given)).isa == "avx2"


def test_llvm_is_asked_for_a_cpu_without_a_row():
    # Clearwater Forest has AVX2 and no AVX-512
    given = {"kind": "llvm", "keys": ["convoy", "cpu"], "mcpu": "clearwaterforest"}
    found = region_target(tvm.target.Target(given))
    assert (found.name, found.isa) == ("clearwaterforest", "avx2")
    assert "avxvnniint8" in found.features
    assert region_target(resolve_target("clearwaterforest")) == found


def test_the_tag_is_this_machine_and_its_name_is_a_row():
    assert region_target(tvm.target.Target("convoy")) == host()
    assert region_target(resolve_target(None)) == region_target(resolve_target("native")) == host()
    named = tvm.target.Target({"kind": "llvm", "keys": ["convoy", "cpu"], "mcpu": "znver5", "num-cores": 3})
    assert region_target(named) == replace(MACHINES["znver5"], cores=3)


@pytest.mark.slow
def test_cores_and_caches_are_said():
    report, plain = Report(), Report()
    options = Options(cores=1, l2_bytes=64 << 10)
    convoy.compile(module(large_conv, LARGE), "skylake-avx512", options=options, report=report)
    convoy.compile(module(large_conv, LARGE), "skylake-avx512", report=plain)
    assert [d.reason for d in report.decisions] != [d.reason for d in plain.decisions]


def test_a_gpu_target_is_an_error():
    with pytest.raises(TargetError, match="expected a CPU target of kind llvm, got cuda"):
        region_target(resolve_target(tvm.target.Target({"kind": "cuda", "arch": "sm_80"})))
    named = tvm.target.Target({"kind": "cuda", "keys": ["convoy", "cuda"], "arch": "sm_80"})
    with pytest.raises(TargetError, match="expected a CPU target of kind llvm, got cuda"):
        tvm.compile(module(conv_relu, IMAGE), target=named)


@pytest.mark.slow
@pytest.mark.parametrize(
    "order",
    [
        "import tvm, convoy",
        "import convoy, tvm",
        "import convoy.graph, tvm",
        "import convoy; convoy.door(); import tvm",
    ],
)
def test_the_door_opens_in_either_order_of_imports(order):
    code = f"{order}; assert 'convoy' in tvm.target.Target('convoy').keys"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_importing_convoy_does_not_import_tvm():
    code = "import sys, convoy, convoy.backend; assert 'tvm' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("target", ["", " "])
def test_a_target_without_a_name_is_refused(target: str) -> None:
    with pytest.raises(TargetError, match="expected the name of a CPU, got none; name one such as haswell"):
        convoy.compile(module(conv_relu, IMAGE), target)
