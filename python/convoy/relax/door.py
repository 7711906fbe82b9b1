"""TVM's own door: ``tvm.compile(module, target="convoy")`` takes Convoy's road.

Two hooks, both TVM's own: the target tag ``convoy``, and the default Relax pipeline, which asks
the current target for its keys.  A target without the key gets TVM's pipeline, untouched.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm.ir import IRModule
from tvm.ir.transform import Pass, PassContext, module_pass
from tvm.relax import pipeline

from convoy.offload.names import HOST_KEY, KEY
from convoy.relax.codegen import system_cpu
from convoy.relax.compile import road


def open_door() -> None:
    """Register both hooks; a second call changes nothing."""
    tvm.target.register_tag(
        KEY, {"kind": "llvm", "keys": [KEY, "cpu", HOST_KEY], "mcpu": system_cpu()}, override=True
    )
    plain = pipeline.PIPELINE_MAP["default"]
    if getattr(plain, "of_convoy", False):
        return

    def default_build_pipeline(**given: Any) -> Pass:
        return _dispatch(plain(**given))

    default_build_pipeline.of_convoy = True  # type: ignore[attr-defined]
    pipeline.PIPELINE_MAP["default"] = default_build_pipeline


def _dispatch(plain: Pass) -> Pass:
    """Convoy's road if the current target has its key, else ``plain``."""

    def run(module: IRModule, _: PassContext) -> IRModule:
        target = tvm.target.Target.current(allow_none=True)
        taken = target is not None and KEY in target.keys
        return road()(module) if taken else plain(module)

    return module_pass(run, opt_level=0, name="convoy.default_build_pipeline")
