"""Passes as users write them, under the guard: whatever they do to the rest, marked functions come back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import tvm
import tvm_ffi
from crowded import MODULES, backends, batches, closures, impure, scopes, symbolic, whole
from modules import composite_module
from sweep import called, compare, local_marked
from tvm import relax
from tvm.ir import BaseFunc, GlobalVar, IRModule, Type
from tvm.ir.instrument import PassInstrument
from tvm.ir.transform import Pass, PassContext, PassInfo, Sequential, module_pass
from tvm.relax import transform
from tvm.relax.expr import _update_type
from tvm.relax.expr_functor import PyExprMutator, mutator

from convoy.errors import GuardError
from convoy.relax.calls import Calls
from convoy.relax.local_functions import bindings_in, replace_local
from convoy.relax.no_touch import NoTouch, marked_functions, no_touch
from convoy.relax.partition import partition


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


def replace(module: IRModule, var: GlobalVar, function: relax.Function) -> IRModule:
    """The function in the place of the one of this name; calls stay as they are."""
    others = {v: f for v, f in module.functions_items() if v.name_hint != var.name_hint}
    return IRModule({**others, var: function}, attrs=module.attrs, global_infos=module.global_infos)


@pytest.mark.parametrize("name", ["acme_tan", "acme_alone"])
def test_another_function_in_the_place_of_a_marked_one_is_an_error(name: str) -> None:
    def same_place(module: IRModule) -> IRModule:
        return replace(module, module.get_global_var(name), module["second"])

    message = (
        f"^no_touch: function '{name}': expected it where it is called, got another function in its place"
    )
    with pytest.raises(GuardError, match=message):
        written(same_place)(backends())


def test_another_function_where_calls_find_it_by_its_name_is_an_error() -> None:
    # that nobody calls acme_alone is why its name may be taken, see above
    with pytest.raises(
        GuardError, match=r"^no_touch: function 'acme_tan': .*another function in its place"
    ):
        written(lambda module: replace(module, GlobalVar("acme_tan"), module["second"]))(backends())


def test_a_function_may_be_called_through_another_in_its_place() -> None:
    def wrap(module: IRModule) -> IRModule:
        behind, var = GlobalVar("behind"), module.get_global_var("acme_tan")
        _update_type(behind, module[var].ty)
        builder, x = relax.BlockBuilder(), relax.Var("x", module[var].params[0].ty)
        with builder.function("wrapper", [x], private=True):
            builder.emit_func_output(builder.emit(relax.Call(behind, [x])))
        changed = replace(module, var, builder.get()["wrapper"])
        changed.update_func(behind, module[var])
        return changed

    result = written(wrap)(backends())
    assert "behind" in called(result)
    tvm.ir.assert_structural_equal(result["behind"], backends()["acme_tan"])
    relax.analysis.well_formed(result)


def put(module: IRModule, made: Callable[[relax.Function], relax.Function | None]) -> IRModule:
    module = module.clone()
    for var, function in module.functions_items():
        module.update_func(
            var, replace_local(function, lambda name, f: made(f) if name == "local" else None)
        )
    return module


def test_another_function_in_the_place_of_a_local_one_is_an_error() -> None:
    def other(function: relax.Function) -> relax.Function:
        x = relax.Var("x", function.params[0].ty)
        body = relax.SeqExpr([], x)
        _update_type(body, x.ty)
        return relax.Function([x], body, function.ret_ty)

    with pytest.raises(GuardError, match=r"^no_touch: function 'main\.local': .*another function in its"):
        written(lambda module: put(module, other))(scopes())


def test_a_local_function_may_be_copied_and_changed_outside_of_it() -> None:
    result = written(lambda module: put(module, relax.utils.copy_with_new_vars))(scopes())
    tvm.ir.assert_structural_equal(result, scopes())


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


def test_a_guard_within_a_guard_leaves_the_outer_ones_functions_alone() -> None:
    # partition makes marked functions of its own, and what it has made is guarded again
    inner = [partition(codegen="third"), no_touch(transform.LegalizeOps())]
    result = no_touch(Sequential(inner))(backends())
    assert list(compare(backends(), result)) == []
    owners = [str(f.attrs.get("Codegen")) for f in marked_functions(result).values()]
    assert owners.count("third") == 1
    relax.analysis.well_formed(result)


def test_a_function_may_be_copied() -> None:
    def copy(module: IRModule) -> IRModule:
        module = module.clone()
        block = relax.utils.copy_with_new_vars(module["convoy_block"])
        module[GlobalVar("copied")] = block.with_attr("global_symbol", "copied")
        return module

    result = written(copy)(backends())
    tvm.ir.assert_structural_equal(result["convoy_block"], backends()["convoy_block"])
    assert result["copied"].attrs["global_symbol"] == "copied"
    tvm.ir.assert_structural_equal(result["copied"].body, backends()["convoy_block"].body, True)
    relax.analysis.well_formed(result)


@mutator
class Rewritten(PyExprMutator):
    """Calls of one function, with other arguments or written out."""

    def __init__(self, name: str, change: Callable[[Rewritten, relax.Call], relax.Expr]) -> None:
        super().__init__()
        self.name, self.change = name, change

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        named = isinstance(call.op, GlobalVar) and call.op.name_hint == self.name
        return self.change(self, call) if named else call


def change_calls(
    module: IRModule, name: str, change: Callable[[Rewritten, relax.Call], relax.Expr]
) -> IRModule:
    module = module.clone()
    for caller in ("main", "second"):
        var = module.get_global_var(caller)
        module.update_func(var, Rewritten(name, change).visit_expr(module[caller]))
    return module


def test_parameters_may_be_reordered_with_their_arguments() -> None:
    def reorder(module: IRModule) -> IRModule:
        module, var = module.clone(), module.get_global_var("convoy_block")
        block = module[var]
        swapped = relax.Function(block.params[::-1], block.body, block.ret_ty, attrs=block.attrs)
        module.update_func(var, swapped)
        return change_calls(
            module, "convoy_block", lambda _, call: relax.Call(call.op, list(call.args)[::-1])
        )

    result = written(reorder)(backends())
    assert [str(param.name) for param in result["convoy_block"].params] == ["s", "x"]
    tvm.ir.assert_structural_equal(
        relax.Function(result["convoy_block"].params[::-1], result["convoy_block"].body),
        relax.Function(backends()["convoy_block"].params, backends()["convoy_block"].body),
    )
    relax.analysis.well_formed(result)


def test_what_a_pass_writes_out_is_called_again() -> None:
    def write_out(module: IRModule) -> IRModule:
        def opened(walk: Rewritten, call: relax.Call) -> relax.Expr:
            function = relax.utils.copy_with_new_vars(module[call.op])
            body = function.bind_params(dict(zip(function.params, call.args, strict=True))).body
            for block in body.blocks:
                for binding in block.bindings:
                    walk.visit_binding(binding)
            return walk.visit_expr(body.body)

        return change_calls(module, "convoy_block", opened)

    result = written(write_out)(backends())
    assert list(compare(backends(), result)) == []
    assert "convoy_stands_for" not in result.script()
    relax.analysis.well_formed(result)


def test_functions_that_lose_their_attributes_call_the_marked_ones() -> None:
    def strip(module: IRModule) -> IRModule:
        module = module.clone()
        for var, function in module.functions_items():
            if isinstance(function, relax.Function):
                for key in list(function.attrs.keys() if function.attrs else ()):
                    function = function.without_attr(key)
                module.update_func(var, function)
        return module

    result = written(strip)(backends())
    assert "convoy_stands_for" not in result.script()
    (call,) = (b.value for b in bindings_in(result["convoy_block"].body))
    marked = marked_functions(result)[call.op]
    assert call.op.name_hint == "convoy_block_1"
    tvm.ir.assert_structural_equal(marked.body, backends()["convoy_block"].body, map_free_vars=True)
    relax.analysis.well_formed(result)


def test_work_that_a_pass_puts_into_a_marked_function_is_an_error() -> None:
    def negate(module: IRModule) -> IRModule:
        builder, old = relax.BlockBuilder(), module["acme_tan"]
        x = relax.Var("x", old.params[0].ty)
        with builder.function("acme_tan", [x], private=True):
            y = builder.emit(relax.op.negative(x))
            inside = old.bind_params({old.params[0]: y}).body
            builder.emit_func_output(builder.emit(inside.blocks[0].bindings[0].value))
        module = module.clone()
        built = builder.get()["acme_tan"]
        module.update_func(module.get_global_var("acme_tan"), built.with_attrs(old.attrs))
        return module

    with pytest.raises(GuardError, match=r"function 'acme_tan': .*got work on them inside"):
        written(negate)(backends())


def test_a_local_function_is_named_by_its_variable_and_its_host() -> None:
    def negated(stand_in: relax.Function) -> relax.Function:
        builder, x = relax.BlockBuilder(), relax.Var("x", stand_in.params[0].ty)
        with builder.function("negated", [x]):
            inside = stand_in.bind_params({stand_in.params[0]: builder.emit(relax.op.negative(x))}).body
            builder.emit_func_output(builder.emit(inside.blocks[0].bindings[0].value))
        return builder.get()["negated"].without_attr("global_symbol").with_attrs(stand_in.attrs)

    with pytest.raises(GuardError, match=r"^no_touch: function 'main\.local': .*got work on them inside"):
        written(lambda module: put(module, negated))(scopes())


def add_parameter(module: IRModule, read: bool) -> IRModule:
    old = module["acme_tan"]
    builder, x, more = relax.BlockBuilder(), old.params[0], relax.Var("more", old.params[0].ty)
    with builder.function("with_more", [x, more], private=True):
        given = builder.emit(relax.op.add(x, more)) if read else x
        inside = old.bind_params({x: given}).body
        builder.emit_func_output(builder.emit(inside.blocks[0].bindings[0].value))
    place = GlobalVar("with_more")
    _update_type(place, builder.get()["with_more"].ty)
    functions = {v: f for v, f in module.functions_items() if v.name_hint != "acme_tan"}
    functions[place] = builder.get()["with_more"].with_attrs(old.attrs)
    changed = IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)
    return change_calls(
        changed, "acme_tan", lambda _, call: relax.Call(place, [call.args[0], call.args[0]])
    )


def test_a_parameter_that_nobody_reads_may_be_added() -> None:
    result = written(partial(add_parameter, read=False))(backends())
    assert len(result["with_more"].params) == 2
    relax.analysis.well_formed(result)


def test_a_call_by_another_signature_is_an_error() -> None:
    with pytest.raises(GuardError, match=r"with_more.*signature that the marked function has"):
        written(partial(add_parameter, read=True))(backends())


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


def test_main_itself_may_be_marked() -> None:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x], attrs={"Codegen": "acme"}):
        builder.emit_func_output(builder.emit(relax.op.exp(x)))
    module = builder.get()
    for touch in (transform.MergeCompositeFunctions(), transform.LegalizeOps()):
        tvm.ir.assert_structural_equal(no_touch(touch)(module), module)


def test_another_function_in_the_place_of_a_marked_main_is_an_error() -> None:
    with pytest.raises(GuardError, match=r"^no_touch: function 'main': .*another function in its place"):
        written(lambda module: replace(module, module.get_global_var("main"), module["entry"]))(whole())


def call_by(names: dict[str, GlobalVar], function: relax.Function) -> relax.Function:
    return Calls(names).visit_expr(function)


def rename(module: IRModule, *, copies: bool) -> IRModule:
    """Every function by another name, or also by another, and so called by the others."""
    functions = dict(module.functions_items())
    names = {var.name_hint: GlobalVar(f"other_{var.name_hint}") for var in functions}
    for var, function in functions.items():
        _update_type(names[var.name_hint], function.ty)
    new: dict[GlobalVar, BaseFunc] = {}
    for var, function in functions.items():
        place = names[var.name_hint]
        if isinstance(function, relax.Function):
            function = relax.utils.copy_with_new_vars(call_by(names, function))
            if "global_symbol" in (function.attrs or {}):
                function = function.with_attr("global_symbol", place.name_hint)
        new[place] = function
    kept = functions if copies else {}
    return IRModule({**kept, **new}, attrs=module.attrs, global_infos=module.global_infos)


def nameless(function: relax.Function) -> str:
    """A function's text, whatever it and those that it calls are called."""
    return str(function.without_attr("global_symbol").script()).replace("other_", "")


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_functions_may_be_renamed_and_copied(name: str, copies: bool) -> None:
    # also those that marked functions call, and local ones with lengths of their host's
    before = MODULES[name]()
    after = written(partial(rename, copies=copies))(before)
    relax.analysis.well_formed(after)
    assert "convoy_stands" not in after.script()
    for text in ("calls", "not in the module"):
        assert not [line for line in compare(after, after) if text in line]
    found = Counter(nameless(f) for f in marked_functions(after).values())
    expected = Counter(nameless(f) for f in marked_functions(before).values())
    assert found == (expected + expected if copies else expected)
    assert len(list(local_marked(after))) == (1 + copies) * len(list(local_marked(before)))


