"""Passes as users write them, under the guard: what they add stays apart from what is hidden from them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from relay_bound import PLAIN, mark
from relay_marked import FORMS, TYPE, X, conv, module_with_inlines, weight
from tvm import relay

from convoy.relay import no_touch
from convoy.relay.dataflow import attribute
from convoy.relay.no_touch import marked_functions
from relay.relay_modules import random

Pass = tvm.ir.transform.Pass
X1 = random(*X)


def written(run: Callable[[tvm.IRModule], tvm.IRModule]) -> Pass:
    return no_touch(tvm.ir.transform.module_pass(lambda mod, _: run(mod), opt_level=0, name="Written"))


def function(compute: Callable[[relay.Expr], relay.Expr], **attributes: str) -> relay.Function:
    x = relay.Var("p", TYPE)
    plain = relay.Function([x], compute(x), TYPE)
    return plain.with_attr(attributes) if attributes else plain


PLACE = relay.GlobalVar("external")


def module() -> tvm.IRModule:
    """main: tanh, then the marked function, which is an exp."""
    made = tvm.IRModule({PLACE: function(relay.exp, Compiler="acme", global_symbol="external")})
    made["main"] = function(lambda x: PLACE(relay.tanh(x)))
    return relay.transform.InferType()(made)


def add(place: relay.GlobalVar, new: relay.Function) -> Callable[[tvm.IRModule], tvm.IRModule]:
    """A pass that has ``main`` call one function more."""

    def run(mod: tvm.IRModule) -> tvm.IRModule:
        main = mod["main"]
        changed = tvm.IRModule({**mod.functions, place: new})
        body = relay.Call(place, [main.body])
        changed[changed.get_global_var("main")] = relay.Function(list(main.params), body, TYPE)
        return changed

    return run


def answers(mod: tvm.IRModule, x: np.ndarray) -> np.ndarray:
    """What the functions compute, whoever's they are."""
    plain = {var: relay.Function(list(f.params), f.body, f.ret_type) for var, f in mod.functions.items()}
    return relay.create_executor("debug", mod=tvm.IRModule(plain)).evaluate()(tvm.nd.array(x)).numpy()


@pytest.mark.parametrize("attributes", [{}, {"Compiler": "other", "global_symbol": "external"}])
def test_a_new_function_with_the_name_of_a_hidden_one_gets_another(attributes: dict[str, str]) -> None:
    # tanh → exp, and a pass adds sinh as "external"  =>  tanh → exp → sinh; not exp, which has the name
    new = function(lambda x: relay.sinh(relay.sinh(x)), **attributes)
    result = written(add(relay.GlobalVar("external"), new))(module())
    assert {str(var.name_hint) for var in result.get_global_vars()} == {"external", "external_1", "main"}
    tvm.ir.assert_structural_equal(result["external"], module()["external"])
    if attributes:
        assert result["external_1"].attrs["global_symbol"] == "external_1"
    np.testing.assert_allclose(answers(result, X1), np.sinh(np.sinh(np.exp(np.tanh(X1)))), rtol=1e-5)


def test_a_new_function_with_a_name_that_is_free_keeps_it() -> None:
    result = written(add(relay.GlobalVar("mine"), function(relay.sinh)))(module())
    assert {str(var.name_hint) for var in result.get_global_vars()} == {"external", "mine", "main"}
    np.testing.assert_allclose(answers(result, X1), np.sinh(np.exp(np.tanh(X1))), rtol=1e-5)


def test_another_function_in_the_place_of_a_marked_one_is_an_error() -> None:
    message = (
        "no_touch: function 'external': expected it where it is called, got another function in its place"
    )
    with pytest.raises(Exception, match=message):
        written(add(PLACE, function(relay.sinh)))(module())


def test_a_guarded_partition_beside_another_of_the_same_codegen() -> None:
    # exp → acme, and then tanh → acme, too: PartitionGraph calls both regions tvmgen_default_acme_main_0
    x = relay.Var("x", TYPE)
    body = relay.tanh(relay.exp(relay.tanh(x)))
    plain = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body, TYPE)))
    result = no_touch(cut("tanh"))(cut("exp")(plain))
    np.testing.assert_allclose(answers(result, X1), np.tanh(np.exp(np.tanh(X1))), rtol=1e-5)


