"""Draw one of several, and a node of a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx


def pick(rng: np.random.Generator, items: Any) -> Any:
    return items[int(rng.integers(len(items)))]


def node_of(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.NodeProto:
    return pick(rng, model.graph.node)
