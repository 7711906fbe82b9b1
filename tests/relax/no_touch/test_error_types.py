"""relax/errors_through_tvm.py: an error of Convoy's raised inside a pass arrives as what it was."""

from __future__ import annotations

import pytest
from tvm.ir import IRModule
from tvm.ir.transform import PassContext, Sequential, module_pass

from convoy import errors
from convoy.relax.errors_through_tvm import keep_error_types

keep_error_types()

KINDS = [
    errors.ConvoyError,
    errors.ModelError,
    errors.GraphError,
    errors.OpenSizeError,
    errors.LoweringError,
    errors.UnknownSizeError,
    errors.TargetError,
    errors.ToolchainError,
    errors.UnitError,
    errors.GuardError,
    errors.RefusedError,
    errors.DoorError,
]


@pytest.mark.parametrize("kind", KINDS)
def test_error_keeps_its_type_and_its_parts(kind: type[errors.ConvoyError]) -> None:
    original = kind(
        "lower", "conv2d %7", "expected a constant weight, got a parameter", "bind it; or leave it"
    )

    def fail(module: IRModule, _: PassContext) -> IRModule:
        raise original

    step = module_pass(fail, opt_level=0, name="Fail")
    with pytest.raises(kind) as error:
        Sequential([Sequential([step])])(IRModule({}))
    assert str(error.value) == str(original)
    assert isinstance(error.value, errors.ConvoyError)
    assert (error.value.step, error.value.node) == ("lower", "conv2d %7")
    assert not isinstance(error.value, tuple(k for k in KINDS if not issubclass(kind, k)))


def test_every_error_is_listed_here() -> None:
    defined = {e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, Exception)}
    assert set(KINDS) == defined


def test_an_interrupt_stays_an_interrupt() -> None:
    def interrupt(module: IRModule, _: PassContext) -> IRModule:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        module_pass(interrupt, opt_level=0, name="Interrupt")(IRModule({}))


def test_other_errors_stay_what_they_were() -> None:
    def fail(module: IRModule, _: PassContext) -> IRModule:
        raise ValueError("not ours")

    with pytest.raises(ValueError, match="not ours"):
        module_pass(fail, opt_level=0, name="Fail")(IRModule({}))
