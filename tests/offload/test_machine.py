"""offload/machine.py: which machine a TVM target names, with targets and an LLVM that are plain data."""

from __future__ import annotations

import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from convoy.errors import TargetError
from convoy.offload.machine import llvm_features, read_machine
from convoy.target import MACHINES, Target, host

CPUS = {"haswell": {"avx2", "fma", "bmi"}, "lakefield": {"avx2", "fma", "avx512f", "gfni"}}
"""What this LLVM knows."""


class PlainTarget(SimpleNamespace):
    """``tvm.target.Target``, of a dictionary."""

    def __init__(self, given: dict[str, Any]) -> None:
        kind = SimpleNamespace(name=given.pop("kind", "llvm"))
        super().__init__(kind=kind, keys=given.pop("keys", ["cpu"]), attrs=given)


LLVM = SimpleNamespace(
    llvm_get_cpu_archlist=lambda target: list(CPUS),
    llvm_get_cpu_features=lambda target: CPUS[target.attrs["mcpu"]],
)
TOO_OLD = SimpleNamespace()


def read(llvm: Any = LLVM, **given: Any) -> Target:
    return read_machine(PlainTarget(given), llvm)


def test_a_cpu_with_a_row_is_its_row() -> None:
    assert read(mcpu="znver4") == MACHINES["znver4"]
    assert read(**{"mcpu": "znver4", "num-cores": 3}) == replace(MACHINES["znver4"], cores=3)


def test_no_cpu_and_the_key_of_the_host_are_this_machine() -> None:
    assert read() == read(keys=["host", "cpu"], mcpu="znver1") == host()


def test_llvm_says_what_a_cpu_without_a_row_has() -> None:
    found = read(mcpu="lakefield")
    assert (found.name, found.isa) == ("lakefield", "avx2")
    assert "gfni" in found.features


@pytest.mark.parametrize("llvm", [LLVM, TOO_OLD], ids=["knows others", "too old"])
def test_a_cpu_that_nobody_knows_is_an_error(llvm: Any) -> None:
    with pytest.raises(TargetError, match="mcpu 'z80': expected one of"):
        read(llvm, mcpu="z80")
    assert llvm_features("z80", llvm, PlainTarget) is None


def test_what_is_no_cpu_is_an_error() -> None:
    with pytest.raises(TargetError, match="expected a CPU target of kind llvm, got cuda"):
        read(kind="cuda")


@pytest.mark.parametrize("change", ["+nonsense", "-nonsense", "avx2", "", "++avx2"])
def test_a_feature_that_llvm_does_not_know_is_ignored_with_a_warning(change: str) -> None:
    with pytest.warns(RuntimeWarning, match="target: mattr .* expected .* a feature that LLVM knows"):
        found = read(mcpu="haswell", mattr=[change, "-fma"])
    assert found.isa == "portable"
    assert "nonsense" not in found.features


@pytest.mark.parametrize(("llvm", "change"), [(LLVM, "+gfni"), (LLVM, "-bmi"), (TOO_OLD, "+nonsense")])
def test_what_it_knows_is_not_warned_of(llvm: Any, change: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(llvm, mcpu="haswell", mattr=[change])
