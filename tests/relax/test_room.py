"""Sizes whose product no memory has place for: the call ends, where it wrote behind a tensor before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import convoy
from convoy.errors import ModelError
from convoy.relax.room import expect_room

HALF = 2**32
"""HALF by HALF elements are 2^64: counted in 64 bits, none."""
MADE = {
    "ConstantOfShape": ("(int64[2] s) => (float[a, b] y) { y = ConstantOfShape(s) }", ([HALF, HALF],)),
    "of bools": (
        "(int64[2] s) => (bool[a, b] y) { y = ConstantOfShape<value = bool[1] {1}>(s) }",
        ([2**40, 2**40],),
    ),
    "Expand": ("(float[1, 1] x, int64[2] s) => (float[a, b] y) { y = Expand(x, s) }", (None, [HALF, HALF])),
    "Expand of half": (
        "(float16[1, 1, 1] x, int64[3] s) => (float16[a, b, c] y) { y = Expand(x, s) }",
        (None, [2**21, 2**21, 2**21]),
    ),
    "Tile": ("(float[2, 2] x, int64[2] s) => (float[a, b] y) { y = Tile(x, s) }", (None, [HALF, HALF])),
    "Tile of a large tensor": (
        "(float[1, 4096, 4096] x, int64[3] s) => (float[a, 4096, 4096] y) { y = Tile(x, s) }",
        (None, [2**40, 1, 1]),
    ),
    "Pad": (
        "(float[6, 6] x, int64[4] s) => (float[a, b] y) { y = Pad(x, s) }",
        (None, [0, 0, HALF - 6, HALF - 6]),
    ),
    "Reshape behind": (
        "(int64[2] s) => (float[a] y) { x = ConstantOfShape(s) m = Constant<value_ints = [-1]>()"
        " y = Reshape(x, m) }",
        ([HALF, HALF],),
    ),
    "a larger one of more sizes behind": (
        "(int64[2] s, float[1, 1, 4] x) => (float[a, b, c] y, float[d, e] z) { z = ConstantOfShape(s)"
        " m = ReduceMax<keepdims = 1>(x) l = Constant<value_ints = [1]>() o = Reshape(m, l)"
        " n = Cast<to = 7>(o) u = Concat<axis = 0>(s, n) y = Expand(m, u) }",
        ([HALF, HALF], None),
    ),
    "one of two branches": (
        "(int64[2] s, bool many) => (float[a, b] y) {"
        " y = If (many) <"
        " then_branch = t () => (float[a, b] p) { p = ConstantOfShape(s) },"
        " else_branch = e () => (float[c, d] q) { o = Constant<value_ints = [1, 1]>()"
        " q = ConstantOfShape(o) }> }",
        ([HALF, HALF], True),
    ),
}
"""A graph, and what it is called with; None for ones."""


def compiled(graph: str) -> convoy.Runner:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> g {graph}')
    return convoy.Runner(convoy.compile(model, threads=1))


def feed(runner: convoy.Runner, given: Sequence[Any]) -> list[Any]:
    return [
        np.ones(tensor.shape, tensor.dtype) if value is None else np.array(value)
        for tensor, value in zip(runner.inputs, given, strict=True)
    ]


@pytest.mark.parametrize("name", MADE)
def test_what_no_memory_has_place_for_ends_the_call(name: str) -> None:
    graph, given = MADE[name]
    runner = compiled(graph)
    with pytest.raises(ModelError, match="one that memory has no place for"):
        runner.run(feed(runner, given))
    small = [np.minimum(value, 3).tolist() if isinstance(value, list) else value for value in given]
    assert runner.run(feed(runner, small))[0].size > 0


OUTER = """(float[a, 1, 1, 1] x, float[1, b, 1, 1] y, float[1, 1, c, 1] z, float[1, 1, 1, d] w) =>
(float[1] o) {
    p = Mul(x, y)
    q = Mul(p, z)
    r = Mul(q, w)
    t = ReduceSum<keepdims = 0>(r)
    one = Constant<value_ints = [1]>()
    o = Reshape(t, one)
}"""


def test_a_product_of_small_inputs_ends_the_call_of_a_region() -> None:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> g {OUTER}')
    built = convoy.compile(model, threads=1)
    assert len(built.report.regions) == 1
    runner = convoy.Runner(built)

    def call(n: int) -> Any:
        shapes = [(1,) * i + (n,) + (1,) * (3 - i) for i in range(4)]
        return runner.run([np.ones(shape, np.float32) for shape in shapes])[0]

    assert call(4) == [256]
    with pytest.raises(ModelError, match="one that memory has no place for"):
        call(2**16)


@I.ir_module
class Scores:
    @R.function
    def main(x: R.Tensor(("b", "t", 64), "float32"), m: R.Tensor(("b", "t"), "int64")) -> R.Tensor(
        ("b", "t", "t"), "float32"
    ):
        with R.dataflow():
            u = R.permute_dims(x, axes=[0, 2, 1])
            s = R.matmul(x, u)
            e = R.exp(s)
            R.output(e)
        return e


@I.ir_module
class Guarded:
    @R.function
    def main(x: R.Tensor(("b", "t", 64), "float32"), m: R.Tensor(("b", "t"), "int64")) -> R.Tensor(
        ("b", "t", "t"), "float32"
    ):
        b, t = T.int64(), T.int64()
        room = R.shape(
            [
                T.Select(
                    T.max(b, T.int64(1)) <= T.int64(2**48)
                    and T.max(t, T.int64(1)) <= T.truncdiv(T.int64(2**48), T.max(b, T.int64(1)))
                    and T.max(t, T.int64(1))
                    <= T.truncdiv(T.truncdiv(T.int64(2**48), T.max(b, T.int64(1))), T.max(t, T.int64(1))),
                    T.int64(0),
                    T.int64(-(2**40)),
                )
            ]
        )
        _ = R.match_cast(room, R.Shape([0]))
        with R.dataflow():
            u = R.permute_dims(x, axes=[0, 2, 1])
            s = R.matmul(x, u)
            e = R.exp(s)
            R.output(e)
        return e


def test_sizes_that_are_multiplied_anew_are_checked_before_the_ops() -> None:
    tvm.ir.assert_structural_equal(expect_room()(Scores), Guarded)


@I.ir_module
class Maps:
    @R.function
    def main(x: R.Tensor(("n", 3, "h", "w"), "float32"), k: R.Tensor((64, 3, 3, 3), "float32")) -> R.Tensor(
        ("n * ((h + 1) // 2)", "(w + 1) // 2 * 64"), "float32"
    ):
        n, h, w = T.int64(), T.int64(), T.int64()
        with R.dataflow():
            y = R.nn.conv2d(x, k, strides=[2, 2], padding=[1, 1, 1, 1])
            z = R.permute_dims(y, axes=[0, 2, 3, 1])
            f = R.reshape(z, R.shape([n * ((h + 1) // 2), (w + 1) // 2 * 64]))
            R.output(f)
        return f


def test_tensors_of_the_sizes_of_an_input_are_not_checked() -> None:
    tvm.ir.assert_structural_equal(expect_room()(Maps), Maps)


def test_known_sizes_are_not_checked() -> None:
    known = relax.transform.BindSymbolicVars({"b": 2, "t": 3})(Scores)
    tvm.ir.assert_structural_equal(expect_room()(known), known)


def test_functions_of_a_codegen_stay_as_they_are() -> None:
    for mark in ("Codegen", "Composite"):
        marked = Scores.clone()
        marked.update_func(marked.get_global_var("main"), Scores["main"].with_attr(mark, "theirs"))
        tvm.ir.assert_structural_equal(expect_room()(marked), marked)


@I.ir_module
class Branches:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 1), "float32"), y: R.Tensor((1, "m"), "float32")):
        if c:
            z = R.multiply(x, y)
            w = R.sum(z)
        else:
            w = R.sum(x)
        return w


@I.ir_module
class Pair:
    @R.function
    def main(t: R.Tuple(R.Tensor(ndim=2, dtype="float32"), R.Tensor(ndim=2, dtype="float32"))):
        n, m = T.int64(), T.int64()
        u = R.match_cast(t, R.Tuple(R.Tensor((n, 1), "float32"), R.Tensor((1, m), "float32")))
        a = u[0]
        b = u[1]
        return R.multiply(a, b)


def test_checks_in_branches_and_behind_a_cast_of_a_tuple_compile() -> None:
    x, y = (tvm.runtime.tensor(np.ones(shape, np.float32)) for shape in ((3, 1), (1, 3)))
    branches, pair = (
        relax.VirtualMachine(tvm.compile(module, target="convoy"), tvm.cpu()) for module in (Branches, Pair)
    )
    assert branches["main"](tvm.runtime.tensor(np.array(True)), x, y).numpy() == 9
    assert pair["main"](tvm.runtime.convert((x, y))).numpy().shape == (3, 3)


def test_a_check_stands_before_the_ops_also_where_a_tuple_says_the_sizes() -> None:
    n, m = (tvm.tirx.Var(name, "int64") for name in "nm")
    x, y = (relax.TensorType(shape, "float32") for shape in ([n, 1], [1, m]))
    pair = relax.Var("pair", relax.TupleType([x, y]))
    builder = relax.BlockBuilder()
    with builder.function("main", [pair]):
        a, b = builder.emit(relax.TupleGetItem(pair, 0)), builder.emit(relax.TupleGetItem(pair, 1))
        z = builder.emit(relax.op.multiply(a, b))
        builder.emit(relax.op.exp(z))
        again = builder.match_cast(a, x)
        builder.emit_func_output(relax.Tuple([z, again]))
    first, *_ = expect_room()(builder.get())["main"].body.blocks
    assert str(first.bindings[0].var.name) == "room"


@I.ir_module
class Sums:
    """As keys and queries behind long caches."""

    @R.function
    def main(x: R.Tensor((32, "n", 1), "float32"), y: R.Tensor((1, "m"), "float32")) -> R.Tensor(
        (32, "n + 2048", "m + 2048"), "float32"
    ):
        with R.dataflow():
            a = R.zeros(R.shape([32, 2048, 1]), "float32")
            b = R.zeros(R.shape([1, 2048]), "float32")
            p = R.concat((x, a), axis=1)
            q = R.concat((y, b), axis=1)
            z = R.multiply(p, q)
            R.output(z)
        return z


@pytest.mark.parametrize(
    ("size", "fits"), [(1, True), (4096, True), (2**20, True), (2**22, False), (2**62, False)]
)
def test_sums_count_as_what_they_are(size: int, fits: bool) -> None:
    # not as the product of what is added: scores of a window behind a cache were refused
    called = relax.transform.BindSymbolicVars({"n": size, "m": size})(expect_room()(Sums))
    room = called["main"].body.blocks[0].bindings[0].value
    excesses = [int(tvm.sym.Analyzer().simplify(excess)) for excess in room.values]
    assert excesses
    assert (not any(excesses)) is fits


@I.ir_module
class Around:
    @R.function
    def main(s: R.Shape(["n", "m"])) -> R.Tensor(("n", "m + 14"), "int8"):
        n, m = T.int64(), T.int64()
        with R.dataflow():
            a = R.zeros(R.shape([n, m + 14]), "int8")
            R.output(a)
        return a


def test_a_sum_that_wraps_around_ends_the_call() -> None:
    main = relax.VirtualMachine(convoy.compile(Around), tvm.cpu())["main"]
    assert main(tvm.runtime.ShapeTuple([3, 5])).shape == (3, 19)
    with pytest.raises(RuntimeError, match="match_cast"):
        main(tvm.runtime.ShapeTuple([3, 2**63 - 5]))


@I.ir_module
class FoundBehind:
    @R.function
    def main(s: R.Shape(["n", "m"]), t: R.Tensor(("k",), "float32")) -> R.Tensor(("n", "m"), "float32"):
        n, m = T.int64(), T.int64()
        with R.dataflow():
            a = R.zeros(R.shape([n, m]), "float32")
            i = R.nonzero(t)
            _ = R.match_cast(i, R.Tensor((n, m), "int64"))
            R.output(a)
        return a


def test_what_is_found_behind_an_op_says_nothing_of_it() -> None:
    before = FoundBehind.script().count("match_cast")
    assert expect_room()(FoundBehind).script().count("match_cast") == before + 1


@I.ir_module
class CastInABranch:
    @R.function
    def main(
        x: R.Tensor(ndim=1, dtype="float32"),
        y: R.Tensor(ndim=1, dtype="float32"),
        outer: R.Tensor((), "bool"),
    ) -> R.Tensor(ndim=2, dtype="float32"):
        n, m = T.int64(), T.int64()
        if outer:
            p = R.match_cast(x, R.Tensor((n,), "float32"))
            q = R.match_cast(y, R.Tensor((m,), "float32"))
            r = R.reshape(p, R.shape([n, 1]))
            z = R.multiply(r, q)
            w: R.Tensor(ndim=2, dtype="float32") = z
        else:
            w: R.Tensor(ndim=2, dtype="float32") = R.zeros(R.shape([1, 1]), "float32")
        return w


@pytest.mark.slow
def test_checks_behind_casts_in_a_branch_compile() -> None:
    main = relax.VirtualMachine(convoy.compile(CastInABranch), tvm.cpu())["main"]
    x, y = (tvm.runtime.tensor(np.ones(n, np.float32)) for n in (3, 5))
    for outer, shape in ((True, (3, 5)), (False, (1, 1))):
        assert main(x, y, tvm.runtime.tensor(np.array(outer))).shape == shape


def test_sizes_that_are_divided_often_have_room():
    # the attention of a map of thirty-twos: 2^48 elements, times what sizes were divided by, is 2^68
    runner = compiled(
        "(float[n] x) => (float[a, b] y) {"
        " s = Constant<value_ints = [0]>() e = Constant<value_ints = [1000000]>()"
        " t = Constant<value_ints = [2048]>() o = Constant<value_ints = [1]>() z = Slice(x, s, e, s, t)"
        " c = Unsqueeze(z, o) r = Unsqueeze(z, s) y = MatMul(c, r) }"
    )
    (y,) = runner.run([np.arange(5000, dtype=np.float32)])
    np.testing.assert_array_equal(y, np.outer([0, 2048, 4096], [0, 2048, 4096]))
