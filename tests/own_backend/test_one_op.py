"""relax/mark.py: a module of the user's stays one op, as docs/your-own-backend.md shows, without torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import IRModule

import convoy
from convoy.errors import ConvoyError
from convoy.relax.no_touch import MARKS
from pages import DOCS, block

PAGE = DOCS / "your-own-backend.md"


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    """What the program of the page defines, and the functions that its codegen was given."""
    program = block(PAGE, "A module of yours", "python")
    given: list[relax.Function] = []
    names: dict[str, Any] = {"print": given.append, "__name__": "page"}
    exec(compile(program, str(PAGE), "exec"), names)
    return {**names, "given": given}


@pytest.mark.slow
def test_the_codegen_gets_the_module_whole(shown: dict[str, Any]) -> None:
    (function,) = shown["given"]
    assert tvm_ffi.structural_equal(function, shown["module"]["gate"])
    text = function.script()
    assert [text.count(op) for op in ("R.nn.conv2d(", "R.sigmoid(", "R.multiply(")] == [1, 1, 1]


@pytest.mark.slow
def test_the_rest_is_convoys_and_the_answer_is_right(shown: dict[str, Any]) -> None:
    module, gate = shown["module"], shown["module"]["gate"]
    for mark in MARKS:
        gate = gate.without_attr(mark)
    plain = IRModule({**dict(module.functions_items()), module.get_global_var("gate"): gate})
    machine = relax.VirtualMachine(tvm.compile(plain, target="llvm"), tvm.cpu())
    rng = np.random.default_rng(0)
    for weight in shown["values"].values():
        rng.standard_normal(weight.shape)
    x = rng.random((1, 4, 8, 8)).astype(np.float32)
    expected = machine["forward"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(shown["result"], expected, atol=1e-5 * np.abs(expected).max())


def test_convoy_partitions_around_it(shown: dict[str, Any]) -> None:
    partitioned = convoy.relax.partition()(convoy.relax.fold()(shown["module"]))
    assert tvm_ffi.structural_equal(partitioned["gate"], shown["module"]["gate"])
    assert sum(var.name_hint.startswith("convoy_") for var in partitioned.get_global_vars()) == 2


def test_a_function_that_is_not_there_is_an_error(shown: dict[str, Any]) -> None:
    with pytest.raises(ConvoyError, match=r"^mark: gait: expected one of forward, gate; name a function"):
        convoy.relax.mark("gait", codegen="attention")(shown["module"])


@pytest.mark.parametrize("name", [["gate"], None, 5])
def test_what_is_no_name_is_an_error(name: Any) -> None:
    with pytest.raises(ConvoyError, match=r"^mark: function: expected a name, got .*; name one; several"):
        convoy.relax.mark(name, codegen="attention")


def test_a_module_without_a_function_is_an_error() -> None:
    with pytest.raises(ConvoyError, match=r"^mark: gate: expected a Relax function, got a module without;"):
        convoy.relax.mark("gate", codegen="attention")(IRModule())


@pytest.mark.parametrize("marks", [{"Codegen": "acme"}, {"Composite": "acme.gate"}])
def test_a_function_of_another_codegen_is_not_taken_from_it(
    shown: dict[str, Any], marks: dict[str, str]
) -> None:
    module = shown["module"].clone()
    gate = module["gate"].without_attr("Codegen").with_attrs(marks)
    module.update_func(module.get_global_var("gate"), gate)
    message = (
        r"^mark: gate: expected a function that belongs to no codegen, or to attention, got one of acme;"
    )
    with pytest.raises(ConvoyError, match=message):
        convoy.relax.mark("gate", codegen="attention")(module)
    assert convoy.relax.mark("gate", codegen="acme")(module)["gate"].attrs["Codegen"] == "acme"


def test_marking_twice_changes_nothing(shown: dict[str, Any]) -> None:
    twice = convoy.relax.mark("gate", codegen="attention")(shown["module"])
    tvm.ir.assert_structural_equal(twice, shown["module"])
