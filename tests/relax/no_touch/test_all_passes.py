"""relax/stand_ins.py: every pass of TVM under the guard, on modules crowded with marked functions."""

from __future__ import annotations

import importlib

import pytest
import sweep as sweeping
from all_passes import GIVEN, NOT_RUN, all_passes
from crowded import MODULES, closures
from sweep import compare, count_clean, in_a_process, local_marked, sweep_all
from tvm.ir.transform import PassContext
from tvm.relax import transform

import convoy
from convoy.errors import GuardError
from convoy.relax.compile import raise_idioms
from convoy.relax.no_touch import NoTouch, marked_functions, no_touch

CHANGES = {
    # its result is as long as its host says, and the pass makes that a number
    "symbolic": {"BindSymbolicVars": ["a local function was there 1 times and is there 0 times"]},
}
"""What must change in a module, by pass."""


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_every_pass_leaves_marked_functions_and_their_calls_alone(name: str) -> None:
    # In processes of their own: a crash that plain TVM lacks is a failure, too.
    MODULES[name]()  # parsed once, before the processes fork
    outcomes = sweep_all(all_passes(), name)
    assert outcomes.keys() == all_passes().keys()
    assert {touch: wrong for touch, wrong in outcomes.items() if wrong} == CHANGES.get(name, {})


@pytest.mark.parametrize("name", MODULES)
def test_convoys_own_passes_leave_them_alone_unguarded(name: str) -> None:
    module = MODULES[name]()
    for step in (convoy.relax.fold(), convoy.relax.partition(), raise_idioms()):
        assert list(compare(module, step(module))) == []


def test_the_instrument_sees_local_functions() -> None:
    with (
        pytest.raises(GuardError, match=r"^LegalizeOps: function 'main\.reading': .* another in its place"),
        PassContext(instruments=[NoTouch()]),
    ):
        transform.LegalizeOps()(closures())
    with PassContext(instruments=[NoTouch()]):
        no_touch(transform.LegalizeOps())(closures())


def test_every_pass_of_relax_is_run() -> None:
    makers = {name for name in vars(transform) if name[0].isupper()} - NOT_RUN
    abstract = {"DataflowBlockPass", "FunctionPass", "FusionPattern", "PatternCheckContext"}
    assert makers - abstract <= all_passes().keys()
    assert NOT_RUN.isdisjoint(GIVEN)
    assert len(all_passes()) > 140


def test_the_modules_are_crowded() -> None:
    globals_ = {name: {v.name_hint for v in marked_functions(build())} for name, build in MODULES.items()}
    locals_ = {name: len(list(local_marked(build()))) for name, build in MODULES.items()}
    assert globals_["backends"] == {"convoy_block", "acme_pair", "acme_tan", "acme_alone"}
    assert globals_["kernels"] == {"external"}
    assert globals_["whole"] == {"main", "acme_exp"}
    assert (locals_["scopes"], locals_["closures"], locals_["symbolic"]) == (2, 2, 2)


def test_a_crash_is_an_outcome() -> None:
    faulthandler = importlib.import_module("faulthandler")
    faulthandler.disable()
    assert in_a_process(lambda: [faulthandler._sigsegv()]) == ["ends by signal 11"]
    assert in_a_process(lambda: ["a", "b"]) == ["a", "b"]
    assert in_a_process(lambda: [1 / 0]) == ["ZeroDivisionError: division by zero"]


def test_a_pass_that_breaks_something_is_judged_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["DeadCodeElimination", "Crashes", "Breaks", "Normalize", "Raises"]
    judged = []

    def check(name: str, *_: object) -> list[str]:
        if name == "Crashes":
            importlib.import_module("ctypes").string_at(0)
        if name == "Raises":
            raise KeyError(name)
        return ["it is gone"] if name == "Breaks" else []

    monkeypatch.setattr(sweeping, "check", check)
    monkeypatch.setattr(sweeping, "all_passes", lambda: dict.fromkeys(names))
    monkeypatch.setattr(sweeping, "sweep", lambda name, module: judged.append((name, module)) or ["wrong"])
    importlib.import_module("faulthandler").disable()
    assert count_clean(names, "kernels") == 1
    found = sweep_all(names, "kernels")
    assert {name for name, wrong in found.items() if wrong} == {"Crashes", "Breaks", "Raises"}
    assert judged == [("Crashes", "kernels"), ("Breaks", "kernels"), ("Raises", "kernels")]
    assert found.keys() == set(names)