def test_a_host_may_be_written_with_other_lengths() -> None:
    def renew(module: IRModule) -> IRModule:
        return replace(
            module, module.get_global_var("main"), relax.utils.copy_with_new_vars(module["main"])
        )

    for module in (symbolic(), batches(), closures()):
        result = written(renew)(module)
        assert list(compare(module, result)) == []
        relax.analysis.well_formed(result)


def test_what_is_stripped_shares_no_length_with_what_comes_back() -> None:
    def strip(module: IRModule) -> IRModule:
        var = module.get_global_var("external")
        return replace(module, var, module[var].without_attr("convoy_stands_for"))

    relax.analysis.well_formed(written(strip)(batches()))


def with_result(
    function: relax.Function, make: Callable[[relax.Expr], relax.Expr], ty: Type
) -> relax.Function:
    var = relax.Var("made", ty)
    value = make(function.body.body)
    if value.ty.is_missing():
        _update_type(value, ty)
    block = relax.BindingBlock([relax.VarBinding(var, value)])
    body = relax.SeqExpr([*function.body.blocks, block], var)
    _update_type(body, ty)
    return relax.Function(function.params, body, ty, function.is_pure, function.attrs)


def test_work_on_the_result_of_a_marked_function_is_an_error() -> None:
    def negate(module: IRModule) -> IRModule:
        var = module.get_global_var("acme_tan")
        old = module[var]
        return replace(module, var, with_result(old, relax.op.negative, old.ret_ty))

    message = (
        "^no_touch: function 'acme_tan': expected its result handed on as it is, got work on it inside"
    )
    with pytest.raises(GuardError, match=message):
        written(negate)(backends())


