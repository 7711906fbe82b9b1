"""relax/stand_ins.py: every pass of TVM under the guard, on modules crowded with marked functions."""

from __future__ import annotations

import importlib

import pytest
from all_passes import GIVEN, NOT_RUN, all_passes
from crowded import MODULES, closures
from sweep import compare, in_a_process, local_marked, sweep
from tvm.ir.transform import PassContext
from tvm.relax import transform

import convoy
from convoy.errors import GuardError
from convoy.relax.compile import raise_idioms
from convoy.relax.no_touch import NoTouch, marked_functions, no_touch


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_every_pass_leaves_marked_functions_and_their_calls_alone(name: str) -> None:
    # Each pass in a process of its own: a crash that plain TVM lacks is a failure, too.
    MODULES[name]()  # parsed once, before the processes fork
    outcomes = {touch: sweep(touch, name) for touch in all_passes()}
    assert {touch: wrong for touch, wrong in outcomes.items() if wrong} == {}


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
    assert (locals_["scopes"], locals_["closures"]) == (2, 2)


def test_a_crash_is_an_outcome() -> None:
    faulthandler = importlib.import_module("faulthandler")
    faulthandler.disable()
    assert in_a_process(lambda: [faulthandler._sigsegv()]) == ["ends by signal 11"]
    assert in_a_process(lambda: ["a", "b"]) == ["a", "b"]
    assert in_a_process(lambda: [1 / 0]) == ["ZeroDivisionError: division by zero"]
