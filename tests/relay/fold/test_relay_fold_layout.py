"""Relay: channels-last modules become channels-first, folded along the right axis."""

from __future__ import annotations

import numpy as np
import pytest
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

from convoy.relay.dataflow import Dataflow, op_name
from convoy.relay.fold import fold

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

    after = fold()(module(make, X))
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


def test_channels_first_is_left():
    # nothing channels-last: no ConvertLayout
    check_untouched(module(lambda x: nn.relu(nn.conv2d(x, const(random(6, 4, 3, 3)))), (1, 4, 5, 5)))
