"""LLVM without optimisations, where answers alone are asked for: the same, in two thirds of the time."""

from __future__ import annotations

import tvm

from convoy.offload.names import KEY

UNOPTIMISED = tvm.target.Target({"kind": "llvm", "opt-level": 0})
"""For plain TVM."""


def do_not_optimise_what_is_left() -> None:
    """In this process, what ``convoy.compile`` leaves to TVM; ``open_door`` ends it."""
    shipped = {key: value for key, value in tvm.target.Target(KEY).export().items() if key != "tag"}
    tvm.target.register_tag(KEY, {**shipped, "opt-level": 0}, override=True)
