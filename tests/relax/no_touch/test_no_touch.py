"""relax/no_touch.py: what passes do to marked functions, and that guarded they do it to the rest only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import tvm
import tvm_ffi
from modules import (
    IMAGE,
    byoc_module,
    calling_module,
    closure_module,
    composite_module,
    dynamic_module,
    flat_module,
    unread_module,
)
from tvm import relax
from tvm.ir import GlobalVar, IRModule
from tvm.ir.transform import Pass, PassContext, Sequential, module_pass
from tvm.relax import transform

import convoy
from convoy.errors import GuardError
from convoy.relax.no_touch import MAKERS, NoTouch, marked_functions, no_touch
from relax import sketch


@dataclass(frozen=True)
class Case:
    """A pass, the module that shows what it does, and how its effect on the rest is seen."""

    touch: Pass
    module: Callable[[], IRModule]
    effect: Callable[[str], object]
    """What a pass does to the text of all unmarked functions: another value after the pass than before."""
    prepare: tuple[Pass, ...] = ()

    def build(self) -> IRModule:
        return no_touch(self.prepare)(self.module()) if self.prepare else self.module()


def holds(text: str) -> Callable[[str], object]:
    return lambda module: text in module


def count(text: str) -> Callable[[str], object]:
    return lambda module: module.count(text)


LOW_LEVEL = (transform.ToNonDataflow(), transform.RemovePurityChecking())
"""What runs in every pipeline before the passes that make calls of the virtual machine."""

CASES: dict[str, Case] = {
    "DecomposeOpsForInference": Case(
        transform.DecomposeOpsForInference(), byoc_module, holds("R.nn.batch_norm(")
    ),
    "FoldConstant": Case(transform.FoldConstant(), byoc_module, holds("R.reshape(")),
    "LegalizeOps": Case(transform.LegalizeOps(), byoc_module, holds("R.call_tir(")),
    "ConvertLayout": Case(
        transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]}), byoc_module, holds("NHWC")
    ),
    "ToMixedPrecision": Case(transform.ToMixedPrecision(), byoc_module, holds("float16")),
    "ToNonDataflow": Case(transform.ToNonDataflow(), byoc_module, holds("R.dataflow()")),
    "RemovePurityChecking": Case(transform.RemovePurityChecking(), byoc_module, holds("relax.force_pure")),
    "KillAfterLastUse": Case(
        transform.KillAfterLastUse(), byoc_module, holds("R.memory.kill_tensor("), LOW_LEVEL
    ),
    "DataflowUseInplaceCalls": Case(
        transform.DataflowUseInplaceCalls(), byoc_module, holds("R.call_tir_inplace(")
    ),
    "FoldBatchnormToConv2D": Case(
        transform.FoldBatchnormToConv2D(), byoc_module, holds("R.nn.batch_norm(")
    ),
    "ConvertToDataflow": Case(
        transform.ConvertToDataflow(), byoc_module, holds("R.dataflow()"), (transform.ToNonDataflow(),)
    ),
    "LazyGetInput": Case(transform.LazyGetInput(), byoc_module, holds("fget_param")),
    "LazySetOutput": Case(
        transform.LazySetOutput(), byoc_module, holds("fset_output"), (transform.ToNonDataflow(),)
    ),
    "LambdaLift": Case(transform.LambdaLift(), closure_module, holds("def local(")),
    "LiftTransformParams": Case(
        transform.LiftTransformParams(), byoc_module, holds("main_transform_params")
    ),
    "VMShapeLower": Case(transform.VMShapeLower(), byoc_module, holds("vm.builtin."), LOW_LEVEL),
    "EliminateCommonSubexpr": Case(transform.EliminateCommonSubexpr(), flat_module, count("R.nn.relu(")),
    "DeadCodeElimination": Case(transform.DeadCodeElimination(), flat_module, holds("R.exp(")),
    "CanonicalizeBindings": Case(transform.CanonicalizeBindings(), flat_module, holds("alias")),
    "TopologicalSort": Case(
        transform.TopologicalSort(),
        flat_module,
        lambda module: module.index("= pair[1]") < module.index("R.add(", module.index("# twin")),
    ),
    "RemoveUnusedOutputs": Case(transform.RemoveUnusedOutputs(), flat_module, holds("q[0]")),
    "ExpandTupleArguments": Case(transform.ExpandTupleArguments(), flat_module, holds("pair_1")),
    "FuseTIR": Case(transform.FuseTIR(), flat_module, holds("pair_1")),
    "InlinePrivateFunctions": Case(transform.InlinePrivateFunctions(), composite_module, holds("# twin")),
}
"""Every pass that today's TVM (0.27) runs on marked functions: read from its sources and tried."""

