"""Which ops become which composite, and why others do not."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from convoy.errors import ConvoyError, RefusedError
from convoy.graph.rewrite import simplify
from convoy.options import Options
from convoy.relax.partition import partition
from convoy.relax.patterns import PATTERNS
from convoy.report.decision import Report
from relax.sketch import KEEP_ALL, Cut, const, weight
from relax.switched_off import SWITCHED_OFF

IMAGE = (1, 4, 8, 8)
ACTIVATIONS = {
    "relu": op.nn.relu,
    "clip": lambda x: op.clip(x, 0, 6),
    "leaky_relu": lambda x: op.nn.leakyrelu(x, 0.1),
    "sigmoid": op.sigmoid,
    "tanh": op.tanh,
    "silu": op.nn.silu,
    "gelu": op.nn.gelu,
}


def conv(x, seed=0):
    return op.nn.conv2d(x, weight(4, 4, 3, 3, seed=seed), padding=1)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_conv_takes_bias_residual_and_activation(name):
    # conv2d -> add constant -> add x -> activation  =>  conv2d_bias_add_<activation>
    def make(bind, x):
        biased = bind(op.add(bind(conv(x)), weight(1, 4, 1, 1)))
        return bind(ACTIVATIONS[name](bind(op.add(biased, x))))

    assert Cut(make, IMAGE).composites == [[f"conv2d_bias_add_{name}"]]


@pytest.mark.parametrize("anchor", ["conv2d_transpose", "conv1d", "matmul"])
def test_other_anchors_take_epilogues_too(anchor):
    # anchor -> add constant per output channel -> relu  =>  one composite
    calls = {
        "conv2d_transpose": (IMAGE, lambda x: op.nn.conv2d_transpose(x, weight(4, 6, 2, 2)), (6, 1, 1)),
        "conv1d": ((1, 4, 9), lambda x: op.nn.conv1d(x, weight(6, 4, 3)), (6, 1)),
        "matmul": ((1, 4), lambda x: op.matmul(x, weight(4, 6)), (6,)),
    }
    shape, call, bias = calls[anchor]

    def make(bind, x):
        return bind(op.nn.relu(bind(op.add(bind(call(x)), weight(*bias)))))

    cut = Cut(make, shape)
    assert cut.composites == [[f"{anchor}_bias_relu"]]


def test_full_constant_is_a_residual_not_a_bias():
    # conv2d -> add [1, C, H, W] constant  =>  conv2d_add
    def make(bind, x):
        return bind(op.add(bind(conv(x)), weight(*IMAGE)))

    assert Cut(make, IMAGE).composites == [["conv2d_add"]]


def test_a_value_somebody_else_reads_ends_the_pattern():
    # conv2d -> (relu, sigmoid)  =>  three composites of one region
    def make(bind, x):
        y = bind(conv(x))
        return [bind(op.nn.relu(y)), bind(op.sigmoid(y))]

    assert Cut(make, IMAGE).composites == [["conv2d", "relu", "sigmoid"]]


def test_a_tuple_that_is_bound_ends_the_pattern():
    # conv2d -> bound tuple  =>  conv2d; the tuple is no op
    def make(bind, x):
        return bind(op.concat(bind(relax.Tuple([bind(conv(x)), x])), axis=1))

    cut = Cut(make, IMAGE)
    assert ["conv2d"] in [composites[:1] for composites in cut.composites]


def lrn(bind, x, size=3, same=True):
    square = bind(op.expand_dims(bind(op.multiply(x, x if same else bind(op.abs(x)))), 1))
    pads = [size // 2, 0, 0, size // 2, 0, 0]
    pool = bind(op.nn.avg_pool3d(square, [size, 1, 1], padding=pads, count_include_pad=True))
    scaled = bind(op.multiply(bind(op.squeeze(pool, [1])), const(0.1)))
    power = bind(op.power(bind(op.add(scaled, const(2.0))), const(0.75)))
    return bind(op.divide(x, power))


def test_lrn_is_recognised():
    # x / (2 + 0.1 * mean(x * x))^0.75  =>  lrn
    cut = Cut(lrn, IMAGE)
    assert cut.composites == [["lrn"]]
    (node,) = cut.graph.nodes
    numbers = (node.size, node.alpha, node.beta, node.bias)
    assert numbers == (3, pytest.approx(0.1), pytest.approx(0.75), pytest.approx(2.0))


def test_lrn_of_something_else_is_not():
    # x / (2 + 0.1 * mean(x * |x|))^0.75  =>  no lrn
    cut = Cut(lambda bind, x: lrn(bind, x, same=False), IMAGE)
    assert not any("lrn" in composites for composites in cut.composites)


def shuffle(bind, x, order=(0, 2, 1, 3, 4)):
    split = bind(op.reshape(x, (1, 2, 2, 8, 8)))
    return bind(op.reshape(bind(op.permute_dims(split, list(order))), IMAGE))


def test_channel_shuffle_is_recognised():
    # reshape -> permute_dims -> reshape  =>  channel_shuffle
    cut = Cut(shuffle, IMAGE, options=KEEP_ALL)
    assert cut.composites == [["channel_shuffle"]]


def test_other_permutations_are_no_channel_shuffle():
    # the same with H and W exchanged  =>  three composites
    cut = Cut(lambda bind, x: shuffle(bind, x, (0, 1, 2, 4, 3)), IMAGE, options=KEEP_ALL)
    assert sorted(name for names in cut.composites for name in names) == [
        "permute_dims", "reshape", "reshape",
    ]  # fmt: skip


HARD = {
    "x * clip(x + 3, 0, 6) / 6": lambda bind, x: op.divide(
        bind(op.multiply(x, bind(op.clip(bind(op.add(x, const(3))), 0, 6)))), const(6)
    ),
    "clip(x / 6 + 0.5, 0, 1) * x": lambda bind, x: op.multiply(
        bind(op.clip(bind(op.add(bind(op.divide(x, const(6))), const(0.5))), 0, 1)), x
    ),
}


@pytest.mark.parametrize("text", HARD)
def test_hardswish_is_an_activation(text):
    # conv2d -> hardswish in several ops  =>  conv2d_hardswish
    cut = Cut(lambda bind, x: bind(HARD[text](bind, bind(conv(x)))), IMAGE)
    assert cut.composites == [["conv2d_hardswish"]]
    assert simplify(cut.graph).nodes[-1].kind == "hardswish"


def test_another_slope_is_no_hardswish():
    # x * clip(x / 5 + 0.5, 0, 1)  =>  hardsigmoid and multiply
    def make(bind, x):
        y = bind(conv(x))
        gate = bind(op.clip(bind(op.add(bind(op.divide(y, const(5))), const(0.5))), 0, 1))
        return bind(op.multiply(y, gate))

    assert Cut(make, IMAGE).composites == [["conv2d", "hardsigmoid", "multiply"]]


# Refusals: one test a reason ------------------------------------------------------------------------

n, m = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("m", "int64")
REFUSALS = {
    "expected a constant weight, got a parameter": (
        lambda bind, x, w: bind(op.nn.conv2d(x, w)),
        [IMAGE, (4, 4, 3, 3)],
    ),
    "expected a constant weight, got a run-time value": (
        lambda bind, x, w: bind(op.nn.conv2d(x, bind(op.sinh(w)))),
        [IMAGE, (4, 4, 3, 3)],
    ),
    "Convoy has no kernel for sinh": (lambda bind, x: bind(op.sinh(x)), [IMAGE]),
    "expected float32, got float16": (
        lambda bind, x: bind(op.nn.relu(x)),
        [relax.TensorType(IMAGE, "float16")],
    ),
    "expected axis 2 of known length, got 2 * m; fix the input's shape (when importing": (
        lambda bind, x: bind(op.nn.pixel_shuffle(bind(op.nn.pixel_shuffle(x, 2)), 2)),
        [(1, 16, m, 8)],
    ),
    "expected a known depth, got an open one; fix the input's shape (when importing": (
        lambda bind, x: bind(op.nn.max_pool3d(x, (2, 2, 2))),
        [(1, 4, m, 8, 8)],
    ),
    "expected axis 2 of known length, got m; fix the input's shape (when importing": (
        lambda bind, x: bind(op.nn.pixel_shuffle(x, 2)),
        [(1, 4, m, 8)],
    ),
    "expected a known shape, got an unknown one": (
        lambda bind, x: bind(op.nn.relu(x)),
        [relax.TensorType(dtype="float32", ndim=4)],
    ),
    "expected the images along axis 0 of every operand": (
        lambda bind, _, x: bind(op.sum(x, 0)),
        [(n, m), (tvm.tirx.truncdiv(n, m), 4)],  # a quotient that is rounded to 0 is no size a region knows
    ),
    "got the empty shape": (lambda bind, x: bind(op.nn.relu(x)), [(1, 0)]),
    "expected at most 2147483647 elements, got 2147483648": (
        lambda bind, x: bind(op.nn.relu(x)),
        [(1, 2, 1 << 15, 1 << 15)],
    ),
    "expected an operand known only at run time": (
        lambda bind, x: bind(op.nn.relu(weight(4))),
        [IMAGE],
    ),
    "expected at least one axis, got a scalar": (lambda bind, x: bind(op.sum(x)), [IMAGE]),
    "expected a constant index, got a run-time value": (
        lambda bind, x: bind(op.take(x, bind(op.astype(bind(op.sum(x)), "int64")), 1)),
        [IMAGE],
    ),
    "expected indices from 0 to 3, got others": (
        lambda bind, x: bind(op.take(x, relax.const([0, 4], "int64"), 1)),
        [IMAGE],
    ),
    "expected the images along axis 0 of every operand, got [T.Div(n, m), 4], [4]": (
        lambda bind, _, x: bind(op.take(x, relax.const(0, "int64"), 0)),
        [(n, m), (tvm.tirx.truncdiv(n, m), 4)],
    ),
    "expected at most 16 slices, got indices of 17": (
        lambda bind, x: bind(op.take(x, relax.const([2] * 17, "int64"), 1)),
        [IMAGE],
    ),
    "expected data in NCHW, got NHWC": (
        lambda bind, x: bind(op.nn.conv2d(x, weight(4, 8, 3, 3), data_layout="NHWC")),
        [IMAGE],
    ),
    "expected a weight in OIHW, got HWIO": (
        lambda bind, x: bind(op.nn.conv2d(x, weight(3, 3, 4, 4), kernel_layout="HWIO")),
        [IMAGE],
    ),
    "expected a second operand of two axes or more, got 1": (
        lambda bind, x: bind(op.matmul(x, weight(8))),
        [IMAGE],
    ),
    "got training=True": (
        lambda bind, x: bind(
            relax.TupleGetItem(bind(op.nn.batch_norm(x, *[const(np.ones(4))] * 4, 1, training=True)), 0)
        ),
        [IMAGE],
    ),
    "expected only its first item to be used": (
        lambda bind, x: bind(
            relax.TupleGetItem(bind(op.nn.batch_norm(x, *[const(np.ones(4))] * 4, 1, training=False)), 1)
        ),
        [IMAGE],
    ),
    "expected constant padding, got symmetric": (  # which TVM takes for a constant
        lambda bind, x: bind(op.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1], "symmetric")),
        [IMAGE],
    ),
    "expected padding of at most 7 by reflect, got 8": (
        lambda bind, x: bind(op.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 8], "reflect")),
        [IMAGE],
    ),
    "expected nearest or linear interpolation, got cubic": (
        lambda bind, x: bind(op.image.resize2d(x, (16, 16), method="cubic")),
        [IMAGE],
    ),
    "expected an output that divides 8x8, got 3x3": (
        lambda bind, x: bind(op.nn.adaptive_avg_pool2d(x, (3, 3))),
        [IMAGE],
    ),
    "expected data in NCHW, got NHWC; fold's normalize_layout turns it": (
        lambda bind, x: bind(op.nn.adaptive_avg_pool2d(x, (3, 3), layout="NHWC")),
        [IMAGE],
    ),
    "expected axes to take the variance over, got none": (
        lambda bind, x: bind(op.variance(x, [])),
        [IMAGE],
    ),
    "expected channels on axis 1 and means over all axes behind, got axis 2 and [1, 3]": (
        lambda bind, x: bind(op.nn.instance_norm(x, weight(8), weight(8), 2, [1, 3])),
        [IMAGE],
    ),
    "expected scale, or 1 in its place, got scale=False and other numbers": (
        lambda bind, x: bind(op.nn.layer_norm(x, weight(8), weight(8), [3], scale=False)),
        [IMAGE],
    ),
    "expected axes in ascending order, got [3, 1]": (
        lambda bind, x: bind(op.nn.layer_norm(x, weight(8, 4), weight(8, 4), [3, 1])),
        [IMAGE],
    ),
    "expected beta 1": (lambda bind, x: bind(op.nn.softplus(x, beta=2.0)), [IMAGE]),
    "expected a threshold of 17 or more, got 0.5": (
        lambda bind, x: bind(op.nn.softplus(x, threshold=0.5)),
        [IMAGE],
    ),
    "expected bounds in ascending order, got 6 and 0": (
        lambda bind, x: bind(op.clip(x, 6.0, 0.0)),
        [IMAGE],
    ),
    "expected a pixel in every window, got none in window 0": (
        lambda bind, x: bind(op.nn.max_pool2d(x, (2, 2), padding=(2, 2))),
        [IMAGE],
    ),
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_a_refusal_says_why(reason):
    make, inputs = REFUSALS[reason]
    cut = Cut(make, *inputs, options=KEEP_ALL)
    assert any(reason in found for found in cut.reasons), cut.reasons
    assert not cut.functions
    tvm.ir.assert_structural_equal(cut.module["main"], cut.before["main"])


def test_strict_mode_raises_the_first_refusal():
    make, inputs = REFUSALS["Convoy has no kernel for sinh"]
    with pytest.raises(RefusedError, match=r"annotate: sinh .*: Convoy has no kernel for sinh"):
        Cut(make, *inputs, options=Options(strict=True))


def test_strict_mode_looks_at_this_compilation_only():
    # a report that has refusals of another one
    report = Report()
    report.add("sinh", "annotate", "left", "Convoy has no kernel for sinh")
    before = Cut(conv_relu, IMAGE).before
    after = partition(Options(strict=True), report)(before)
    assert any(function.attrs.get("Codegen") for _, function in after.functions_items())


# What a user may switch off --------------------------------------------------------------------------


def conv_relu(bind, x):
    return bind(op.nn.relu(bind(conv(x))))


@pytest.mark.parametrize(("disabled", "taken"), SWITCHED_OFF)
def test_a_disabled_pattern_leaves_the_next_shorter_one(disabled, taken):
    # conv2d -> relu -> max_pool2d
    def make(bind, x):
        return bind(op.nn.max_pool2d(conv_relu(bind, x), (2, 2)))

    cut = Cut(make, IMAGE, options=Options(disabled_patterns=frozenset({disabled})))
    assert cut.composites == taken
    off = "pattern convoy.max_pool2d is switched off"
    assert cut.reasons == ([off] if disabled == "convoy.max_pool2d" else [])


def test_ops_of_a_disabled_idiom_are_taken_one_by_one():
    # lrn, switched off  =>  its pooling of a volume, and what is around it
    off = Options(disabled_patterns=frozenset({"convoy.lrn"}), merge=False)
    composites = [name for names in Cut(lrn, IMAGE, options=off).composites for name in names]
    assert "avg_pool3d" in composites
    assert "lrn" not in composites


@pytest.mark.parametrize("name", ["nn.relu", "relax.nn.relu", "relu"])
def test_a_disabled_op_is_left(name):
    cut = Cut(conv_relu, IMAGE, options=Options(disabled_ops=frozenset({name})))
    assert (cut.composites, cut.left) == ([["conv2d"]], ["nn.relu"])
    assert cut.reasons == ["op nn.relu is switched off"]


def test_a_disabled_anchor_is_left_in_every_pattern():
    cut = Cut(conv_relu, IMAGE, options=Options(disabled_ops=frozenset({"conv2d"})))
    assert "nn.conv2d" in cut.left
    assert "op nn.conv2d is switched off" in cut.reasons


def test_an_excluded_node_is_left():
    cut = Cut(conv_relu, IMAGE, options=Options(exclude=frozenset({"lv"})))
    assert cut.left[0] == "nn.conv2d"
    assert "excluded by name" in cut.reasons


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"disabled_patterns": {"convoy.conv2d_rleu"}}, "expected a pattern such as convoy"),
        ({"disabled_ops": {"nn.rleu"}}, "op 'nn.rleu': expected an op Convoy takes"),
        ({"exclude": {"conv_17"}}, "node 'conv_17': expected the name of a node after folding, such as "),
    ],
    ids=["pattern", "op", "node"],
)
def test_an_unknown_name_is_an_error(options, problem):
    with pytest.raises(ConvoyError, match=problem):
        Cut(conv_relu, IMAGE, options=Options(**{key: frozenset(names) for key, names in options.items()}))


def test_pattern_names_are_generated_from_the_tables():
    expected = {"convoy.conv2d", "convoy.conv2d_bias_add_silu", "convoy.matmul_bias_gelu", "convoy.lrn"}
    assert expected <= PATTERNS
    assert "convoy.max_pool2d_bias" not in PATTERNS


def test_unmerged_functions_are_one_per_composite():
    # merge=False: conv2d -> relu -> max_pool2d  =>  two external functions
    def make(bind, x):
        return bind(op.nn.max_pool2d(conv_relu(bind, x), [2, 2]))

    assert sorted(Cut(make, IMAGE, options=KEEP_ALL).composites) == [["conv2d_relu"], ["max_pool2d"]]
    assert Cut(make, IMAGE).composites == [["conv2d_relu", "max_pool2d"]]
