"""Channels-last networks become channels-first; transposes sink and cancel."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from fold_modules import (
    assert_same_module,
    assert_same_numbers,
    const,
    constants,
    module,
    ops,
    parameters,
    random,
)
from tvm import relax

from convoy.relax.fold import fold, normalize_layout
from convoy.report.decision import Report

op = relax.op
nn = relax.op.nn

NHWC = (1, 6, 6, 4)
NCHW = (1, 4, 6, 6)
TO_FIRST = [0, 3, 1, 2]
TO_LAST = [0, 2, 3, 1]


def normalized(make, *shapes):
    """The module before and after, checked to be well formed and to compute the same."""
    before = module(make, *shapes)
    after = normalize_layout()(before)
    relax.analysis.well_formed(after)
    assert_same_numbers(before, after, *(random(*[2 if d == "n" else d for d in s]) for s in shapes))
    return before, after


def nhwc(b, x, w, **attrs):
    return b(nn.conv2d(x, const(w), data_layout="NHWC", kernel_layout="HWIO", **attrs))


def untouched(make, *shapes):
    before = module(make, *shapes)
    aliases = relax.transform.CanonicalizeBindings()
    tvm.ir.assert_structural_equal(aliases(normalize_layout()(before)), aliases(before))


@pytest.mark.parametrize(("kernel", "axes"), [("HWIO", [2, 3, 1, 0]), ("OHWI", [0, 2, 3, 1])])
def test_nhwc_conv(kernel, axes):
    # conv2d(x, NHWC)  =>  permute_dims(conv2d(permute_dims(x), NCHW/OIHW)), the weight permuted
    w = random(6, 4, 3, 3)

    def make(b, x):
        weight = const(w.transpose(axes).copy())
        return b(nn.conv2d(x, weight, padding=1, data_layout="NHWC", kernel_layout=kernel))

    def expected(b, x):
        y = b(nn.conv2d(b(op.permute_dims(x, TO_FIRST)), const(w), padding=1))
        return b(op.permute_dims(y, TO_LAST))

    _, after = normalized(make, NHWC)
    assert_same_module(after, module(expected, NHWC))


def test_nchw_conv_with_hwio_weight():
    # conv2d(NCHW/HWIO)  =>  conv2d(NCHW/OIHW): no transpose of data
    _, after = normalized(
        lambda b, x: b(nn.conv2d(x, const(random(3, 3, 4, 6)), kernel_layout="HWIO")), NCHW
    )
    assert ops(after) == ["conv2d"]


def test_nchw_conv_is_untouched():
    # conv2d(NCHW/OIHW) → relu → permute_dims stays
    untouched(
        lambda b, x: b(op.permute_dims(b(nn.relu(b(nn.conv2d(x, const(random(6, 4, 3, 3)))))), TO_LAST)),
        NCHW,
    )


def test_depthwise_grouped_and_dynamic():
    # grouped NHWC convs with a dynamic batch
    def make(b, x):
        y = nhwc(b, x, random(3, 3, 1, 8), groups=4)
        return nhwc(b, y, random(1, 1, 4, 6), groups=2)

    _, after = normalized(make, ("n", 6, 6, 4))
    assert ops(after) == ["permute_dims", "conv2d", "conv2d", "permute_dims"]


def test_conv1d_and_transpose():
    # conv1d(NWC), conv2d_transpose(NHWC)  =>  channels-first ones
    w, v = const(random(3, 4, 6)), const(random(4, 6, 3, 3))
    _, after = normalized(
        lambda b, x: b(nn.conv1d(x, w, data_layout="NWC", kernel_layout="WIO")),
        (1, 9, 4),
    )
    assert ops(after) == ["permute_dims", "conv1d", "permute_dims"]
    before = module(
        lambda b, x: b(nn.conv2d_transpose(x, v, strides=2, data_layout="NHWC", kernel_layout="IOHW")),
        NHWC,
    )
    assert ops(normalize_layout()(before)) == ["permute_dims", "conv2d_transpose", "permute_dims"]


def test_one_element_of_more_axes_stays_behind_the_permute():
    # NHWC conv * [1, 1, 1, 1, 1]  =>  the conv turned, the product of five axes as it was
    x = (1, 5, 5, 4)

    def make(b, x):
        y = b(nn.conv2d(x, const(random(3, 3, 4, 6)), data_layout="NHWC", kernel_layout="HWIO"))
        return b(op.multiply(y, const(np.full((1, 1, 1, 1, 1), 2.0, "float32"))))

    before = module(make, x)
    after = normalize_layout()(before)
    assert ops(after) == ["permute_dims", "conv2d", "permute_dims", "multiply"]
    assert_same_numbers(before, after, random(*x))


@pytest.mark.slow
def test_whole_network_has_one_permute_at_each_edge():
    # conv, BN, relu, pools, add, concat, pad, squeeze-excite in NHWC  =>  permute … permute
    def conv(b, x, o, i, k=1):
        return b(
            nn.conv2d(
                x,
                const(random(k, k, i, o)),
                padding=k // 2,
                data_layout="NHWC",
                kernel_layout="HWIO",
            )
        )

    def make(b, x):
        y = b(op.add(conv(b, x, 6, 4, 3), const(random(6))))
        y = b(nn.relu(b.batch_norm(y, [const(p) for p in parameters(6)], axis=3)))
        y = b(nn.max_pool2d(y, (2, 2), (1, 1), layout="NHWC"))
        gate = b(nn.adaptive_avg_pool2d(y, (1, 1), layout="NHWC"))
        y = b(op.multiply(y, b(op.sigmoid(conv(b, gate, 6, 6)))))
        y = b(op.concat([b(op.add(conv(b, y, 6, 6, 3), y)), y], axis=-1))
        y = b(nn.pad(y, [0, 0, 1, 0, 0, 2, 0, 0]))
        return b(nn.avg_pool2d(b(op.clip(y, 0, 6)), (2, 2), layout="NHWC"))

    before, after = normalized(make, NHWC)
    names = ops(after)
    assert [names[0], names[-1]] == ["permute_dims", "permute_dims"]
    assert names.count("permute_dims") == 2
    assert len(names) == len(ops(before)) + 2
    folded = fold()(before)
    assert "batch_norm" not in ops(folded)
    assert ops(folded)[:3] == ["permute_dims", "conv2d", "add"]
    assert_same_numbers(before, folded, random(*NHWC))


def test_classifier_head_needs_no_permute():
    # reshape(mean(conv2d, H and W)), flatten of 1x1: the end needs no transpose
    def make(b, x):
        y = nhwc(b, x, random(1, 1, 4, 6))
        pooled = b(nn.avg_pool2d(y, (6, 6), layout="NHWC"))
        return [b(op.mean(y, [1, 2])), b(op.reshape(pooled, (1, 6))), b(op.squeeze(pooled, [1, 2]))]

    _, after = normalized(make, NHWC)
    assert ops(after).count("permute_dims") == 1


@pytest.mark.parametrize(("kernel", "shape"), [("HWIO", (3, 3, 4, 6)), ("OHWI", (6, 3, 3, 4))])
def test_bn_on_channels_last(kernel, shape):
    # batch_norm(conv2d in NHWC, axis=3)  =>  conv2d in NCHW + bias
    def make(b, x):
        y = b(nn.conv2d(x, const(random(*shape)), data_layout="NHWC", kernel_layout=kernel))
        return b.batch_norm(y, [const(p) for p in parameters(6)], axis=3)

    before = module(make, NHWC)
    report = Report()
    after = fold(report)(before)
    assert ops(after) == ["permute_dims", "conv2d", "add", "permute_dims"]
    assert len(report.decisions) == 2
    assert_same_numbers(before, after, random(*NHWC))


def test_transposes_around_each_conv_cancel():
    # permute → conv → permute → relu → permute → conv → permute, as exporters write it  =>  two permutes
    def conv(b, x, o, i):
        y = b(nn.conv2d(b(op.permute_dims(x, TO_FIRST)), const(random(o, i, 1, 1))))
        return b(op.permute_dims(y, TO_LAST))

    def make(b, x):
        y = b(nn.relu(b(op.add(conv(b, x, 6, 4), const(random(6))))))
        return conv(b, b(op.add(conv(b, y, 6, 6), y)), 2, 6)

    _, after = normalized(make, NHWC)
    assert ops(after) == [
        "permute_dims", "conv2d", "add", "relu", "conv2d", "add", "conv2d", "permute_dims",
    ]  # fmt: skip


def test_inverse_permutes_cancel():
    # permute_dims(permute_dims(x))  =>  x
    _, after = normalized(
        lambda b, x: b(nn.relu(b(op.permute_dims(b(op.permute_dims(x, TO_LAST)), TO_FIRST)))), NCHW
    )
    assert ops(after) == ["relu"]


def test_other_permutes_stay():
    # channel shuffle (reshape → permute_dims → reshape) and a full operand of another layout stay
    def shuffle(b, x):
        y = b(op.permute_dims(b(op.reshape(x, (1, 2, 2, 6, 6))), [0, 2, 1, 3, 4]))
        return b(op.reshape(y, NCHW))

    untouched(shuffle, NCHW)
    untouched(lambda b, x, y: b(op.add(b(op.permute_dims(x, TO_LAST)), y)), NCHW, NHWC)


def test_view_read_by_an_op_that_needs_it():
    # reshape([N, H, W, C]) needs the value itself: the permute is written once
    def make(b, x):
        y = nhwc(b, x, random(1, 1, 4, 6))
        return [b(op.reshape(y, (1, 216))), b(op.reshape(y, (36, 6)))]

    _, after = normalized(make, NHWC)
    assert ops(after) == ["permute_dims", "conv2d", "permute_dims", "reshape", "reshape"]


def test_resize():
    # image.resize2d(NHWC)  =>  NCHW
    before = module(
        lambda b, x: b(op.image.resize2d(x, (12, 12), layout="NHWC", method="nearest_neighbor",
                                         coordinate_transformation_mode="asymmetric",
                                         rounding_method="floor")),
        NHWC,
    )  # fmt: skip
    after = normalize_layout()(before)
    assert ops(after) == ["permute_dims", "image.resize2d", "permute_dims"]
    assert_same_numbers(before, after, random(*NHWC))


def test_fp32_weights_keep_their_bits():
    # a permuted weight is permuted, nothing else
    w = random(3, 3, 4, 6)
    after = normalize_layout()(module(lambda b, x: nhwc(b, x, w), NHWC))
    np.testing.assert_array_equal(constants(after)[0], w.transpose(3, 2, 0, 1))
