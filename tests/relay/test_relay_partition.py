"""Which ops become which composite and region, and why others do not."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import tvm
from relay_modules import KEEP_ALL, Cut, close, compare, const, module, random, run, run_plain, weight
from tvm import relay
from tvm.relay import op
from tvm.relay.op.contrib.register import get_pattern_table

import convoy
from convoy.errors import RefusedError
from convoy.graph.rewrite import simplify
from convoy.offload.work import count_flops
from convoy.options import Options
from convoy.relay.lower import lower
from convoy.relay.partition import external_functions, partition
from convoy.relay.patterns import PATTERNS, TAKEN
from convoy.relay.reader import READER
from convoy.report.decision import Report
from relax.switched_off import SWITCHED_OFF

IMAGE = (1, 4, 8, 8)
LARGE = (1, 64, 32, 32)


def conv(x, seed=0):
    return op.nn.conv2d(x, weight(4, 4, 3, 3, seed=seed), padding=(1, 1))


def hardswish(x):
    return op.multiply(x, op.clip(op.add(op.multiply(x, const(1 / 6)), const(0.5)), 0, 1))


def halved(x, curve):
    """x·(1 + curve)/2 in the orders that frontends write it in."""
    return {
        "onnx": op.multiply(op.multiply(const(0.5), x), op.add(const(1), curve)),
        "torch": op.multiply(x, op.add(const(0.5), op.multiply(curve, const(0.5)))),
        "torch to onnx": op.multiply(op.multiply(x, op.add(curve, const(1))), const(0.5)),
        "divided": op.divide(op.multiply(op.add(curve, const(1)), x), const(2)),
        "gate first": op.multiply(op.multiply(op.add(curve, const(1)), const(0.5)), x),
    }


def gelus(x):
    return halved(x, op.erf(op.divide(x, const(2**0.5))))


def tanh_gelus(x, factor=0.044715):
    root = (2 / np.pi) ** 0.5
    cubes = op.power(x, const(3)), op.multiply(op.multiply(x, x), x)
    lines = [op.multiply(op.add(x, op.multiply(cube, const(factor))), const(root)) for cube in cubes]
    lines.append(op.add(op.multiply(const(root), x), op.multiply(const(root * factor), cubes[0])))
    return {i: halved(x, op.tanh(line))["onnx"] for i, line in enumerate(lines)}


ACTIVATIONS = {
    "relu": op.nn.relu,
    "clip": lambda x: op.clip(x, 0, 6),
    "leaky_relu": lambda x: op.nn.leaky_relu(x, 0.1),
    "sigmoid": op.sigmoid,
    "tanh": op.tanh,
    "silu": lambda x: op.multiply(x, op.sigmoid(x)),
    "hardswish": hardswish,
    "gelu": lambda x: gelus(x)["onnx"],
    "gelu_tanh": lambda x: tanh_gelus(x)[0],
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_conv_takes_bias_residual_and_activation(name):
    # conv2d -> add constant -> add x -> activation  =>  conv2d_bias_add_<activation>
    cut = Cut(lambda x: ACTIVATIONS[name](op.add(op.add(conv(x), weight(4, 1, 1)), x)), IMAGE)
    assert cut.composites == [[f"conv2d_bias_add_{name}"]]
    compare(cut, random(*IMAGE))


def test_a_bias_may_come_first():
    # add(constant, conv2d)  =>  conv2d_bias
    cut = Cut(lambda x: op.nn.relu(op.add(weight(4, 1, 1), conv(x))), IMAGE)
    assert cut.composites == [["conv2d_bias_relu"]]
    compare(cut, random(*IMAGE))


@pytest.mark.parametrize("form", ["divided", "multiplied", "number first"])
def test_hardswish_divided_by_six(form):
    # x * (clip(x + 3, 0, 6) / 6)  =>  conv2d_hardswish
    def make(x):
        y = conv(x)
        ramp = op.clip(op.add(y, const(3)), 0, 6)
        gates = {
            "divided": op.divide(ramp, const(6)),
            "multiplied": op.multiply(ramp, const(1 / 6)),
            "number first": op.multiply(const(1 / 6), ramp),
        }
        return op.multiply(y, gates[form])

    cut = Cut(make, IMAGE)
    assert cut.composites == [["conv2d_hardswish"]]
    compare(cut, random(*IMAGE))


@pytest.mark.parametrize("form", ["onnx", "torch", "torch to onnx", "divided", "gate first"])
def test_gelu_written_with_erf(form):
    # conv2d -> x·(1 + erf(x/√2))/2, in any order  =>  conv2d_gelu
    cut = Cut(lambda x: gelus(conv(x))[form], IMAGE)
    assert cut.composites == [["conv2d_gelu"]]
    assert [type(node).__name__ for node in simplify(cut.graph).nodes] == ["Conv2d", "Unary"]
    compare(cut, random(*IMAGE))


@pytest.mark.parametrize("form", [0, 1, 2])
def test_gelu_written_with_tanh(form):
    # conv2d -> x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))/2  =>  conv2d_gelu_tanh
    cut = Cut(lambda x: tanh_gelus(conv(x))[form], IMAGE)
    assert cut.composites == [["conv2d_gelu_tanh"]]
    assert [type(node).__name__ for node in simplify(cut.graph).nodes] == ["Conv2d", "Unary"]
    compare(cut, random(*IMAGE))


def test_another_cubic_is_no_gelu():
    # tanh of x + 0.05·x³  =>  ops of their own, in the conv's region
    cut = Cut(lambda x: tanh_gelus(conv(x), factor=0.05)[0], IMAGE)
    assert "gelu" not in str(cut.composites)
    compare(cut, random(*IMAGE))


def test_gelu_read_inside_is_no_epilogue():
    # erf(x/√2) is an output too  =>  no composite may hide it
    def make(x):
        y = conv(x)
        curve = op.erf(op.divide(y, const(2**0.5)))
        return [halved(y, curve)["onnx"], curve]

    cut = Cut(make, IMAGE)
    assert "conv2d_gelu" not in cut.composites[0]
    compare(cut, random(*IMAGE))


def test_gelu_runs_fused_in_a_build():
    # folded, built and run: one kernel beside the copies at the region's ends
    source = module(lambda x: gelus(conv(x))["torch"], IMAGE)
    report = Report()
    with convoy.relay.using(report=report):
        library = relay.build(source, target="convoy")
    (region,) = report.regions
    assert "gelu" in " ".join(region.steps)
    close(run(library, random(*IMAGE)), run_plain(source, random(*IMAGE)))


def test_another_slope_is_no_hardswish():
    # x * clip(x/5 + 1/2, 0, 1)  =>  ops of their own
    def make(x):
        y = conv(x)
        return op.multiply(y, op.clip(op.add(op.multiply(y, const(0.2)), const(0.5)), 0, 1))

    cut = Cut(make, IMAGE)
    assert cut.composites == [["conv2d", "multiply", "add", "clip", "multiply"]]
    compare(cut, random(*IMAGE))


@pytest.mark.parametrize("anchor", ["conv2d_transpose", "conv1d", "dense"])
def test_other_anchors_take_epilogues_too(anchor):
    # anchor -> add constant per output channel -> relu  =>  one composite
    calls = {
        "conv2d_transpose": (
            IMAGE,
            lambda x: op.nn.conv2d_transpose(x, weight(4, 6, 2, 2), channels=6, kernel_size=(2, 2)),
            (6, 1, 1),
        ),
        "conv1d": ((1, 4, 9), lambda x: op.nn.conv1d(x, weight(6, 4, 3)), (6, 1)),
        "dense": ((1, 4), lambda x: op.nn.dense(x, weight(6, 4)), (6,)),
    }
    shape, call, bias = calls[anchor]
    cut = Cut(lambda x: op.nn.relu(op.add(call(x), weight(*bias))), shape)
    assert cut.composites == [[f"{anchor}_bias_relu"]]
    compare(cut, random(*shape))


def test_bias_add_is_a_bias():
    cut = Cut(lambda x: op.nn.bias_add(conv(x), weight(4)), IMAGE)
    assert cut.composites == [["conv2d_bias"]]
    compare(cut, random(*IMAGE))


def test_full_constant_is_a_residual_not_a_bias():
    # conv2d -> add [1, C, H, W] constant  =>  conv2d_add
    assert Cut(lambda x: op.add(conv(x), weight(*IMAGE)), IMAGE).composites == [["conv2d_add"]]


def test_a_value_somebody_else_reads_ends_the_pattern():
    # conv2d -> (relu, sigmoid)  =>  three ops of one region
    def make(x):
        y = conv(x)
        return [op.nn.relu(y), op.sigmoid(y)]

    cut = Cut(make, IMAGE)
    assert cut.composites == [["conv2d", "relu", "sigmoid"]]
    compare(cut, random(*IMAGE))


def test_two_convolutions_added_are_one_residual():
    # conv2d + conv2d -> relu  =>  one of them takes the other as its residual
    cut = Cut(lambda x: op.nn.relu(op.add(conv(x, 1), conv(x, 2))), IMAGE)
    assert sorted(cut.composites[0]) == ["conv2d", "conv2d_add_relu"]
    compare(cut, random(*IMAGE))


def test_a_path_through_the_host_splits_regions():
    # conv2d -> sinh -> add conv2d  =>  two regions, no cycle
    def make(x):
        y = conv(x)
        return conv(op.add(op.sinh(y), y), 2)

    cut = Cut(make, IMAGE)
    assert sorted(map(sorted, cut.composites)) == [["add", "conv2d"], ["conv2d"]]
    assert cut.left == ["sinh"]
    assert sum(d.node.startswith("nn.conv2d") for d in cut.report.decisions) == 2


def test_conv_host_op_add_gives_two_regions():
    # conv2d -> sinh (host) -> add conv2d  =>  two regions around sinh, no cycle
    def make(x):
        y = conv(x)
        return op.add(op.sinh(y), conv(y, 2))

    cut = Cut(make, IMAGE)
    assert cut.left == ["sinh"]
    assert sorted(cut.composites) == [["conv2d"], ["conv2d_add"]]


def test_a_skip_made_from_a_biased_conv_computes_it_once():
    # y = conv2d + b; exp(y) + y  =>  one conv2d_bias; TVM's own matching computes it twice
    def make(x):
        y = op.add(conv(x), const(random(4, 1, 1)))
        return op.add(op.exp(y), y)

    cut = Cut(make, IMAGE)
    names = [name for region in cut.composites for name in region]
    assert [name for name in names if name.startswith("conv2d")] == ["conv2d_bias"]
    compare(cut, random(*IMAGE))


def test_the_table_is_registered_with_tvm():
    names = {row[0] for row in get_pattern_table("convoy")}
    assert {"convoy.conv2d_bias_add_silu", "convoy.dense_bias", "convoy.conv1d_relu"} <= names <= PATTERNS


def test_tvms_own_passes_do_without_partition():
    # the registered table and attributes alone  =>  the same region
    made = Cut(lambda x: op.nn.relu(conv(x)), IMAGE)
    passes = [
        relay.transform.MergeComposite(get_pattern_table("convoy")),
        relay.transform.AnnotateTarget("convoy"),
        relay.transform.MergeCompilerRegions(),
        relay.transform.PartitionGraph(),
    ]
    by_hand = tvm.transform.Sequential(passes)(made.before)
    tvm.ir.assert_structural_equal(by_hand, made.module)


# Refusals: one test a reason ------------------------------------------------------------------------

NORM = [const(np.ones(4))] * 4
REFUSALS = {
    "expected a constant weight, got a parameter": (
        lambda x, w: op.nn.conv2d(x, w),
        [IMAGE, (4, 4, 3, 3)],
    ),
    "expected a constant weight, got a run-time value": (
        lambda x, w: op.nn.conv2d(x, op.sinh(w)),
        [IMAGE, (4, 4, 3, 3)],
    ),
    "Convoy has no kernel for sinh": (lambda x: op.sinh(x), [IMAGE]),
    "expected float32, got float16": (
        lambda x: op.cast(op.nn.relu(op.cast(x, "float16")), "float32"),
        [IMAGE],
    ),
    "got the empty shape": (lambda x: op.nn.relu(x), [(1, 0)]),
    "expected an operand known only at run time": (lambda x: op.nn.relu(weight(4)), [IMAGE]),
    "expected at least one axis, got a scalar": (lambda x: op.sum(x), [IMAGE]),
    "expected indices from 0 to 3, got others": (
        lambda x: op.take(x, relay.const([0, 4], "int64"), 1),
        [IMAGE],
    ),
    "expected data in NCHW, got NHWC; fold's normalize_layout turns it": (
        lambda x: op.nn.conv2d(x, weight(4, 8, 3, 3), data_layout="NHWC"),
        [IMAGE],
    ),
    "expected a weight in OIHW, got HWIO": (
        lambda x: op.nn.conv2d(x, weight(3, 3, 4, 4), kernel_layout="HWIO"),
        [IMAGE],
    ),
    "expected data in NCHW, got NHWC; write the op in that layout": (
        lambda x: op.nn.upsampling(x, 2, 2, layout="NHWC"),
        [IMAGE],
    ),
    "expected data in NCW, got NWC; write the op in that layout": (
        lambda x: op.nn.max_pool1d(x, (2,), layout="NWC"),
        [(1, 8, 4)],
    ),
    "expected a weight of 1 input channels a group, got 2; fold's normalize_layout reshapes it": (
        lambda x: op.nn.conv2d(x, weight(4, 2, 3, 3), groups=4, channels=8, kernel_size=(3, 3)),
        [IMAGE],
    ),
    "expected layouts of the same axes, got NCHW and NCHW4c": (
        lambda x: op.layout_transform(x, "NCHW", "NCHW4c"),
        [IMAGE],
    ),
    "expected the images along axis 0 of every operand": (
        lambda x: op.concatenate([conv(x), conv(x, 1)], 0),
        [(relay.Any(), *IMAGE[1:])],
    ),
    "expected its items to be used one by one": (lambda x: op.split(x, 2, 1).astuple(), [IMAGE]),
    "expected only its first item to be used": (lambda x: op.nn.batch_norm(x, *NORM)[1], [IMAGE]),
    "expected padding of at most 7 by reflect, got 8": (
        lambda x: op.nn.pad(x, ((0, 0), (0, 0), (1, 1), (1, 8)), pad_mode="reflect"),
        [IMAGE],
    ),
    "expected nearest or linear interpolation, got cubic": (
        lambda x: op.image.resize2d(x, (16, 16), method="cubic"),
        [IMAGE],
    ),
    "expected rounding floor, as TVM's Relay has it by whole scales in any case, got ceil": (
        lambda x: op.image.resize2d(
            x,
            (12, 16),
            method="nearest_neighbor",
            rounding_method="ceil",
            coordinate_transformation_mode="asymmetric",
        ),
        [IMAGE],
    ),
    "expected an output that divides 8x8, got 3x3": (
        lambda x: op.nn.adaptive_avg_pool2d(x, (3, 3)),
        [IMAGE],
    ),
    "expected channels on axis 1 and means over all axes behind, got axis 2": (
        lambda x: op.nn.instance_norm(x, weight(8), weight(8), axis=2),
        [IMAGE],
    ),
    "expected bounds in ascending order, got 6 and 0": (lambda x: op.clip(x, 6.0, 0.0), [IMAGE]),
    "expected a pixel in every window, got none in window 0": (
        lambda x: op.nn.max_pool2d(x, (2, 2), padding=(2, 2)),
        [IMAGE],
    ),
    "expected a pixel in every window, got none in window 3": (
        lambda x: op.nn.avg_pool2d(x, (2, 2), (2, 2), padding=(1, 1), ceil_mode=True),
        [(1, 4, 5, 5)],
    ),
    "expected several numbers for an unbiased variance, got one": (
        lambda x: op.variance(x, 0, unbiased=True),
        [IMAGE],
    ),
    "got round, as align_corners has it": (
        lambda x: op.nn.upsampling(x, 2, 2, align_corners=True),
        [IMAGE],
    ),
    "expected data in NCHW, got NHWC; write the op": (
        lambda x: op.nn.adaptive_avg_pool2d(x, (3, 5), layout="NHWC"),
        [IMAGE],
    ),
    "expected halves rounded to even, as in ONNX, got TVM's": (lambda x: op.round(x), [IMAGE]),
    "expected normalization along axis 1, got 2": (lambda x: op.nn.lrn(x, axis=2), [IMAGE]),
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_a_refusal_says_why(reason):
    make, inputs = REFUSALS[reason]
    cut = Cut(make, *inputs, options=KEEP_ALL)
    assert any(reason in found for found in cut.reasons), cut.reasons


def test_items_of_a_tuple_are_no_functions_of_their_own():
    # relu -> concat with itself, not merged  =>  two functions, and none that hands on its input
    def make(x):
        y = op.nn.relu(x)
        return op.concatenate([y, y], 1)

    assert Cut(make, IMAGE, options=KEEP_ALL).composites == [["relu"], ["concatenate"]]


def test_strict_mode_raises_the_first_refusal():
    with pytest.raises(RefusedError, match=r"annotate: sinh .*: Convoy has no kernel for sinh"):
        Cut(lambda x: op.sinh(conv(x)), IMAGE, options=Options(strict=True))


def test_strict_mode_looks_at_this_compilation_only():
    # a report that has refusals of another one
    report = Report()
    report.add("sinh", "annotate", "left", "Convoy has no kernel for sinh")
    assert external_functions(partition(Cut(conv_relu, IMAGE).before, Options(strict=True), report))


@pytest.mark.parametrize("images", [2, relay.Any()])
@pytest.mark.parametrize("size", [False, True])
def test_a_slice_that_keeps_all_images_is_taken(images, size):
    x = relay.var("x", shape=(images, *IMAGE[1:]))
    ends = {"end": [-1, 4, -1], "slice_mode": "size"} if size else {"end": [2**31 - 1, 4, 8]}
    cut = partition(tvm.IRModule.from_expr(conv(op.strided_slice(conv(x), [0, 0, 1], **ends))))
    assert len(external_functions(cut)) == 1


# Several images -------------------------------------------------------------------------------------


def compare_built(cut, x):
    """The module, cut and built by Convoy, computes what TVM computes of it."""
    close(run(relay.build(cut.before, target="convoy"), x), cut.run_tvm(x))


def attention(x, images):
    """Of eight places in each of two heads; a head of an image is a matrix of its own."""

    def heads(seed):
        made = op.reshape(
            op.nn.dense(op.reshape(x, (-1, 16)), weight(16, 16, seed=seed)), (images, 8, 2, 8)
        )
        return op.reshape(op.transpose(made, (0, 2, 1, 3)), (2 * images, 8, 8))

    scores = op.nn.softmax(op.nn.batch_matmul(heads(0), heads(1), transpose_b=True))
    mixed = op.reshape(op.nn.batch_matmul(scores, heads(2), transpose_b=False), (images, 2, 8, 8))
    return op.add(x, op.reshape(op.transpose(mixed, (0, 2, 1, 3)), (images, 8, 16)))


def conv_attention_conv(x):
    # 1-D convolutions of images, and between them ops that mix what lies along axis 0
    images = x.type_annotation.concrete_shape[0]
    y = op.nn.relu(op.nn.conv1d(x, weight(8, 4, 1), channels=8, kernel_size=1))
    y = op.nn.relu(attention(y, images))
    return op.nn.relu(op.nn.conv1d(y, weight(8, 8, 3), padding=1, channels=8, kernel_size=3))


@pytest.mark.parametrize(("images", "regions"), [(1, 1), (3, 3)])
def test_ops_that_mix_images_are_in_regions_of_their_own(images, regions):
    # conv of images -> attention of heads -> conv of images  =>  three regions; of one image, one
    cut = Cut(conv_attention_conv, (images, 4, 16))
    assert (cut.left, len(cut.functions)) == ([], regions)
    assert sorted(lower(f).batch or 0 for f in cut.functions) == [1, images, images][-regions:]
    compare_built(cut, random(images, 4, 16))


def test_images_of_several_numbers():
    # conv of six frames -> clips of three -> conv of two clips  =>  a region of each number
    def make(x):
        y = op.nn.relu(op.nn.conv2d(x, weight(8, 4, 3, 3), padding=(1, 1)))
        y = op.reshape(y, (2, 24, 8, 8))
        return op.nn.relu(op.nn.conv2d(y, weight(8, 24, 3, 3), padding=(1, 1)))

    cut = Cut(make, (6, *IMAGE[1:]))
    assert cut.left == ["reshape"]  # not worth a call
    assert sorted(lower(f).batch or 0 for f in cut.functions) == [2, 6]
    compare_built(cut, random(6, *IMAGE[1:]))


def test_what_goes_with_either_joins_what_was_computed_last():
    # a residual of an attention is added in the convolution's kernel
    def make(x):
        y = attention(x, 2)
        return op.nn.relu(op.add(y, op.nn.conv1d(y, weight(8, 8, 1), channels=8, kernel_size=1)))

    cut = Cut(make, (2, 8, 16))
    assert ["conv1d_add_relu"] in cut.composites
    compare_built(cut, random(2, 8, 16))


# What is not worth a call ----------------------------------------------------------------------------


def test_a_small_region_without_a_heavy_op_is_given_back():
    # relu -> sigmoid of 256 numbers  =>  left to TVM, with the reason
    cut = Cut(lambda x: op.sigmoid(op.nn.relu(x)), IMAGE)
    assert not cut.functions
    assert cut.left == ["nn.relu", "sigmoid"]
    reason = "given back: a region of 2 ops moving 4096 bytes, expected 65536 or a heavy op"
    assert [found.partition(" to be")[0] for found in cut.reasons] == [reason, reason]
    tvm.ir.assert_structural_equal(cut.module["main"], cut.before["main"])


def test_a_large_one_is_kept():
    assert Cut(lambda x: op.sigmoid(op.nn.relu(x)), LARGE).composites == [["relu", "sigmoid"]]


def test_a_composite_given_back_is_written_out(monkeypatch):
    # dense is no heavy op any more  =>  dense -> bias -> relu, as they were
    def make(x):
        return op.nn.relu(op.add(op.nn.dense(x, weight(4, 4)), weight(4)))

    monkeypatch.setattr(
        sys.modules["convoy.relay.partition"], "TAKEN", {**TAKEN, "nn.dense": TAKEN["nn.relu"]}
    )
    cut = Cut(make, (1, 4))
    assert cut.left == ["nn.dense", "add", "nn.relu"]
    tvm.ir.assert_structural_equal(cut.module["main"], cut.before["main"])


@pytest.mark.parametrize(
    ("make", "shape", "weights", "flops"),
    [
        (op.nn.conv2d, (1, 6, 8, 8), (10, 3, 3, 3), 2 * 36 * 10 * 3 * 9),
        (op.nn.conv2d, (1, 8, 8, 6), (3, 3, 3, 10), 2 * 36 * 10 * 3 * 9),
        (op.nn.conv2d, (1, 8, 8, 6), (3, 3, 1, 6), 2 * 36 * 6 * 9),  # depthwise
        (op.nn.conv2d_transpose, (1, 6, 8, 8), (6, 5, 3, 3), 2 * 64 * 6 * 5 * 9),
    ],
)
def test_flops_of_a_convolution_in_any_layout(make, shape, weights, flops):
    groups = 6 if weights[2:] == (1, 6) else 2
    layouts = {"kernel_layout": "IOHW" if make is op.nn.conv2d_transpose else "OIHW"}
    if shape[-1] == 6:
        layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    x, w = relay.var("x", shape=shape), relay.var("w", shape=weights)
    mod = tvm.IRModule.from_expr(make(x, w, groups=groups, kernel_size=(3, 3), **layouts))
    assert count_flops(relay.transform.InferType()(mod)["main"].body, READER) == flops


@pytest.mark.parametrize("moves", [op.copy, op.annotation.stop_fusion, lambda x: op.reshape(x, (2, 8))])
def test_moving_data_is_no_flop(moves):
    mod = tvm.IRModule.from_expr(moves(relay.var("x", shape=(4, 4))))
    assert count_flops(relay.transform.InferType()(mod)["main"].body, READER) == 0


# What a user may switch off --------------------------------------------------------------------------


def conv_relu(x):
    return op.nn.relu(conv(x))


@pytest.mark.parametrize(("disabled", "taken"), SWITCHED_OFF)
def test_a_disabled_pattern_leaves_the_next_shorter_one(disabled, taken):
    # conv2d -> relu -> max_pool2d
    def make(x):
        return op.nn.max_pool2d(conv_relu(x), (2, 2))

    cut = Cut(make, IMAGE, options=Options(disabled_patterns=frozenset({disabled})))
    assert cut.composites == taken
    off = "pattern convoy.max_pool2d is switched off"
    assert cut.reasons == ([off] if disabled == "convoy.max_pool2d" else [])


@pytest.mark.parametrize("name", ["nn.relu", "relay.nn.relu", "relu"])
def test_a_disabled_op_is_left(name):
    cut = Cut(conv_relu, IMAGE, options=Options(disabled_ops=frozenset({name})))
    assert (cut.composites, cut.left) == ([["conv2d"]], ["nn.relu"])
    assert cut.reasons == ["op nn.relu is switched off"]


def test_a_disabled_anchor_is_left_in_every_pattern():
    cut = Cut(conv_relu, IMAGE, options=Options(disabled_ops=frozenset({"conv2d"})))
    assert "nn.conv2d" in cut.left
    assert "op nn.conv2d is switched off" in cut.reasons


def test_an_excluded_node_is_left():
    cut = Cut(conv_relu, IMAGE, options=Options(exclude=frozenset({"%0"})))
    assert cut.left[0] == "nn.conv2d"
    assert "excluded by name" in cut.reasons


def test_unmerged_functions_are_one_per_composite():
    # merge=False: conv2d -> relu -> max_pool2d  =>  two external functions
    def make(x):
        return op.nn.max_pool2d(conv_relu(x), (2, 2))

    assert sorted(Cut(make, IMAGE, options=KEEP_ALL).composites) == [["conv2d_relu"], ["max_pool2d"]]
    assert Cut(make, IMAGE).composites == [["conv2d_relu", "max_pool2d"]]


@pytest.mark.parametrize("name", ["batch_norm", "dropout"])
def test_unmerged_functions_hand_on_one_item(name):
    # conv2d -> relu -> batch_norm or dropout -> exp, not folded  =>  a function of one tensor each
    values = [relay.const(np.linspace(0.5, 1.5, 4, dtype="float32"))] * 4

    def make(x):
        y = conv_relu(x)
        return op.exp(op.nn.dropout(y) if name == "dropout" else op.nn.batch_norm(y, *values)[0])

    cut = Cut(make, IMAGE, options=KEEP_ALL)
    assert cut.composites == [["conv2d_relu"], [name], ["exp"]]
    image = random(*IMAGE)
    (got,), (want,) = run(relay.build(cut.module, target="llvm"), image), run_plain(cut.before, image)
    close(got, want)


def test_an_item_taken_twice_is_one_function():
    values = [relay.const(np.linspace(0.5, 1.5, 4, dtype="float32"))] * 4

    def make(x):
        norm = op.nn.batch_norm(conv(x), *values)
        return op.add(op.exp(norm[0]), norm[0])

    cut = Cut(make, IMAGE, options=KEEP_ALL)
    assert cut.composites == [["conv2d"], ["batch_norm"], ["exp"], ["add"]]
    image = random(*IMAGE)
    (got,), (want,) = run(relay.build(cut.module, target="llvm"), image), run_plain(cut.before, image)
    close(got, want)


def test_an_item_of_a_split_taken_twice():
    # (split[0], split[0], sinh(split[0])), each a node of its own  =>  one result of the function
    def make(x):
        halves = op.split(conv_relu(x), 2, axis=1)
        return relay.Tuple([halves[0], halves[0], op.sinh(halves[0])])

    cut = Cut(make, IMAGE)
    assert cut.composites == [["conv2d_relu", "split"]]
    image = random(*IMAGE)
    for got, want in zip(
        run(relay.build(cut.module, target="llvm"), image), run_plain(cut.before, image), strict=True
    ):
        close(got, want)


NESTED = {
    "an item twice": lambda y, z: [y, relay.Tuple([z, y])],
    "a tuple twice": lambda y, z: [relay.Tuple([y, z]), relay.Tuple([y, z])],
    "of one": lambda y, z: [relay.Tuple([z]), relay.Tuple([relay.Tuple([y])])],
}


@pytest.mark.parametrize("shape", [IMAGE, LARGE], ids=["given back", "taken"])
@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("level", [0, 3])
def test_nested_results_stay_nested(name, shape, level):
    # TVM makes tuples within tuples results of external functions
    cut = Cut(lambda x: relay.Tuple(NESTED[name](op.nn.relu(x), op.exp(x))), shape)
    tvm.ir.assert_structural_equal(cut.module["main"].checked_type, cut.before["main"].checked_type)
    assert bool(cut.functions) == (shape == LARGE)
    with tvm.transform.PassContext(opt_level=level):
        got = run(relay.build(cut.module, target="llvm"), random(*shape))
    for mine, theirs in zip(got, run_plain(cut.before, random(*shape)), strict=True):
        close(mine, theirs)


def test_a_deep_network_is_no_problem():
    # 1500 ops in a row  =>  one region; Python's stack would end a recursion
    def make(x):
        for _ in range(750):
            x = op.nn.relu(op.negative(x))
        return x

    (names,) = Cut(make, LARGE).composites
    assert len(names) == 1500


@pytest.mark.parametrize("make", [
    lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2), (0, 1)),
    lambda x: op.nn.avg_pool2d(x, (3, 3), (2, 2), (1, 0)),
    lambda x: op.nn.conv2d(x, weight(4, 4, 3, 3), dilation=(0, 1)),
    lambda x: op.nn.conv3d(op.expand_dims(x, 2), weight(4, 4, 1, 3, 3), dilation=(0, 1, 1)),
    lambda x: op.nn.max_pool3d(op.expand_dims(x, 2), (1, 3, 3), (1, 2, 2), (1, 0, 1)),
])  # fmt: skip
def test_dilations_of_zero_are_left_to_tvm(make):
    cut = Cut(lambda x: make(conv(x)), IMAGE)
    assert any("expected dilations ≥ 1, got" in reason for reason in cut.reasons)


@pytest.mark.parametrize("beside", [2, 12])
def test_functions_without_a_region_cost_no_inference_of_types(beside):
    # TVM's PartitionGraph infers all types once for each function of the module: the Prelude has 240
    mod = module(lambda x: op.nn.relu(conv(x)), IMAGE)
    for i in range(beside):
        x = relay.var("x", shape=(2,), dtype="int32")
        mod[f"beside_{i}"] = relay.Function([x], op.add(x, x))
    runs: list[str] = []

    @tvm.ir.instrument.pass_instrument
    class Count:
        def run_before_pass(self, _: tvm.IRModule, info: tvm.ir.transform.PassInfo) -> None:
            runs.append(str(info.name))

    with tvm.transform.PassContext(instruments=[Count()]):
        cut = partition(mod)
    assert len(external_functions(cut)) == 1
    assert {f"beside_{i}" for i in range(beside)} < {var.name_hint for var in cut.get_global_vars()}
    assert runs[runs.index("PartitionGraph") :].count("InferType") < 12


def test_what_has_a_region_is_called_by_what_has_none():
    mod = tvm.IRModule()
    x, y = relay.var("x", shape=IMAGE), relay.var("x0", shape=IMAGE)
    mod["inner"] = relay.Function([x], op.nn.relu(conv(x)))
    inner = mod.get_global_var("inner")
    mod = relay.transform.InferType()(mod)
    mod["main"] = relay.Function([y], inner(inner(y)))
    cut = partition(mod)
    assert len(external_functions(cut)) == 1
    assert tvm.ir.structural_equal(cut["main"].ret_type, relay.TensorType(IMAGE))
    [image] = [random(*IMAGE)]
    machine = relay.create_executor("vm", cut, target="llvm").evaluate()
    plain = relay.create_executor("vm", mod, target="llvm").evaluate()
    close([machine(image).numpy()], [plain(image).numpy()])


def _ints(x):
    return op.cast(op.reshape(x, (16, 16)), "int32")


@pytest.mark.parametrize("follow", [
    lambda x: op.one_hot(_ints(x), relay.const(1), relay.const(0), 4, -1, "int32"),
    lambda x: op.segment_sum(op.reshape(x, (4, 64)), relay.const(np.zeros(4, "int32")), 2),
    lambda x: op.collapse_sum_to(op.reshape(x, (4, 64)), (1, 64)),
    lambda x: op.vision.multibox_prior(x),
    lambda x: op.vision.roi_align(x, const(random(3, 5)), (2, 2), 1.0, 2),
    lambda x: op.vision.roi_pool(x, const(random(3, 5)), (2, 2), 1.0),
    lambda x: op.sequence_mask(op.reshape(x, (4, 64)), relay.const(np.ones(64, "int32")), axis=0),
    lambda x: op.matrix_set_diag(op.reshape(x, (16, 16)), weight(16)),
    lambda x: op.adv_index([weight(9, 4), op.reshape(_ints(x), (256,))]),
    lambda x: op.meshgrid([op.reshape(x, (256,)), weight(3)])[0],
    lambda x: op.searchsorted(weight(9), op.reshape(x, (256,))),
    lambda x: op.sliding_window(x, 2, [2, 2], [1, 1]),
])  # fmt: skip
def test_what_is_left_behind_a_composite_has_a_type(follow):
    # where TVM's InferType does not know the composite's type yet, these end in an error or the process
    cut = Cut(lambda x: follow(op.nn.relu(op.add(conv(x), weight(4, 1, 1)))), IMAGE)
    assert cut.composites[0][0] == "conv2d_bias_relu"
    before, after = (relay.transform.InferType()(mod)["main"].ret_type for mod in (cut.before, cut.module))
    assert tvm.ir.structural_equal(before, after)
