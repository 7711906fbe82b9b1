"""no_touch and NoTouch: every pass that rewrites or breaks a marked function, without them and with."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import tvm
from relay_marked import FORMS, X, conv, module, module_with_inlines, norm, tempting
from tvm import relay
from tvm.relay import transform

from convoy.relay.hidden import hide_call, new_guard
from convoy.relay.no_touch import MAKERS, NoTouch, marked_functions, no_touch
from convoy.relay.partition import partition

Pass = tvm.ir.transform.Pass
TARGET = tvm.target.Target("llvm -mcpu=skylake-avx512")


class _Relabel(relay.ExprMutator):
    """relu → tanh, wherever it is."""

    def visit_call(self, call: relay.Call) -> relay.Expr:
        new = super().visit_call(call)
        named = isinstance(new.op, tvm.ir.Op) and new.op.name == "nn.relu"
        return relay.tanh(new.args[0]) if named else new


@tvm.ir.transform.module_pass(opt_level=0, name="RelabelEverywhere")
def relabel(mod: tvm.IRModule, _: tvm.ir.transform.PassContext) -> tvm.IRModule:
    return tvm.IRModule({var: _Relabel().visit(f) for var, f in mod.functions.items()})


@tvm.ir.transform.module_pass(opt_level=0, name="relay.build_module.optimize")
def optimize(mod: tvm.IRModule, _: tvm.ir.transform.PassContext) -> tvm.IRModule:
    return relay.build_module.optimize(mod, target=TARGET)[0]


@tvm.ir.transform.module_pass(opt_level=0, name="PartialEvaluate")
def partial_evaluate(mod: tvm.IRModule, _: tvm.ir.transform.PassContext) -> tvm.IRModule:
    return transform.InferType()(transform.PartialEvaluate()(mod))


PASSES: dict[str, Callable[[], Pass]] = {
    "SimplifyInference": transform.SimplifyInference,
    "FoldConstant": transform.FoldConstant,
    "FoldScaleAxis": lambda: tvm.transform.Sequential(
        [transform.SimplifyInference(), transform.FoldConstant(), transform.FoldScaleAxis()]
    ),
    "CanonicalizeOps": transform.CanonicalizeOps,
    "AlterOpLayout": transform.AlterOpLayout,
    "ConvertLayout": lambda: transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]}),
    "ToMixedPrecision": transform.ToMixedPrecision,
    "FuseOps": lambda: transform.FuseOps(2),
    "ToANormalForm": transform.ToANormalForm,
    "PartialEvaluate": lambda: partial_evaluate,
    "DeadCodeElimination": lambda: transform.DeadCodeElimination(inline_once=True),
    "Inline": transform.Inline,
    "a Python function pass": lambda: relabel,
    "relay.build_module.optimize": lambda: optimize,
}
SPARED = {"global": {"SimplifyInference", "FoldConstant", "FoldScaleAxis", "CanonicalizeOps",
                     "AlterOpLayout", "ConvertLayout", "ToMixedPrecision", "FuseOps",
                     "ToANormalForm"},
          "closure": set(), "composite": set()}  # fmt: skip
"""What leaves the function alone by itself: function passes skip global external functions."""


def run(guarded: Pass, mod: tvm.IRModule) -> tvm.IRModule:
    with TARGET, tvm.transform.PassContext(opt_level=3):
        return transform.InferType()(guarded(mod))


def hashes(mod: tvm.IRModule) -> list[int]:
    return sorted(tvm.ir.structural_hash(f) for f in marked_functions(mod).values())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", PASSES)
def test_unguarded_the_function_changes(name: str, form: str) -> None:
    # without the guard the pass rewrites the function, loses it, or fails
    before = module_with_inlines(form) if name == "Inline" else module(form)
    expected = hashes(before)
    try:
        after = run(PASSES[name](), before)
    except Exception:  # the pass does not survive the marked function
        return
    assert (hashes(after) == expected) == (name in SPARED[form])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", PASSES)
def test_guarded_the_function_is_untouched(name: str, form: str) -> None:
    # with the guard it is bit-identical, and the rest of the module got the pass
    before = module_with_inlines(form) if name == "Inline" else module(form)
    after = run(no_touch(PASSES[name]()), before)
    assert hashes(after) == hashes(before)
    assert not tvm.ir.structural_equal(after["main"], before["main"])


# What the guard keeps in order.


def test_a_function_nobody_calls_survives() -> None:
    # DeadCodeElimination guarded: neither the dead external function nor what it calls is removed
    before = module_with_inlines("global")
    after = run(no_touch(transform.RemoveUnusedFunctions()), before)
    names = {var.name_hint for var in after.get_global_vars()}
    assert {"convoy_0", "convoy_dead", "for_marked"} <= names


def test_unmarked_modules_get_the_pass_itself() -> None:
    # nothing to guard: the same result as without
    x = relay.var("x", shape=X, dtype="float32")
    plain = transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], tempting(x))))
    simplify = transform.SimplifyInference()
    tvm.ir.assert_structural_equal(no_touch(simplify)(plain), simplify(plain))


@pytest.mark.slow
def test_a_guarded_module_builds_and_runs() -> None:
    # conv → [a composite with a batch norm whole in it] → conv computes the same after guarded passes
    before = module("composite")
    passes = [transform.SimplifyInference(), transform.FoldConstant(), transform.CanonicalizeOps()]
    x = np.random.default_rng(0).uniform(-1, 1, X).astype(np.float32)
    with tvm.transform.PassContext(opt_level=3):
        after = no_touch(passes)(before)
    want, got = (relay.create_executor("vm", mod=mod).evaluate()(x).numpy() for mod in (before, after))
    assert np.abs(got - want).max() <= 1e-6 * np.abs(want).max()


def test_guarded_sequences_obey_the_context() -> None:
    # a sequence leaves out what opt_level forbids, guarded or not
    before = module("composite")
    with tvm.transform.PassContext(opt_level=0):
        after = no_touch([transform.FoldConstant()])(before)
    tvm.ir.assert_structural_equal(after, before)


# NoTouch.


def watched(guarded: Pass, mod: tvm.IRModule, *makers: str) -> tvm.IRModule:
    instrument = NoTouch([*MAKERS, *makers])
    with TARGET, tvm.transform.PassContext(opt_level=3, instruments=[instrument]):
        return guarded(mod)


@pytest.mark.parametrize(("form", "name"), [
    ("closure", "main: convoy_0"), ("composite", "main: Composite convoy.tempting 0"),
])  # fmt: skip
def test_the_instrument_names_the_pass_and_the_function(form: str, name: str) -> None:
    with pytest.raises(Exception, match="SimplifyInference: function") as caught:
        watched(transform.SimplifyInference(), module(form))
    assert name in str(caught.value)
    assert "wrap the pass in convoy.relay.no_touch" in str(caught.value)


def test_the_instrument_names_the_passes_around() -> None:
    # the pass inside a sequence, outermost first
    inside = tvm.transform.Sequential([transform.InferType(), relabel], name="mine")
    with pytest.raises(Exception, match="mine > RelabelEverywhere: function 'convoy_0'"):
        watched(inside, module("global"))


def test_the_instrument_is_silent_about_guarded_passes() -> None:
    for form in FORMS:
        watched(no_touch([transform.SimplifyInference(), transform.FoldConstant()]), module(form))


def test_the_instrument_is_silent_about_makers() -> None:
    watched(relabel, module("global"), "RelabelEverywhere")


def test_the_instrument_is_silent_about_makers_in_a_sequence() -> None:
    # what a maker did inside is not laid at the door of the passes around it; what others do still is
    around = tvm.transform.Sequential([relabel, transform.InferType()], name="around")
    watched(around, module("global"), "RelabelEverywhere")
    both = [relabel, transform.InferType(), transform.SimplifyInference()]
    around = tvm.transform.Sequential(both, name="around")
    with pytest.raises(Exception, match="around > SimplifyInference"):
        watched(around, module("closure"), "RelabelEverywhere")


@pytest.mark.parametrize("form", ["global", "composite"])
def test_the_instrument_watches_a_whole_build(form: str) -> None:
    # TVM's build up to code generation, on functions that are global: nothing touches them. A composite
    # alone belongs to nobody yet, and the first pass that opens it is named
    def build(mod: tvm.IRModule) -> None:
        relay.build(mod, target="llvm")

    if form == "global":
        watched(build, global_alone())
        return
    with pytest.raises(Exception, match="SimplifyInference: function 'main: Composite"):
        watched(build, module(form))


def global_alone() -> tvm.IRModule:
    """main calls a Convoy function of conv → batch norm → relu, as Convoy's partition leaves it."""
    x = relay.var("x", shape=X, dtype="float32")
    body = relay.nn.relu(norm(conv(x)))
    return partition(transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body))))


