"""offload/faults.py, work.py: why a region is given back, and what is an error all the same."""

from __future__ import annotations

import warnings

import pytest

from convoy.errors import ConvoyError, GraphError, LoweringError, TargetError, ToolchainError, UnitError
from convoy.offload.faults import RegionWarning, is_fault, reasons_of
from convoy.offload.work import WORTH_BYTES, given_back, not_worth_a_call, step_of
from convoy.options import Options

NODES = {"r0": "conv2d c1", "r1": "softmax s"}


def test_what_is_the_machines_is_no_fault_of_a_region() -> None:
    for error in (
        ToolchainError("compile", "cc", "none", ""),
        TargetError("target", "x", "none", ""),
        OSError(28, "full"),
    ):
        assert not is_fault(error)
    assert not is_fault(MemoryError())
    for error in (
        UnitError("compile", "unit", "bad", ""),
        GraphError("lower", "n", "bad", ""),
        AssertionError("bug"),
    ):
        assert is_fault(error)


def test_each_fault_is_a_reason_and_a_warning() -> None:
    faults = {
        "r0": LoweringError("lower", "conv2d", "expected X, got Y", "do Z"),
        "r1": KeyError("x\x1b[2J"),
    }
    with pytest.warns(RegionWarning) as warned:
        reasons = reasons_of(faults, NODES, Options())
    assert reasons["r0"].startswith(
        "given back: expected a region that compiles, got lower: conv2d: expected X"
    )
    assert "KeyError" in reasons["r1"]
    assert "\x1b" not in reasons["r1"]
    assert [str(w.message).split(":")[1] for w in warned] == [
        " region of conv2d c1",
        " region of softmax s",
    ]


def test_without_faults_nobody_is_warned() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert reasons_of({}, NODES, Options(strict=True)) == {}


@pytest.mark.parametrize("error", [GraphError("plan", "add", "expected X", ""), ZeroDivisionError("oops")])
def test_strict_raises_the_first_with_the_op_it_is_of(error: Exception) -> None:
    with pytest.raises(ConvoyError, match=r"region of softmax s") as raised:
        reasons_of({"r1": error}, NODES, Options(strict=True))
    assert raised.value.__cause__ is error


def test_a_region_is_worth_its_call_by_its_bytes_or_a_heavy_op() -> None:
    assert not_worth_a_call([WORTH_BYTES], heavy=False) is None
    assert not_worth_a_call([WORTH_BYTES // 2] * 2, heavy=False) is None
    assert not_worth_a_call([4], heavy=True) is None
    one, two = (not_worth_a_call([4] * n, heavy=False) for n in (1, 2))
    assert one is not None
    assert two is not None
    assert "a region of one op moving 4 bytes" in one
    assert "a region of 2 ops moving 8 bytes" in two


def test_the_step_that_leaves_an_op() -> None:
    assert step_of(given_back("it is small")) == "partition"
    assert step_of("expected float32, got float16") == "annotate"