LEFT_ALONE: dict[str, Pass] = {
    "AnnotateTIROpPattern": transform.AnnotateTIROpPattern(),
    "CallTIRRewrite": transform.CallTIRRewrite(),
    "FuseOps": transform.FuseOps(),
    "Normalize": transform.Normalize(),
    "StaticPlanBlockMemory": transform.StaticPlanBlockMemory(),
}
"""Passes that do no harm to a marked function; guarding them must do none either."""


def unmarked_text(module: IRModule) -> str:
    """All functions that are not marked, each after a line with its name."""
    marked = {var.name_hint for var in marked_functions(module)}
    functions = {var.name_hint: f for var, f in module.functions_items() if var.name_hint not in marked}
    return "\n".join(f"# {name}\n{functions[name].script()}" for name in sorted(functions))


def the_marked(module: IRModule) -> tuple[str, relax.Function]:
    ((var, function),) = marked_functions(module).items()
    return var.name_hint, function


def is_untouched(module: IRModule, name: str, function: relax.Function) -> bool:
    found = marked_functions(module)
    if [var.name_hint for var in found] != [name]:
        return False
    (after,) = found.values()
    same_hash = tvm_ffi.structural_hash(after) == tvm_ffi.structural_hash(function)
    return bool(same_hash and tvm_ffi.structural_equal(after, function))


@pytest.mark.parametrize("name", CASES)
def test_unguarded_pass_changes_or_breaks_the_function(name: str) -> None:
    case = CASES[name]
    module = case.build()
    marked = the_marked(module)
    if name == "VMShapeLower":
        with pytest.raises(tvm.error.InternalError, match="local functions"):
            case.touch(module)
    else:
        assert not is_untouched(case.touch(module), *marked)


@pytest.mark.parametrize("name", CASES)
def test_guarded_function_is_identical_and_the_rest_gets_the_pass(name: str) -> None:
    case = CASES[name]
    module = case.build()
    before, marked = unmarked_text(module), the_marked(module)
    result = no_touch(case.touch)(module)
    assert is_untouched(result, *marked)
    assert case.effect(unmarked_text(result)) != case.effect(before)
    assert unmarked_text(module) == before
    relax.analysis.well_formed(result)


@pytest.mark.parametrize("name", LEFT_ALONE)
@pytest.mark.parametrize("build", [byoc_module, composite_module, flat_module])
def test_guarded_harmless_pass_does_no_harm(name: str, build: Callable[[], IRModule]) -> None:
    module = build()
    result = no_touch(LEFT_ALONE[name])(module)
    assert is_untouched(result, *the_marked(module))
    assert unmarked_text(result) == unmarked_text(LEFT_ALONE[name](module))


def test_guarded_sequence_equals_its_passes_guarded_one_by_one() -> None:
    passes = [transform.DecomposeOpsForInference(), transform.LegalizeOps(), *LOW_LEVEL]
    module = byoc_module()
    result, stepwise = no_touch(passes)(module), module
    for touch in passes:
        stepwise = no_touch(touch)(stepwise)
    assert is_untouched(result, *the_marked(module))
    assert unmarked_text(result) == unmarked_text(stepwise)
    assert unmarked_text(no_touch(Sequential(passes))(module)) == unmarked_text(stepwise)


@pytest.mark.parametrize("build", [byoc_module, composite_module, flat_module, dynamic_module])
def test_guarded_default_pipeline_leaves_the_function_alone(build: Callable[[], IRModule]) -> None:
    module, target = build(), tvm.target.Target("llvm")
    pipeline = relax.get_default_pipeline(target)
    with target, PassContext(instruments=[NoTouch()]):
        result = no_touch(pipeline)(module)
    assert is_untouched(result, *the_marked(module))
    assert "vm.builtin." in unmarked_text(result)


def test_module_and_function_attributes_stay() -> None:
    module = byoc_module().with_attr("marker", "kept")
    result = no_touch(transform.LegalizeOps())(module)
    assert result.attrs["marker"] == "kept"
    assert result["main"].attrs["marker"] == "kept"
    assert the_marked(result)[1].attrs["Codegen"] == "convoy"


