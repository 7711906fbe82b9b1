"""Passes as users write them, under the guard: whatever they do to the rest, marked functions come back."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import tvm
import tvm_ffi
from crowded import backends
from modules import composite_module
from sweep import called, compare
from tvm import relax
from tvm.ir import GlobalVar, IRModule
from tvm.ir.instrument import PassInstrument
from tvm.ir.transform import Pass, PassContext, PassInfo, Sequential, module_pass
from tvm.relax import transform
from tvm.relax.expr_functor import PyExprMutator, mutator

from convoy.relax.no_touch import NoTouch, marked_functions, no_touch


def written(run: Callable[[IRModule], IRModule]) -> Pass:
    return no_touch(module_pass(lambda module, _: run(module), opt_level=0, name="Written"))


def test_the_same_module_comes_back_as_it_was() -> None:
    tvm.ir.assert_structural_equal(written(lambda module: module)(backends()), backends())


def test_a_pass_that_fails_leaves_the_module_as_it_was() -> None:
    module = backends()

    def fail(hollow: IRModule) -> IRModule:
        hollow.update_func(hollow.get_global_var("acme_pair"), hollow["second"])
        transform.LegalizeOps()(hollow)
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        written(fail)(module)
    tvm.ir.assert_structural_equal(module, backends())
    relax.analysis.well_formed(module)


def test_a_function_whose_caller_is_deleted_stays() -> None:
    def drop(module: IRModule) -> IRModule:
        kept = {var: f for var, f in module.functions_items() if var.name_hint not in ("main", "second")}
        return IRModule(kept, attrs=module.attrs, global_infos=module.global_infos)

    result = written(drop)(backends())
    functions = {var.name_hint: f for var, f in marked_functions(backends()).items()}
    assert functions.keys() == {var.name_hint for var in marked_functions(result)}
    assert all(tvm_ffi.structural_equal(result[name], f) for name, f in functions.items())


@mutator
class WithoutTan(PyExprMutator):
    """A call of a marked function replaced by what it reads."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if isinstance(call.op, GlobalVar) and call.op.name_hint == "acme_tan":
            return self.visit_expr(call.args[0])
        return super().visit_call_(call)


def test_a_call_may_be_replaced() -> None:
    def replace(module: IRModule) -> IRModule:
        module = module.clone()
        module.update_func(module.get_global_var("main"), WithoutTan().visit_expr(module["main"]))
        return module

    result = written(replace)(backends())
    assert list(compare(backends(), result)) == ["calls of acme_tan: were 1, are 0"]
    relax.analysis.well_formed(result)


def test_a_new_function_gets_a_name_that_is_free() -> None:
    def add(module: IRModule) -> IRModule:
        builder = relax.BlockBuilder(module)
        builder.add_func(module["second"], "acme_tan")
        builder.add_func(module["loss"].without_attr("global_symbol"), "convoy_block")
        return builder.get()

    result = written(add)(backends())
    assert list(compare(backends(), result)) == []


def test_a_name_that_a_pass_took_leaves_the_function_another() -> None:
    def take_the_name(module: IRModule) -> IRModule:
        others = {var: f for var, f in module.functions_items() if var.name_hint != "acme_alone"}
        mine = {GlobalVar("acme_alone"): module["second"]}
        return IRModule({**others, **mine}, attrs=module.attrs, global_infos=module.global_infos)

    result = written(take_the_name)(backends())
    moved = result["acme_alone_1"]
    assert moved.attrs["global_symbol"] == "acme_alone_1"
    assert tvm_ffi.structural_equal(moved.body, backends()["acme_alone"].body, map_free_vars=True)
    tvm.ir.assert_structural_equal(result["acme_alone"], backends()["second"])


def test_calls_follow_a_variable_that_a_pass_makes_anew() -> None:
    def renew(module: IRModule) -> IRModule:
        anew = {GlobalVar(var.name_hint): f for var, f in module.functions_items()}
        return IRModule(anew, attrs=module.attrs, global_infos=module.global_infos)

    result = written(renew)(backends())
    assert list(compare(backends(), result)) == []
    assert sorted(called(result)) == sorted(called(backends()))
    relax.analysis.well_formed(result)


def test_guards_nest() -> None:
    once = no_touch(transform.LegalizeOps())(backends())
    tvm.ir.assert_structural_equal(no_touch(no_touch(transform.LegalizeOps()))(backends()), once)
    around = no_touch(Sequential([no_touch(transform.LegalizeOps()), transform.Normalize()]))
    assert list(compare(backends(), around(backends()))) == []


class Seen(PassInstrument):  # type: ignore[misc]
    __slots__ = ("names",)

    def __init__(self) -> None:
        self.names: list[str] = []
        super().__init__()

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.names.append(info.name)


def test_instruments_see_the_pass_inside() -> None:
    seen = Seen()
    with PassContext(instruments=[seen, NoTouch()]):
        no_touch(transform.LegalizeOps())(backends())
    assert seen.names[-2:] == ["LegalizeOps", "no_touch(LegalizeOps)"]


def test_passes_may_run_from_several_threads() -> None:
    module, guarded = backends(), no_touch([transform.LegalizeOps(), transform.DeadCodeElimination()])
    expected = guarded(module)
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(lambda _: guarded(module), range(12)):
            tvm.ir.assert_structural_equal(result, expected)


def test_a_pass_that_consumes_marked_functions_sees_none() -> None:
    maker = transform.MergeCompositeFunctions()
    module = composite_module()
    assert list(compare(module, no_touch(maker)(module))) == []
    assert list(compare(module, maker(module))) != []
