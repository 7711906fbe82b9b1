"""Networks that run at multiples of a number alone: sizes that have to be equal are the same products."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper
from tvm import tirx

from convoy.relax.describe import read_signature
from convoy.relax.importer import load
from convoy.relax.importer.multiples import find_multiple
from convoy.relax.importer.prepare import fix_shapes
from convoy.relax.importer.read import read
from convoy.relax.sizes import Dim
from relax.open_models import Both, Sketch

h, w = (tirx.Var(name, "int64") for name in "hw")


@pytest.mark.parametrize(
    ("a", "b", "times"),
    [
        (h, 2 * (h // 2), 2),
        ((h + 1) // 2, h // 2, 2),
        (3 * (h // 3), h, 3),
        (4 * ((h + 3) // 4) - h, 0, 4),
        (h // 8, 2 * (h // 16), None),  # 17 // 8 is even, too
        (h, w, None),
        (h, h, None),
        (h, 5, None),
        (2 * h, h + 3, None),  # one size alone
    ],
)
def test_where_two_sizes_are_equal(a: Dim, b: Dim, times: int | None) -> None:
    assert find_multiple(a, b) == (None if times is None else (h, times))
    assert find_multiple(b, a) == (None if times is None else (h, times))


def u_net(levels: int, *shape: int | str) -> onnx.ModelProto:
    s = Sketch(*shape)

    def convolve(x: str, out: int, channels: int) -> str:
        return s.add("Relu", s.add("Conv", x, s.weight(out, channels, 3, 3), s.weight(out), pads=[1] * 4))

    x, before = convolve("x", 16, 3), []
    for _ in range(levels):
        before.append(x)
        x = convolve(s.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), 16, 16)
    for skip in reversed(before):
        doubled = s.add("ConvTranspose", x, s.weight(16, 16, 2, 2), strides=[2, 2])
        x = convolve(s.add("Concat", skip, doubled, axis=1), 16, 32)
    return s.model(x)


@pytest.mark.slow
def test_a_network_that_joins_what_it_doubles_with_what_it_halved_is_one_region() -> None:
    both = Both(u_net(3, "n", 3, "h", "w"), "portable")
    assert (both.left, len(both.report.regions)) == ([], 1)
    assert not [d for d in both.report.decisions if "reshape" in d.node]
    (described,) = read_signature(load(u_net(3, "n", 3, "h", "w")))[1]
    assert described.shape == ("n", 16, "h", "w")
    for shape in ((1, 3, 16, 40), (2, 3, 8, 8), (1, 3, 64, 24)):
        both.check(*shape)
    for shape in ((1, 3, 20, 16), (1, 3, 16, 17), (1, 3, 4, 8)):
        with pytest.raises(Exception, match=r"mismatch|pass at least"):
            both.machine["main"](tvm.runtime.tensor(np.zeros(shape, np.float32)))


@pytest.mark.slow
def test_a_sum_of_what_is_halved_in_two_ways_is_in_one_region() -> None:
    s = Sketch(1, 8, "h", "w")
    rounded_up = s.add("Conv", "x", s.weight(8, 8, 3, 3), strides=[2, 2], pads=[1] * 4)
    rounded_down = s.add("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2])
    both = Both(s.model(s.add("Relu", s.add("Add", rounded_up, rounded_down))), "portable")
    assert (both.left, len(both.report.regions)) == ([], 1)
    both.check(1, 8, 6, 10)
    with pytest.raises(Exception, match="mismatch"):
        both.machine["main"](tvm.runtime.tensor(np.zeros((1, 8, 7, 10), np.float32)))


@pytest.mark.slow
def test_multiples_of_which_something_is_concluded_that_is_wrong_of_none() -> None:
    s = Sketch(1, 8, "h", "w")
    small = s.add("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2])
    smaller = s.add("MaxPool", small, kernel_shape=[2, 2], strides=[2, 2])
    ends = s.add("Slice", s.add("Shape", small), s.numbers(2), s.numbers(4))
    sizes = s.add("Concat", s.numbers(1, 8), ends, axis=0)
    wide = s.add("Add", small, s.add("Resize", smaller, "", "", sizes, mode="linear"))
    doubled = s.add("Resize", wide, "", s.add("Constant", value_floats=[1.0, 1.0, 2.0, 2.0]), mode="linear")
    model = s.model(s.add("Concat", doubled, "x", axis=1))
    assert multiples(model) == {"h": 2, "w": 2}
    both = Both(model, "portable")
    for shape in ((1, 8, 8, 12), (1, 8, 6, 10), (1, 8, 4, 4)):
        both.check(*shape)
    for shape, problem in (((1, 8, 0, 4), "h is less than 1; let h be"), ((1, 8, 7, 4), "mismatch")):
        with pytest.raises(Exception, match=problem):
            both.machine["main"](tvm.runtime.tensor(np.zeros(shape, np.float32)))


def multiples(model: onnx.ModelProto) -> dict[str, int]:
    from convoy.relax.importer.branches import Captured
    from convoy.relax.importer.load import _convert

    network = read(model)
    fix_shapes(network, {})
    _convert(network, Captured({}, {}))
    return network.multiples


def test_sizes_that_any_call_may_have_stay_as_they_are() -> None:
    s = Sketch(1, 8, "h", "w")
    small = s.add("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2])
    both = s.add("Concat", small, s.add("Relu", small), axis=1)
    assert multiples(s.model(both)) == {}
    assert multiples(u_net(2, 1, 3, "h", 16)) == {"h": 4}


@pytest.mark.slow
def test_what_only_one_branch_asks_for_is_asked_of_no_other_call() -> None:
    s = Sketch(1, 8, "h", 4)
    value = helper.make_tensor_value_info
    halved = helper.make_node("MaxPool", ["x"], ["half"], kernel_shape=[2, 1], strides=[2, 1])
    joined = [
        halved,
        helper.make_node("Concat", ["half", "half"], ["whole"], axis=2),
        helper.make_node("Add", ["whole", "x"], ["then"]),
    ]
    whole = [helper.make_node("Relu", ["x"], ["else"])]
    branches = {
        f"{name}_branch": helper.make_graph(nodes, name, [], [value(name, TensorProto.FLOAT, None)])
        for name, nodes in (("then", joined), ("else", whole))
    }
    total = s.add("ReduceSum", "x", keepdims=0)
    chosen = s.add("If", s.add("Greater", total, s.number(0.0)), **branches)
    both = Both(s.model(chosen), "portable")
    for shape, sign in (((1, 8, 6, 4), 1), ((1, 8, 7, 4), -1)):
        x = sign * np.ones(shape, np.float32)
        found = both.machine["main"](tvm.runtime.tensor(x)).numpy()
        np.testing.assert_allclose(found, both.theirs.run(None, {"x": x})[0], rtol=1e-6)