def test_module_without_marked_functions_just_gets_the_pass() -> None:
    module = IRModule({"main": flat_module()["twin"]})
    expected = transform.LegalizeOps()(module)
    tvm.ir.assert_structural_equal(no_touch(transform.LegalizeOps())(module), expected)


def test_function_whose_place_is_removed_comes_back() -> None:
    module = byoc_module()
    name, _ = the_marked(module)

    def remove(module: IRModule, _: PassContext) -> IRModule:
        kept = {var: f for var, f in module.functions_items() if var.name_hint != name}
        return IRModule(kept, attrs=module.attrs)

    result = no_touch(module_pass(remove, opt_level=0, name="Remove"))(module)
    assert is_untouched(result, *the_marked(module))


def test_function_whose_place_is_renamed_comes_back_under_the_new_name() -> None:
    def rename(module: IRModule, _: PassContext) -> IRModule:
        renamed = IRModule({})
        for var, function in module.functions_items():
            renamed.update_func(GlobalVar("renamed") if var.name_hint == "external" else var, function)
        return renamed

    module = flat_module()
    result = no_touch(module_pass(rename, opt_level=0, name="Rename"))(module)
    assert is_untouched(result, "renamed", module["external"])


def test_callee_that_only_a_marked_function_calls_stays() -> None:
    # DeadCodeElimination sees no caller of it while the marked function is out
    module = calling_module()
    result = no_touch(transform.DeadCodeElimination())(module)
    tvm.ir.assert_structural_equal(result, module)
    relax.analysis.well_formed(result)


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"VMShapeLower"}))
def test_instrument_names_the_pass_and_the_function(name: str) -> None:
    case = CASES[name]
    module = case.build()
    function, _ = the_marked(module)
    with pytest.raises(GuardError) as error, PassContext(instruments=[NoTouch()]):
        case.touch(module)
    assert error.value.step.split(" > ")[0] == case.touch.info.name
    assert error.value.node == f"function {function!r}"
    assert error.value.problem.startswith("expected ")
    assert "no_touch" in error.value.remedy


@pytest.mark.parametrize("name", CASES)
def test_instrument_is_silent_where_passes_are_guarded(name: str) -> None:
    case = CASES[name]
    module = case.build()
    with PassContext(instruments=[NoTouch()]):
        no_touch(case.touch)(module)


def test_instrument_looks_on_where_a_maker_has_failed() -> None:
    @module_pass(opt_level=0, name=min(MAKERS))
    def fails(module: IRModule, _: PassContext) -> IRModule:
        raise ValueError("refused")

    case = CASES["LegalizeOps"]
    module = case.build()
    with PassContext(instruments=[NoTouch()]):
        for _ in range(2):
            with pytest.raises(ValueError, match="refused"):
                fails(module)
            with pytest.raises(GuardError) as error:
                case.touch(module)
            assert error.value.step == "LegalizeOps"


def test_instrument_lets_partitioning_make_and_codegen_consume() -> None:
    @tvm_ffi.register_global_func("relax.ext.convoy_no_touch_test", override=True)
    def compile_functions(functions: object, options: object, names: object) -> list[tvm.runtime.Module]:
        return []

    with PassContext(instruments=[NoTouch()]):
        module = byoc_module()  # FuseOpsByPattern makes a composite, MergeCompositeFunctions takes it in
        name, function = the_marked(module)
        module.update_func(module.get_global_var(name), function.with_attr({
            "Codegen": "convoy_no_touch_test", "global_symbol": name,
        }))  # fmt: skip
        module = transform.RunCodegen()(module)
    assert not marked_functions(module)


def test_instrument_allows_what_a_named_maker_does_inside() -> None:
    def partition(module: IRModule, _: PassContext) -> IRModule:
        return transform.LegalizeOps()(module)

    module = byoc_module()
    step = module_pass(partition, opt_level=0, name="my.partition")
    with PassContext(instruments=[NoTouch(makers=["my.partition"])]):
        step(module)
    with (
        pytest.raises(GuardError, match=r"^my\.partition > LegalizeOps: function '"),
        PassContext(instruments=[NoTouch()]),
    ):
        step(module)


def conv(bind: Callable[[relax.Expr], relax.Expr], x: relax.Var) -> relax.Expr:
    return bind(relax.op.nn.conv2d(x, sketch.weight(4, 4, 3, 3), padding=1))


