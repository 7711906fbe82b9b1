"""A small network in as many variants as wanted, each with C of its own, and its right answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SHAPE = (1, 3, 19, 21)


def make_network(variant: int) -> onnx.ModelProto:
    """conv 3x3 (3 → 16 + variant) → relu → max pool → conv 1x1 (→ 7) → global average.

    float32 [n, 3, 19, 21] → [n, 7, 1, 1]
    """
    rng = np.random.default_rng(variant)
    channels = 16 + variant

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 5, name)

    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("MaxPool", ["r"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p", "w1"], ["d"], name="second"),
        helper.make_node("GlobalAveragePool", ["d"], ["y"], name="average"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *SHAPE[1:]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 7, 1, 1])],
        [weight("w", channels, 3, 3, 3), weight("b", channels), weight("w1", 7, channels, 1, 1)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def draw_input(images: int = 1, seed: int = 0) -> np.ndarray:
    """Input of the network, float32 [images, 3, 19, 21]."""
    return np.random.default_rng(seed).standard_normal((images, *SHAPE[1:])).astype(np.float32)


def expected(variant: int, x: np.ndarray) -> np.ndarray:
    """The answer, by NumPy alone."""
    weights = {t.name: numpy_helper.to_array(t) for t in make_network(variant).graph.initializer}
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    _, _, height, width = x.shape
    taps = [
        np.einsum("oi,nihw->nohw", weights["w"][:, :, i, j], padded[:, :, i : i + height, j : j + width])
        for i in range(3)
        for j in range(3)
    ]
    maps = np.maximum(sum(taps) + weights["b"][:, None, None], 0)[:, :, : height // 2 * 2, : width // 2 * 2]
    n, c, h, w = maps.shape
    pooled = maps.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))
    return np.einsum("oc,nchw->no", weights["w1"][:, :, 0, 0], pooled)[:, :, None, None] / (h * w / 4)


def is_right(variant: int, x: np.ndarray, answer: np.ndarray) -> bool:
    """Within the promise of 1e-4 of the largest output."""
    want = expected(variant, x)
    return answer.shape == want.shape and bool(np.abs(answer - want).max() <= 1e-4 * np.abs(want).max())


def compile_network(variant: int, library: Path, threads: int = 2) -> None:
    """Compile and export, as ``convoy compile`` does."""
    import convoy
    from convoy.deploy.export import export_library
    from convoy.options import Options

    export_library(convoy.compile(make_network(variant), options=Options(threads=threads)), library)


def answers_right(variant: int, library: Path) -> bool:
    """Load a library and run it once."""
    from convoy.deploy.runner import Runner

    x = draw_input(2)
    return is_right(variant, x, Runner(library).run([x])[0])


def compile_and_run(variant: int, library: Path) -> bool:
    """Both; whether the answer is right."""
    compile_network(variant, library)
    return answers_right(variant, library)
