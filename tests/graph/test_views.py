"""graph/views.py: a view of a view, against NumPy's own."""

from __future__ import annotations

import numpy as np
import pytest

from convoy.graph.sizes import bind, open_size, symbols
from convoy.graph.views import View, Walk, compose, join_axes, permuted, put_walk, read_view, view_whole

Shape = tuple[int, ...]


def read_walk(array: np.ndarray, walk: Walk) -> np.ndarray:
    """What a walk sees, in the axes of the view it came from."""
    factors = [factor for axis in walk.axes for factor in axis]
    view = View(tuple(n for n, _ in factors), tuple(s for _, s in factors), walk.offset)
    return read_view(array, view).reshape([int(np.prod([n for n, _ in axis])) for axis in walk.axes])


@pytest.mark.parametrize("seed", range(4))
def test_a_view_of_a_moved_tensor_sees_the_same_elements(seed: int) -> None:
    random, found = np.random.default_rng(seed), 0
    for _ in range(100):
        found += sees_the_same(random)
    assert found > 30


def sees_the_same(random: np.random.Generator) -> bool:
    """Is a random view of a transposed tensor one of the tensor itself?  Then of the same elements."""
    x = np.arange(24, dtype=np.float32).reshape(*random.permutation([2, 3, 4]))
    perm = random.permutation(3)
    rows = view_whole(x.shape).strides
    source = View(tuple(x.shape[i] for i in perm), tuple(rows[i] for i in perm))
    moved = np.ascontiguousarray(x.transpose(perm))
    shapes: list[Shape] = [(24,), (2, 12), (6, 4), (4, 6), (2, 2, 6), (3, 8), (2, 3, 2, 2), (1, 8, 3)]
    shape = shapes[random.integers(len(shapes))]
    order = random.permutation(len(shape))
    whole = view_whole(shape)
    view = View(tuple(shape[i] for i in order), tuple(whole.strides[i] for i in order))
    walk = compose(view, moved.shape, source)
    if walk is not None:
        np.testing.assert_array_equal(read_walk(x, walk), read_view(moved, view))
        return True
    # only where a length of one does not fit into the lengths of the other
    assert shape not in (moved.shape, (24,))
    return False


def test_rows_of_a_cropped_image_are_no_single_axis() -> None:
    # x [4, 6][:, 1:5] as [16]: its rows of 4 lie 6 apart; as [4, 4] it is a view of x
    source = View((4, 4), (6, 1), 1)
    assert compose(view_whole((16,)), (4, 4), source) == Walk((((4, 6), (4, 1)),), 1)
    assert compose(view_whole((8, 2)), (4, 4), source) == Walk((((4, 6), (2, 2)), ((2, 1),)), 1)
    assert compose(View((5, 3), (3, 1)), (4, 4), source) is None  # rows of 3 begin in the midst of others
    assert compose(View((2, 4), (2, 1)), (4, 4), source) is None  # and so do rows that overlap


def test_broadcast_axes_stay_broadcast() -> None:
    walk = compose(View((5, 4), (0, 1)), (2, 4), View((2, 4), (1, 2)))
    assert walk == Walk((((5, 0),), ((4, 2),)), 0)
    grouped = compose(view_whole((6, 4)), (2, 3, 4), View((2, 3, 4), (4, 0, 1)))
    assert grouped == Walk((((2, 4), (3, 0)), ((4, 1),)), 0)


def test_a_walk_cuts_the_leading_axes_of_all_views() -> None:
    walk = Walk((((2, 4), (3, 0)), ((5, 8),), ()), 1)
    other = View((6, 5, 7), (35, 7, 1))
    cut = put_walk([View((6, 5, 1), (5, 1, 1)), other], 0, walk)
    assert cut == [View((2, 3, 5, 1), (4, 0, 8, 0), 1), View((2, 3, 5, 7), (105, 35, 7, 1))]
    assert put_walk([other, other], 0, Walk((((6, 35),), ((5, 7),), ((2, 3), (3, 1))), 0)) is None


def test_axes_join_where_all_views_walk_them_as_one() -> None:
    x, y = View((2, 3, 1, 5, 7), (105, 35, 9, 7, 1)), View((2, 3, 1, 5, 7), (105, 35, 0, 1, 5))
    assert join_axes([x, y]) == [View((6, 5, 7), (35, 7, 1)), View((6, 5, 7), (35, 1, 5))]
    shared = View((2, 3, 1, 5, 7), (35, 0, 0, 7, 1))
    assert join_axes([shared, y])[0] == View((2, 3, 5, 7), (35, 0, 7, 1))
    inner_first = View((3, 2, 5, 7), (35, 105, 7, 1))
    assert join_axes([inner_first])[0] == View((6, 5, 7), (35, 7, 1))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_seen_of_open_lengths_is_so_at_every_one(seed: int) -> None:
    # heads of [n, t, 3, H, D], joined or not, transposed or not
    random = np.random.default_rng(seed)
    for _ in range(20):
        n, t = open_size("n", 128), open_size("t", 128)
        whole = [n, t, 3, 2, 5]
        source = view_whole(tuple(whole))
        order = random.permutation(5)
        moved = permuted(source, order)
        at = int(random.integers(4))
        joined = [*moved.shape[:at], moved.shape[at] * moved.shape[at + 1], *moved.shape[at + 2 :]]
        walk = compose(view_whole(tuple(joined)), moved.shape, moved)
        assert walk is not None
        for n_is, t_is in ((1, 1), (1, 4), (4, 1), (3, 2)):
            at_call = {s: v for size, v in ((n, n_is), (t, t_is)) for s in symbols(size)}
            shape = bind(tuple(whole), at_call)
            x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
            seen = read_walk(x, Walk(bind(walk.axes, at_call), bind(walk.offset, at_call)))
            assert (seen.ravel() == x.transpose(order).ravel()).all()


def test_a_part_of_an_open_axis_is_no_other_axis() -> None:
    # rows 1 … 9 of [t, 4] as [3, 3]: of t rows, of which nobody knows that they are 3 · 3
    t = open_size("t", 9)
    assert compose(View((t, 4), (4, 1)), (3, 3, 4), view_whole((3, 3, 4))) is None
