"""What marks a function has to be what TVM reads: it ends in ``Downcast failed`` over anything else."""

from __future__ import annotations

from typing import Any

from tvm import relay, tir
from tvm.ir import IRModule

from convoy.errors import ModelError
from convoy.relay.dataflow import attribute, has_attribute
from convoy.relay.module import functions_of

_TEXTS = {
    "Compiler": "the name of a codegen",
    "Composite": "the name of a pattern",
    "global_symbol": "the name that a codegen is to give it",
}
_NUMBERS = ("Primitive", "Inline")


def check_marks(module: IRModule) -> None:
    """The attributes that mark functions, wherever they are written, are of the types that TVM asks for.

    Raises
    ------
    ModelError
        For the first that is not.
    """
    for var, function in functions_of(module):
        if isinstance(function, relay.Function):
            found: list[relay.Expr] = []
            relay.analysis.post_order_visit(function, found.append)
            for inner in found:
                if isinstance(inner, relay.Function):
                    _check(inner, str(var.name_hint), written_inside=not inner.same_as(function))


def _check(function: relay.Function, place: str, *, written_inside: bool) -> None:
    for name, (expected, remedy) in _expected(function).items():
        symbol = attribute(function, "global_symbol") if written_inside and name != "global_symbol" else ""
        where = (
            f"a function in {place!r}" if written_inside and not symbol else f"function {symbol or place!r}"
        )
        got = f"expected {expected} in the attribute {name}, got {_shown(function.attrs[name])}"
        raise ModelError("partition", where, got, remedy)


def _expected(function: relay.Function) -> dict[str, tuple[str, str]]:
    """What is expected of each attribute that is something else, and what to do."""
    wrong: dict[str, tuple[str, str]] = {}
    for name, expected in _TEXTS.items():
        value = function.attrs[name] if has_attribute(function, name) else "there is none"
        if not isinstance(value, str) or (name == "Compiler" and not value):
            wrong[name] = expected, "write it as text, or leave the attribute out"
    for name in _NUMBERS:
        if has_attribute(function, name) and not isinstance(function.attrs[name], int | tir.IntImm):
            wrong[name] = "1 or 0", "write it as a number, or leave the attribute out"
    return wrong


def _shown(value: Any) -> str:
    return repr(str(value)) if isinstance(value, str) else f"{value} of type {type(value).__name__}"