def cut(op: str) -> Pass:
    """TVM's own passes that give all calls of an op to ``acme``."""
    table = [(f"acme.{op}", tvm.relay.dataflow_pattern.is_op(op)(tvm.relay.dataflow_pattern.wildcard()))]
    made = relay.transform
    passes = [made.MergeComposite(table), made.AnnotateTarget("acme"), made.PartitionGraph()]
    return tvm.transform.Sequential(passes)


def through_json(mod: tvm.IRModule) -> tvm.IRModule:
    return tvm.ir.load_json(tvm.ir.save_json(mod))


TEXT = {"AnnotateSpans": relay.transform.AnnotateSpans(), "JSON": written(through_json)}
"""Passes that write a module and read it again, so that all of it is new."""


@pytest.mark.parametrize("name", TEXT)
@pytest.mark.parametrize("form", FORMS)
def test_a_pass_may_go_through_text(name: str, form: str) -> None:
    # the marked function calls a global one, by a variable that is another now
    before = module_with_inlines(form)
    after = no_touch(TEXT[name])(before)
    tvm.ir.assert_structural_equal(after, before)
    assert ("span=" in str(after["main"])) == (name == "AnnotateSpans")


@pytest.mark.parametrize("name", TEXT)
@pytest.mark.parametrize("form", PLAIN)
def test_a_function_comes_back_through_text_however_it_is_bound(name: str, form: str) -> None:
    x = relay.Var("x0", TYPE)
    body = PLAIN[form](mark("acme", "acme_0"), relay.tanh(x))
    before = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body)))
    after = no_touch(TEXT[name])(before)
    assert as_written(after) == as_written(before)
    assert "convoy" not in str(after)


def as_written(mod: tvm.IRModule) -> set[int]:
    return {tvm.ir.structural_hash(function) for function in marked_functions(mod).values()}


@pytest.mark.parametrize("form", PLAIN)
def test_no_attribute_of_the_guard_is_left(form: str) -> None:
    x = relay.Var("x0", TYPE)
    body = PLAIN[form](mark("acme", "acme_0"), relay.tanh(x))
    before = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body)))
    made = relay.transform
    for name, passes in {
        "ToANormalForm": [made.ToANormalForm()],
        "PartialEvaluate": [made.ToANormalForm(), made.PartialEvaluate()],
        "AnnotateTarget": [made.AnnotateTarget("other")],
    }.items():
        after = no_touch(passes)(before)
        assert "convoy" not in str(after), name
        assert as_written(after) == as_written(before), name


def test_a_bound_function_in_normal_form_is_the_value_of_its_let() -> None:
    x, f = relay.Var("x", TYPE), relay.Var("f")
    function = mark("acme", "acme_0")
    body = relay.Let(f, function, relay.Call(f, [relay.tanh(relay.Call(f, [x]))]))
    before = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body)))
    after = no_touch(relay.transform.ToANormalForm())(before)
    assert tvm.ir.structural_equal(after["main"].body.value, before["main"].body.value)


def test_who_asks_for_a_gradient_is_told_of_which_function() -> None:
    message = (
        "no_touch: function 'external': expected a pass that works around it, got one that asks for its"
    )
    with pytest.raises(Exception, match=message):
        no_touch(relay.transform.FirstOrderGradient())(module())


class _MarkAll(relay.ExprMutator):
    """Every function written in another is somebody's."""

    def visit_function(self, fn: relay.Function) -> relay.Function:
        return super().visit_function(fn).with_attr("Compiler", "third")


@pytest.mark.parametrize("form", PLAIN)
def test_a_pass_may_mark_whatever_it_finds(form: str) -> None:
    x = relay.Var("x0", TYPE)
    body = PLAIN[form](mark("acme", "acme_0"), relay.tanh(x))
    before = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body)))

    def mark_all(mod: tvm.IRModule) -> tvm.IRModule:
        main = mod["main"]
        return tvm.IRModule.from_expr(relay.Function(list(main.params), _MarkAll().visit(main.body)))

    after = written(mark_all)(before)
    assert "convoy" not in str(after)
    found: list[relay.Function] = []
    relay.analysis.post_order_visit(
        after["main"], lambda node: found.append(node) if isinstance(node, relay.Function) else None
    )
    acme = {tvm.ir.structural_hash(f) for f in found if attribute(f, "Compiler") == "acme"}
    assert acme == as_written(before)


