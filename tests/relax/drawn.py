"""Small random networks of what kernels are made of, drawn alike for both doors, and their kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from convoy.graph import Graph
from convoy.graph.fusion import ANCHORS
from convoy.graph.rewrite import simplify
from convoy.plan.fuse import fuse

Tensor = TypeVar("Tensor")

SHAPES = {"conv2d": (1, 4, 6, 6), "conv1d": (1, 4, 9), "matmul": (1, 5, 4)}
"""Of every tensor of a network, by its anchor; ``matmul`` is called so in both doors here."""
STEPS = (
    "anchor", "anchor", "anchor", "pool", "norm", "bias", "bias", "number", "whole", "scale", "add", "add",
    "add", "relu", "relu", "clip", "sigmoid", "leaky_relu", "silu", "hardswish", "hardsigmoid", "gelu",
    "elu", "mish",
)  # fmt: skip
"""Ops and idioms that every ``ops`` below has; ``bias``, ``number``, ``whole`` are constants to add."""


def draw(
    seed: int,
    x: Tensor,
    unary: Mapping[str, Callable[[Tensor], Tensor]],
    add: Callable[[Tensor, Tensor], Tensor],
) -> list[Tensor]:
    """The outputs of a network; each of its steps reads what was made before, mostly by the last one."""
    rng = np.random.default_rng(seed)
    made = [x]
    for _ in range(int(rng.integers(5, 16))):
        step = str(rng.choice([step for step in STEPS if step == "add" or step in unary]))
        data = made[-1] if rng.random() < 0.85 else made[int(rng.integers(len(made)))]
        other = made[int(rng.integers(len(made)))]
        made.append(
            add(*((data, other) if rng.random() < 0.5 else (other, data)))
            if step == "add"
            else unary[step](data)
        )
    return [made[-1]] if rng.random() < 0.7 else [made[-1], made[int(rng.integers(1, len(made)))]]


def constants(shape: tuple[int, ...]) -> dict[str, Any]:
    """What the steps of these names add or, ``scale``, multiply by."""
    rng = np.random.default_rng(7)
    channel = (shape[-1],) if shape == SHAPES["matmul"] else (shape[1], *[1] * (len(shape) - 2))
    shapes = {"bias": channel, "number": (), "whole": shape, "scale": channel}
    return {name: rng.uniform(0.5, 2.0, of).astype(np.float32) for name, of in shapes.items()}


def kernels(graphs: Iterable[Graph], disabled: frozenset[str] = frozenset()) -> list[str]:
    """The names of the kernels that are made of anchors."""
    fusions = [fusion for graph in graphs for fusion in fuse(simplify(graph, disabled), disabled)]
    return sorted(fusion.name for fusion in fusions if is_kernel(fusion.name))


def is_kernel(name: str) -> bool:
    """Does this name begin with an anchor's?"""
    return any(name == stem or name.startswith(f"{stem}_") for stem in ANCHORS)


def some_of(names: Iterable[str], seed: int) -> frozenset[str]:
    """About half of these patterns, to be switched off, but no anchor by itself."""
    rng = np.random.default_rng(seed)
    return frozenset(f"convoy.{n}" for n in sorted(set(names)) if n not in ANCHORS and rng.random() < 0.5)
