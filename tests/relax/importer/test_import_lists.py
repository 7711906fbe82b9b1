"""Lists that steps of a Loop add tensors to, as scripts of torch do, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import convoy
from convoy.errors import ModelError
from convoy.relax.importer import load

ROWS = "v = SequenceInsert (u, p)"
READ = {
    "joined": "y = ConcatFromSequence <axis = 0> (t)",
    "joined along the last axis": "y = ConcatFromSequence <axis = -1> (t)",
    "joined along the axis between": "y = ConcatFromSequence <axis = 1> (t)",
    "stacked in front": "y = ConcatFromSequence <axis = 0, new_axis = 1> (t)",
    "stacked between": "y = ConcatFromSequence <axis = 1, new_axis = 1> (t)",
    "stacked behind": "y = ConcatFromSequence <axis = -1, new_axis = 1> (t)",
    "passed on": "r = Identity (t) y = ConcatFromSequence <axis = -2, new_axis = 1> (r)",
    "the last": "last = Constant <value_int = -1> () y = SequenceAt (t, last)",
    "one that a call names": "y = SequenceAt (t, n)",
    "how many": "k = SequenceLength (t) y = CastLike (k, x)",
}
BEGUN = {
    "with nothing": "s = SequenceEmpty ()",
    "with two": "a = Neg (x) s = SequenceConstruct (a, x)",
}


def looped(begun: str, read: str, added: str = ROWS, outputs: str = "float y") -> onnx.ModelProto:
    """A Loop that adds x + 2i to a list at each step i, as often as a call says."""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]> network
        (float[N, 3, 4] x, int64 count, int64 n) => ({outputs}) {{
            {begun}
            t, e = Loop (count, , s, x) <body = step
                (int64 i, bool c, seq(float[N, 3, 4]) u, float[N, 3, 4] h)
                => (bool go, seq(float[N, 3, 4]) v, float[N, 3, 4] p) {{
                r = CastLike (i, x)
                q = Add (h, r)
                p = Add (q, r)
                {added}
                go = Identity (c)
            }}>
            {read}
        }}""")  # fmt: skip
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    return model


def agree(model: onnx.ModelProto, run_onnx, rng, counts: tuple[int, ...] = (1, 2, 5)) -> None:
    runner = convoy.Runner(convoy.compile(model, threads=1))
    for images, count in zip((1, 3, 2), counts, strict=True):
        given = [rng.random((images, 3, 4), "float32"), np.array(count), np.array(count // 2)]
        for found, wanted in zip(runner.run(given), run_onnx(model, *given), strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("read", READ)
def test_a_list_is_a_stack_of_its_loop(read: str, run_onnx, rng) -> None:
    agree(looped(BEGUN["with nothing"], READ[read]), run_onnx, rng)


@pytest.mark.slow
@pytest.mark.parametrize("read", ["stacked between", "how many", "joined"])
def test_a_list_may_begin_with_tensors(read: str, run_onnx, rng) -> None:
    agree(looped(BEGUN["with two"], READ[read]), run_onnx, rng, (0, 1, 4))


@pytest.mark.slow
def test_a_list_that_nobody_reads(run_onnx, rng) -> None:
    agree(looped(BEGUN["with nothing"], "y = Neg (e)"), run_onnx, rng, (0, 1, 4))


@pytest.mark.slow
def test_two_lists_of_the_same_tensors(run_onnx, rng) -> None:
    # between them a state and behind them a stack, each of which keeps its place
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]> network
        (float[N, 3, 4] x, int64 count, int64 n) => (float y, float z, float e, float w) {
            s = SequenceEmpty ()
            t, e, f, w = Loop (count, , s, x, s) <body = step
                (int64 i, bool c, seq(float[N, 3, 4]) u, float[N, 3, 4] h, seq(float[N, 3, 4]) o)
                => (bool go, seq(float[N, 3, 4]) v, float[N, 3, 4] p, seq(float[N, 3, 4]) d, float[N] m) {
                p = Tanh (h)
                m = ReduceMean <axes = [1, 2], keepdims = 0> (h)
                v = SequenceInsert (u, h)
                a = SequenceInsert (o, h)
                d = Identity (a)
                go = Identity (c)
            }>
            y = ConcatFromSequence <axis = 1> (t)
            z = ConcatFromSequence <axis = 1, new_axis = 1> (f)
        }""")  # fmt: skip
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    agree(model, run_onnx, rng, (1, 2, 3))


@pytest.mark.slow
def test_a_list_that_a_condition_ends(run_onnx, rng) -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]> network
        (float[N, 3, 4] x, int64 count, int64 n) => (float y) {
            s = SequenceEmpty ()
            yes = Constant <value = bool {1}> ()
            e, t = Loop (, yes, x, s) <body = step
                (int64 i, bool c, float[N, 3, 4] h, seq(float[N, 3, 4]) u)
                => (bool go, float[N, 3, 4] p, seq(float[N, 3, 4]) v) {
                p = Tanh (h)
                v = SequenceInsert (u, p)
                go = Less (i, n)
            }>
            y = ConcatFromSequence <axis = 2> (t)
        }""")  # fmt: skip
    model.graph.output[0].type.tensor_type.ClearField("shape")
    agree(model, run_onnx, rng, (0, 3, 5))


@pytest.mark.parametrize(
    "added",
    [
        "first = Constant <value_int = 0> () v = SequenceInsert (u, p, first)",
        "m = SequenceInsert (u, p) v = SequenceInsert (m, q)",
        "v = SequenceInsert (u, p) k = SequenceLength (v)",
    ],
)
def test_other_lists_are_refused_in_one_line(added: str) -> None:
    with pytest.raises(ModelError, match="expected states that are tensors, got a sequence") as refusal:
        load(looped(BEGUN["with nothing"], READ["joined"], added))
    assert "\n" not in str(refusal.value)


def test_a_list_of_unknown_length_is_not_taken_apart() -> None:
    erased = "r = SequenceErase (t) y = ConcatFromSequence <axis = 0> (r)"
    with pytest.raises(ModelError, match="expected a known number of tensors in a sequence"):
        load(looped(BEGUN["with nothing"], erased))


def test_tensors_of_other_shapes_are_not_joined() -> None:
    with pytest.raises(ModelError, match="expected a list of tensors of one shape"):
        load(looped("b = Concat <axis = 1> (x, x) s = SequenceConstruct (b)", READ["joined"]))


@pytest.mark.slow
@pytest.mark.parametrize("read", ["joined", "stacked in front", "joined along the last axis"])
def test_a_loop_of_no_steps_leaves_nothing_to_join(read: str, run_onnx, rng) -> None:
    """As ONNX Runtime's, such a call ends; how many tensors there are is 0."""
    x, none = rng.standard_normal((2, 3, 4)).astype("float32"), np.array(0, "int64")
    model, counted = (looped(BEGUN["with nothing"], READ[name]) for name in (read, "how many"))
    with pytest.raises(ModelError, match="rows_0, which y needs, is less than 1") as error:
        convoy.load(convoy.compile(model, threads=1)).run([x, none, none])
    assert "\n" not in str(error.value)
    with pytest.raises(Exception, match="ConcatFromSequence"):
        run_onnx(model, x, none, none)
    found = convoy.load(convoy.compile(counted, threads=1)).run([x, none, none])[0]
    np.testing.assert_array_equal(found, run_onnx(counted, x, none, none)[0])
