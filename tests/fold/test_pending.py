"""fold/pending.py: where the maps of a tree of values may go."""

from __future__ import annotations

import numpy as np
import pytest
from fake_door import CONV, make_node

from convoy.fold.affine import IDENTITY, Affine
from convoy.fold.anchors import Anchor, read_geometry
from convoy.fold.constants import Const
from convoy.fold.crossing import Crossing, read_crossing
from convoy.fold.pending import Base, Crossed, Joined, Leaf, MappedOp, Pending, Produced, Sum

IMAGE = (1, 4, 6, 6)
SCALE = Affine(1, np.array([1.0, 2.0, 3.0, 4.0]), np.zeros(4))
SHIFT = Affine(1, np.ones(4), np.array([1.0, 0.0, 2.0, 0.0]))
BOTH = Affine(1, SCALE.scale, SHIFT.shift)
NEGATIVE = Affine(1, -SCALE.scale, np.zeros(4))


def conv() -> Anchor:
    node = make_node("nn.conv2d", IMAGE, (4, 4, 1, 1), **CONV)
    geometry = read_geometry(node)
    assert geometry is not None
    weight = Const("float32", np.ones((4, 4, 1, 1), np.float32))
    return Anchor(node, geometry, {node.args[1]: weight}.get)


def pending(base: Base, affine: Affine = IDENTITY) -> Pending:
    held = Pending(base, "y", "x", affine)
    if not affine.trivial:
        held.mapped = [MappedOp("y", make_node("multiply", IMAGE), affine)]
    return held


def relu(child: Pending) -> Crossed:
    node = make_node("nn.relu", IMAGE)
    crossing = read_crossing(node)
    assert crossing is not None
    return Crossed(node, child, crossing)


def add(*children: Pending, shapes: tuple = (IMAGE, IMAGE)) -> Sum:
    return Sum(make_node("add", *shapes, result=IMAGE), (children[0], children[1]))


def test_an_anchor_takes_all_and_nothing_is_left() -> None:
    anchor = conv()
    held = pending(Produced(anchor))
    held.absorb(BOTH)
    assert held.affine.trivial
    np.testing.assert_array_equal(anchor.after.scale, BOTH.scale)
    np.testing.assert_array_equal(anchor.shift, BOTH.shift)


def test_a_leaf_takes_nothing_and_says_why() -> None:
    held = pending(Leaf("x", "it is an input"))
    assert held.refusal(SCALE) == "it is an input"
    held.absorb(SCALE)
    assert held.affine is SCALE
    assert list(held.anchors()) == []
    with pytest.raises(AssertionError):
        Leaf("x", "it is an input").absorb(SCALE)


def test_a_relu_hands_a_positive_scale_down_and_keeps_a_shift() -> None:
    anchor = conv()
    held = pending(relu(pending(Produced(anchor))))
    held.absorb(BOTH)
    np.testing.assert_array_equal(anchor.after.scale, BOTH.scale)
    assert not held.affine.scales  # the scale sank, the shift stays
    np.testing.assert_array_equal(held.affine.shift, BOTH.shift)


def test_a_relu_hands_no_negative_scale_down() -> None:
    anchor = conv()
    held = pending(relu(pending(Produced(anchor))))
    held.absorb(NEGATIVE)
    assert anchor.after.trivial
    assert held.affine is NEGATIVE


def test_a_map_costs_nothing_where_one_stands_already() -> None:
    leaf = Leaf("x", "no anchor")
    assert pending(leaf, SCALE).refusal(SCALE) == ""
    assert pending(leaf, BOTH).refusal(SHIFT) == ""
    assert pending(leaf, SCALE).refusal(SHIFT) == "no anchor"  # an add would be written
    assert "different axes" in pending(leaf, SCALE).refusal(Affine(2, np.full(6, 2.0), np.zeros(6)))


