"""``auto_pad`` beside ``pads``: a convolution has one of them, a pool takes the first; as ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import convoy
from convoy.errors import ModelError
from convoy.relax.importer import load
from relax.onnx_models import make_model, run_onnx

CONVOLUTIONS = ("Conv", "ConvTranspose")
POOLS = ("MaxPool", "AveragePool")


def padded(op: str, auto_pad: str, pads: list[int] | None) -> onnx.ModelProto:
    attributes = {"auto_pad": auto_pad, "strides": [2, 2]} | ({} if pads is None else {"pads": pads})
    attributes |= {"kernel_shape": [3, 3]} if op in POOLS else {}
    inputs, held = (["x"], {}) if op in POOLS else (["x", "w"], {"w": np.ones((2, 2, 3, 3), "float32")})
    return make_model([helper.make_node(op, inputs, ["y"], **attributes)], {"x": [1, 2, 9, 8]}, held)


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 0, 2, 1]])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("op", CONVOLUTIONS)
def test_a_convolution_has_one_of_them(op: str, auto_pad: str, pads: list[int]) -> None:
    model = padded(op, auto_pad, pads)
    with pytest.raises(ModelError) as error:
        load(model)
    problem = "expected auto_pad or pads, got both; leave out the one that is not meant"
    assert str(error.value) == f"import: network: {op} y: {problem}"
    with pytest.raises(Exception, match=r"pads|conv_attributes"):
        run_onnx(model, np.ones((1, 2, 9, 8), "float32"), optimized=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "auto_pad", "pads"),
    [
        *((op, "SAME_LOWER", [1, 0, 2, 1]) for op in POOLS),
        *((op, "NOTSET", [1, 0, 1, 1]) for op in (*POOLS, *CONVOLUTIONS)),
        ("Conv", "SAME_UPPER", None),
    ],
)
def test_others_are_taken(op: str, auto_pad: str, pads: list[int] | None, rng: np.random.Generator) -> None:
    model, x = padded(op, auto_pad, pads), rng.standard_normal((1, 2, 9, 8)).astype("float32")
    found, wanted = convoy.load(convoy.compile(model, threads=1)).run([x])[0], run_onnx(model, x)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
