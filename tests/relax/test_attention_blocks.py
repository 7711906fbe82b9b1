"""Blocks of transformers as exporters write them: one region, one attention, ONNX Runtime's numbers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from tvm import relax

import convoy
from convoy.graph.ops import Attention
from convoy.graph.rewrite import simplify
from convoy.relax.fold import fold
from convoy.relax.importer import load
from convoy.relax.lower import lower
from convoy.relax.partition import partition
from relax.onnx_models import make_model, run_onnx

N, H, D = 10, 2, 8
C = H * D
FORMS = ("packed", "split", "masked", "causal", "safe", "shared keys")


def block(form: str, batch: int | str) -> onnx.ModelProto:
    """Patches of an image, queries, keys and values, attention, and a product of the heads."""
    random, nodes, constants = np.random.default_rng(0), [], {}

    def constant(array: object) -> str:
        name = f"c{len(constants)}"
        constants[name] = np.asarray(array)
        return name

    def weight(*shape: int) -> str:
        return constant((random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))

    def node(op: str, *inputs: str, outputs: int = 1, **given: object) -> list[str]:
        names = [f"t{len(nodes)}_{i}" for i in range(outputs)]
        nodes.append(helper.make_node(op, inputs, names, **given))
        return names

    def one(op: str, *inputs: str, **given: object) -> str:
        return node(op, *inputs, **given)[0]

    def reshape(x: str, *shape: int) -> str:
        return one("Reshape", x, constant(np.array(shape, np.int64)))

    def heads(x: str, perm: tuple[int, ...] = (0, 2, 1, 3)) -> str:
        return one("Transpose", reshape(x, -1, N, H, D), perm=perm)

    conv = one(
        "Conv", "x", constant(random.standard_normal((C, 3, 2, 2)).astype(np.float32)), strides=[2, 2]
    )
    x = one("Transpose", reshape(conv, -1, C, N), perm=[0, 2, 1])
    scale = constant(np.float32(D**-0.25))
    if form in ("packed", "safe"):
        qkv = reshape(one("MatMul", x, weight(C, 3 * C)), -1, N, 3, H, D)
        qkv = one("Transpose", qkv, perm=[2, 0, 3, 1, 4])
        q, k, v = (one("Gather", qkv, constant(np.int64(i)), axis=0) for i in range(3))
        k = one("Transpose", k, perm=[0, 1, 3, 2])
    elif form == "split":
        q, k, v = node("Split", one("MatMul", x, weight(C, 3 * C)), outputs=3, axis=2)
        q, k, v = heads(q), heads(k, (0, 2, 3, 1)), heads(v)
    elif form == "shared keys":
        q = heads(one("MatMul", x, weight(C, C)))
        k, v = (reshape(one("MatMul", x, weight(C, D)), -1, 1, N, D) for _ in range(2))
        k = one("Transpose", k, perm=[0, 1, 3, 2])
    else:
        q, k, v = (one("MatMul", x, weight(C, C)) for _ in range(3))
        q, k, v = heads(q), heads(k, (0, 2, 3, 1)), heads(v)
    scores = one("MatMul", one("Mul", q, scale), one("Mul", k, scale))
    if form == "masked":
        hidden = np.where(np.arange(N) == 3, -np.inf, 0).astype(np.float32)
        scores = one("Add", scores, constant(hidden.reshape(1, 1, 1, N)))
    if form == "causal":
        low = constant(np.float32(-np.inf))
        scores = one("Where", constant(np.tri(N, dtype=bool)[None, None]), scores, low)
    powers = one("Softmax", scores, axis=-1)
    if form == "safe":
        powers = one("Where", one("IsNaN", powers), constant(np.float32(0)), powers)
    joined = reshape(one("Transpose", one("MatMul", powers, v), perm=[0, 2, 1, 3]), -1, N, C)
    nodes.append(helper.make_node("MatMul", [joined, weight(C, C)], ["y"]))
    return make_model(nodes, {"x": [batch, 3, 4, 10]}, constants)


@pytest.mark.parametrize("batch", [1, 3, "n"])
@pytest.mark.parametrize("form", FORMS)
def test_a_block_is_one_region_with_one_attention(form: str, batch: int | str) -> None:
    module = partition()(fold()(load(block(form, batch))))
    (function,) = [f for _, f in module.functions_items() if f.attrs and "Codegen" in f.attrs]
    graph = simplify(lower(function))
    (node,) = [node for node in graph.nodes if isinstance(node, Attention)]
    assert (node.diagonal, node.safe) == (0 if form == "causal" else None, form == "safe")
    assert graph.batch == (None if batch == "n" else batch)


@pytest.mark.parametrize("form", FORMS)
def test_a_block_agrees_with_onnx_runtime(form: str) -> None:
    model = block(form, "n")
    vm = relax.VirtualMachine(convoy.compile(model), tvm.cpu())
    for images in (1, 3):
        x = np.random.default_rng(images).standard_normal((images, 3, 4, 10)).astype(np.float32)
        (expected,) = run_onnx(model, x)
        found = vm["main"](tvm.runtime.tensor(x)).numpy()
        np.testing.assert_allclose(found, expected, atol=1e-5 * float(np.abs(expected).max()))


@pytest.mark.slow
def test_a_safe_softmax_of_an_open_length_that_is_computed_is_taken() -> None:
    """A length such as s // 10 is an expression of each type's own, and equal to the others."""
    weights = ", ".join(f"{w:.3f}" for w in np.random.default_rng(0).standard_normal(80))
    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["": 18]>
        g (float[n,1,s] x) => (float[n,t,8] y) <float zero = {{0}}, float[8,1,10] w = {{{weights}}}> {{
            c = Conv <strides = [10]> (x, w)
            q = Transpose <perm = [0, 2, 1]> (c)
            k = Relu (c)
            scores = MatMul (q, k)
            powers = Softmax <axis = -1> (scores)
            none = IsNaN (powers)
            safe = Where (none, zero, powers)
            y = MatMul (safe, q)
        }}""")
    executable = convoy.compile(model)
    assert "in 1 region, 0 left to TVM" in repr(executable.report)
    x = np.random.default_rng(1).standard_normal((2, 1, 75)).astype(np.float32)
    (expected,) = run_onnx(model, x)
    np.testing.assert_allclose(convoy.Runner(executable).run([x])[0], expected, atol=1e-5)