def test_a_function_that_is_called_twice_may_read_what_is_around_it() -> None:
    # of two let-bound values, by functions of two codegens, one of them called twice
    x, a, b = relay.Var("x0", TYPE), relay.Var("a"), relay.Var("b")
    f = mark("acme", "acme_0", lambda p: relay.add(relay.exp(p), a))
    g = mark("other", "other_0", lambda p: relay.multiply(p, b))
    body = relay.Let(a, relay.tanh(x), relay.Let(b, relay.exp(a), g(relay.add(f(x), f(a)))))
    before = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body)))
    for name, guarded in {"nothing": written(lambda mod: mod), **TEXT}.items():
        after = no_touch(guarded)(before)
        assert len(marked_functions(after)) >= 2, name
        np.testing.assert_allclose(unmarked(after), unmarked(before), rtol=1e-5)


def unmarked(mod: tvm.IRModule) -> np.ndarray:
    """What the module computes by the virtual machine, written out."""
    plain = tvm.IRModule.from_expr(_Unmark().visit(mod["main"]))
    return relay.create_executor("vm", mod=plain).evaluate()(tvm.nd.array(X1)).numpy()


class _Unmark(relay.ExprMutator):
    def visit_function(self, fn: relay.Function) -> relay.Function:
        new = super().visit_function(fn)
        return relay.Function(list(new.params), new.body)


def test_what_a_hidden_function_calls_comes_back_where_a_pass_has_renamed_it() -> None:
    def drop(mod: tvm.IRModule) -> tvm.IRModule:
        return tvm.IRModule({mod.get_global_var("main"): mod["main"]})

    x, q, helper = relay.Var("x0", TYPE), relay.Var("q", TYPE), relay.GlobalVar("helper")
    f = mark("acme", "acme_0", lambda p: relay.exp(relay.Call(helper, [p])))
    made = tvm.IRModule({helper: relay.Function([q], relay.tanh(q), TYPE)})
    made["main"] = relay.Function([x], f(x), TYPE)
    before = relay.transform.InferType()(made)
    tvm.ir.assert_structural_equal(written(drop)(before), before)


def counting(opt_level: int) -> tuple[tvm.transform.Pass, list[str]]:
    """A pass that changes nothing, and a list with an item for each time that it ran."""
    seen: list[str] = []

    def count(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        seen.append("ran")
        return module

    return tvm.ir.transform.module_pass(count, opt_level=opt_level, name="Counted"), seen


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    "disabled", [["Counted"], ["Other"], ["no_touch(Counted)", "no_touch(sequential)"]]
)
def test_a_pass_that_is_switched_off_is_not_run(several: bool, disabled: list[str]) -> None:
    counted, seen = counting(0)
    with tvm.transform.PassContext(opt_level=3, disabled_pass=disabled):
        plain = tvm.ir.transform.Sequential([counted])(module())
        ran = len(seen)
        guarded = tvm.ir.transform.Sequential([no_touch([counted] if several else counted)])(plain)
    assert len(seen) - ran == (1 if disabled == ["Other"] else 0)
    assert ran == (0 if disabled == ["Counted"] else 1)
    tvm.ir.assert_structural_equal(guarded, module())


@pytest.mark.parametrize("required", [["no_touch(Counted)"], []])
def test_a_pass_is_required_by_the_name_of_its_guard(required: list[str]) -> None:
    counted, seen = counting(3)
    with tvm.transform.PassContext(opt_level=1, required_pass=required):
        tvm.ir.transform.Sequential([no_touch(counted)])(module())
    assert len(seen) == len(required)


def test_what_a_pass_requires_runs_before_it_and_under_a_guard() -> None:
    # ConvertLayout requires CanonicalizeOps: conv → bias_add  =>  conv → add, around the marked one
    convert = relay.transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]})
    biased = function(
        lambda p: relay.nn.bias_add(conv(p), weight(4)), Compiler="acme", global_symbol="biased"
    )
    x = relay.Var("x0", TYPE)
    body = biased(relay.nn.bias_add(conv(x), weight(4)))
    before = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body, TYPE)))
    with tvm.transform.PassContext(opt_level=3):
        plain, guarded = (
            tvm.transform.Sequential([one])(before).astext(show_meta_data=False)
            for one in (convert, no_touch(convert))
        )
    assert (plain.count("bias_add"), guarded.count("bias_add")) == (0, 1)
    assert guarded.count("layout_transform") > 0
