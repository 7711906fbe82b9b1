"""Loops, scans and branches that are damaged, nested, huge, or named like others."""

from __future__ import annotations

import gc
import re
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

import convoy
from convoy.errors import ModelError
from convoy.relax.importer import load

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
REFUSED = "expected ops that TVM's ONNX frontend knows, got "


def value(name: str, kind: int = FLOAT, shape: Sequence[int] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def tensors(constants: dict[str, object]) -> list[onnx.TensorProto]:
    return [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]


def make(nodes: Sequence[onnx.NodeProto], *outputs: str, **constants: object) -> onnx.ModelProto:
    inputs, made = [value("x", shape=[3, 4])], [value(name) for name in outputs or ("y",)]
    graph = helper.make_graph(nodes, "network", inputs, made, tensors(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def loop(
    nodes: Sequence[onnx.NodeProto],
    state: str = "x",
    output: str = "y",
    name: str = "L",
    **constants: object,
) -> onnx.NodeProto:
    """A Loop of one state: ``s`` becomes ``t``, COUNT times."""
    inputs = [value("i", INT64, []), value("c", BOOL, []), value("s")]
    body = helper.make_graph(nodes, "body", inputs, [value("c", BOOL, []), value("t")], tensors(constants))
    return helper.make_node("Loop", ["COUNT", "", state], [output], name, body=body)


def step(op: str, *inputs: str, output: str = "t") -> onnx.NodeProto:
    return helper.make_node(op, inputs, [output])


@pytest.mark.parametrize("count", [[2, 3], np.array([], "int64"), np.float32("nan")])
def test_a_count_that_is_no_number_is_refused(count: object) -> None:
    with pytest.raises(ModelError, match="Loop L: expected a whole number as the count of steps, got"):
        load(make([loop([step("Add", "s", "s")])], COUNT=count))


def test_a_loop_that_never_ends_is_refused() -> None:
    model = make([loop([step("Add", "s", "s")])], COUNT=np.array(1 << 62))
    with pytest.raises(ModelError, match="Loop L: expected a loop that ends, got 4611686018427387904"):
        load(model)


@pytest.mark.parametrize("count", [2, [2]])
def test_a_count_of_one_element_is_a_number(count: object, run_tvm) -> None:
    x = np.ones((3, 4), "float32")
    np.testing.assert_array_equal(
        run_tvm(load(make([loop([step("Add", "s", "s")])], COUNT=count)), x)[0], 4 * x
    )


STEPS = {
    "so many as a call says": ("steps", "p = Gather <axis = 1> (x, i)"),
    "so many as the model says": ("known", "p = Slice (x, from, to, one)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_the_number_of_a_step_has_the_axis_that_its_body_says(name: str, run_onnx, rng) -> None:
    """So PyTorch's older exporter writes ``tensor_split``; whether it goes on is a constant outside."""
    count, row = STEPS[name]
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]> network
        (float[N,5] x, int64[1] steps) => (float[N,5] y, float[N,M] joined) {{
            known = Constant <value_ints = [2]> ()
            yes = Constant <value = bool {{1}}> ()
            ends = Constant <value_ints = [0, 1, 4]> ()
            one = Constant <value_ints = [1]> ()
            next = Constant <value_int = 1> ()
            s = SequenceEmpty ()
            y, t = Loop ({count}, yes, x, s) <body = step
                (int64[1] i, bool c, float[N,5] h, seq(float[N,K]) u)
                => (bool go, float[N,5] k, seq(float[N,K]) v) {{
                k = Neg (h)
                j = Add (i, next)
                from = Gather (ends, i)
                to = Gather (ends, j)
                {row}
                v = SequenceInsert (u, p)
                go = Identity (yes)
            }}>
            joined = ConcatFromSequence <axis = 1> (t)
        }}""")  # fmt: skip
    x, steps = rng.random((3, 5), "float32"), np.array([2])
    runner = convoy.Runner(convoy.compile(model, threads=1))
    for found, wanted in zip(runner.run([x, steps]), run_onnx(model, x, steps), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("left", [0, 1])
def test_a_body_of_too_few_outputs_is_refused(left: int) -> None:
    node = loop([step("Add", "s", "s")])
    del node.attribute[0].g.output[left:]
    with pytest.raises(ModelError, match="Loop L: expected a body of 1 states and 1 results, got"):
        load(make([node], COUNT=2))


def nest(depth: int) -> onnx.NodeProto:
    inner = step("Tanh", "s") if depth == 1 else nest(depth - 1)
    return loop([inner], "s", "t")


@pytest.mark.parametrize(("depth", "count", "calls"), [(1, 20_000, True), (3, 100, True), (3, 2, False)])
def test_loops_that_would_become_too_much_are_calls(depth: int, count: int, calls: bool, run_tvm) -> None:
    node = nest(depth)
    node.input[2], node.output[0] = "x", "y"
    module = load(make([node], COUNT=count))
    assert any(var.name_hint.startswith("run") for var in module.get_global_vars()) == calls
    if count**depth > 20_000:
        return
    wanted = x = np.full((3, 4), 0.5, "float32")
    for _ in range(count**depth):
        wanted = np.tanh(wanted)
    np.testing.assert_allclose(run_tvm(module, x)[0], wanted, rtol=1e-3)


def test_a_body_of_nothing_is_no_endless_loop() -> None:
    node = loop([])
    node.attribute[0].g.output[1].name = "s"
    assert load(make([node], COUNT=2**40))


LOOPS = {
    "until a sum is too large": """(float[N,3] x, int64 count, float limit)
        => (float[N,3] y, float[K,N,3] rows, int64 steps) {
        true = Constant <value = bool {1}> ()
        zero = Constant <value = int64 {0}> ()
        y, steps, rows = Loop (count, true, x, zero) <body = step
            (int64 i, bool c, float[N,3] s, int64 k) => (bool go, float[N,3] t, int64 l, float[N,3] row) {
                at = Cast <to = 1> (i)
                t = Add (s, x)
                row = Mul (t, at)
                largest = ReduceMax <keepdims = 0> (t)
                go = Less (largest, limit)
                two = Constant <value = int64 {2}> ()
                l = Add (k, two)
            }>
    }""",
    "only while": """(float[N,3] x, int64 count, float limit)
        => (float[N,3] y, float[K] rows, int64 steps) {
        zero = Constant <value = int64 {0}> ()
        some = Less (zero, count)
        y, steps, rows = Loop (, some, x, zero) <body = step
            (int64 i, bool c, float[N,3] s, int64 k) => (bool go, float[N,3] t, int64 l, float row) {
                t = Neg (s)
                row = ReduceMax <keepdims = 0> (t)
                one = Constant <value = int64 {1}> ()
                l = Add (k, one)
                go = Less (l, count)
            }>
    }""",
    "in a loop": """(float[N,3] x, int64 count, float limit)
        => (float[N,3] y, float[K,N,3] rows, int64 steps) {
        true = Constant <value = bool {1}> ()
        zero = Constant <value = int64 {0}> ()
        y, steps, rows = Loop (count, true, x, zero) <body = outer
            (int64 i, bool c, float[N,3] s, int64 k) => (bool go, float[N,3] t, int64 l, float[N,3] row) {
                t, l = Loop (i, , s, k) <body = inner
                    (int64 j, bool d, float[N,3] u, int64 m) => (bool on, float[N,3] v, int64 n) {
                        v = Add (u, x)
                        one = Constant <value = int64 {1}> ()
                        n = Add (m, one)
                        on = Identity (d)
                    }>
                row = Neg (t)
                largest = ReduceMax <keepdims = 0> (t)
                go = Less (largest, limit)
            }>
    }""",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_runs_as_often_as_a_call_says(name: str, run_onnx, rng) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> network {LOOPS[name]}')
    machine = relax.VirtualMachine(convoy.compile(model, threads=1), tvm.cpu())
    calls = [(2, 5, 1e9), (1, 0, 1e9), (3, 1, 1e9), (1, 100, 9.0), (2, 7, -1e9), (1, 33, 1e9)]
    for images, count, limit in calls:
        given = [rng.random((images, 3), "float32"), np.array(count), np.array(limit, "float32")]
        found = machine["main"](*map(tvm.runtime.tensor, given))
        for got, wanted in zip((x.numpy() for x in found), run_onnx(model, *given), strict=True):
            assert got.shape[:1] == wanted.shape[:1]  # of no rows ONNX Runtime has other sizes
            np.testing.assert_allclose(got.ravel(), wanted.ravel(), rtol=1e-5)


def test_a_state_of_another_type_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    node = loop([step("Cast", "s", "")])
    node.attribute[0].g.node[0].attribute.append(helper.make_attribute("to", TensorProto.INT32))
    del node.attribute[0].g.node[0].input[1:]
    with pytest.raises(
        ModelError,
        match=r"Loop L: expected states that keep their type and number of axes, got .*float32.* that "
        r"becomes .*int32.*; write the loop out, or give it states of the last type from the start",
    ):
        load(make([node], COUNT=20_000))
    gc.collect()
    assert "BlockBuilder" not in capfd.readouterr().err  # that goes with an open block


def test_a_state_that_is_a_sequence_is_refused_in_one_line() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]> network
        (float[N] x, int64 count) => (float[M] y) {
            none = SequenceEmpty ()
            front = Constant <value_int = 0> ()
            rows = Loop (count, , none) <body = step (int64 i, bool c, seq(float[K]) s)
                => (bool go, seq(float[K]) t) {
                t = SequenceInsert (s, x, front)
                go = Identity (c)
            }>
            y = ConcatFromSequence <axis = 0> (rows)
        }""")  # fmt: skip
    with pytest.raises(ModelError, match=r"expected states that are tensors, got a sequence; stack it"):
        load(model)


@pytest.mark.parametrize("held", ["initializer", "Constant"])
def test_the_constants_of_a_body_are_there_once(held: str) -> None:
    weight = np.eye(4, dtype="float32").repeat(100, 1)
    nodes = [step("MatMul", "s", "w", output="wide"), step("Slice", "wide", "from", "to", "axis")]
    given = {"from": [0], "to": [4], "axis": [1], "w": weight}
    if held == "Constant":
        made = {n: numpy_helper.from_array(np.asarray(a)) for n, a in given.items()}
        nodes = [helper.make_node("Constant", [], [n], value=t) for n, t in made.items()] + nodes
        given = {}
    made = load(make([loop(nodes, **given)], COUNT=9)).script()
    weights = re.findall(r"R\.matmul\(\w+, ([^,]+),", made)
    assert (len(weights), len(set(weights))) == (9, 1)


def test_names_of_others_are_not_taken(run_tvm) -> None:
    # the first loop's tensors would be called like Neg's; outer loops have one name, inner ones none
    first = loop([step("Add", "s", "w")], "x", "a", w=np.ones(4, "float32"))
    ops = (("Add", "s", "u"), ("Mul", "u", "t"))
    second = loop([loop([step(op, "s", "s")], a, b, "") for op, a, b in ops], "a", "b")
    nodes = [step("Neg", "x", output="L/0/t"), first, second, step("Add", "L/0/t", "a", output="y")]
    x = np.full((3, 4), 0.01, "float32")
    wanted = x + 2
    for _ in range(2):
        wanted = (wanted * 4) ** 4
    found = run_tvm(load(make(nodes, "y", "b", COUNT=2)), x)
    np.testing.assert_array_equal(found[0], x + 2 - x)
    np.testing.assert_allclose(found[1], wanted, rtol=1e-5)


def test_branches_within_branches_whose_tensors_have_one_name_compile() -> None:
    # each took what was inside of it by a name twice as long: twenty took all memory
    inner = helper.make_graph([step("Neg", "x", output="z")], "branch", [], [value("z")])
    for _ in range(20):
        node = helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner)
        other = helper.make_graph([step("Abs", "x", output="z")], "branch", [], [value("z")])
        node = helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=other)
        inner = helper.make_graph([node], "branch", [], [value("z")])
    last = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    names = [str(var) for var in load(make([last], c=np.array(True))).functions]
    assert names == ['I.GlobalVar("main")']


def scan(count: int, **attributes: object) -> onnx.ModelProto:
    nodes = [step("Add", "s", "e"), step("Mul", "s", "e", output="r")]
    body = helper.make_graph(nodes, "body", [value("s"), value("e")], [value("t"), value("r")])
    node = helper.make_node("Scan", ["h", "x"], ["y", "z"], body=body, num_scan_inputs=count, **attributes)
    return make([node], "y", "z", h=np.ones(4, "float32"))


@pytest.mark.parametrize(
    ("count", "attributes"),
    [
        (0, {}),
        (3, {}),
        (-1, {}),
        (1, {"scan_input_axes": [0, 0]}),
        (1, {"scan_input_directions": [0, 0]}),
        (1, {"scan_output_axes": [0, 0]}),
        (1, {"scan_output_directions": [0, 0]}),
    ],
)
def test_a_scan_that_contradicts_itself_is_refused(count: int, attributes: dict[str, object]) -> None:
    with pytest.raises(ModelError, match=REFUSED + "Scan"):
        load(scan(count, **attributes))


@pytest.mark.slow
@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_scan_over_an_open_length_is_a_loop(axis: int, back: int, run_onnx, rng) -> None:
    ways = {name: [back] for name in ("scan_input_directions", "scan_output_directions")}
    model = scan(1, scan_output_axes=[axis], **ways)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    for output in model.graph.node[0].attribute[0].g.output:
        output.CopyFrom(value(output.name, shape=[4]))
    machine = relax.VirtualMachine(convoy.compile(model, threads=1), tvm.cpu())
    for length in (1, 6):
        x = rng.standard_normal((length, 4)).astype("float32")
        found = machine["main"](tvm.runtime.tensor(x))
        for got, wanted in zip(found, run_onnx(model, x), strict=True):
            np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-5)


