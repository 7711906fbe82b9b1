"""Relay: channels-last modules become channels-first, folded along the right axis."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from relay_fold_modules import (
    assert_same_numbers,
    check_untouched,
    const,
    constants,
    module,
    norm,
    ops,
    parameters,
    random,
    scale_shift,
)
from tvm import relay
from tvm.relay.prelude import Prelude
from tvm.runtime.vm import VirtualMachine

from convoy.relay.dataflow import Dataflow, op_name
from convoy.relay.fold import fold, fold_scales, normalize_layout
from convoy.report.decision import Report

nn = relay.nn
X = (1, 5, 5, 4)
W = random(3, 3, 4, 6)


def conv(x, w=W, **attrs):
    return nn.conv2d(x, const(w), data_layout="NHWC", kernel_layout="HWIO", channels=w.shape[-1],
                     kernel_size=w.shape[:2], **attrs)  # fmt: skip


def layouts(mod):
    calls = [call for call in Dataflow(mod["main"].body).calls if "conv" in op_name(call)]
    return [(str(call.attrs.data_layout), str(call.attrs.kernel_layout)) for call in calls]


@pytest.mark.parametrize(("kernel_layout", "axes"), [("HWIO", (0, 1, 2, 3)), ("OHWI", (3, 0, 1, 2))])
def test_nhwc_conv_bn_relu(kernel_layout, axes):
    # NHWC conv → BN (axis 3) → relu  =>  transpose, NCHW/OIHW conv, one bias, relu, transpose
    def make(x):
        y = nn.conv2d(x, const(W.transpose(axes)), data_layout="NHWC", kernel_layout=kernel_layout,
                      channels=6, kernel_size=(3, 3))  # fmt: skip
        return nn.relu(norm(y, parameters(6), axis=3))

    report = Report()
    after = fold(report)(module(make, X))
    assert report.decisions[0].reason == f"NHWC/{kernel_layout} rewritten as NCHW/OIHW"
    assert [op for op in ops(after) if op != "layout_transform"] == ["conv2d", "add", "relu"]
    assert layouts(after) == [("NCHW", "OIHW")]
    s, _ = scale_shift(6)
    np.testing.assert_allclose(constants(after)[0], (W * s).transpose(3, 2, 0, 1), rtol=1e-6)
    same = module(lambda x: nn.relu(norm(conv(x), parameters(6), axis=3)), X)  # TVM compiles no NHWC/OHWI
    assert_same_numbers(same, after, random(*X))


def test_a_whole_network_changes_layout_at_its_edges():
    # conv → BN → relu → max pool → conv + residual: one layout_transform in, one out
    def make(x):
        y = nn.relu(norm(conv(x, padding=(1, 1)), parameters(6), axis=3))
        z = conv(y, random(3, 3, 6, 6), padding=(1, 1)) + y
        return nn.max_pool2d(z, (2, 2), layout="NHWC")

    before = module(make, X)
    after = fold()(before)
    assert ops(after).count("layout_transform") == 2
    assert layouts(after) == [("NCHW", "OIHW")] * 2
    assert_same_numbers(before, after, random(*X))


@pytest.mark.parametrize(("kernel_layout", "to_oihw"), [("HWIO", (3, 2, 0, 1)), ("OHWI", (0, 3, 1, 2))])
def test_kernel_layouts(kernel_layout, to_oihw):
    # a weight in another order over NCHW data: the same fold, the weight as OIHW
    w = random(*{"HWIO": (3, 3, 4, 6), "OHWI": (6, 3, 3, 4)}[kernel_layout])

    def make(x, w=w, layout=kernel_layout):
        y = nn.conv2d(x, const(w), kernel_layout=layout, channels=6, kernel_size=(3, 3))
        return norm(y, parameters(6))

    shape = (1, 4, 5, 5)
    after = fold()(module(make, shape))
    same = fold()(module(lambda x: make(x, w.transpose(to_oihw), "OIHW"), shape))
    assert ops(after) == ["conv2d", "add"]
    for got, want in zip(constants(after), constants(same), strict=True):
        np.testing.assert_array_equal(got, want)


def test_depthwise_hwoi():
    # NHWC/HWOI depthwise conv → BN
    def make(x):
        y = nn.conv2d(x, const(random(3, 3, 4, 1)), data_layout="NHWC", kernel_layout="HWOI", groups=4,
                      channels=4, kernel_size=(3, 3))  # fmt: skip
        return norm(y, parameters(4), axis=3)

    before = module(make, X)
    after = fold()(before)
    assert [op for op in ops(after) if op != "layout_transform"] == ["conv2d", "add"]
    assert_same_numbers(before, after, random(*X))


FILTERS = {"OIHW": ("NCHW", (4, 2, 3, 3)), "HWOI": ("NHWC", (3, 3, 4, 2)), "HWIO": ("NHWC", (3, 3, 2, 4))}


def several_filters(layout, normed=True):
    data_layout, shape = FILTERS[layout]

    def make(x, w=None):
        y = nn.conv2d(x, const(random(*shape)) if w is None else w, data_layout=data_layout, groups=4,
                      kernel_layout=layout, channels=8, kernel_size=(3, 3))  # fmt: skip
        return norm(y, parameters(8), axis=data_layout.index("C")) if normed else y

    return make, (X if data_layout == "NHWC" else (1, 4, 5, 5)), shape


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("layout", FILTERS)
def test_depthwise_with_several_filters_a_channel(layout, normed):
    # depthwise conv of a weight [C, M, kh, kw] → BN  =>  conv of a weight [C·M, 1, kh, kw] · s, one bias
    make, shape, _ = several_filters(layout, normed)
    before = module(make, shape)
    after = fold()(before)
    assert [op for op in ops(after) if op != "layout_transform"] == ["conv2d", *["add"] * normed]
    flat = random(*FILTERS[layout][1]).transpose([layout.index(c) for c in "OIHW"]).reshape(8, 1, 3, 3)
    s = scale_shift(8)[0] if normed else np.ones(8)
    np.testing.assert_allclose(constants(after)[0], flat * s.reshape(-1, 1, 1, 1), rtol=1e-6)
    assert_same_numbers(before, after, random(*shape))


def test_several_filters_a_channel_computed_at_run_time():
    # the same, the weight an input  =>  a reshape before the conv
    make, shape, weight = several_filters("OIHW", normed=False)
    before = module(make, shape, weight)
    after = fold()(before)
    assert ops(after) == ["reshape", "conv2d"]
    assert_same_numbers(before, after, random(*shape), random(*weight))


def test_several_filters_a_channel_without_normalize_layout():
    # fold_scales alone  =>  the batch norm stays, as one multiply and one add
    make, shape, _ = several_filters("OIHW")
    before = module(make, shape)
    after = fold_scales()(before)
    assert ops(after) == ["conv2d", "multiply", "add"]
    assert_same_numbers(before, after, random(*shape))


def test_one_filter_a_channel_is_left():
    # depthwise conv of a weight [C, 1, kh, kw]: already in that form
    w = const(random(4, 1, 3, 3))
    depthwise = module(lambda x: nn.conv2d(x, w, groups=4, channels=4, kernel_size=(3, 3)), (1, 4, 5, 5))
    check_untouched(depthwise)


def test_a_dense_after_an_nhwc_network():
    # NHWC conv → global pool → flatten → dense: the order of the dense's inputs is kept
    def make(x):
        pooled = nn.global_avg_pool2d(norm(conv(x), parameters(6), axis=3), layout="NHWC")
        return nn.dense(nn.batch_flatten(pooled), const(random(5, 6)))

    before = module(make, X)
    after = fold()(before)
    assert {"conv2d", "add", "global_avg_pool2d", "dense"} <= set(ops(after))
    assert "multiply" not in ops(after)
    assert_same_numbers(before, after, random(*X))


def test_a_module_with_types_of_its_own():
    # Cons(relu(conv2d NHWC), Nil)  =>  the convolution is NCHW
    mod = tvm.IRModule()
    Prelude(mod)
    _, cons, nil = mod.get_type("List")
    x = relay.var("x", shape=X)
    mod["main"] = relay.Function([x], cons(nn.relu(conv(x)), nil()))
    after = normalize_layout()(relay.transform.InferType()(mod))
    (made,) = (call for call in Dataflow(after["main"].body).calls if op_name(call) == "nn.conv2d")
    assert made.attrs.data_layout == "NCHW"


def test_a_module_that_was_made_channels_last_before():
    # conv2d → bias → BN → relu, all turned to NHWC by ConvertLayout  =>  conv2d, one bias, relu
    def make(x):
        y = nn.bias_add(nn.conv2d(x, const(random(6, 4, 3, 3)), padding=(1, 1)), const(random(6)))
        return nn.relu(norm(y, parameters(6)))

    before = relay.transform.InferType()(module(make, (1, 4, 5, 5)))
    turned = relay.transform.ConvertLayout({"nn.conv2d": ["NHWC", "HWIO"]})(before)
    assert "layout_transform" in ops(turned)
    assert [op for op in ops(fold()(turned)) if op != "layout_transform"] == ["conv2d", "add", "relu"]
    assert_same_numbers(before, fold()(turned), random(1, 4, 5, 5))


def test_changes_of_layout_that_do_not_cancel_stay():
    # NCHW → NHWC → NCHW4c, and NCHW → NCHW4c → NCHW
    def make(x):
        y = relay.layout_transform(relay.layout_transform(x, "NCHW", "NHWC"), "NHWC", "NCHW4c")
        return relay.layout_transform(y, "NCHW4c", "NCHW")

    before = module(make, (1, 8, 5, 5))
    assert ops(normalize_layout()(before)).count("layout_transform") == 3


@pytest.mark.parametrize("ones", [(), (4,), (1, 1, 1, 1, 1), (1, 1, 1, 1, 4)])
def test_a_function_with_blocks_is_left(ones):
    # max_pool2d NHWC → NCHW4c → max_pool2d NCHW4c → add of a constant, over which ConvertLayout fails
    def make(x):
        y = relay.layout_transform(nn.max_pool2d(x, (2, 2), (2, 2), layout="NHWC"), "NHWC", "NCHW4c")
        return relay.add(nn.max_pool2d(y, (2, 2), (2, 2), layout="NCHW4c"), const(np.ones(ones)))

    before, report = module(make, (1, 12, 12, 8)), Report()
    assert_same_numbers(before, fold(report)(before), random(1, 12, 12, 8))
    expected = "expected a function without blocked layouts, got {}, or one in another op; write it as NCHW"
    assert [d.reason for d in report.refusals] == [expected.format(given) for given in ("NHWC", "NCHW4c")]


@pytest.mark.parametrize(
    ("given", "of"), [("int8", "float32"), ("float64", "float32"), ("float32", "float32")]
)
def test_a_convolution_of_two_types_is_left(given, of):
    # TVM computes NHWC of two types, and has no NCHW for them
    x = relay.var("x0", shape=X, dtype=given)
    before = tvm.IRModule.from_expr(relay.Function([x], conv(x, out_dtype="float32")))
    before, report = relay.transform.InferType()(before), Report()
    after = fold(report)(before)
    assert layouts(after) == [("NCHW", "OIHW") if given == of else ("NHWC", "HWIO")]
    what = "expected a convolution's data and weights to be of one type, got NHWC/HWIO of two"
    assert [d.reason.startswith(what) for d in report.refusals] == [True] * (given != of)


@pytest.mark.parametrize("open_axis", [0, 1, 3])
def test_a_convolution_of_an_open_number_of_channels_is_left(open_axis):
    shape = [relay.Any() if axis == open_axis else length for axis, length in enumerate(X)]
    x = relay.var("x0", shape=shape)
    before = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], conv(x))))
    after = fold()(before)
    assert layouts(after) == [("NHWC", "HWIO") if open_axis == 3 else ("NCHW", "OIHW")]
    array = random(*X)
    run = (VirtualMachine(relay.vm.compile(mod, target="llvm"), tvm.cpu()) for mod in (before, after))
    found, wanted = (machine.invoke("main", array).numpy() for machine in run)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_channels_first_is_left():
    # nothing channels-last: no ConvertLayout
    check_untouched(module(lambda x: nn.relu(nn.conv2d(x, const(random(6, 4, 3, 3)))), (1, 4, 5, 5)))
