"""Loops that stay with TVM: fused, shared by threads, in an order that memory likes."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx, topi
from tvm.s_tir import Schedule

from convoy.relax.schedule import count_shared, drop_scopes, schedule, schedule_loops


def chain(size: int, *, twice: bool = False):
    # twice: what is in between has two readers
    x = te.placeholder((size, 64), name="x")
    y = te.placeholder((64,), name="y")
    first = topi.exp(x)
    outputs = [topi.add(first, y), topi.multiply(first, y)][: 1 + twice]
    return te.create_prim_func([x, y, *outputs])


def run(function, *arrays, of=()):
    module = tvm.IRModule({"f": function.with_attr("global_symbol", "f")})
    built = tvm.compile(module, target=tvm.target.Target({"kind": "llvm"}))
    outs = [tvm.runtime.empty(shape, dtype) for shape, dtype in of]
    built["f"](*[tvm.runtime.tensor(a) for a in arrays], *outs)
    return [out.numpy() for out in outs]


def test_chain_is_one_loop_that_threads_share() -> None:
    # exp -> add  =>  parallel: exp + add, nothing stored in between
    text = schedule(chain(1024)).script()
    assert text.count("    with T.sblock(") == 1
    assert "sblock_alloc" not in text
    assert "T.parallel" in text


def test_small_chain_is_not_shared() -> None:
    text = schedule(chain(8)).script()
    assert "T.parallel" not in text
    assert "sblock_alloc" not in text


def test_result_with_two_readers_is_computed_once() -> None:
    text = schedule(chain(1024, twice=True)).script()
    assert text.count("T.exp") == 1
    assert text.count("T.parallel") == 3


@pytest.mark.parametrize("size", [8, 1000])
def test_scheduled_chain_computes_the_same(size: int) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(size, 64)).astype(np.float32), rng.normal(size=64).astype(np.float32)
    of = [((size, 64), "float32")]
    np.testing.assert_array_equal(*run(chain(size), x, y, of=of), *run(schedule(chain(size)), x, y, of=of))


def test_numbers_that_are_rounded_again_and_again_are_stored_in_between() -> None:
    # one expression of eight would keep TVM's simplifier busy for minutes
    x = te.placeholder((4, 64), name="x")
    y = x
    for _ in range(8):
        y = topi.cast(topi.cast(topi.multiply(y, 1.5), "uint16"), "float32")
    function = te.create_prim_func([x, y])
    text = schedule(function).script()
    roundings = [line.count('Cast("uint16"') for line in text.splitlines()]
    assert max(roundings) == 3
    assert sum(roundings) == 8
    assert text.count("    with T.sblock(") == 3


def arg_max(shape: tuple[int, ...], axis: int):
    x = te.placeholder(shape, name="x")
    return te.create_prim_func([x, topi.argmax(x, axis)])


def innermost(function) -> str:
    """What the innermost loop of the reduction goes along: ``ax``, an axis of the result, or ``k``."""
    loops = Schedule(function)
    block = loops.get_child_blocks(loops.get_sblock("root"))[0]
    return str(loops.get(loops.get_loops(block)[-1]).loop_var).rstrip("_0123456789")


def test_sums_over_an_outer_axis_run_side_by_side() -> None:
    # a segmentation's classes are far apart in memory
    function = arg_max((1, 150, 64, 64), 1)
    assert innermost(function) == "k"
    assert innermost(schedule(function)).startswith("ax")
    x = np.random.default_rng(0).normal(size=(1, 150, 64, 64)).astype(np.float32)
    (found,) = run(schedule(function), x, of=[((1, 64, 64), "int32")])
    np.testing.assert_array_equal(found, x.argmax(1))


def test_columns_of_a_product_run_side_by_side() -> None:
    # x's rows are reduced along memory, but w's columns lie beside each other; of rows with rows none do
    x, w = te.placeholder((64, 48), "float64", name="x"), te.placeholder((48, 32), "float64", name="w")
    product = te.create_prim_func([x, w, topi.matmul(x, w)])
    assert innermost(product) == "k"
    assert innermost(schedule(product)) != "k"
    a, b = np.random.default_rng(0).normal(size=(2, 64, 48))
    (found,) = run(schedule(product), a, b[:48, :32].copy(), of=[((64, 32), "float64")])
    np.testing.assert_allclose(found, a @ b[:48, :32], rtol=1e-12)
    rows = te.placeholder((32, 48), "float64", name="rows")
    assert innermost(schedule(te.create_prim_func([x, rows, topi.matmul(x, rows, transp_b=True)]))) == "k"


@pytest.mark.parametrize(("shape", "axis"), [((1, 64, 150), 2), ((1, 21, 64, 64), 1)])
def test_neighbours_and_short_sums_stay_innermost(shape: tuple[int, ...], axis: int) -> None:
    assert innermost(schedule(arg_max(shape, axis))) == "k"


@pytest.mark.parametrize("make", [schedule_loops, drop_scopes])
def test_marks_of_scatters_are_gone(make) -> None:
    # LLVM's code generator warns of each "pragma_scope" on the terminal; other attributes stay
    def mark(key: str) -> tirx.PrimFunc:
        function = chain(4)
        return function.with_body(tirx.AttrStmt(tirx.const(0), key, tvm.ir.StringImm("seq"), function.body))

    module = tvm.IRModule({"scope": mark("pragma_scope"), "other": mark("pragma_other")})
    scheduled = make()(module)
    assert "pragma_scope" not in scheduled["scope"].script()
    assert "pragma_other" in scheduled["other"].script()


def test_foreign_functions_stay_as_they_are() -> None:
    x = te.placeholder((1, 8400), name="x")
    function = te.create_prim_func([x, *topi.topk(x, 300, 1, "both")])
    assert schedule(function).same_as(function)


@pytest.mark.parametrize(
    ("op", "wanted", "means"),
    [
        (relax.op.exp, np.exp, "T.exp"),
        (lambda x: relax.op.argmax(x, 1), lambda x: x.argmax(1), "_red_temp"),
        (lambda x: relax.op.max(x, 1), lambda x: x.max(1), "T.max"),
    ],
    ids=["exp", "argmax", "max"],
)
def test_open_sizes_are_shared_where_a_call_has_many_elements(op, wanted, means: str) -> None:
    n = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 64), "float32"))
    block = relax.BlockBuilder()
    with block.function("main", [x]):
        with block.dataflow():
            out = block.emit_output(op(x))
        block.emit_func_output(out)
    module = relax.get_default_pipeline(tvm.target.Target({"kind": "llvm"}))(block.get())
    assert count_shared(module) == 0
    module = schedule_loops()(module)
    assert count_shared(module) == 1
    texts = [f.script() for _, f in module.functions_items() if isinstance(f, tirx.PrimFunc)]
    (text,) = (text for text in texts if "T.parallel" in text)
    few = text[text.index("if ") :].partition("else:")
    assert re.match(r"if .*n \* T\.int64\(64\).* >= T\.float32\(32768.0\):", few[0])
    assert ("T.parallel" in few[0], "T.parallel" in few[2], means in few[2]) == (True, False, True)
    nothing = tvm.transform.Sequential([])
    built = tvm.compile(module, target=tvm.target.Target({"kind": "llvm"}), relax_pipeline=nothing)
    machine = relax.VirtualMachine(built, tvm.cpu())
    for size in (1, 7, 1000):
        data = np.linspace(-1, 1, size * 64, dtype=np.float32).reshape(size, 64)
        np.testing.assert_allclose(
            machine["main"](tvm.runtime.tensor(data)).numpy(), wanted(data), rtol=1e-5
        )


@pytest.mark.parametrize("rows", [1, 32, 40000])
def test_what_no_call_computes_alone_can_be_compiled(rows: int) -> None:
    # rows of one image are enough to share; TVM concluded that n is 0 elsewhere, and divided by it
    n = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((4, n * rows, 2, 48), "float32"))
    images = relax.Var("images", relax.TensorType((n,), "float32"))
    block = relax.BlockBuilder()
    with block.function("main", [images, x]):
        with block.dataflow():
            out = block.emit_output(relax.op.reshape(x, (4, n * rows, 96)))
        block.emit_func_output(out)
    target = tvm.target.Target({"kind": "llvm"})
    module = schedule_loops()(relax.get_default_pipeline(target)(block.get()))
    assert count_shared(module) == 1
    machine = relax.VirtualMachine(
        tvm.compile(module, target=target, relax_pipeline=tvm.transform.Sequential([])), tvm.cpu()
    )
    for size in (0, 1, 2):
        data = np.arange(size * rows * 384, dtype=np.float32).reshape(4, size * rows, 2, 48)
        given = (tvm.runtime.tensor(a) for a in (np.zeros(size, np.float32), data))
        made = machine["main"](*given).numpy()
        np.testing.assert_array_equal(made, data.reshape(4, size * rows, 96))


def test_products_of_open_sizes_are_compiled_once() -> None:
    n = te.var("n", "int64")
    x, y = te.placeholder((n, 64), name="x"), te.placeholder((64, 64), name="y")
    text = schedule(te.create_prim_func([x, y, topi.matmul(x, y)])).script()
    assert "T.parallel" in text
    assert "if " not in text.replace("with T.init", "")


def sizes_of_a_call(*places: int, name: str = "shape_func1") -> tirx.PrimFunc:
    """H[place] = H[0] * place, one behind the other."""
    lines = [
        "@T.prim_func(s_tir=True, private=True)",
        'def sizes(H: T.Buffer((T.int64(4),), "int64")):',
        *(f"    H[T.int64({place})] = H[T.int64(0)] * T.int64({place})" for place in places),
    ]
    made = tvm.script.from_source("\n".join(lines), {"T": tvm.script.tirx})
    return made.with_attr("global_symbol", name)


def test_sizes_of_a_call_are_computed_in_one_order() -> None:
    # in the order of addresses, which changes  =>  by their places
    tvm.ir.assert_structural_equal(schedule(sizes_of_a_call(3, 1, 2)), sizes_of_a_call(1, 2, 3))


def test_other_functions_keep_their_order() -> None:
    function = sizes_of_a_call(3, 1, name="mine")
    assert schedule(function).same_as(function)


def test_loops_without_an_element_stay_as_they_are() -> None:
    n = tirx.Var("n", "int64")
    for first in (3, n):
        x = te.placeholder((first, 0, 8), name="x")
        function = te.create_prim_func([x, topi.exp(x)])
        tvm.ir.assert_structural_equal(schedule(function), function)


@pytest.mark.parametrize("shape", [("n", 8), (4, "n"), ("n",), (3, "n", 40)])
@pytest.mark.parametrize("axis", [0, -1])
def test_what_reduces_nothing_is_what_the_sum_begins_with(shape: tuple, axis: int) -> None:
    n = tirx.Var("n", "int64")
    x = te.placeholder([n if d == "n" else d for d in shape], name="x")
    function = schedule(te.create_prim_func([x, topi.sum(x, axis=axis)]))
    for length in (0, 1, 5):
        data = np.ones([length if d == "n" else d for d in shape], np.float32)
        want = data.sum(axis=axis)
        found = tvm.runtime.tensor(np.full(want.shape, 7, np.float32))
        tvm.compile(function, target={"kind": "llvm"})(tvm.runtime.tensor(data), found)
        np.testing.assert_array_equal(found.numpy(), want)