def test_another_type_of_a_result_is_an_error() -> None:
    def wrap(module: IRModule) -> IRModule:
        var, place = module.get_global_var("acme_tan"), GlobalVar("acme_tan")
        old = module[var]
        ty = relax.TupleType([old.ret_ty])
        new = with_result(old, lambda result: relax.Tuple([result]), ty)
        _update_type(place, new.ty)

        def item(walk: Rewritten, call: relax.Call) -> relax.Expr:
            return relax.TupleGetItem(walk.builder_.emit(relax.Call(place, call.args)), 0)

        return change_calls(replace(module, place, new), "acme_tan", item)

    message = "^no_touch: function 'acme_tan': expected the signature that the marked function has"
    with pytest.raises(GuardError, match=message):
        written(wrap)(backends())


def test_a_function_that_becomes_local_leaves_the_global_one_its_symbol() -> None:
    def localize(module: IRModule) -> IRModule:
        module, main = transform.ToNonDataflow()(module), module["main"]
        var = module.get_global_var("external")
        inner = relax.utils.copy_with_new_vars(module[var])
        local = relax.Var("mine", inner.ty)
        body = call_by({"external": local}, module["main"]).body
        block = relax.BindingBlock([relax.VarBinding(local, inner)])
        body = relax.SeqExpr([block, *body.blocks], body.body)
        function = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
        return replace(module, module.get_global_var("main"), function)

    result = transform.LambdaLift()(written(localize)(impure()))
    relax.analysis.well_formed(result)
    assert sum("mine" in var.name_hint for var in marked_functions(result)) == 1
    tvm.ir.assert_structural_equal(result["external"], impure()["external"])


