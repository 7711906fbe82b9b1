"""Marks that are no text, empty or None: one line, or what TVM takes them for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm
from relay_bound import let
from relay_marked import TYPE, norm
from tvm import relay

from convoy.errors import ModelError, TargetError
from convoy.relay import no_touch, partition, partition_for_convoy
from convoy.relay.no_touch import is_open, marked_functions

NUMBER, FRACTION = tvm.tir.IntImm("int32", 3), tvm.tir.FloatImm("float32", 1.5)
ODD = {
    "Compiler": ["", NUMBER, FRACTION, ["a", "b"], {"a": "b"}],
    "Composite": [NUMBER, FRACTION, ["a"]],
    "global_symbol": [NUMBER, ["a"]],
    "Primitive": ["yes", FRACTION],
    "Inline": ["yes"],
}
CASES = [(name, value) for name, values in ODD.items() for value in values]
FORMS = ("closure", "let", "global", "inside another")


def module(form: str, attributes: dict[str, object]) -> tvm.IRModule:
    """main: a function with these attributes, called; it holds a batch norm, which passes take apart."""
    x, p, mod = relay.Var("x0", TYPE), relay.Var("p", TYPE), tvm.IRModule()
    function = relay.Function([p], relay.nn.relu(norm(p)), TYPE)
    for name, value in attributes.items():
        function = function.with_attr(name, value)
    called: relay.Expr = relay.Call(function, [x])
    if form == "let":
        called = let(function, lambda var: relay.Call(var, [x]))
    elif form == "global":
        place = relay.GlobalVar("place")
        mod[place] = function
        called = relay.Call(place, [x])
    elif form == "inside another":
        y = relay.Var("y", TYPE)
        outer = relay.Function([y], relay.tanh(relay.Call(function, [y])), TYPE)
        called = relay.Call(outer.with_attr({"Compiler": "other", "global_symbol": "other_0"}), [x])
    mod["main"] = relay.Function([x], relay.tanh(called), TYPE)
    return relay.transform.InferType()(mod)


def build(mod: tvm.IRModule) -> object:
    return relay.build(mod, target="convoy")


def compile_for_vm(mod: tvm.IRModule) -> object:
    return relay.vm.compile(mod, target="convoy")


@pytest.mark.parametrize("entry", [build, compile_for_vm, partition_for_convoy, partition])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "value"), CASES, ids=str)
def test_a_mark_that_tvm_cannot_read_is_said_in_one_line(
    name: str, value: object, form: str, entry: Callable[[tvm.IRModule], object]
) -> None:
    attributes = {"Compiler": "convoy", name: value}
    with pytest.raises(ModelError, match=f"in the attribute {name}, got") as found:
        entry(module(form, attributes))
    assert "\n" not in str(found.value)
    assert ("'place'" if form == "global" else "in 'main'") in str(found.value)


@pytest.mark.parametrize("form", FORMS[:3])
@pytest.mark.parametrize("value", ["", NUMBER, "text"], ids=str)
@pytest.mark.parametrize("mark", ["Compiler", "Composite"])
def test_the_guard_keeps_passes_from_any_mark(mark: str, value: object, form: str) -> None:
    before = module(form, {mark: value})
    after = no_touch(relay.transform.SimplifyInference())(before)
    (function,), (was,) = (marked_functions(mod).values() for mod in (after, before))
    assert "nn.batch_norm" in str(function)
    assert tvm.ir.structural_equal(function, was)


@pytest.mark.parametrize("form", FORMS[:2])
@pytest.mark.parametrize("mark", ["Compiler", "Composite"])
def test_a_mark_that_is_none_is_no_mark(mark: str, form: str) -> None:
    # as TVM reads it: nobody's function, which passes open and a region may reach into
    before = module(form, {mark: None})
    assert not marked_functions(before)
    after = no_touch(relay.transform.SimplifyInference())(before)
    assert "nn.batch_norm" not in str(after)
    compile_for_vm(before)


def test_a_symbol_that_is_none_is_given() -> None:
    mod = partition_for_convoy(module("closure", {"Compiler": "convoy", "global_symbol": None}))
    (function,) = marked_functions(mod).values()
    assert isinstance(function.attrs["global_symbol"], str)
    build(module("closure", {"Compiler": "convoy", "global_symbol": None}))


@pytest.mark.parametrize(
    "attributes", [{}, {"Composite": "some.pattern"}, {"Primitive": 1}, {"Primitive": 0}]
)
def test_a_global_function_that_is_called_by_its_name_is_said(attributes: dict[str, object]) -> None:
    # only the virtual machine calls it; TVM built it, and a run ended in "no such function in module"
    with pytest.raises(TargetError, match=r"function place: .* calls this by its name"):
        build(module("global", attributes))


def test_numbers_that_are_zero_ask_for_nothing() -> None:
    x = relay.Var("x", TYPE)
    function = relay.Function([x], relay.nn.relu(x), TYPE)
    taken = [function.with_attr("Primitive", number) for number in (0, 1)]
    assert [is_open(one) for one in taken] == [True, False]
