"""3-D convolutions, pools and what lies between them, as 2-D ones of their slices: answers and kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import convoy
from convoy.deploy.runner import Runner
from convoy.errors import RefusedError
from convoy.graph import volumes
from convoy.graph.ops import Concat, Conv2d, Reshape, Slice, Transpose
from convoy.graph.rewrite import simplify
from convoy.kernels.planner import make_plan
from convoy.offload.faults import RegionWarning
from convoy.ops.volumes import MOST_SLICES
from convoy.relax.graphs import lower_model
from convoy.relax.importer import load
from convoy.relax.partition import partition
from convoy.report.decision import Report
from convoy.target import Target
from relax.onnx_models import make_model, run_onnx

BOUND = 2e-5


def network(
    nodes: Sequence[onnx.NodeProto], weights: dict[str, Any], shape: Sequence[int | str]
) -> onnx.ModelProto:
    rng = np.random.default_rng(3)
    arrays = {
        name: (rng.standard_normal(given) / np.sqrt(np.prod(given[1:]))).astype(np.float32)
        if isinstance(given, tuple)
        else np.asarray(given)
        for name, given in weights.items()
    }
    return make_model(nodes, {"x": shape}, arrays)


def expected(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return run_onnx(model, x, optimized=False)[0]


def compare(model: onnx.ModelProto, shape: Sequence[int], **options: Any) -> Report:
    """Compile strictly, so that nothing is left to TVM, and compare with ONNX Runtime."""
    report, x = Report(), np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    got = Runner(convoy.compile(model, strict=True, report=report, **options)).run([x])[0]
    wanted = expected(model, x)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, atol=BOUND * np.abs(wanted).max())
    return report


def conv(x: str = "x", y: str = "y", w: str = "w", **given: Any) -> onnx.NodeProto:
    return helper.make_node("Conv", [x, w], [y], **given)


CONVOLUTIONS = {
    "same": ((5, 4, 3, 3, 3), {"pads": [1] * 6}),
    "valid": ((5, 4, 3, 3, 3), {}),
    "of one depth": ((5, 4, 1, 3, 3), {"pads": [0, 1, 1, 0, 1, 1]}),
    "of the depth alone": ((5, 4, 3, 1, 1), {"pads": [1, 0, 0, 1, 0, 0]}),
    "point": ((7, 4, 1, 1, 1), {}),
    "strided": ((5, 4, 3, 3, 3), {"pads": [1] * 6, "strides": [2, 2, 2]}),
    "strided in depth": ((5, 4, 2, 3, 3), {"strides": [3, 1, 2]}),
    "dilated": ((5, 4, 2, 3, 3), {"dilations": [2, 1, 2], "pads": [1] * 6}),
    "dilated beyond the volume": ((5, 4, 3, 1, 1), {"dilations": [3, 1, 1], "pads": [3, 0, 0, 3, 0, 0]}),
    "grouped": ((6, 2, 3, 3, 3), {"group": 2, "pads": [1] * 6}),
    "depthwise": ((4, 1, 3, 3, 3), {"group": 4, "pads": [1] * 6, "strides": [1, 2, 1]}),
    "uneven padding": ((5, 4, 3, 2, 3), {"pads": [2, 0, 1, 0, 1, 2]}),
    "whole depth": ((5, 4, 5, 7, 6), {}),
}


@pytest.mark.parametrize("channels", [4, 16])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_a_convolution_agrees(case: str, channels: int) -> None:
    weight, given = CONVOLUTIONS[case]
    if channels == 16:  # whole blocks: ranges of a stack
        weight = (weight[0] * 4, weight[1] * 4, *weight[2:])
        if "group" in given and weight[1] == 4:
            weight = (16, 1, *weight[2:]) if case == "depthwise" else weight
            given = {**given, "group": 16 // weight[1]}
    nodes = [conv(y="c", **given), helper.make_node("Relu", ["c"], ["y"])]
    model = network(nodes, {"w": weight}, [2, channels, 5, 7, 6])
    compare(model, [2, channels, 5, 7, 6])


TRANSPOSED = {
    "of its stride": ((4, 5, 2, 2, 2), {"strides": [2, 2, 2]}),
    "overlapping": ((4, 5, 3, 3, 3), {"strides": [2, 2, 2], "pads": [1] * 6, "output_padding": [1, 0, 1]}),
    "stride 1": ((4, 5, 3, 3, 3), {"pads": [1] * 6}),
    "grouped": ((4, 3, 3, 2, 2), {"group": 2, "strides": [1, 2, 2]}),
    "dilated": ((4, 5, 2, 2, 2), {"dilations": [2, 1, 2]}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", TRANSPOSED)
def test_a_transposed_convolution_agrees(case: str) -> None:
    weight, given = TRANSPOSED[case]
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["c"], **given), conv("c", "y", "v")]
    channels = weight[1] * given.get("group", 1)
    model = network(nodes, {"w": weight, "v": (3, channels, 1, 1, 1)}, [1, 4, 3, 5, 4])
    compare(model, [1, 4, 3, 5, 4])


POOLS = {
    "max": ("MaxPool", {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}),
    "max, overlapping": ("MaxPool", {"kernel_shape": [3, 3, 3], "strides": [2, 1, 2], "pads": [1] * 6}),
    "max, ceil": ("MaxPool", {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2], "ceil_mode": 1}),
    "average": ("AveragePool", {"kernel_shape": [2, 3, 2], "strides": [1, 2, 2]}),
    "average, its padding counts": (
        "AveragePool", {"kernel_shape": [3, 3, 3], "pads": [1] * 6, "count_include_pad": 1},
    ),
    "average, its padding does not": ("AveragePool", {"kernel_shape": [3, 3, 3], "pads": [1] * 6}),
    "average, ceil": (
        "AveragePool", {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2], "ceil_mode": 1},
    ),
    "whole": ("GlobalAveragePool", {}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", POOLS)
def test_a_pool_agrees(case: str) -> None:
    op, given = POOLS[case]
    nodes = [conv(y="c", pads=[1] * 6), helper.make_node(op, ["c"], ["y"], **given)]
    model = network(nodes, {"w": (5, 3, 3, 3, 3)}, [2, 3, 5, 7, 6])
    compare(model, [2, 3, 5, 7, 6])


def unet() -> onnx.ModelProto:
    """Down and up again, with batch norms, a residual, a gate and a concat."""
    rng = np.random.default_rng(7)
    norm = {
        name: np.abs(rng.standard_normal(16)).astype(np.float32) + 0.5
        for name in ("gamma", "beta", "mean", "var")
    }
    nodes = [
        conv("x", "a0", "w0", pads=[1] * 6),
        helper.make_node("BatchNormalization", ["a0", "gamma", "beta", "mean", "var"], ["a1"]),
        helper.make_node("Relu", ["a1"], ["a"]),
        helper.make_node("MaxPool", ["a"], ["p"], kernel_shape=[2, 2, 2], strides=[2, 2, 2]),
        conv("p", "b0", "w1", pads=[1] * 6),
        helper.make_node("Add", ["b0", "p"], ["b1"]),
        helper.make_node("LeakyRelu", ["b1"], ["b"], alpha=0.1),
        helper.make_node("GlobalAveragePool", ["b"], ["g0"]),
        conv("g0", "g1", "w2"),
        helper.make_node("Sigmoid", ["g1"], ["g"]),
        helper.make_node("Mul", ["b", "g"], ["gated"]),
        helper.make_node("ConvTranspose", ["gated", "w3"], ["u"], strides=[2, 2, 2]),
        helper.make_node("Concat", ["u", "a"], ["joined"], axis=1),
        conv("joined", "y", "w4", pads=[1] * 6),
    ]
    weights = {
        "w0": (16, 1, 3, 3, 3),
        "w1": (16, 16, 3, 3, 3),
        "w2": (16, 16, 1, 1, 1),
        "w3": (16, 16, 2, 2, 2),
        "w4": (2, 32, 3, 3, 3),
        **norm,
    }
    return network(nodes, weights, ["N", 1, 4, 8, 8])


@pytest.mark.slow
@pytest.mark.parametrize("target", [None, "haswell", "generic"])
def test_a_network_is_one_region(target: str | None) -> None:
    report = compare(unet(), [2, 1, 4, 8, 8], target=target)
    assert len(report.regions) == 1
    assert report.flops_offloaded == report.flops_total > 0


@pytest.mark.slow
def test_height_and_width_of_a_network_are_open() -> None:
    model, report = unet(), Report()
    for axis, name in ((3, "h"), (4, "w")):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    runner = Runner(convoy.compile(model, report=report))
    # what is joined is as high and wide where these are even, which is said of them
    assert (list(report.refusals), len(report.regions)) == ([], 1)
    assert report.flops_offloaded == report.flops_total > 0
    for shape in ((1, 1, 4, 8, 8), (3, 1, 4, 2, 10), (2, 1, 4, 34, 6)):
        x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
        (got,), wanted = runner.run([x]), expected(model, x)
        np.testing.assert_allclose(got, wanted, atol=BOUND * np.abs(wanted).max())


@pytest.mark.slow
@pytest.mark.filterwarnings("error::convoy.offload.faults.RegionWarning")
def test_a_gate_of_a_volume_of_open_depth() -> None:
    """The gate is a volume of one slice; what it scales is of as many as a call gives."""
    nodes = [
        conv("x", "c", "w", pads=[1] * 6),
        helper.make_node("GlobalAveragePool", ["c"], ["m"]),
        conv("m", "g", "v"),
        helper.make_node("Sigmoid", ["g"], ["s"]),
        helper.make_node("Mul", ["c", "s"], ["y"]),
    ]
    weights = {"w": (4, 3, 3, 3, 3), "v": (4, 4, 1, 1, 1)}
    model = network(nodes, weights, ["n", 3, "d", "h", "w"])
    runner = Runner(convoy.compile(model))
    for sizes in ((1, 4, 6, 5), (2, 1, 3, 8)):
        x = np.random.default_rng(5).standard_normal((sizes[0], 3, *sizes[1:])).astype(np.float32)
        (got,), wanted = runner.run([x]), expected(model, x)
        np.testing.assert_allclose(got, wanted, atol=BOUND * np.abs(wanted).max())


WINDOWS = {
    "a pool": (helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 3, 3], pads=[1] * 6), None),
    "a mean": (
        helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[3, 2, 3], strides=[1, 2, 2]),
        None,
    ),
    "of groups": (conv(group=2, pads=[1] * 6, strides=[1, 2, 1]), (6, 2, 3, 3, 3)),
    "dilated": (conv(dilations=[2, 1, 2], pads=[1, 2, 0, 1, 0, 1]), (5, 4, 2, 3, 3)),
    "transposed": (
        helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2, 2]),
        (4, 6, 3, 3, 3),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", WINDOWS)
def test_windows_move_over_every_height_and_width(case: str) -> None:
    node, shape = WINDOWS[case]
    model = network([node], {"w": shape} if shape else {}, ["n", 4, 5, "h", "w"])
    runner = Runner(convoy.compile(model, strict=True))
    for sides in ((1, 6, 7), (3, 4, 15), (2, 33, 5)):
        x = np.random.default_rng(6).standard_normal((sides[0], 4, 5, *sides[1:])).astype(np.float32)
        (got,), wanted = runner.run([x]), expected(model, x)
        np.testing.assert_allclose(got, wanted, atol=BOUND * np.abs(wanted).max())


@pytest.mark.slow
def test_a_resize_of_a_volume_agrees() -> None:
    nodes = [
        conv("x", "c", pads=[1] * 6),
        helper.make_node("Resize", ["c", "", "s"], ["r"], mode="linear"),
        conv("r", "y", "v", pads=[1] * 6),
    ]
    weights = {"w": (4, 3, 3, 3, 3), "v": (2, 4, 3, 3, 3), "s": np.array([1, 1, 2, 2, 2], np.float32)}
    compare(network(nodes, weights, [1, 3, 3, 4, 5]), [1, 3, 3, 4, 5])


def test_slices_share_their_weights_and_lie_in_one_stack() -> None:
    nodes = [
        conv("x", "a", "w", pads=[1] * 6),
        helper.make_node("Relu", ["a"], ["b"]),
        conv("b", "c", "v", pads=[1] * 6),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    model = network(nodes, {"w": (16, 16, 3, 3, 3), "v": (16, 16, 3, 3, 3)}, [1, 16, 6, 8, 8])
    (graph,) = (simplify(graph) for graph in lower_model(model))
    kinds = Counter(type(node) for node in graph.nodes)
    assert kinds[Conv2d] == 12
    readers = [node for node in graph.nodes if isinstance(node, Conv2d)]
    # first, inner and last slices of each convolution: two depths of weights, three, two
    assert len({node.inputs[1] for node in readers}) == 6
    assert kinds[Concat] == 2
    assert kinds[Slice] == 2 * 6
    assert (kinds[Transpose], kinds[Reshape]) == (2, 2)
    steps = make_plan(graph, Target("avx512")).steps
    kinds_of_steps = Counter(step.kind for step in steps)
    # what the first convolution makes lies in place in its stack; the input's slices are copied out of it
    assert (kinds_of_steps["concat"], kinds_of_steps["slice"]) == (0, 6)


def test_elementwise_ops_without_a_volume_stay_as_they_are() -> None:
    node = helper.make_node("Sigmoid", ["x"], ["y"])
    shape = [1, 16, 8, 16, 16]
    (graph,) = lower_model(network([node], {}, shape))
    assert [type(node).__name__ for node in graph.nodes] == ["Unary"]
    assert graph.shape(graph.outputs[0]) == tuple(shape)


def test_a_depth_of_padding_alone_is_left_with_a_reason() -> None:
    model = network([conv(pads=[3, 0, 0, 0, 0, 0])], {"w": (5, 4, 3, 1, 1)}, [1, 4, 5, 32, 32])
    with pytest.raises(RefusedError, match="expected data at every depth, got none at depth 0"):
        convoy.compile(model, strict=True)
    x = np.random.default_rng(1).standard_normal((1, 4, 5, 32, 32)).astype(np.float32)
    got = Runner(convoy.compile(model)).run([x])[0]
    np.testing.assert_allclose(got, expected(model, x), atol=1e-4)


def test_volumes_too_deep_are_left_with_a_reason() -> None:
    for depth, refused in ((MOST_SLICES, False), (MOST_SLICES + 1, True)):
        nodes = [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[1, 2, 2])]
        report = Report()
        module = load(network(nodes, {}, [1, 1, depth, 2, 2]))
        partition(report=report)(module)
        reasons = [decision.reason for decision in report.refusals]
        assert reasons == [f"expected at most 512 slices in depth, got {depth}"] * refused


@pytest.mark.slow
def test_a_region_of_too_many_slices_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volumes, "MOST_NODES", 100)
    model, report = network(CHAIN, {"w": (4, 4, 3, 3, 3)}, [1, 4, 20, 8, 8]), Report()
    with pytest.warns(RegionWarning, match="expected at most 100 ops on slices of volumes in a region"):
        executable = convoy.compile(model, report=report)
    assert not report.regions
    x = np.random.default_rng(6).standard_normal((1, 4, 20, 8, 8)).astype(np.float32)
    np.testing.assert_allclose(Runner(executable).run([x])[0], expected(model, x), atol=1e-4)


CHAIN = [
    conv("x", "a", "w", pads=[1] * 6),
    *(helper.make_node("Relu", ["a" if i == 0 else f"r{i}"], [f"r{i + 1}"]) for i in range(5)),
    helper.make_node("Sigmoid", ["r5"], ["y"]),
]


@pytest.mark.slow
def test_special_values_stay_in_their_slices() -> None:
    model = network([conv(pads=[1] * 6)], {"w": (4, 16, 3, 3, 3)}, [1, 16, 5, 6, 6])
    x = np.random.default_rng(2).standard_normal((1, 16, 5, 6, 6)).astype(np.float32)
    x[0, 3, 0, 2, 2], x[0, 5, 4, 4, 4] = np.nan, np.inf
    got = Runner(convoy.compile(model, strict=True)).run([x])[0]
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(expected(model, x)))