def test_a_scan_backward_and_along_another_axis(run_tvm, run_onnx, rng) -> None:
    model = scan(1, scan_input_directions=[1], scan_output_axes=[-1], scan_output_directions=[1])
    x = rng.standard_normal((3, 4)).astype("float32")
    for found, wanted in zip(run_tvm(load(model), x), run_onnx(model, x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("second", ["t", "u", 5])
def test_sequences_of_a_scan_have_one_length(second, run_onnx, rng) -> None:
    # it was cut off, or ended as an index outside
    values = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "habcy"}
    nodes = [helper.make_node("Add", ["h", "a"], ["c"]), helper.make_node("Mul", ["c", "b"], ["y"])]
    body = helper.make_graph(nodes, "body", [values[n] for n in "hab"], [values[n] for n in "cy"])
    shapes = {"first": [2], "one": ["t", 2], "two": [second, 2]}
    graph = helper.make_graph(
        [helper.make_node("Scan", list(shapes), ["last", "all"], body=body, num_scan_inputs=2)],
        "network",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("last", "all")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    runner = convoy.load(convoy.compile(model))
    one, two = (rng.standard_normal((5, 2)).astype("float32") for _ in range(2))
    first = np.ones(2, np.float32)
    for mine, wanted in zip(runner.run([first, one, two]), run_onnx(model, first, one, two), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5)
    with pytest.raises(ModelError, match="expected"):
        runner.run([first, one[:4], two])
    if second != 5:
        with pytest.raises(ModelError, match="expected"):
            runner.run([first, one, two[:4]])


def test_a_scan_with_a_batch_is_refused() -> None:
    model = onnx.parser.parse_model("""<ir_version: 3, opset_import: ["": 8]> network
        (float[2,5,3] x, float[2,3] h) => (float[2,3] y, float[2,5,3] z) {
            y, z = Scan <num_scan_inputs = 1, body = step (float[3] a, float[3] e) =>
                (float[3] b, float[3] o) { b = Add (a, e) o = Mul (b, e) }> (, h, x) }""")
    with pytest.raises(ModelError, match="Scan y: expected one of opset 9 or later, got one of opset 8"):
        load(model)
