"""Open sizes of inputs that exporters write in terms of others are known to be these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import convoy
from convoy.errors import ModelError
from convoy.onnx import InferenceSession
from convoy.relax.importer import load
from convoy.relax.importer.derived import derive
from relax.open_models import BOUND, Sketch

node = helper.make_node


def model(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Sequence[int | str]], *outputs: str
) -> onnx.ModelProto:
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in inputs.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "derived", given, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def twice(second: str) -> onnx.ModelProto:
    """What is twice as long as ``x`` is added to ``y``."""
    nodes = [node("Concat", ["x", "x"], ["both"], axis=1), node("Add", ["both", "y"], ["z"])]
    return model(nodes, {"x": ("batch", "t"), "y": ("batch", second)}, "z")


def casts(proto: onnx.ModelProto) -> int:
    """Checks of sizes that a call makes, and copies for them."""
    text = load(proto).script()
    return text.count("match_cast") + text.count("R.reshape") + text.count("call_pure_packed")


def signature(proto: onnx.ModelProto) -> list[list[int | str | None]]:
    return [list(tensor.shape or ()) for tensor in convoy.load(convoy.compile(proto)).inputs]


def zeros(*shapes: Sequence[int]) -> list[np.ndarray]:
    return [np.zeros(shape, np.float32) for shape in shapes]


@pytest.mark.parametrize("text", ["2*t", "2 * t", "(t + t)", "t*2 + 0", "4*t//2"])
def test_a_size_in_terms_of_another_is_checked_by_no_op(text: str) -> None:
    assert casts(twice(text)) == 0
    assert casts(twice("u")) > 0  # the twin: a call has to see that it is
    assert casts(twice("2*u")) > 0


def test_the_library_says_so_and_runs() -> None:
    proto = twice("2*t")
    runner = convoy.load(convoy.compile(proto))
    assert [tensor.shape for tensor in runner.inputs] == [("n", "t"), ("n", "2 * t")]
    assert runner.outputs[0].shape == ("n", "2 * t")
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    for batch, length in ((1, 1), (2, 5), (3, 0), (1, 4099)):
        random = np.random.default_rng(length)
        x, y = (random.standard_normal((batch, n)).astype(np.float32) for n in (length, 2 * length))
        (found,), (want,) = runner.run([x, y]), session.run(None, {"x": x, "y": y})
        np.testing.assert_allclose(found, want, atol=BOUND)


def test_a_call_that_contradicts_is_refused_in_a_line() -> None:
    runner = convoy.load(convoy.compile(twice("2*t")))
    problem = (
        r"^run: y: expected float32 \[n, 2 \* t\], with t = 5 as in x, "
        r"got float32 \[2, 11\]; give sizes that agree$"
    )
    with pytest.raises(ModelError, match=problem):
        runner.run(zeros((2, 5), (2, 11)))
    session = InferenceSession(twice("2*t"))
    for _ in range(2):
        x, y = zeros((2, 5), (2, 11))
        with pytest.raises(
            ModelError, match=r"y: expected float32 \[batch, 2\*t\], with t = 5 as in x, got"
        ):
            session.run(None, {"x": x, "y": y})
        assert session.run(None, {"x": x, "y": y[:, :10]})[0].shape == (2, 10)


def test_sizes_that_follow_from_given_ones_are_numbers() -> None:
    sizes: dict[str, tuple[int | None, ...]] = {"x": (None, 5)}
    runner = convoy.load(convoy.compile(twice("2*t"), shapes=sizes))
    assert [tensor.shape for tensor in runner.inputs] == [("n", 5), ("n", 10)]
    lists = convoy.load(convoy.compile(twice("2*t"), shapes={"x": (None, (5, 6))}))
    assert [out.shape for out in lists.run(zeros((1, 6), (1, 12)))] == [(1, 12)]
    with pytest.raises(ModelError, match="expected one of the sizes x=nx5, y=nx10; x=nx6, y=nx12, got"):
        lists.run(zeros((1, 6), (1, 10)))


def test_a_cache_and_what_is_new_are_together_a_mask() -> None:
    nodes = [
        node("Concat", ["past", "new"], ["all"], axis=1),
        node("Add", ["all", "mask"], ["masked"]),
        node("Softmax", ["masked"], ["z"]),
    ]
    inputs = {
        "mask": ("batch_size", "past_sequence_length + sequence_length"),
        "past": ("batch_size", "past_sequence_length"),
        "new": ("batch_size", "sequence_length"),
    }
    proto = model(nodes, inputs, "z")
    assert casts(proto) == 0
    runner = convoy.load(convoy.compile(proto))
    for past, new in ((0, 3), (4, 1), (61, 7)):
        assert runner.run(zeros((2, past + new), (2, past), (2, new)))[0].shape == (2, past + new)
    with pytest.raises(
        ModelError, match=r"with past_sequence_length = 4 as in past and sequence_length = 1"
    ):
        runner.run(zeros((2, 6), (2, 4), (2, 1)))


@pytest.mark.slow
def test_a_model_of_two_in_one_has_texts_of_one_of_them() -> None:
    # a decoder with and without a cache: a mask is longer than the cache by 1 where there is one
    def branch(name: str, result: onnx.NodeProto) -> onnx.GraphProto:
        return helper.make_graph(
            [result], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)]
        )

    total = node("ReduceSum", ["past"], ["total"], keepdims=0)
    zero = node("Constant", [], ["zero"], value_float=0.0)
    asked = node("Greater", ["total", "zero"], ["asked"])
    chosen = node(
        "If",
        ["asked"],
        ["z"],
        then_branch=branch("then", node("Concat", ["past", "new"], ["then"], axis=1)),
        else_branch=branch("else", node("Relu", ["mask"], ["else"])),
    )
    inputs = {"past": ("b", "past_length"), "new": ("b", 1), "mask": ("b", "past_length + 1")}
    proto = model([total, zero, asked, chosen], inputs, "z")
    past, new, mask = zeros((1, 1), (1, 1), (1, 6))
    assert convoy.load(convoy.compile(proto)).run([past, new, mask])[0].shape == (1, 6)
    session = InferenceSession(proto)
    for _ in range(2):
        assert session.run(None, {"past": past, "new": new, "mask": mask})[0].shape == (1, 6)


@pytest.mark.slow
def test_a_size_in_terms_of_one_that_is_a_multiple_is_in_terms_of_its_part() -> None:
    s = Sketch("n", 4, "t", 1)
    halved = s.add("MaxPool", "x", kernel_shape=[2, 1], strides=[2, 1])
    doubled = s.add("Add", "x", s.add("Concat", halved, halved, axis=2))
    proto = s.model(s.add("Add", "y", s.add("Concat", doubled, doubled, axis=2)))
    proto.graph.input.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, ("n", 4, "2*t", 1)))
    assert casts(proto) == 4  # of both inputs, of the part, and of the result
    runner = convoy.load(convoy.compile(proto))
    assert [tensor.shape for tensor in runner.outputs] == [("n", 4, "2 * t", 1)]
    assert runner.run(zeros((1, 4, 6, 1), (1, 4, 12, 1)))[0].shape == (1, 4, 12, 1)
    with pytest.raises(ModelError, match="where a multiple of 2 is meant, it has 7"):
        runner.run(zeros((1, 4, 7, 1), (1, 4, 14, 1)))


def test_a_size_in_terms_of_one_that_has_to_be_a_number_is_one() -> None:
    s = Sketch("n", "t")
    product = s.add("MatMul", "x", s.weight(5, 5))
    joined = s.add("Concat", product, s.add("Relu", "y"), "u", axis=1)
    proto = s.model(joined)
    for name, text in (("y", "2*t + 1"), ("u", "t - 5")):
        proto.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ("n", text)))
    runner = convoy.load(convoy.compile(proto))
    assert [tensor.shape for tensor in runner.inputs] == [("n", 5), ("n", 11), ("n", "t___5")]
    assert runner.run(zeros((2, 5), (2, 11), (2, 0)))[0].shape == (2, 16)


def described(texts: Sequence[str], given: Mapping[str, int] | None = None) -> dict[str, str]:
    return {text: repr(size) for text, size in derive(texts, given or {}).items()}


def test_what_follows_from_what() -> None:
    assert described(["t", "2*t", "t + u", "u", "(t//2)"]) == {
        "2*t": "2 * t",
        "t + u": "t + u",
        "(t//2)": "t // 2",
    }
    assert described(["2*t"]) == {}
    assert described(["2*t", "2*t", "seq-len", "batch*heads", "batch"]) == {}
    assert described(["2*t", "4*t + 1", "3*t"]) == {"4*t + 1": "2 * 2*t + 1"}
    assert described(["t + 2", "t + 1"]) == {"t + 1": "t + 2 - 1"}
    assert described(["t//2", "t//4", "t*t", "2*t*t"]) == {}
    assert described(["2*t", "u + t"], {"t": 7, "u": 2}) == {"2*t": "14", "u + t": "9"}
    assert described(["t - 9"], {"t": 7}) == {}
    # of none of these is known that it is a length where likely sizes are
    assert (
        described(["t", "u", "t - u", "2*t - u", "9 - t", "t - 200", "t - t", "(u - 2*(u - 5))//3"]) == {}
    )
    sums = "*".join(["(t + u + v)"] * 8)
    assert described(["t", "u", "v", sums, " + ".join(["t"] * 40)]) == {}
    assert described(["unknown + 1", "unknown + 2", "None", "None*2"]) == {}


@pytest.mark.parametrize(
    "text",
    [
        *("2*t\n", "t//0", "t" * 50_000, "(" * 10_000 + "t", "-" * 10_000 + "t", "9" * 5000 + "*t"),
        *(
            "9 - t",
            "t - 2*t",
            "t*(t - 2*t)",
            "(t//2 + 1)*" * 8 + "t",
            "2*t; import os",
            "__import__('os')",
            "99999*99999*t",
            "t - t",
            "0*t - 1",
            "%s%n",
            "\x1b[31m*t",
        ),
    ],
)
def test_a_hostile_text_is_a_symbol(text: str) -> None:
    (x, y) = signature(twice(text))
    assert x == ["n", "t"]
    assert isinstance(y[1], str)
    assert y[1].isidentifier()


@pytest.mark.slow
def test_the_first_input_may_be_in_terms_of_a_later_one() -> None:
    nodes = [node("Concat", ["x", "x"], ["both"], axis=0), node("Add", ["y", "both"], ["z"])]
    proto = model(nodes, {"y": ("2*b", 3), "x": ("b", 3)}, "z")
    assert signature(proto) == [["2 * n", 3], ["n", 3]]
    runner = convoy.load(convoy.compile(proto))
    assert runner.run(zeros((4, 3), (2, 3)))[0].shape == (4, 3)
    with pytest.raises(ModelError, match=r"y: expected float32 \[2 \* n, 3\], with n = 2 as in x, got"):
        runner.run(zeros((5, 3), (2, 3)))
