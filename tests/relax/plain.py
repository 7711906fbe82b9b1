"""LLVM without optimisations, where answers alone are asked for: the same, in two thirds of the time."""

from __future__ import annotations

import tempfile
from pathlib import Path

import tvm
from tvm import relax

from convoy.deploy.export import link
from convoy.offload.names import KEY

UNOPTIMISED = tvm.target.Target({"kind": "llvm", "opt-level": 0})
"""For plain TVM."""


def do_not_optimise_what_is_left() -> None:
    """In this process, what ``convoy.compile`` leaves to TVM; ``open_door`` ends it."""
    shipped = {key: value for key, value in tvm.target.Target(KEY).export().items() if key != "tag"}
    tvm.target.register_tag(KEY, {**shipped, "opt-level": 0}, override=True)


def machine_of(module: tvm.IRModule) -> relax.VirtualMachine:
    """A module's functions, through plain TVM.

    It is linked: what need not be, TVM leaves to LLVM's JIT, which optimises whatever a target says.
    """
    executable = tvm.compile(module, UNOPTIMISED)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "library.so"
        executable.export_library(str(path), fcompile=link)
        library = tvm.runtime.load_module(str(path))
    return relax.VirtualMachine(library, tvm.cpu())
