"""What somebody else's codegen raises arrives as it was, with a line on the functions it was given."""

# ruff: noqa: RET504  (TVMScript is read, not run)

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import tvm
import tvm_ffi
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm_ffi import core

import convoy
from convoy.errors import ModelError


class OwnError(Exception):
    pass


class TwoError(OwnError):
    def __init__(self, op: str, size: int) -> None:
        super().__init__(f"{op} of size {size}")


RAISED = [
    OwnError("no convolution of 7x7"),
    TwoError("pool", 3),
    ValueError("two\nlines"),
    NotImplementedError("no such op"),
    KeyError("conv"),
    OSError(28, "No space left"),
    UnicodeDecodeError("utf8", b"x", 0, 1, "bad"),
    AssertionError(),
]
ENTRIES: dict[str, Callable[[IRModule], object]] = {
    "tvm.compile": lambda module: tvm.compile(module, target="convoy"),
    "convoy.compile": convoy.compile,
}


def module() -> IRModule:
    @I.ir_module
    class Module:
        @R.function
        def acme_0(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Codegen": "acme_raising"})
            y = R.exp(x)
            return y

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Module
            y = cls.acme_0(x)
            return y

    return Module


@pytest.fixture
def raising() -> Iterator[Callable[[BaseException], None]]:
    """Registers a codegen that raises this."""
    name = "relax.ext.acme_raising"

    def register(error: BaseException) -> None:
        def generate(functions: object, options: object, constants: object) -> None:
            raise error

        tvm_ffi.register_global_func(name, generate, override=True)

    yield register
    tvm_ffi.registry.remove_global_func(name)


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_it_keeps_its_type_and_text(
    error: Exception, entry: str, raising: Callable[[BaseException], None]
) -> None:
    raising(error)
    known = set(core.ERROR_TYPE_TO_NAME)
    with pytest.raises(type(error)) as found:
        ENTRIES[entry](module())
    assert type(found.value).__name__ == type(error).__name__
    *text, line = str(found.value).splitlines()
    assert "\n".join(text) == str(error)
    assert line == "raised over 'acme_0' (relax.ext.acme_raising)"
    assert getattr(found.value, "errno", None) == getattr(error, "errno", None)
    assert all(issubclass(kind, type(error)) for kind in set(core.ERROR_TYPE_TO_NAME) - known)


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_cannot_be_made_of_text_is_named(entry: str, raising: Callable[[BaseException], None]) -> None:
    class OddError(Exception):
        def __new__(cls, *parts: str) -> OddError:
            if len(parts) != 2:
                raise TypeError("two parts")
            return super().__new__(cls, *parts)

        def __str__(self) -> str:
            return " ".join(self.args)

    raising(OddError("one", "two"))
    with pytest.raises(RuntimeError, match=r"^OddError: one two\nraised over 'acme_0'"):
        ENTRIES[entry](module())


def test_an_error_of_convoys_stays_one(raising: Callable[[BaseException], None]) -> None:
    raising(ModelError("lower", "node", "expected that, got this", "do so"))
    with pytest.raises(ModelError, match=r"^lower: node: expected that, got this; do so$"):
        ENTRIES["tvm.compile"](module())


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_symbol_that_is_no_text_is_named(entry: str, raising: Callable[[BaseException], None]) -> None:
    raising(OwnError("is never asked"))
    given = module()
    given.update_func(given.get_global_var("acme_0"), given["acme_0"].with_attr("global_symbol", 3))
    message = (
        "^codegen: function 'acme_0': expected text in the attribute global_symbol, got 3; write its name"
    )
    with pytest.raises(ModelError, match=message):
        ENTRIES[entry](given)