def test_a_sum_scales_both_branches_and_shifts_one() -> None:
    first, second = conv(), conv()
    held = pending(add(pending(Produced(first)), pending(Produced(second))))
    held.absorb(BOTH)
    assert held.affine.trivial
    for anchor in (first, second):
        np.testing.assert_array_equal(anchor.after.scale, BOTH.scale)
    np.testing.assert_array_equal(first.shift + second.shift, BOTH.shift)


def test_a_sum_with_one_branch_that_takes_no_scale() -> None:
    first = conv()
    base = add(pending(Produced(first)), pending(Leaf("x", "it is an input")))
    assert base.refusal(SCALE) == "only one branch of the add could be scaled: it is an input"
    assert base.refusal(SHIFT) == ""
    held = pending(base)
    held.absorb(SHIFT)
    np.testing.assert_array_equal(first.shift, SHIFT.shift)


def test_a_branch_that_broadcasts_along_channels_is_not_scaled() -> None:
    shapes = (IMAGE, (1, 1, 6, 6))
    base = add(pending(Produced(conv())), pending(Produced(conv())), shapes=shapes)
    assert base.refusal(SCALE) == "the branches broadcast along the channel axis"
    assert base.refusal(Affine(None, np.array(2.0), np.array(0.0))) == ""


def test_a_concat_gives_each_branch_its_channels() -> None:
    anchors = [conv(), conv()]
    node = make_node("concat", IMAGE, IMAGE, result=(1, 8, 6, 6), axis=1)
    base = Joined(node, [pending(Produced(a)) for a in anchors], 1, [4, 4])
    scale = np.arange(1.0, 9.0)
    held = pending(base)
    held.absorb(Affine(1, scale, np.zeros(8)))
    np.testing.assert_array_equal(np.concatenate([a.after.scale for a in anchors]), scale)
    assert list(held.anchors()) == anchors


def test_a_concat_takes_what_all_its_branches_take() -> None:
    anchor = conv()
    node = make_node("concat", IMAGE, IMAGE, result=(1, 8, 6, 6), axis=1)
    base = Joined(node, [pending(Produced(anchor)), pending(Leaf("x", "it is an input"))], 1, [4, 4])
    scale = np.ones(8)
    scale[0] = 2.0
    assert base.refusal(Affine(1, scale, np.zeros(8))) == ""  # the second branch's part is trivial
    scale[7] = 2.0
    refusal = base.refusal(Affine(1, scale, np.zeros(8)))
    assert refusal == "not every branch of the concat could take it: it is an input"


def test_a_map_leaves_upwards_through_what_it_may_cross() -> None:
    below = pending(Leaf("x", "no anchor"), SCALE)
    held = pending(relu(below))
    np.testing.assert_array_equal(held.liftable().scale, SCALE.scale)
    assert [step.affine for step in held.all_mapped()] == [SCALE]
    held.strip()
    assert below.affine.trivial
    assert held.liftable().trivial


def test_a_map_that_may_not_cross_stays_below() -> None:
    below = pending(Leaf("x", "no anchor"), SHIFT)
    held = pending(relu(below), SCALE)
    assert held.liftable().shifts is False
    held.strip()
    assert below.affine is SHIFT
    assert held.affine.trivial


def test_a_map_whose_axis_is_lost_stays_below() -> None:
    below = pending(Leaf("x", "no anchor"), SCALE)
    summed = Crossed(make_node("mean", IMAGE), below, Crossing("mean", axes={0: 0}))
    assert pending(summed).liftable().trivial


def test_sums_and_concats_lift_nothing() -> None:
    parts = [pending(Leaf("x", "no anchor"), SCALE) for _ in range(2)]
    joined = Joined(make_node("concat", IMAGE, IMAGE), parts, 1, [4, 4])
    for base in (add(*parts), joined, Produced(conv())):
        assert base.liftable().trivial
        base.strip()
    assert all(part.affine is SCALE for part in parts)
