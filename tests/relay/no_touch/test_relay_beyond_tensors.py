"""A marked function that takes or makes what is no tensor is an error of one line: TVM calls none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm
from relay_bound import FUNCTION, block, inside
from relay_marked import TYPE
from tvm import relay
from tvm.relay.adt import Clause, PatternConstructor, PatternVar

from convoy.errors import ModelError
from convoy.relay import partition_for_convoy

Call = tuple[relay.Function, list[relay.Expr]]
"""A function and what it is called with."""


def opening(boxed: relay.Expr, full: relay.Constructor) -> relay.Expr:
    held = relay.var("held")
    return relay.Match(boxed, [Clause(PatternConstructor(full, [PatternVar(held)]), relay.tanh(held))])


def making(full: relay.Constructor, x: relay.Expr) -> Call:
    p = relay.Var("p", TYPE)
    return relay.Function([p], opening(full(block(p)), full), TYPE), [x]


def reading(full: relay.Constructor, x: relay.Expr) -> Call:
    boxed = relay.Var("boxed", relay.TypeCall(full.belong_to, []))
    return relay.Function([boxed], opening(boxed, full), TYPE), [full(x)]


def handed(_: relay.Constructor, x: relay.Expr) -> Call:
    g, p = relay.Var("g", FUNCTION), relay.Var("p", TYPE)
    return relay.Function([g, p], relay.Call(g, [block(p)]), TYPE), [inside(relay.exp), x]


def referring(_: relay.Constructor, x: relay.Expr) -> Call:
    r = relay.Var("r", relay.RefType(TYPE))
    return relay.Function([r], block(relay.RefRead(r)), TYPE), [relay.RefCreate(x)]


def any_type(_: relay.Constructor, x: relay.Expr) -> Call:
    known = relay.TypeVar("known")
    p = relay.Var("p", known)
    return relay.Function([p], p, known, [known]), [x]


CASES: dict[str, Callable[[relay.Constructor, relay.Expr], Call]] = {
    "a data type": making,
    "a data type, given": reading,
    "a function for an argument": handed,
    "a reference for an argument": referring,
    "a type that only calls know": any_type,
}
ENTRIES: dict[str, Callable[[tvm.IRModule], object]] = {
    "partition_for_convoy": partition_for_convoy,
    "relay.build": lambda module: relay.build(module, "convoy"),
    "vm": lambda module: relay.vm.compile(module, target="convoy"),
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("what", CASES)
def test_it_is_named(what: str, entry: str) -> None:
    module = tvm.IRModule()
    box, x = relay.GlobalTypeVar("box"), relay.Var("x0", TYPE)
    full = relay.Constructor("full", [TYPE], box)
    module[box] = relay.TypeData(box, [], [full])
    function, args = CASES[what](full, relay.tanh(x))
    marked = function.with_attr({"Compiler": "acme", "global_symbol": "acme_0"})
    module["main"] = relay.Function([x], relay.Call(marked, args))
    got = what.partition(",")[0]
    with pytest.raises(
        ModelError, match=f"function 'acme_0': expected a marked function of .*, got one with {got}"
    ):
        ENTRIES[entry](relay.transform.InferType()(module))