def test_instrument_lets_the_road_compile_what_was_partitioned_before() -> None:
    with PassContext(instruments=[NoTouch()]):
        partitioned = convoy.relax.partition()(sketch.module(conv, IMAGE))
        assert marked_functions(partitioned)
        tvm.compile(partitioned, target="convoy")


def touching(name: str) -> Pass:
    """A pass that leaves a trace in every marked function."""

    def run(module: IRModule, _: PassContext) -> IRModule:
        functions = {var: f.with_attr(name, "was here") for var, f in marked_functions(module).items()}
        changed = module.clone()
        for var, function in functions.items():
            changed.update_func(var, function)
        return changed

    return module_pass(run, opt_level=0, name=name)


def test_instrument_does_not_blame_the_passes_around_a_maker() -> None:
    module = byoc_module()
    permitted = Sequential([touching("my.partition"), transform.Normalize()], name="around")
    with PassContext(instruments=[NoTouch(makers=["my.partition"])]):
        permitted(module)


def test_instrument_still_blames_others_beside_a_maker() -> None:
    module = byoc_module()
    both = Sequential([touching("my.partition"), touching("another")], name="around")
    with (
        pytest.raises(GuardError, match=r"^around > another: function '.*expected it unchanged"),
        PassContext(instruments=[NoTouch(makers=["my.partition"])]),
    ):
        both(module)


def test_instrument_lets_a_pass_give_back_a_region_it_has_just_made() -> None:
    module = sketch.module(lambda bind, x: bind(relax.op.tan(bind(relax.op.nn.relu(conv(bind, x))))), IMAGE)
    steps: list[str] = []

    def run(module: IRModule, _: PassContext) -> IRModule:
        partitioned = convoy.relax.partition()(module)
        steps.extend(var.name_hint for var in marked_functions(partitioned))
        return module

    with PassContext(instruments=[NoTouch()]):
        module_pass(run, opt_level=0, name="TryAndGiveBack")(module)
    assert steps


def test_instrument_blames_a_pass_that_partitions_and_then_loses_what_was_there_before() -> None:
    def run(module: IRModule, _: PassContext) -> IRModule:
        return drop_marked(convoy.relax.partition()(module))

    step = module_pass(run, opt_level=0, name="PartitionAndDrop")
    with (
        pytest.raises(GuardError, match=r"^PartitionAndDrop: function '.*expected it unchanged, got none"),
        PassContext(instruments=[NoTouch()]),
    ):
        step(byoc_module())


def drop_marked(module: IRModule) -> IRModule:
    marked = marked_functions(module)
    return IRModule({var: f for var, f in module.functions_items() if var not in marked})


def test_instrument_lets_a_guarded_pass_remove_dead_code() -> None:
    # a local marked function goes with its only call; without the guard the pass has to answer for it
    remove = relax.transform.DeadCodeElimination()
    with tvm.transform.PassContext(instruments=[NoTouch()]):
        tvm.transform.Sequential([no_touch(remove)])(unread_module())
        with pytest.raises(GuardError, match=r"DeadCodeElimination: function 'main\.local': expected it"):
            remove(unread_module())


def module_of_no_results(*, private: bool) -> IRModule:
    """A marked function that gives nothing, and ``main``, which calls it."""
    kind = relax.TensorType((2, 3), "float32")
    inner = relax.BlockBuilder()
    with inner.function("external", [relax.Var("x", kind)]):
        inner.emit_func_output(relax.Tuple([]))
    external = inner.get()["external"].with_attr("Codegen", "other")
    outer = relax.BlockBuilder(IRModule({}))
    place = outer.add_func(external.without_attr("global_symbol") if private else external, "external")
    x = relax.Var("x", kind)
    with outer.function("main", [x]):
        outer.emit(relax.Call(place, [x]))
        outer.emit_func_output(outer.emit(relax.op.nn.relu(x)))
    return outer.get()


@pytest.mark.parametrize("private", [True, False])
def test_a_function_of_no_results_keeps_its_parameters_where_calls_stay(private: bool) -> None:
    # its stand-in is public, and looks the same with one more: the calls were told to be wrong
    module = module_of_no_results(private=private)
    result = no_touch(transform.LazySetOutput())(module)
    assert tvm_ffi.structural_equal(result["external"], module["external"])
    assert len(result["main"].params) == 2
