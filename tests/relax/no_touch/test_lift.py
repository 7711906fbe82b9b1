"""relax/lift.py and the road: whoever's a marked function is, however it is bound, its codegen gets it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from crowded import backends, batches, bound
from tvm import relax
from tvm.ir import IRModule

import convoy
from convoy.relax.lift import lift_marked
from convoy.relax.local_functions import bindings_in
from convoy.relax.no_touch import is_marked, marked_functions

IMAGE = (0.02 * np.random.default_rng(0).random((1, 4, 8, 8))).astype(np.float32)


def written(module: IRModule, name: str) -> relax.Function:
    """The function bound to this variable of main."""
    bindings = bindings_in(module["main"].body)
    return next(b.value for b in bindings if b.var.name == name and is_marked(b.value))


@pytest.mark.slow
@pytest.mark.parametrize(
    "compile",
    [lambda module: tvm.compile(module, target="convoy"), convoy.compile],
    ids=["tvm.compile", "convoy.compile"],
)
def test_codegen_gets_each_function_as_it_was_written(compile: Callable[[IRModule], Any]) -> None:
    received: list[relax.Function] = []

    @tvm_ffi.register_global_func("relax.ext.acme", override=True)
    def generate(functions: Sequence[relax.Function], *rest: object) -> list[tvm.runtime.Module]:
        received.extend(functions)
        return list(tvm.get_global_func("relax.ext.convoy")(functions, *rest))

    module = bound()
    machine = relax.VirtualMachine(compile(module), tvm.cpu())
    tan = np.tan(IMAGE)
    before = np.abs(np.tan(np.exp(np.sqrt(IMAGE) + tan)))
    for branch, expected in ((True, np.sqrt(before) + tan), (False, np.exp(before))):
        got = machine["main"](tvm.runtime.tensor(IMAGE), tvm.runtime.tensor(np.array(branch)))
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-4)
    bodies = {str(f.attrs["global_symbol"]): f.without_attr("global_symbol") for f in received}
    assert bodies.keys() == {"main_local", "main_reading", "private"}
    assert tvm_ffi.structural_equal(bodies["main_local"], written(module, "local"))
    assert tvm_ffi.structural_equal(bodies["private"], module["private"])
    reading = written(module, "reading")
    assert len(bodies["main_reading"].params) == 2
    assert str(bodies["main_reading"].body) == str(reading.body)


def test_functions_that_are_global_and_called_by_name_stay_as_they_are() -> None:
    module = backends()
    lifted = lift_marked()(module)
    tvm.ir.assert_structural_equal(lifted["main"], module["main"])
    assert {v.name_hint for v in marked_functions(lifted)} == {
        v.name_hint for v in marked_functions(module)
    }
    assert lifted["acme_pair"].attrs["global_symbol"] == "acme_pair"
    assert "global_symbol" not in lifted["acme_tan"].attrs


def test_a_function_for_any_batch_is_lifted_with_a_batch_of_its_own() -> None:
    lifted = lift_marked()(batches())
    assert tvm_ffi.structural_equal(
        lifted["main_local"].without_attr("global_symbol"), written(batches(), "local")
    )
    relax.analysis.well_formed(lifted)


def symbols(module: IRModule) -> dict[str, str]:
    """Those of the functions for codegens, by the names of their variables."""
    functions = marked_functions(lift_marked()(module))
    return {
        v.name_hint: str(f.attrs["global_symbol"]) for v, f in functions.items() if "Codegen" in f.attrs
    }


def renamed(wanted: dict[str, str]) -> IRModule:
    """The module of two backends with other symbols."""
    module = backends().clone()
    for name, symbol in wanted.items():
        var = module.get_global_var(name)
        module.update_func(var, module[name].with_attr("global_symbol", symbol))
    return module


@pytest.mark.parametrize("taken", ["main", "second"])
def test_a_symbol_that_is_another_functions_gets_a_number(taken: str) -> None:
    assert symbols(renamed({"acme_pair": taken}))["acme_pair"] == f"{taken}_1"


def test_two_functions_do_not_share_a_symbol() -> None:
    found = symbols(renamed({"acme_pair": "same", "acme_alone": "same"}))
    assert sorted((found["acme_pair"], found["acme_alone"])) == ["same", "same_1"]


def test_equal_functions_may_share_one_and_others_keep_theirs() -> None:
    module = renamed({"acme_pair": "pair"})
    twin = tvm.ir.GlobalVar("twin")
    with_twin = IRModule({**dict(module.functions_items()), twin: module["acme_pair"]})
    assert symbols(with_twin) == symbols(module) | {"twin": "pair"}
