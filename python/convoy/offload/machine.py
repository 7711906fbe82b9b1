"""The machine that a TVM target names: both TVMs' targets are read alike."""

from __future__ import annotations

from typing import Any

from convoy import target as targets
from convoy.errors import TargetError
from convoy.target import Target


def read_machine(machine: Any, system_cpu: str) -> Target:
    """What Convoy knows of the machine a TVM target names.

    Parameters
    ----------
    machine : tvm.target.Target
    system_cpu : LLVM's name of this machine's CPU
    Raises
    ------
    TargetError  if it is no CPU, of another architecture than this one, or Convoy does not know its mcpu
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
    return targets.from_mcpu(None if mcpu in ("", system_cpu) else mcpu, mtriple, features)