def exchange(module: IRModule, left: str, right: str) -> IRModule:
    """Two functions, each in the place of the other; calls stay as they are."""
    a, b = module.get_global_var(left), module.get_global_var(right)
    functions = dict(module.functions_items()) | {a: module[b], b: module[a]}
    return IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


@pytest.mark.parametrize("marks", [{"Codegen": "acme"}, {}])
def test_functions_in_the_places_of_each_other_are_an_error(marks: dict[str, str]) -> None:
    module = backends().clone()
    if marks:
        module.update_func(module.get_global_var("second"), module["second"].with_attrs(marks))
    with pytest.raises(GuardError, match=r"^no_touch: function .*another function in its place"):
        written(partial(exchange, left="acme_tan", right="second"))(module)


def test_marked_functions_that_change_names_with_their_calls_are_left_alone() -> None:
    def swap_names(module: IRModule) -> IRModule:
        names = {"acme_tan": GlobalVar("acme_alone"), "acme_alone": GlobalVar("acme_tan")}
        for name, var in names.items():
            _update_type(var, module[name].ty)
        names |= {v.name_hint: v for v in module.get_global_vars() if v.name_hint not in names}
        functions = {
            names[var.name_hint]: call_by(names, f) if isinstance(f, relax.Function) else f
            for var, f in module.functions_items()
        }
        return IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)

    before = backends()
    after = written(swap_names)(before)
    relax.analysis.well_formed(after)
    for old, new in (("acme_tan", "acme_alone"), ("acme_alone", "acme_tan")):
        assert nameless(after[new]) == nameless(before[old]).replace(f"def {old}", f"def {new}")
    assert Counter(called(after))["acme_alone"] == Counter(called(before))["acme_tan"]


