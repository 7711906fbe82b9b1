"""Scales of blocks and integers of 4 bits: ONNX Runtime's answer, or one line that names the node."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from convoy.errors import ModelError
from convoy.relax.importer import load
from pairs import pairs

RNG = np.random.default_rng(7)
NARROW = {"int4": (TensorProto.INT4, -8), "uint4": (TensorProto.UINT4, 0)}
KINDS = ("int4", "uint4", "int8", "uint8")
MICROSOFT = "com.microsoft"


class Made:
    """A model of one node, some of whose inputs are constants and others fed."""

    def __init__(self, op: str, domain: str = "", **attributes: Any) -> None:
        self.op, self.domain, self.attributes = op, domain, attributes
        self.names: list[str] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.fed: list[np.ndarray] = []

    def feed(self, array: np.ndarray) -> Made:
        self.names.append(f"i{len(self.names)}")
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        self.inputs.append(helper.make_tensor_value_info(self.names[-1], kind, array.shape))
        self.fed.append(array)
        return self

    def keep(self, kind: str, shape: list[int], array: np.ndarray | None = None) -> Made:
        """A constant: this one, or random integers of a kind."""
        self.names.append(f"c{len(self.names)}")
        if kind in NARROW:
            number, least = NARROW[kind]
            drawn = RNG.integers(least, least + 16, shape).ravel()
            self.constants.append(helper.make_tensor(self.names[-1], number, shape, drawn))
        else:
            drawn = RNG.integers(0, 100, shape).astype(kind) if array is None else array
            self.constants.append(numpy_helper.from_array(drawn, self.names[-1]))
        return self

    def give(self, fed: bool, array: np.ndarray) -> Made:
        return self.feed(array) if fed else self.keep(str(array.dtype), list(array.shape), array)

    def model(self, kind: int = TensorProto.FLOAT, opset: int = 21) -> onnx.ModelProto:
        node = helper.make_node(self.op, self.names, ["y"], "at", domain=self.domain, **self.attributes)
        made = helper.make_tensor_value_info("y", kind, None)
        graph = helper.make_graph([node], "g", self.inputs, [made], self.constants)
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def scales(*shape: int, dtype: str = "float32") -> np.ndarray:
    return (RNG.random(shape) + 0.1).astype(dtype)


def same(made: Made, run_tvm: Any, run_onnx: Any, kind: int = TensorProto.FLOAT, opset: int = 21) -> None:
    model = made.model(kind, opset)
    (found,), (wanted,) = run_tvm(load(model), *made.fed), run_onnx(model, *made.fed)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=1e-3 if wanted.dtype == np.float16 else 1e-6, atol=1e-6)


FORMS = {
    "one": ({}, ()),
    "one for each along an axis": ({"axis": 1}, (32,)),
    "blocks": ({"axis": 1, "block_size": 16}, (8, 2)),
    "blocks of 3, the last one shorter": ({"axis": -1, "block_size": 3}, (8, 11)),
    "blocks along the first axis": ({"axis": 0, "block_size": 4}, (2, 32)),
    "one block longer than the axis": ({"axis": 1, "block_size": 64}, (8, 1)),
}


@pytest.mark.parametrize(("kind", "form", "zero"), pairs(KINDS, FORMS, [False, True]))
def test_a_constant_whose_scale_is_fed(kind: str, form: str, zero: bool, run_tvm, run_onnx) -> None:
    attributes, shape = FORMS[form]
    made = Made("DequantizeLinear", **attributes).keep(kind, [8, 32]).feed(np.asarray(scales(*shape)))
    same(made.keep(kind, list(shape)) if zero else made, run_tvm, run_onnx)


@pytest.mark.parametrize("form", [form for form in FORMS if "block" in form])
@pytest.mark.parametrize("fed", [(True, False, False), (False, False, True), (True, True, True)])
def test_any_input_of_blocks_is_fed(form: str, fed: tuple[bool, ...], run_tvm, run_onnx) -> None:
    attributes, shape = FORMS[form]
    x, zero = (RNG.integers(0, 256, sizes).astype("uint8") for sizes in ((8, 32), shape))
    made = Made("DequantizeLinear", **attributes)
    for given, array in zip(fed, (x, scales(*shape), zero), strict=True):
        made.give(given, array)
    same(made, run_tvm, run_onnx)


def test_blocks_of_half_precision(run_tvm, run_onnx) -> None:
    made = Made("DequantizeLinear", block_size=16).keep("int4", [8, 32]).feed(scales(8, 2, dtype="float16"))
    same(made, run_tvm, run_onnx, TensorProto.FLOAT16)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("form", [form for form in FORMS if "block" in form])
def test_floats_are_quantised_in_blocks(form: str, kind: str, run_tvm, run_onnx) -> None:
    attributes, shape = FORMS[form]
    x = RNG.standard_normal((8, 32)).astype("float32") * 1000
    made = Made("QuantizeLinear", **attributes).feed(x).feed(scales(*shape)).keep(kind, list(shape))
    same(made, run_tvm, run_onnx, helper.np_dtype_to_tensor_dtype(np.dtype(kind)))


TABLES = {
    "a block longer than the axis": ([32, 32], 4, 128, True),
    "the last block is shorter": ([32, 24], 4, 32, True),
    "of three axes": ([4, 6, 16], 4, 16, True),
    "an odd number of zero points": ([32, 24], 4, 16, True),
    "of bytes": ([8, 48], 8, 32, True),
    "without zero points": ([8, 24], 4, 32, False),
}


@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize("table", TABLES)
def test_a_table_of_bytes(table: str, fed: bool, run_tvm, run_onnx) -> None:
    shape, bits, block, zero = TABLES[table]
    blocks = -(-shape[-1] * 8 // bits // block)
    at = {"bits": bits, "block_size": block, "quantize_axis": len(shape) - 1}
    made = Made("GatherBlockQuantized", MICROSOFT, **at)
    made.keep("uint8", shape).feed(RNG.integers(0, shape[0], (2, 3))).give(fed, scales(*shape[:-1], blocks))
    if zero:
        made.keep("uint8", [*shape[:-1], -(-blocks * bits // 8)])
    same(made, run_tvm, run_onnx)


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("kind", NARROW)
def test_a_table_of_four_bits_whose_scale_is_fed(kind: str, zero: bool, run_tvm, run_onnx) -> None:
    made = Made("GatherBlockQuantized", MICROSOFT, block_size=16).keep(kind, [32, 40])
    made.feed(RNG.integers(0, 32, (2, 3))).feed(scales(32, 3))
    same(made.keep(kind, [32, 3]) if zero else made, run_tvm, run_onnx)


def table(
    kind: str = "uint4", shape: tuple[int, ...] = (32, 64), scale: tuple[int, ...] = (32, 4), **at: Any
):
    made = Made("GatherBlockQuantized", MICROSOFT, **{"block_size": 16, **at}).keep(kind, list(shape))
    return made.feed(np.zeros((2, 3), np.int64)).feed(scales(*scale))


def product(x: int = 40, scale: int = 18, **at: Any) -> Made:
    at = {"K": 40, "N": 6, "bits": 4, "block_size": 16, **at}
    made = Made("MatMulNBits", MICROSOFT, **at).feed(np.zeros((2, x), "float32")).keep("uint8", [6, 3, 8])
    return made.feed(scales(scale))


def linear(op: str = "DequantizeLinear", scale: tuple[int, ...] = (8, 2), **at: Any) -> Made:
    made = Made(op, **{"block_size": 16, **at})
    if op == "QuantizeLinear":
        return made.feed(np.zeros((8, 32), "float32")).feed(scales(*scale))
    return made.keep("int4", [8, 32]).feed(scales(*scale))


POWER = r"expected a block_size that is a power of 2 from 16 on, got {}"
REFUSED = {
    **{f"table, {n}": (table(block_size=n), POWER.format(n)) for n in (0, 3, 8, 24, -16)},
    **{f"product, {n}": (product(block_size=n), POWER.format(n)) for n in (0, 3, 24, -16)},
    "table, scale": (
        table(scale=(32, 5)),
        r"scales of shape \[32, 4\] for blocks of 16 in \[32, 64\], got",
    ),
    "table, zero": (
        table().keep("uint4", [32, 5]),
        r"expected zero points of shape \[32, 4\], got \[32, 5\]",
    ),
    "table, axis": (table(quantize_axis=5), "expected quantize_axis from -2 to 1, got 5"),
    "table, bits": (table(bits=8), "expected bits to be 4, got 8"),
    "bytes, bits": (table("uint8", (32, 32), bits=3), "expected bits to be 2, 4 or 8, got 3"),
    "bytes, gathered": (table("uint8", (32, 32), gather_axis=1), "expected a gather_axis of 0 for bytes"),
    "bytes, axis": (table("uint8", (32, 32), quantize_axis=0), "a quantize_axis that is the last one"),
    "product, bits": (product(bits=3), "expected bits to be 2, 4 or 8, got 3"),
    "product, K": (product(K=0), "expected K from 1 on, got 0"),
    "product, N": (product(N=-1), "expected N from 1 on, got -1"),
    "product, x": (product(39), r"expected data of K = 40 columns, got \[2, 39\]"),
    "product, scales": (
        product(scale=17),
        r"expected 18 scales by N, K and block_size, got the shape \[17\]",
    ),
    **{
        f"{op}, {what}": (linear(op, scale, **at), problem)
        for op in ("DequantizeLinear", "QuantizeLinear")
        for what, scale, at, problem in (
            (
                "no block",
                (8, 2),
                {"block_size": 0},
                r"a scale of shape \[32\], or one number, as it has no bl",
            ),
            ("block", (8, 2), {"block_size": -16}, "expected a block_size from 0 on, got -16"),
            ("scale", (8, 5), {}, r"expected scales of shape \[8, 2\] for blocks of 16 in \[8, 32\]"),
            ("rank", (16,), {}, r"expected scales of shape \[8, 2\] for blocks of 16 in \[8, 32\]"),
            ("axis", (8, 2), {"axis": 7}, "expected axis from -2 to 1, got 7"),
            (
                "each",
                (31,),
                {"block_size": 0},
                r"expected a scale of shape \[32\], or one number, got \[31\]",
            ),
        )
    },
    "zero": (linear().keep("int4", [8, 3]), r"a zero point of the scale's shape \[8, 2\], got \[8, 3\]"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_said_by_its_node(case: str, run_onnx) -> None:
    made, problem = REFUSED[case]
    kind = TensorProto.UINT8 if made.op == "QuantizeLinear" else TensorProto.FLOAT
    model = made.model(kind)
    with pytest.raises(ModelError, match=rf"{made.op} at: .*{problem}") as raised:
        load(model)
    assert "\n" not in str(raised.value)
    with pytest.raises(Exception):  # noqa: B017, PT011  ONNX Runtime's are of many kinds
        run_onnx(model, *made.fed)


@pytest.mark.parametrize("kind", NARROW)
def test_what_a_run_has_in_four_bits_is_refused(kind: str) -> None:
    made = Made("DequantizeLinear").keep(kind, [8, 32]).feed(scales())
    model = made.model()
    number, _ = NARROW[kind]
    model.graph.input.append(helper.make_tensor_value_info("c0", number, [8, 32]))
    del model.graph.initializer[:]
    with pytest.raises(ModelError, match=f"input c0: expected elements of 8 bits or more, got {kind}"):
        load(model)
    rounded = Made("QuantizeLinear").feed(np.zeros((2, 3), "float32")).feed(scales()).keep(kind, [])
    with pytest.raises(ModelError, match=f"output y: expected elements of 8 bits or more, got {kind}"):
        load(rounded.model(number))


@pytest.mark.parametrize("form", ["zero point", "type", "blocks"])
@pytest.mark.parametrize("kind", NARROW)
def test_a_run_rounds_to_four_bits(kind: str, form: str, run_tvm, run_onnx) -> None:
    number, least = NARROW[kind]
    shape = [2, 3] if form == "blocks" else []
    at = {"axis": 1, "block_size": 4} if form == "blocks" else {}
    typed = {"output_dtype": number} if form == "type" else {}
    zeros = [] if form == "type" else ["z"]
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "s", *zeros], ["q"], **at, **typed),
            helper.make_node("Transpose", ["q"], ["t"], perm=[0, 1]),
            helper.make_node("DequantizeLinear", ["t", "s", *zeros], ["y"], **at),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 12])],
        [
            helper.make_tensor("s", TensorProto.FLOAT, shape, [0.3] * max(1, 3 * len(shape))),
            helper.make_tensor("z", number, shape, [least + 5] * max(1, 3 * len(shape))),
        ],
        value_info=[helper.make_tensor_value_info(name, number, [2, 12]) for name in "qt"],
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    x = np.linspace(-9, 9, 24, dtype=np.float32).reshape(2, 12)
    (found,), (wanted,) = run_tvm(load(model), x), run_onnx(model, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert np.ptp(found) == pytest.approx(15 * 0.3)  # to both ends


@pytest.mark.parametrize("kind", ["INT2", "UINT2"])
def test_what_a_run_has_in_two_bits_is_refused(kind: str) -> None:
    if kind not in TensorProto.DataType.keys():  # noqa: SIM118  no dict, but protobuf's wrapper
        pytest.skip(f"this onnx has no {kind}")
    node = helper.make_node("Cast", ["x"], ["y"], name="at", to=TensorProto.DataType.Value(kind))
    graph = helper.make_graph(
        [node],
        "cast",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.DataType.Value(kind), [4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])
    with pytest.raises(
        ModelError, match=f"Cast at: expected elements of 8 bits or more, got {kind.lower()}"
    ):
        load(model)


def test_onnx_runtime_takes_the_twins_of_what_is_refused() -> None:
    for made in (table(), table("uint8", (32, 32)), product(), linear(), linear("QuantizeLinear")):
        model = made.model(TensorProto.UINT8 if made.op == "QuantizeLinear" else TensorProto.FLOAT)
        load(model)
        onnxruntime.InferenceSession(model.SerializeToString())
