"""How a network is compiled and run: the settings of one job, which a kept file carries in its metadata."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import numpy as np
import onnx
from onnx import helper

from convoy.options import Precision
from fuzz.networks.bundle import properties

PASSES = {
    "relax": (
        "CanonicalizeBindings", "CombineParallelMatmul", "ConvertToDataflow", "DeadCodeElimination",
        "DecomposeOpsForInference", "EliminateCommonSubexpr", "ExpandTupleArguments",
        "FoldBatchnormToConv2D", "FoldConstant", "FuseTransposeMatmul", "InlinePrivateFunctions",
        "LambdaLift", "LegalizeOps", "Normalize", "NormalizeGlobalVar", "OptimizeLayoutTransform",
        "RemoveUnusedOutputs", "RemoveUnusedParameters", "ReorderPermuteDimsAfterConcat",
        "ReorderTakeAfterMatmul", "ToNonDataflow", "TopologicalSort",
    ),
    "relay": (
        "BackwardFoldScaleAxis", "CanonicalizeOps", "CombineParallelBatchMatmul",
        "CombineParallelConv2D", "CombineParallelDense", "DeadCodeElimination",
        "EliminateCommonSubexpr", "FlattenAtrousConv", "FoldConstant", "FoldExplicitPadding",
        "FoldScaleAxis", "ForwardFoldScaleAxis", "Inline", "PartialEvaluate",
        "RemoveUnusedFunctions", "SimplifyExpr", "SimplifyInference", "ToANormalForm",
        "ToBasicBlockNormalForm", "ToGraphNormalForm",
    ),
}  # fmt: skip
"""What a random module of passes is made of: TVM's passes that keep a network's meaning and precision."""


@dataclass(frozen=True)
class Case:
    door: str = "relax"
    target: str = "host"
    threads: int = 1
    optimise: str = "-O2"
    """The C compiler's level; below what Convoy ships where that compiles quicker."""
    shipped: bool = False
    """Regions are compiled one by one, the library is exported and loaded, as a user does; else all regions
    of a model are one C unit, which compiles several times as fast."""
    small: bool = True
    """Regions too small to be worth a call are taken, too, and those too small for a team have one."""
    leave_open: bool = False
    """An open batch stays so through classic TVM, too, which cannot run many networks with one; else its
    frontend is told the shapes, as its users do."""
    integers: bool = False
    """Bytes are multiplied wherever there is a kernel that does, whatever it costs."""
    precision: Precision = "float32"
    """What is computed in; bf16 of the Relax door."""
    passes: tuple[str, ...] = ()
    """TVM's passes to run under the guard on the partitioned module."""

    @property
    def text(self) -> str:
        """In a few words."""
        more = (
            [self.optimise]
            + ["shipped"] * self.shipped
            + ["gives back"] * (not self.small)
            + ["integers"] * self.integers
            + [self.precision] * (self.precision != "float32")
            + [*self.passes]
        )
        return " ".join([self.door, self.target, f"{self.threads} threads", *more])


def draw_case(rng: np.random.Generator, doors: tuple[str, ...]) -> Case:
    def pick(*choices: str) -> str:
        return choices[int(rng.integers(len(choices)))]

    # classic TVM takes five times as long for a network, so it gets one in seven
    door = doors[0] if rng.random() < 0.7 else pick(*doors)
    shipped = rng.random() < 0.03
    optimise = "-O2" if shipped else pick("-O0", "-O0", "-O0", "-O1", "-O2")
    guarded = rng.random() < 0.12
    passes = tuple(pick(*PASSES[door]) for _ in range(int(rng.integers(1, 6)))) if guarded else ()
    target = pick("host", "host", "haswell", "generic")
    threads, small, leave_open = (
        int(rng.integers(1, 4)),
        bool(rng.random() < 0.85),
        bool(rng.random() < 0.1),
    )
    integers = bool(rng.random() < 0.6)
    return Case(door, target, threads, optimise, shipped, small, leave_open, integers, passes=passes)


def write_case(model: onnx.ModelProto, case: Case, **more: str) -> None:
    """Keep a case, and what else is to be known, in a model's metadata."""
    helper.set_model_props(model, {**properties(model), "case": json.dumps(asdict(case)), **more})


def read_case(model: onnx.ModelProto) -> Case:
    """The case in a model's metadata; the defaults where there is none."""
    given = json.loads(properties(model).get("case", "{}"))
    return Case(**{**given, "passes": tuple(given.get("passes", ()))})
