"""Inputs that may be missing, tensors without elements, and definitions that ask for types."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from convoy.errors import ModelError
from convoy.options import Options
from convoy.relax.importer import load
from convoy.relax.partition import partition
from convoy.report.decision import Report


def test_optional_tensor_is_a_tensor(run_tvm) -> None:
    # OptionalGetElement(optional(float[4]))  =>  the input
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [4])
    graph = helper.make_graph(
        [helper.make_node("OptionalGetElement", ["x"], ["y"])],
        "network",
        [helper.make_value_info("x", helper.make_optional_type_proto(tensor))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    x = np.arange(4, dtype=np.float32)
    assert np.array_equal(run_tvm(load(model), x)[0], x)


def test_an_output_needs_no_type(make_model, run_tvm, run_onnx, rng) -> None:
    # as those write it who look at inner tensors; such a model was refused
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Shape", ["r"], ["s"]),
        helper.make_node("Neg", ["r"], ["y"]),
    ]
    model = make_model(nodes, {"x": [2, 3]})
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in ("r", "s"))
    x = rng.standard_normal((2, 3)).astype(np.float32)
    for found, expected in zip(run_tvm(load(model), x), run_onnx(model, x), strict=True):
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected)


@pytest.mark.parametrize(("op", "opset"), [("ReduceMax", 17), ("ReduceMean", 13), ("Squeeze", 11)])
def test_an_empty_list_of_axes_is_that_of_all(
    op: str, opset: int, make_model, run_tvm, run_onnx, rng
) -> None:
    # as PyTorch's older exporter writes x.amax(): it was refused, at another node
    nodes = [helper.make_node(op, ["x"], ["r"]), helper.make_node("Neg", ["r"], ["y"])]
    nodes[0].attribute.add(name="axes", type=onnx.AttributeProto.INTS)
    model = make_model(nodes, {"x": [1, 3, 1, 5]}, opset=opset)
    x = rng.standard_normal((1, 3, 1, 5)).astype(np.float32)
    (found,), (expected,) = run_tvm(load(model), x), run_onnx(model, x)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_constant_may_be_an_empty_list(make_model, run_tvm) -> None:
    # Reshape(x, [])  =>  a scalar
    nodes = [helper.make_node("Constant", [], ["s"]), helper.make_node("Reshape", ["x", "s"], ["y"])]
    nodes[0].attribute.add(name="value_ints", type=onnx.AttributeProto.INTS)
    (found,) = run_tvm(load(make_model(nodes, {"x": [1]})), np.ones(1, np.float32))
    assert found.shape == ()


def test_sum_of_no_elements_is_zero(make_model, run_tvm) -> None:
    # ReduceSum(Mul(float[2, 0, 4], 2), axis 1)  =>  zeros
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["d"]),
        helper.make_node("ReduceSum", ["d", "axis"], ["y"]),
    ]
    constants = {"two": np.float32(2), "axis": np.array([1], np.int64)}
    module = load(make_model(nodes, {"x": [2, 0, 4]}, constants))
    found = run_tvm(module, np.empty((2, 0, 4), np.float32))[0]
    assert np.array_equal(found, np.zeros((2, 1, 4), np.float32))


def test_result_without_elements_is_left_to_tvm(make_model, run_tvm) -> None:
    # Add(float[2, 0], 1)  =>  add, because TVM cannot store an empty constant
    nodes = [helper.make_node("Add", ["x", "one"], ["y"])]
    module = load(make_model(nodes, {"x": [2, 0]}, {"one": np.float32(1)}))
    assert run_tvm(module, np.empty((2, 0), np.float32))[0].shape == (2, 0)


def test_constant_without_elements_is_left_out_of_a_concat(make_model, run_tvm, rng) -> None:
    # Concat(float[2, 3], float[2, 0], float[2, 0])  =>  the first, and nothing that TVM cannot store
    nothing = np.empty((2, 0), np.float32)
    nodes = [helper.make_node("Concat", ["x", "a", "b"], ["y"], axis=1)]
    module = load(make_model(nodes, {"x": [2, 3]}, {"a": nothing, "b": nothing}))
    x = rng.standard_normal((2, 3)).astype(np.float32)
    assert np.array_equal(run_tvm(module, x)[0], x)
    assert "R.const" not in module.script()
    assert "metadata" not in module.script()


def test_zero_as_the_batch_is_open(make_model) -> None:
    # float[0, 4]  =>  [n, 4]: how old exporters wrote it
    module = load(make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": [0, 4]}))
    assert [str(d) for d in module["main"].params[0].ty.shape.values] == ["n", "T.int64(4)"]


def test_definition_that_needs_the_type_of_a_constant(make_model, run_tvm, rng) -> None:
    # SoftmaxCrossEntropyLoss with constant labels  =>  ONNX's definition of it
    nodes = [helper.make_node("SoftmaxCrossEntropyLoss", ["x", "labels"], ["y"], reduction="sum")]
    labels = np.array([0, 2, 1], np.int64)
    x = rng.standard_normal((3, 5)).astype(np.float32)
    found = run_tvm(load(make_model(nodes, {"x": [3, 5]}, {"labels": labels})), x)[0]
    expected = np.sum(np.log(np.exp(x).sum(1)) - x[np.arange(3), labels])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("op", ["Relu", "Softmax", "BatchNormalization", "Conv"])
def test_every_node_can_be_kept_out_by_its_name(op, make_model) -> None:
    # op whose result is the model's, its name with a dot and a slash: exclude finds it
    constants = {
        "Conv": {"w": np.ones((4, 4, 1, 1), np.float32)},
        "BatchNormalization": {name: np.ones(4, np.float32) for name in ("s", "b", "m", "v")},
    }.get(op, {})
    node = helper.make_node(op, ["x", *constants], ["y"], name="/block.0/last")
    module = load(make_model([node], {"x": [1, 4, 32, 32]}, constants))
    report = Report()
    partition(Options(exclude=frozenset({"/block.0/last"})), report)(module)
    assert "excluded by name" in [decision.reason for decision in report.refusals]


def test_what_a_node_becomes_carries_its_name(make_model) -> None:
    # LRN -> InstanceNormalization -> Split -> Concat  =>  ten and more ops, each named after its node
    nodes = [
        helper.make_node("LRN", ["x"], ["l"], name="lrn.1", size=3),
        helper.make_node("InstanceNormalization", ["l", "s", "s"], ["i"], name="norm"),
        helper.make_node("Split", ["i"], ["a", "b"], name="cut", axis=1),
        helper.make_node("Concat", ["b", "a"], ["y"], name="join", axis=1),
    ]
    module = load(make_model(nodes, {"x": [1, 4, 32, 32]}, {"s": np.ones(4, np.float32)}))
    report = Report()
    partition(report=report)(module)
    names = {decision.node.split(" ", 1)[1] for decision in report.decisions if " " in decision.node}
    assert names == {"lrn.1", "norm", "cut", "join"}


def _sparse(array: np.ndarray, name: str, flat: bool) -> onnx.SparseTensorProto:
    places = np.flatnonzero(array) if flat else np.argwhere(array)
    values = numpy_helper.from_array(array[array != 0], name)
    return helper.make_sparse_tensor(values, numpy_helper.from_array(places, "at"), array.shape)


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("held", ["graph", "node", "branch"])
def test_sparse_constants_are_written_out(held: str, flat: bool, run_tvm, run_onnx, rng) -> None:
    array = np.where(np.eye(4, dtype=bool), rng.random((4, 4), "float32"), np.float32(0))
    sparse = _sparse(array, "w", flat)
    product = "{ y = MatMul (x, w) }"
    if held == "branch":
        product = """{ y = If (c) <then_branch = yes () => (float[2,4] a) { a = MatMul (x, w) },
            else_branch = no () => (float[2,4] b) { b = Neg (x) }> }"""
    text = f"network (float[2,4] x, bool c) => (float[2,4] y) {product}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    if held == "node":
        model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=sparse))
    elif held == "graph":
        model.graph.sparse_initializer.append(sparse)
    else:
        branch = next(a.g for a in model.graph.node[0].attribute if a.name == "then_branch")
        branch.sparse_initializer.append(sparse)
    before = model.SerializeToString(deterministic=True)
    given = [rng.random((2, 4), "float32"), np.array(True)]
    np.testing.assert_allclose(run_tvm(load(model), *given)[0], given[0] @ array, rtol=1e-6)
    assert model.SerializeToString(deterministic=True) == before


def test_a_sparse_constant_of_more_elements_than_any_machine_holds_is_refused(make_model) -> None:
    model = make_model([helper.make_node("Identity", ["x"], ["y"])], {"x": [4]})
    model.graph.sparse_initializer.append(_sparse(np.eye(4, dtype="float32")[3], "w", True))
    model.graph.sparse_initializer[0].dims[:] = [2**20, 2**22]
    with pytest.raises(ModelError, match="at most 2147483647 elements, got 4398046511104 in w; give it"):
        load(model)


def test_a_place_behind_the_end_of_a_sparse_constant_is_refused(make_model) -> None:
    model = make_model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [4]})
    model.graph.sparse_initializer.append(_sparse(np.eye(4, dtype="float32")[3], "w", True))
    model.graph.sparse_initializer[0].dims[0] = 3
    with pytest.raises(ModelError, match=r"expected a valid ONNX model, got: Sparse .* out of range"):
        load(model)


@pytest.mark.parametrize("imported", ["", "ai.onnx"])
@pytest.mark.parametrize("used", ["", "ai.onnx"])
def test_both_names_of_the_domain_of_onnx_are_one(imported: str, used: str, make_model, count_ops) -> None:
    model = make_model([helper.make_node("Relu", ["x"], ["y"], domain=used)], {"x": [4]})
    model.opset_import[0].domain = imported
    assert count_ops(load(model)) == {"nn.relu": 1}
    assert model.graph.node[0].domain == used
