"""relax/no_touch.py: of several marked functions that are equal, none is lost to the instrument."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm_ffi
from tvm import relax
from tvm.ir import GlobalVar, IRModule
from tvm.ir.transform import PassContext, module_pass
from tvm.relax import transform
from tvm.script import relax as R

from convoy.errors import GuardError
from convoy.relax.calls import Calls
from convoy.relax.local_functions import replace_local
from convoy.relax.no_touch import NoTouch, is_marked

Change = Callable[[relax.Function], relax.Function]
TENSOR = R.Tensor((4, 8), "float32")


def composite(op: Callable[[relax.Var], relax.Expr] = relax.op.exp) -> relax.Function:
    a = relax.Var("a", TENSOR)
    builder = relax.BlockBuilder()
    with builder.function("f", [a], attrs={"Composite": "acme.exp"}, private=True):
        builder.emit_func_output(builder.emit(op(a)))
    return builder.get()["f"]


def local_ones() -> IRModule:
    """main: two equal composites written in it, gv and gv1, one after the other."""
    x = relax.Var("x", TENSOR)
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            first, second = builder.emit(composite()), builder.emit(composite())
            y = builder.emit(relax.Call(first, [x]))
            y = builder.emit(relax.op.add(y, builder.emit(relax.Call(second, [x]))))
            y = builder.emit_output(y)
        builder.emit_func_output(y)
    return builder.get()


def global_ones() -> IRModule:
    module = transform.LambdaLift()(local_ones())
    assert isinstance(module, IRModule)
    return module


def second_of(module: IRModule, change: Change) -> IRModule:
    """The module with the second of its two marked functions changed, however it is bound."""
    module = module.clone()
    names = sorted(v.name_hint for v, f in module.functions_items() if is_marked(f))
    if names:
        module.update_func(module.get_global_var(names[1]), change(module[names[1]]))
        return module
    seen: list[str] = []

    def replace(name: str, function: relax.Function) -> relax.Function:
        seen.append(name)
        return change(function) if len(seen) == 2 else function

    module.update_func(module.get_global_var("main"), replace_local(module["main"], replace))
    return module


CHANGES: dict[str, tuple[Change, str]] = {
    "another": (lambda _: composite(relax.op.tanh), "another in its place"),
    "unmarked": (lambda function: function.without_attr("Composite"), "none"),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("build", [local_ones, global_ones])
def test_one_that_is_changed_is_noticed(name: str, build: Callable[[], IRModule]) -> None:
    change, got = CHANGES[name]
    touch = module_pass(lambda m, _: second_of(m, change), opt_level=0, name="Touch")
    with pytest.raises(GuardError) as error, PassContext(instruments=[NoTouch()]):
        touch(build())
    assert error.value.step == "Touch"
    assert error.value.problem.endswith(f"got {got}")


def merge(module: IRModule) -> IRModule:
    """Calls of the second become calls of the first, and the second goes."""
    first, second = sorted(v.name_hint for v, f in module.functions_items() if is_marked(f))
    functions = {v: f for v, f in module.functions_items() if v.name_hint != second}
    main = module.get_global_var("main")
    calls = Calls({second: module.get_global_var(first)})
    return IRModule({**functions, main: calls.visit_expr(module["main"])})


def copy(module: IRModule) -> IRModule:
    return IRModule({**dict(module.functions_items()), GlobalVar("third"): composite()})


def renewed(module: IRModule) -> IRModule:
    return IRModule({v: relax.utils.copy_with_new_vars(f) for v, f in module.functions_items()})


HARMLESS: dict[str, Callable[[IRModule], IRModule]] = {"merge": merge, "copy": copy, "renewed": renewed}


@pytest.mark.parametrize("name", HARMLESS)
def test_they_may_become_one_or_more(name: str) -> None:
    with PassContext(instruments=[NoTouch()]):
        module_pass(lambda m, _: HARMLESS[name](m), opt_level=0, name="Mine")(global_ones())


@pytest.mark.parametrize("name", ["EliminateCommonSubexpr", "LambdaLift"])
def test_tvms_passes_may_make_one_of_them(name: str) -> None:
    with PassContext(instruments=[NoTouch()]):
        after = getattr(transform, name)()(local_ones())
    assert tvm_ffi.structural_hash(after) != tvm_ffi.structural_hash(local_ones())
