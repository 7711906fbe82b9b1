"""The machine that a TVM target names: both TVMs' targets are read alike."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from convoy.errors import TargetError
from convoy.offload.names import HOST_KEY
from convoy.target import Target, from_mcpu
from convoy.text import line


def read_machine(machine: Any, llvm: Any) -> Target:
    """What Convoy knows of the machine a TVM target names.

    A feature that LLVM does not know is ignored, as by LLVM, with a warning.

    Parameters
    ----------
    machine : tvm.target.Target
        With the key of this machine, or without mcpu, it is this one.
    llvm : tvm.target.codegen
        The module that knows CPUs that Convoy does not.

    Raises
    ------
    TargetError
        If it is no CPU, of another architecture than this one, or neither Convoy nor LLVM knows its mcpu.
    """
    if machine.kind.name != "llvm":
        raise TargetError(
            "target",
            str(machine),
            f"expected a CPU target of kind llvm, got {machine.kind.name}",
            "leave the target out for this machine, or name a CPU such as haswell",
        )
    mcpu, mtriple = (str(machine.attrs.get(name) or "") for name in ("mcpu", "mtriple"))
    features = [str(feature) for feature in machine.attrs.get("mattr") or ()]
    named = None if HOST_KEY in machine.keys else mcpu
    known = _known_features(features, llvm, type(machine))
    found = from_mcpu(named, mtriple, known, lambda name: llvm_features(name, llvm, type(machine)))
    return replace(found, cores=int(machine.attrs.get("num-cores") or found.cores))


def _known_features(changes: Sequence[str], llvm: Any, make_target: Any) -> list[str]:
    """The changes, such as ``+avx2``, whose feature some CPU of LLVM's has; all if it is too old."""
    if not changes or not hasattr(llvm, "llvm_get_cpu_archlist"):
        return list(changes)
    cpus = map(str, llvm.llvm_get_cpu_archlist(make_target({"kind": "llvm"})))
    known = {
        sign + one for cpu in cpus for one in llvm_features(cpu, llvm, make_target) or () for sign in "+-"
    }
    for change in dict.fromkeys(changes):
        if change not in known:
            problem = "expected + or -, and a feature that LLVM knows, such as +avx2; it is ignored"
            warnings.warn(line(f"target: mattr {change!r}: {problem}"), RuntimeWarning, stacklevel=3)
    return [change for change in changes if change in known]


def llvm_features(mcpu: str, llvm: Any, make_target: Any) -> frozenset[str] | None:
    """The features of a CPU by TVM's LLVM; None if it does not know the name, or is too old to be asked.

    Parameters
    ----------
    llvm : tvm.target.codegen
        The module that asks LLVM.
    make_target : tvm.target.Target
        The class.
    """
    try:
        if mcpu not in map(str, llvm.llvm_get_cpu_archlist(make_target({"kind": "llvm"}))):
            return None
        return frozenset(map(str, llvm.llvm_get_cpu_features(make_target({"kind": "llvm", "mcpu": mcpu}))))
    except AttributeError:
        return None
