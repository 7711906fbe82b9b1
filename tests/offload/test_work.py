"""What the rows of ops say of work, and which step leaves an op for which reason."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from convoy.offload.work import count_bytes, count_flops, given_back, not_worth_a_call, step_of
from convoy.ops.table import OF, RELAX, RELAY, ROWS, row_of
from ops.plain_door import PlainReader, Value

X, Y = (1, 4, 8, 8), (1, 6, 8, 8)
CONV = SimpleNamespace(data_layout="NCHW", out_layout="", pool_size=[3, 3])


@pytest.mark.parametrize(
    ("op", "result", "operands", "flops", "moved"),
    [
        ("nn.conv2d", Y, [X, (6, 4, 3, 3)], 2 * 6 * 64 * 36, 4 * (384 + 256 + 216)),
        ("nn.conv2d_transpose", Y, [X, (4, 6, 1, 1)], 2 * 4 * 64 * 6, 4 * (384 + 256 + 24)),
        ("nn.dense", (1, 5), [(1, 7), (5, 7)], 2 * 5 * 7, 4 * (5 + 7 + 35)),
        ("nn.max_pool2d", X, [X], 256 * 9, 4 * 512),
        ("mean", (1, 4), [X], 256, 4 * 260),
        ("nn.relu", X, [X], 256, 4 * 512),
        ("concat", X, [X], 0, 4 * 512),
        ("nn.dropout", X, [X], 0, 0),
        ("an op without a row", X, [X], 256, 4 * 512),
    ],
)
def test_work_goes_by_the_cost_of_the_row(op, result, operands, flops, moved):
    call = Value(result, args=[Value(shape) for shape in operands], attrs=CONV, name=op)
    assert count_flops(call, PlainReader()) == flops
    assert count_bytes(call, PlainReader()) == moved


def test_what_is_not_known_is_no_work():
    unknown = Value((0,), args=[Value(None), Value((6, 4, 3, 3))], attrs=CONV, name="nn.conv2d")
    assert count_flops(unknown, PlainReader()) == 0
    open_batch = Value(("n", 4), args=[Value(("n", 4))], name="nn.relu")
    assert count_flops(open_batch, PlainReader()) == 4
    nothing = Value((), args=[Value((4,))], name="an op that prints")
    nothing_read = PlainReader()
    nothing_read.results = lambda call: []
    assert (count_flops(nothing, nothing_read), count_bytes(nothing, nothing_read)) == (0, 16)


def test_a_name_has_one_row_in_both_tvms():
    assert len(OF) == sum(len(row.names) for row in ROWS)
    assert len(RELAX) == sum(bool(row.relax) for row in ROWS)
    assert len(RELAY) == sum(bool(row.relay) for row in ROWS)
    assert row_of("nn.leakyrelu") is row_of("nn.leaky_relu")


def test_a_reason_knows_its_step():
    # the words alone do not make it one of the step partition
    reason = not_worth_a_call([100], heavy=False)
    assert reason is not None
    assert step_of(reason) == step_of(given_back("it failed")) == "partition"
    assert step_of(str("given back: " + "by the user")) == "annotate"
    assert not_worth_a_call([100], heavy=True) is None