def counting(opt_level: int) -> tuple[Pass, list[str]]:
    """A pass that changes nothing, and a list with an item for each time that it ran."""
    seen: list[str] = []

    def count(module: IRModule, _: PassContext) -> IRModule:
        seen.append("ran")
        return module

    return module_pass(count, opt_level=opt_level, name="Counted"), seen


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    "disabled", [["Counted"], ["Other"], ["no_touch(Counted)", "no_touch(sequential)"]]
)
def test_a_pass_that_is_switched_off_is_not_run(several: bool, disabled: list[str]) -> None:
    counted, seen = counting(0)
    with PassContext(opt_level=3, disabled_pass=disabled):
        plain = Sequential([counted])(backends())
        ran = len(seen)
        guarded = Sequential([no_touch([counted] if several else counted)])(plain)
    assert len(seen) - ran == (1 if disabled == ["Other"] else 0)
    assert ran == (0 if disabled == ["Counted"] else 1)
    tvm.ir.assert_structural_equal(guarded, backends())


@pytest.mark.parametrize("required", [["no_touch(Counted)"], []])
def test_a_pass_is_required_by_the_name_of_its_guard(required: list[str]) -> None:
    counted, seen = counting(3)
    with PassContext(opt_level=1, required_pass=required):
        Sequential([no_touch(counted)])(backends())
    assert len(seen) == len(required)


def test_what_a_pass_requires_runs_before_it_and_under_a_guard() -> None:
    # a pass that requires ToNonDataflow, which writes all blocks anew  =>  main's, but not acme_tan's
    mine = module_pass(
        lambda module, _: module, opt_level=0, name="Mine", required=["relax.transform.ToNonDataflow"]
    )
    module = backends()
    plain, guarded = Sequential([mine])(module), Sequential([no_touch(mine)])(module)
    tvm.ir.assert_structural_equal(guarded, no_touch(transform.ToNonDataflow())(module))
    assert not tvm_ffi.structural_equal(plain, guarded)
    assert not tvm_ffi.structural_equal(guarded, module)
    tvm.ir.assert_structural_equal(no_touch(mine)(module), module)  # alone it is run alone, as by TVM
