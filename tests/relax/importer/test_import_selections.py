"""Heads of an open batch: axis 0 stays that of the images; each rewrite with a twin that stays."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from convoy.relax import partition
from relax.importer.test_import_idioms import R, raises, stays
from relax.sketch import module, weight

n = tvm.tirx.Var("n", "int64")
PACKED = (n, 5, 3, 2, 4)
THIRDS, HEADS = [2, 0, 3, 1, 4], [0, 2, 1, 3]


def index(value: object) -> relax.Expr:
    return relax.const(np.asarray(value, "int64"))


def test_a_third_is_cut_before_the_transpose() -> None:
    # squeeze(split(permute_dims(x))[1])  =>  permute_dims(squeeze(strided_slice(x)))
    raises(
        lambda x: R.squeeze(relax.TupleGetItem(R.split(R.permute_dims(x, THIRDS), 3, 0), 1), [0]),
        lambda x: R.permute_dims(R.squeeze(R.strided_slice(x, [2], [1], [2], [1]), [2]), HEADS),
        PACKED,
    )
    raises(
        lambda x: R.squeeze(R.strided_slice(R.permute_dims(x, THIRDS), [0], [2], [3]), [0]),
        lambda x: R.permute_dims(R.squeeze(R.strided_slice(x, [2], [2], [3]), [2]), HEADS),
        PACKED,
    )


def test_what_is_turned_is_turned_before_the_transpose() -> None:
    # flip as exporters write it: from the last to before the first, which is no place of the axis
    raises(
        lambda x: R.strided_slice(R.permute_dims(x, [1, 0, 2]), [-3], [-1], [-(2**63) + 1], [-1]),
        lambda x: R.permute_dims(R.strided_slice(x, [1], [-1], [-(2**63) + 1], [-1]), [1, 0, 2]),
        (4, 5, 2),
    )


def test_a_third_is_taken_before_the_transpose() -> None:
    # take(permute_dims(x), 1)  =>  permute_dims(take(x, 1))
    raises(
        lambda x: R.take(R.permute_dims(x, THIRDS), index(1), 0),
        lambda x: R.permute_dims(R.take(x, index(1), 2), HEADS),
        PACKED,
    )
    stays(lambda x: R.take(R.permute_dims(x, THIRDS), index([1, 0]), 0), PACKED)


def test_a_choice_that_is_known_is_made() -> None:
    # where(never, x, y)  =>  y, where nothing is broadcast
    def written(chosen: object) -> relax.Expr:
        return lambda x, y: R.where(relax.const(np.asarray(chosen)), R.exp(x), R.exp(y))

    raises(written(False), lambda x, y: R.exp(y), (2, 3), (2, 3))
    raises(written([[True] * 3] * 2), lambda x, y: R.exp(x), (2, 3), (2, 3))
    stays(written([True, False, True]), (2, 3), (2, 3))
    stays(written(False), (2, 3), (1, 3))


def test_what_keeps_axis_0_stays() -> None:
    stays(lambda x: R.squeeze(R.permute_dims(x, [0, 2, 1]), [1]), (n, 5, 1))
    stays(lambda x: R.strided_slice(R.permute_dims(x, [0, 2, 1]), [1], [0], [2]), (n, 5, 4))
    stays(lambda x: R.take(R.permute_dims(x, [0, 2, 1]), index(0), 1), (n, 5, 4))


def test_heads_that_are_joined_with_the_batch_for_a_transpose_are_not() -> None:
    # reshape(permute_dims(reshape(x)))  =>  permute_dims(x)
    def written(x: relax.Expr, *shape: object) -> relax.Expr:
        return R.reshape(R.permute_dims(R.reshape(x, (n * 3, 5, 4)), [0, 2, 1]), shape)

    raises(lambda x: written(x, n, 3, 4, 5), lambda x: R.permute_dims(x, [0, 1, 3, 2]), (n, 3, 5, 4))
    stays(lambda x: written(x, 3, n, 4, 5), (n, 3, 5, 4))
    stays(lambda x: written(x, n, 3, 5, 4), (n, 3, 5, 4))  # rows of other lengths
    stays(lambda x: written(x, n, 3, 4, 5), (n, 15, 4))


def test_packed_heads_of_an_open_batch_are_one_region() -> None:
    # conv2d -> [n, 64, 3, 2, 4] -> [3, n, 2, 64, 4] -> attention  =>  a graph of one image
    from convoy.relax.importer import raise_idioms

    def make(bind, x):
        y = bind(R.nn.conv2d(x, weight(24, 4, 3, 3), padding=1))
        packed = bind(R.permute_dims(bind(R.reshape(y, (n, 64, 3, 2, 4))), THIRDS))
        q, k, v = (bind(R.take(packed, index(i), 0)) for i in range(3))
        scores = bind(R.matmul(q, bind(R.permute_dims(k, [0, 1, 3, 2]))))
        return bind(R.matmul(bind(R.nn.softmax(scores)), v))

    raised = relax.transform.ConvertToDataflow()(raise_idioms()(module(make, (n, 4, 8, 8))))
    cut = partition()(raised)
    functions = [f for _, f in cut.functions_items() if f.attrs and "Codegen" in f.attrs]
    assert len(functions) == 1
