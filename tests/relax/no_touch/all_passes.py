"""Every pass of TVM for a Relax module: those without arguments as they are found, the others as here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.ir.transform import Pass, Sequential
from tvm.relax import transform
from tvm.relax.dpl import is_op, wildcard
from tvm.relax.training import AppendLoss, SetupTrainer
from tvm.relax.training.loss import MSELoss
from tvm.relax.training.optimizer import SGD
from tvm.script import ir as I

ROOMS = (
    "tvm.ir.transform", "tvm.relax.transform", "tvm.relax.backend", "tvm.relax.backend.adreno.transform",
    "tvm.relax.distributed.transform", "tvm.relax.training", "tvm.tirx.transform", "tvm.s_tir.transform",
    "tvm.s_tir.dlight",
)  # fmt: skip
"""Where TVM keeps passes."""

IMAGE = (1, 4, 8, 8)


def _acme() -> list[tuple[str, object]]:
    return [("acme.tan", is_op("relax.tan")(wildcard())), ("acme.exp", is_op("relax.exp")(wildcard()))]


def _with_shape_alone(var: relax.Var) -> relax.TensorType | None:
    return relax.TensorType(var.ty.shape, "float32") if isinstance(var.ty, relax.TensorType) else None


def _squared_error() -> relax.Function:
    images = [relax.TensorType(IMAGE, "float32")] * 2
    return MSELoss("sum")(*images)


GIVEN: dict[str, Callable[[], Pass]] = {
    "AlterOpImpl": lambda: transform.AlterOpImpl({}, {}),
    "AppendLoss": lambda: AppendLoss("main", _squared_error()),
    "Apply": lambda: tirx.transform.Apply(lambda function: function.with_attr("seen", 1)),
    "AttachExternModules": lambda: transform.AttachExternModules([]),
    "BindParams": lambda: transform.BindParams("main", {"w": np.ones((8, 8), "float32")}),
    "BindSymbolicVars": lambda: transform.BindSymbolicVars({"n": 3}),
    "BindTarget": lambda: tirx.transform.BindTarget(tvm.target.Target("llvm", host="llvm")),
    "ConvertLayout": lambda: transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]}),
    "ConvertToDataflow": lambda: transform.ConvertToDataflow(min_size=1),
    "DeadCodeElimination": lambda: transform.DeadCodeElimination(["main"]),
    "Filter": lambda: tirx.transform.Filter(lambda _: True),
    "FuseOpsByPattern": lambda: transform.FuseOpsByPattern(_acme()),
    "FuseOpsByPattern, annotated": lambda: transform.FuseOpsByPattern(_acme(), annotate_codegen=True),
    "FuseOpsByPattern, merged": lambda: Sequential(
        [transform.FuseOpsByPattern(_acme()), transform.MergeCompositeFunctions()]
    ),
    "Gradient": lambda: transform.Gradient("loss"),
    "IPCAllReduceRewrite": lambda: transform.IPCAllReduceRewrite(0),
    "LegalizeOps, but conv2d": lambda: transform.LegalizeOps(skip_ops=["relax.nn.conv2d"]),
    "LiftTransformParams, shared": lambda: transform.LiftTransformParams(shared_transform=True),
    "NarrowDataType": lambda: tirx.transform.NarrowDataType(32),
    "SetupTrainer": lambda: SetupTrainer(
        MSELoss("sum"), SGD(0.1), [relax.TensorType(IMAGE, "float32")] * 2, legalize=False
    ),
    "SplitCallTIRByPattern": lambda: transform.SplitCallTIRByPattern([], lambda _: []),
    "ThreadSync": lambda: tvm.s_tir.transform.ThreadSync("shared"),
    "ToMixedPrecision, float16": lambda: transform.ToMixedPrecision("float16"),
    "UpdateParamType": lambda: transform.UpdateParamType(_with_shape_alone),
    "UpdateVDevice": lambda: transform.UpdateVDevice(I.vdevice({"kind": "llvm"}, 1, "local"), 0),
    "default pipeline": lambda: relax.get_default_pipeline(tvm.target.Target("llvm")),
    "build pipeline": lambda: relax.get_pipeline("default_build"),
    "zero pipeline": lambda: relax.get_pipeline("zero"),
}

NOT_RUN = {
    "MetaScheduleApplyDatabase", "MetaScheduleTuneIRMod", "MetaScheduleTuneTIR",  # need a database
    "Trainer",  # a wrapper around a built module
}  # fmt: skip


@cache
def all_passes() -> dict[str, Callable[[], Pass]]:
    """By name; a pass of a name that two rooms use has its room's before it."""
    found: dict[str, Callable[[], Pass]] = {}
    for room in ROOMS:
        for name, make in sorted(vars(importlib.import_module(room)).items()):
            if name[0].isupper() and callable(make) and _is_made_by(make):
                found[f"{room.removeprefix('tvm.')}.{name}" if name in found else name] = make
    return {**found, **GIVEN}


def _is_made_by(make: Callable[[], object]) -> bool:
    """Is this a pass, given nothing?"""
    try:
        return isinstance(make(), Pass)
    except Exception:  # what needs arguments, is abstract, or is an enumeration
        return False
