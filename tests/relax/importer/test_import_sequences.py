"""Sequences and optionals: they are written out while a model is read, and mean what ONNX Runtime means."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from convoy.errors import ModelError
from convoy.relax.importer import load

FORMS = {
    "tensors as they are": """a = Neg (x) s = SequenceConstruct (a, x)
        y = ConcatFromSequence <axis = 1> (s)""",
    "along a new axis": """a = Neg (x) s = SequenceConstruct (a, x)
        y = ConcatFromSequence <axis = -1, new_axis = 1> (s)""",
    "one tensor": "s = SequenceConstruct (x) t = Identity (s) y = ConcatFromSequence <axis = 0> (t)",
    "passed on": """a = Neg (x) s = SequenceConstruct (a, x) t = Identity (s)
        y = ConcatFromSequence <axis = 0> (t)""",
    "inserted at the end": """a = Neg (x) s = SequenceConstruct (a) t = SequenceInsert (s, x)
        y = ConcatFromSequence <axis = 0> (t)""",
    "inserted before the last": """a = Neg (x) b = Exp (x) s = SequenceConstruct (a, x)
        place = Constant <value_int = -1> () t = SequenceInsert (s, b, place)
        y = ConcatFromSequence <axis = 0> (t)""",
    "inserted behind the last": """a = Neg (x) b = Exp (x) s = SequenceConstruct (a, x)
        place = Constant <value_int = 2> () t = SequenceInsert (s, b, place)
        y = ConcatFromSequence <axis = 0> (t)""",
    "without the last": """a = Neg (x) s = SequenceConstruct (a, x) t = SequenceErase (s)
        y = ConcatFromSequence <axis = 0> (t)""",
    "without the first": """a = Neg (x) s = SequenceConstruct (a, x)
        place = Constant <value_int = -2> () t = SequenceErase (s, place)
        y = ConcatFromSequence <axis = 0> (t)""",
    "the last": """a = Neg (x) s = SequenceConstruct (a, x)
        place = Constant <value_int = -1> () y = SequenceAt (s, place)""",
    "how many": "s = SequenceConstruct (x, x, x) n = SequenceLength (s) y = CastLike (n, x)",
    "parts of which the last is shorter": """size = Constant <value_int = 3> ()
        s = SplitToSequence <axis = 1> (x, size)
        first = Constant <value_int = 0> () t = SequenceErase (s, first)
        y = ConcatFromSequence <axis = 1> (t)""",
    "parts of given sizes": """sizes = Constant <value_ints = [5, 1, 2]> ()
        s = SplitToSequence <axis = -1> (x, sizes)
        first = Constant <value_int = 0> () y = SequenceAt (s, first)""",
    "rows": """s = SplitToSequence <axis = 0, keepdims = 0> (x)
        last = Constant <value_int = -1> () y = SequenceAt (s, last)""",
    "one part": """size = Constant <value_int = 8> () s = SplitToSequence <axis = 1> (x, size)
        y = ConcatFromSequence <axis = 0, new_axis = 1> (s)""",
    "a loop that fills one": """s = SequenceEmpty () count = Constant <value_int = 3> ()
        t = Loop (count, , s) <body = step (int64 i, bool go, seq(float[2,8]) u)
            => (bool going, seq(float[2,8]) v) { going = Identity (go) r = CastLike (i, x) p = Add (x, r)
            v = SequenceInsert (u, p) }>
        y = ConcatFromSequence <axis = 0> (t)""",
    "an optional": """o = Optional (x) h = OptionalHasElement (o)
        y = If (h) <then_branch = yes () => (float[2,8] a) { a = OptionalGetElement (o) },
            else_branch = no () => (float[2,8] b) { b = Neg (x) }>""",
    "an optional without an element": """o = Optional <type = float[2,8]> () h = OptionalHasElement (o)
        y = If (h) <then_branch = yes () => (float[2,8] a) { a = OptionalGetElement (o) },
            else_branch = no () => (float[2,8] b) { b = Neg (x) }>""",
}


def make(body: str, x: str = "float[2,8] x", more: str = "") -> onnx.ModelProto:
    text = f'<ir_version: 8, opset_import: ["": 17]> network ({x}{more}) => (float y) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


@pytest.mark.parametrize("form", FORMS)
def test_sequences_are_written_out(form: str, run_tvm, run_onnx, rng) -> None:
    model, x = make(FORMS[form]), rng.random((2, 8), "float32")
    (found,) = run_tvm(load(model), x)
    (wanted,) = run_onnx(model, x)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("batch", [1, 3])
def test_parts_of_an_open_tensor(batch: int, run_tvm, run_onnx, rng) -> None:
    model = make("""size = Constant <value_int = 3> () s = SplitToSequence <axis = 1> (x, size)
        last = Constant <value_int = 2> () t = SequenceErase (s, last)
        y = ConcatFromSequence <axis = 0> (t)""", "float[N,8] x")  # fmt: skip
    x = rng.random((batch, 8), "float32")
    np.testing.assert_allclose(run_tvm(load(model), x)[0], run_onnx(model, x)[0])


REFUSED = {
    "y = SequenceAt (s, n)": "expected a known place in a sequence, got a computed one",
    "p = Constant <value_int = 2> () y = SequenceAt (s, p)": "expected a place of the 2 there are, got 2",
    "p = Constant <value_int = -3> () t = SequenceErase (s, p) y = ConcatFromSequence <axis = 0> (t)": (
        "expected a place of the 2 there are, got -3"
    ),
    "t = SplitToSequence <axis = 1> (x, n) y = ConcatFromSequence <axis = 0> (t)": (
        "expected known sizes of parts, got computed ones"
    ),
    """p = Constant <value_ints = [6]> () t = SplitToSequence <axis = 1> (x, p)
        y = ConcatFromSequence <axis=0> (t)""": ("expected parts of 8 in all, got .6."),
    "t = SequenceEmpty () y = ConcatFromSequence <axis = 0> (t)": (
        "expected a sequence of tensors, got an empty one"
    ),
    "o = Optional <type = float[2,8]> () y = OptionalGetElement (o)": (
        "expected an optional with an element, got one without"
    ),
    """b = Cast <to = 9> (n) y = If (b) <then_branch = yes () => (float[2,8] a) {
        a = SequenceAt (s, n) }, else_branch = no () => (float[2,8] c) { c = Neg (x) }>""": (
        "expected branches that read tensors, got one that reads a sequence"
    ),
}


@pytest.mark.parametrize("body", REFUSED)
def test_what_a_call_decides_is_refused_in_one_line(body: str) -> None:
    with pytest.raises(ModelError, match=REFUSED[body]) as refusal:
        load(make(f"s = SequenceConstruct (x, x) {body}", more=", int64 n"))
    assert "\n" not in str(refusal.value)


def test_parts_of_an_open_size_are_refused() -> None:
    model = make("""size = Constant <value_int = 3> () s = SplitToSequence <axis = 1> (x, size)
        y = ConcatFromSequence <axis = 1> (s)""", "float[2,L] x")  # fmt: skip
    with pytest.raises(ModelError, match=r"expected a known number of parts, got .*--shape x=2x\?"):
        load(model)


def test_more_parts_than_a_network_has_nodes_are_refused() -> None:
    # a part of each of a billion elements took memory without end
    model = make("""size = Constant <value_int = 1> () s = SplitToSequence <axis = 1> (x, size)
        y = ConcatFromSequence <axis = 1> (s)""", "float[2,1000000000] x")  # fmt: skip
    with pytest.raises(ModelError, match="expected at most 20000 parts, got 1000000000; keep them in a t"):
        load(model)
