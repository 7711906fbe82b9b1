"""Images that are joined with others on axis 0, or lie further in, are images all the same."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import convoy
from relax.sketch import KEEP_ALL, Cut, compare, const, random, weight

n = tvm.tirx.Var("n", "int64")
L, E = 6, 8


def norm_of_rows(bind, x):
    # [n, L, E] -> [n * L, E] · s + b -> [n, L, E], as LeViT has its batch norms
    y = bind(op.reshape(x, (n * L, E)))
    y = bind(op.add(bind(op.multiply(y, const(random(E)))), const(random(E, seed=1))))
    return bind(op.reshape(y, (n, L, E)))


def windows(bind, x):
    # [n, 6, 8] -> [n * 2, 3, 8], attention with each window's own keys -> [n, 6, 8], as Swin
    y = bind(op.reshape(x, (n * 2, 3, E)))
    scores = bind(op.matmul(y, bind(op.permute_dims(y, (0, 2, 1)))))
    y = bind(op.matmul(bind(op.nn.softmax(scores, -1)), y))
    return bind(op.reshape(y, (n, L, E)))


def sequence_first(bind, x):
    # [n, L, E] -> [L, n, E] -> [L, n * 2, 4] -> … -> [L * n, E] · w -> [n, L, E], as nn.MultiheadAttention
    y = bind(op.permute_dims(x, (1, 0, 2)))
    heads = bind(op.permute_dims(bind(op.reshape(y, (L, n * 2, 4))), (1, 0, 2)))
    scores = bind(op.matmul(heads, bind(op.permute_dims(heads, (0, 2, 1)))))
    heads = bind(op.matmul(bind(op.nn.softmax(scores, -1)), heads))
    y = bind(op.reshape(bind(op.permute_dims(heads, (1, 0, 2))), (L * n, E)))
    y = bind(op.reshape(bind(op.matmul(y, weight(E, E))), (L, n, E)))
    return bind(op.permute_dims(y, (1, 0, 2)))


def stacked(bind, x):
    # three products in one -> [3, n, L, E] -> the second of them
    y = bind(op.reshape(bind(op.matmul(x, weight(E, 3 * E))), (n, L, 3, E)))
    y = bind(op.permute_dims(y, (2, 0, 1, 3)))
    return bind(op.take(y, relax.const(1, "int64"), 0))


def reduced(bind, x):
    # means over the sequence, which is in front of the images
    y = bind(op.permute_dims(bind(op.matmul(x, weight(E, E))), (1, 0, 2)))
    return bind(op.mean(y, [0]))


def chosen(bind, x):
    # a split, pads and a concat behind and in front of the images
    y = bind(op.permute_dims(bind(op.matmul(x, weight(E, E))), (1, 0, 2)))
    halves = bind(op.split(y, 2, 2))
    first, second = (bind(relax.TupleGetItem(halves, i)) for i in (0, 1))
    y = bind(op.concat([bind(op.nn.relu(second)), first], 0))
    y = bind(op.nn.pad(y, (1, 0, 0, 0, 0, 2)))
    return bind(
        op.permute_dims(bind(op.nn.layer_norm(y, const(random(6)), const(random(6)), [-1])), (1, 0, 2))
    )


@pytest.mark.parametrize("make", [norm_of_rows, windows, sequence_first, stacked, reduced, chosen])
def test_images_elsewhere_stay_in_the_region(make):
    cut = Cut(lambda bind, x: make(bind, bind(op.matmul(x, weight(E, E, seed=7)))), (n, L, E))
    assert (len(cut.functions), cut.left) == (1, [])
    assert cut.graph.batch is None
    for images in (1, 3):
        compare(cut, random(images, L, E))


def test_a_fixed_number_of_images_joins_a_convolution():
    # conv2d of 3 images -> [3 * 64, 4] · s -> [3, 64, 4]  =>  one region
    def make(bind, x):
        y = bind(op.nn.conv2d(x, weight(4, 4, 3, 3), padding=1))
        y = bind(op.reshape(bind(op.permute_dims(y, (0, 2, 3, 1))), (192, 4)))
        return bind(op.reshape(bind(op.multiply(y, const(random(4)))), (3, 64, 4)))

    cut = Cut(make, (3, 4, 8, 8))
    assert (len(cut.functions), cut.left, cut.graph.batch) == (1, [], 3)
    compare(cut, random(3, 4, 8, 8))


def compute(make, *inputs):
    """What Convoy's and TVM's executables give, and the partitioned module."""
    cut = Cut(make, *inputs)
    arrays = [random(*(3 if d is n else d for d in shape)) for shape in inputs]
    made = relax.VirtualMachine(convoy.compile(cut.before), tvm.cpu())["main"](
        *map(tvm.runtime.tensor, arrays)
    )
    return cut, [made.numpy() if hasattr(made, "numpy") else made[0].numpy()], cut.run_tvm(*arrays)


@pytest.mark.slow
@pytest.mark.parametrize("axis", [0, 1])
def test_tensors_at_the_border_have_their_images_in_front(axis):
    # region -> TVM's cumsum of [n * L, E] or [L, n, E] -> region
    def make(bind, x):
        y = bind(op.matmul(x, weight(E, E)))
        y = bind(op.reshape(y, (n * L, E))) if axis == 0 else bind(op.permute_dims(y, (1, 0, 2)))
        y = bind(op.cumsum(bind(op.nn.relu(y)), -1))
        y = bind(op.matmul(y, weight(E, E, seed=3)))
        return bind(op.reshape(y, (n, L, E))) if axis == 0 else bind(op.permute_dims(y, (1, 0, 2)))

    cut, got, expected = compute(make, (n, L, E))
    assert len(cut.functions) == 2
    for function in cut.functions.values():
        types = [p.ty for p in function.params] + [function.ret_ty]
        assert all(isinstance(ty.shape.values[0], tvm.tirx.Var) for ty in types)
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_images_that_leave_last_are_moved_though_tvm_forgot_their_lengths():
    # heads joined with images: lengths that no composite can tell TVM -> mean -> [n, E] -> [E, n]
    def make(bind, x):
        y = bind(op.mean(sequence_first(bind, bind(op.matmul(x, weight(E, E, seed=7)))), [1]))
        return bind(op.permute_dims(y, (1, 0)))

    cut, got, expected = compute(make, (n, L, E))
    assert (len(cut.functions), cut.left, cut.reasons) == (1, ["permute_dims"], [])  # the move behind it
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-4, atol=1e-5)


MIXERS = {
    "a sum over images": lambda bind, y: bind(op.sum(y, [1])),
    "a softmax over images": lambda bind, y: bind(op.nn.softmax(y, 1)),
    "images that change their rows": lambda bind, y: bind(op.reshape(y, (n, L, E))),
    "a product of images": lambda bind, y: bind(
        op.matmul(bind(op.permute_dims(y, (0, 2, 1))), bind(op.nn.relu(y)))
    ),
}


@pytest.mark.parametrize("name", MIXERS)
def test_what_mixes_images_is_read_without_them(name):
    def make(bind, x):
        y = bind(op.permute_dims(bind(op.matmul(x, weight(E, E))), (1, 0, 2)))
        return MIXERS[name](bind, y)

    cut, (got,), (expected,) = compute(make, (n, L, E))
    assert not any("images along axis 0" in reason for reason in cut.reasons)
    assert len(cut.functions) == 1 + (
        name == "a product of images"
    )  # the others are too small to be worth it
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_convolution_stays_one_of_images_before_what_mixes_them():
    # conv2d -> max over the images: two regions, the first of a batch
    def make(bind, x):
        y = bind(op.nn.conv2d(x, weight(4, 4, 3, 3), padding=1))
        return bind(op.max(y, [0]))

    cut = Cut(make, (n, 4, 8, 8), options=KEEP_ALL)
    assert (len(cut.functions), cut.left) == (2, [])
    _, (got,), (expected,) = compute(make, (n, 4, 8, 8))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_an_open_length_that_is_no_batch_is_a_size():
    # [1, 4, n]: nothing says that n are images
    cut = Cut(lambda bind, x: bind(op.nn.relu(bind(op.matmul(weight(8, 4), x)))), (1, 4, n))
    assert (cut.left, cut.graph.batch, cut.graph.is_open) == ([], 1, True)


def test_images_that_are_a_convolutions_channels_are_left():
    # x [5, n, 9], of which n are images elsewhere, read as 5 images of n channels
    def make(bind, x):
        return bind(op.nn.conv1d(bind(op.matmul(x, weight(9, 9))), weight(8, 1, 5), padding=(1, 1)))

    cut = Cut(make, (5, n, 9))
    assert "nn.conv1d" in cut.left
    assert "expected a known number of input channels" in " ".join(cut.reasons)
