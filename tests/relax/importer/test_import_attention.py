"""ONNX's own Attention: in all forms what ONNX says, and one kernel."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import convoy
from convoy.errors import ModelError
from convoy.report.decision import Report

HEADS = "float[2,4,6,8] q, float[2,2,5,8] k, float[2,2,5,10] v"
PAST = "float[2,2,3,8] pk, float[2,2,3,10] pv"
APART = "float[2,4,6,10] y, float[2,2,8,8] nk, float[2,2,8,10] nv"
ROWS = "float[2,6,32] q, float[2,5,16] k, float[2,5,20] v"
FORMS = {
    "plain": f"({HEADS}) => (float[2,4,6,10] y) {{ y = Attention (q, k, v) }}",
    "scale": f"({HEADS}) => (float[2,4,6,10] y) {{ y = Attention <scale = 0.7> (q, k, v) }}",
    "causal": f"({HEADS}) => (float[2,4,6,10] y) {{ y = Attention <is_causal = 1> (q, k, v) }}",
    "cache": f"({HEADS}, {PAST}) => ({APART}) {{ y, nk, nv = Attention (q, k, v, , pk, pv) }}",
    "cache, causal": f"""({HEADS}, {PAST}) => ({APART}) {{
        y, nk, nv = Attention <is_causal = 1> (q, k, v, , pk, pv) }}""",
    "cache, mask": f"""({HEADS}, float[6,8] m, {PAST}) => ({APART}) {{
        y, nk, nv = Attention (q, k, v, m, pk, pv) }}""",
    "mask of images": f"""({HEADS}, float[2,1,6,5] m) => (float[2,4,6,10] y) {{
        y = Attention (q, k, v, m) }}""",
    "mask of heads": f"""({HEADS}, float[4,6,5] m) => (float[2,4,6,10] y) {{
        y = Attention (q, k, v, m) }}""",
    "mask, causal": f"""({HEADS}, float[6,5] m) => (float[2,4,6,10] y) {{
        y = Attention <is_causal = 1> (q, k, v, m) }}""",
    "bools": f"""({HEADS}, bool[2,1,6,5] m) => (float[2,4,6,10] y) {{ y = Attention (q, k, v, m) }}""",
    "bools, causal": f"""({HEADS}, bool[6,5] m) => (float[2,4,6,10] y) {{
        y = Attention <is_causal = 1> (q, k, v, m) }}""",
    "mask of whole numbers": f"""({HEADS}, int64[6,5] m) => (float[2,4,6,10] y) {{
        y = Attention (q, k, v, m) }}""",
    "rows": f"""({ROWS}) => (float[2,6,40] y) {{
        y = Attention <q_num_heads = 4, kv_num_heads = 2> (q, k, v) }}""",
    "rows, cache, causal": f"""({ROWS}, {PAST})
        => (float[2,6,40] y, float[2,2,8,8] nk, float[2,2,8,10] nv) {{
        y, nk, nv = Attention <q_num_heads = 4, kv_num_heads = 2, is_causal = 1> (q, k, v, , pk, pv) }}""",
    "softcap": f"({HEADS}) => (float[2,4,6,10] y) {{ y = Attention <softcap = 2.0> (q, k, v) }}",
    "open": """(float[1,4,s,8] q, float[1,2,s,8] k, float[1,2,s,8] v, float[1,2,p,8] pk, float[1,2,p,8] pv)
        => (float[1,4,s,8] y, float[1,2,t,8] nk, float[1,2,t,8] nv) {
        y, nk, nv = Attention <is_causal = 1> (q, k, v, , pk, pv) }""",
    "open, mask": """(float[1,4,s,8] q, float[1,2,s,8] k, float[1,2,s,8] v, float[s,t] m,
        float[1,2,p,8] pk, float[1,2,p,8] pv) => (float[1,4,s,8] y, float[1,2,t,8] nk, float[1,2,t,8] nv) {
        y, nk, nv = Attention (q, k, v, m, pk, pv) }""",
}
"""Queries of four heads, keys and values of two."""
IN_PARTS = {"softcap", "mask of whole numbers"}


def make(form: str, opset: int = 23) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": {opset}]> g {FORMS[form]}')


def draw(model: onnx.ModelProto, rng: np.random.Generator, sizes: dict[str, int]) -> list[np.ndarray]:
    """Random inputs; of a mask the second row hides all, of floats with infinities."""
    arrays = []
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [sizes.get(d.dim_param, d.dim_value) for d in kind.shape.dim]
        if value.name != "m":
            arrays.append(rng.standard_normal(shape, np.float32))
            continue
        seen = rng.random(shape) < 0.6
        seen[..., 0], seen[..., 1, :] = True, False
        of_floats = np.where(seen, rng.standard_normal(shape), -np.inf).astype(np.float32)
        others = {onnx.TensorProto.BOOL: seen, onnx.TensorProto.INT64: seen.astype(np.int64)}
        arrays.append(others.get(kind.elem_type, of_floats))
    return arrays


@pytest.mark.parametrize("form", FORMS)
def test_forms_are_what_onnx_says(form: str, run_onnx, rng) -> None:
    model, report = make(form), Report()
    runner = convoy.load(convoy.compile(model, report=report))
    for sizes in ({"s": 5, "p": 3, "t": 8}, {"s": 2, "p": 9, "t": 11}, {"s": 4, "p": 0, "t": 4}):
        arrays = draw(model, rng, sizes)
        for found, wanted in zip(runner.run(arrays), run_onnx(model, *arrays), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-6)
    one = any("attention" in step for region in report.regions for step in region.steps)
    assert one == (form not in IN_PARTS)


@pytest.mark.parametrize(
    "heads", ["q_num_heads = 3, kv_num_heads = 3", "q_num_heads = -4, kv_num_heads = -2"]
)
def test_heads_that_do_not_fit_are_refused_by_name(heads: str) -> None:
    text = f"({ROWS}) => (float[2,6,40] y) {{ y = Attention <{heads}> (q, k, v) }}"
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 23]> g {text}')
    with pytest.raises(ModelError, match="expected a node that ONNX's shape inference takes"):
        convoy.compile(model)
