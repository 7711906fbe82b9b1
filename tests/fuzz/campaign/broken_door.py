"""A door with defects, to test the campaign itself: ONNX Runtime, but wrong at PRelu, an error at Softplus,
the end of the process at LRN."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from fuzz.campaign.case import Case
from fuzz.campaign.judge import Outputs
from fuzz.campaign.oracle import run_plainly


def compute(model: onnx.ModelProto, inputs: Sequence[np.ndarray], case: Case, folder: Path) -> Outputs:
    del case, folder
    ops = {node.op_type for node in model.graph.node}
    if "LRN" in ops:
        os._exit(3)
    if "Softplus" in ops:
        raise ValueError("no softplus here")
    wrong = onnx.ModelProto()
    wrong.CopyFrom(model)
    for node in wrong.graph.node:
        if node.op_type == "PRelu":
            node.op_type = "Mul"
    return run_plainly(wrong, inputs)


def compute_plainly(model: onnx.ModelProto, inputs: Sequence[np.ndarray], case: Case) -> Outputs:
    del case
    return run_plainly(model, inputs)
