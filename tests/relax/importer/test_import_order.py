"""Files whose nodes stand in another order than they run in, and whose functions have defaults."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from convoy.errors import ModelError
from convoy.relax.importer import load
from convoy.relax.importer.order import order_nodes

HEAD = '<ir_version: 10, opset_import: ["": 21, "own": 1]> g'
BRANCHES = """If (c) <
    then_branch = t () => (float[n,4] p) { p = Neg (late) },
    else_branch = e () => (float[n,4] p) { in = Abs (late) p = Exp (in) }>"""


def make(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{HEAD} {text}")


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)])
@pytest.mark.parametrize("condition", [False, True])
def test_nodes_in_any_order(
    order: tuple[int, ...], condition: bool, run_tvm, run_onnx, rng: np.random.Generator
) -> None:
    model = make(f"""(float[n,4] x, bool c) => (float[n,4] y) {{
        q = Relu (x) late = Sin (q) z = {BRANCHES} y = Add (z, q) }}""")
    x, c = rng.standard_normal((3, 4)).astype("float32"), np.array(condition)
    (wanted,) = run_onnx(model, x, c)
    graphs = [(model.graph, order)]
    if order != (0, 1, 2, 3):
        graphs += [(branch.g, range(len(branch.g.node))[::-1]) for branch in model.graph.node[2].attribute]
    for graph, places in graphs[::-1]:
        nodes = [graph.node[i] for i in places]
        del graph.node[:]
        graph.node.extend(nodes)
    kept = model.SerializeToString()
    (found,) = run_tvm(load(model), x, c)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert model.SerializeToString() == kept


def test_nodes_in_order_and_nodes_of_a_circle_stay() -> None:
    model = make("(float[4] x) => (float[4] y) { b = Abs (x) a = Neg (x) y = Add (a, b) }")
    kept = model.SerializeToString()
    order_nodes(model.graph.node)
    assert model.SerializeToString() == kept
    # a tensor of a branch that has the name of one that is made behind the branch
    model = make(
        f"(float[n,4] late, bool c) => (float[n,4] y) {{ z = {BRANCHES} in = Sin (z) y = Add (z, in) }}"
    )
    order_nodes(model.graph.node)
    assert [node.op_type for node in model.graph.node] == ["If", "Sin", "Add"]
    circle = make("(float[4] x) => (float[4] y) { a = Add (x, b) b = Neg (a) y = Relu (b) }")
    with pytest.raises(ModelError, match="topologically sorted"):
        load(circle)


def test_a_call_without_an_attribute_has_the_default(run_tvm, run_onnx, rng) -> None:
    model = make("""(float[3,4] x) => (float[3,4] y, float[3,4] z, float[3,4] w) {
            y = own.f <a = 0.25> (x) z = own.f (x) w = own.g (x) }
        <opset_import: ["": 21], domain: "own"> f <a: float = 0.75> (x) => (y) {
            y = LeakyRelu <alpha: float = @a> (x) }
        <opset_import: ["": 21, "own": 1], domain: "own"> g (x) => (y) { y = own.f (x) }""")
    x = rng.standard_normal((3, 4)).astype("float32")
    wanted = [np.where(x < 0, np.float32(a) * x, x) for a in (0.25, 0.75, 0.75)]
    for found, want, other in zip(run_tvm(load(model), x), wanted, run_onnx(model, x), strict=True):
        np.testing.assert_array_equal(found, want)
        np.testing.assert_array_equal(other, want)