def test_a_lost_mark_is_noticed() -> None:
    @tvm.ir.transform.module_pass(opt_level=0, name="Unmark")
    def unmark(mod: tvm.IRModule, _: tvm.ir.transform.PassContext) -> tvm.IRModule:
        return tvm.IRModule({v: f.without_attr("Compiler") for v, f in mod.functions.items()})

    with pytest.raises(Exception, match=r"Unmark: function 'convoy_0': expected it unchanged, got none"):
        watched(unmark, module("global"))


@pytest.mark.parametrize("form", FORMS)
def test_a_guard_within_a_guard_leaves_the_outer_ones_functions_alone(form: str) -> None:
    # partition makes marked functions of its own, and what it has made is guarded again
    @tvm.ir.transform.module_pass(opt_level=0, name="Partition")
    def cut(mod: tvm.IRModule, _: tvm.ir.transform.PassContext) -> tvm.IRModule:
        return partition(mod, codegen="third")

    inside: list[set[str]] = []

    @tvm.ir.transform.module_pass(opt_level=0, name="Look")
    def look(mod: tvm.IRModule, _: tvm.ir.transform.PassContext) -> tvm.IRModule:
        inside.append(set(marked_functions(mod)))
        return mod

    passes = [cut, no_touch(transform.FoldConstant()), look, transform.SimplifyInference()]
    result = marked_functions(no_touch(passes)(module(form)))
    before = marked_functions(module(form))
    assert all(tvm.ir.structural_equal(result[name], function) for name, function in before.items())
    assert inside[0] == result.keys() - before.keys() != set()


def test_threads_hide_calls_of_new_arities_at_once():
    # 8 threads that each hide a call of 41 arguments, which none was hidden of before  =>  one op, no error
    ready = Barrier(8)

    def hide(_: int) -> relay.Call:
        args = [relay.var(f"x{i}", shape=X) for i in range(41)]
        call = relay.Call(relay.Function(args, args[0]), args)
        ready.wait()
        with new_guard() as guard:
            return hide_call(call, relay.TensorType(X), guard)

    with ThreadPoolExecutor(8) as pool:
        hidden = list(pool.map(hide, range(8)))
    assert {str(call.op.name) for call in hidden} == {"convoy.hidden_41"}
