"""fold/scale.py: before → after of whole functions, through a door that is neither TVM's.

Each rewrite leaves the ops that are named, computes what it did before, and has a twin that stays as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from fake_door import CONV, NORM, POOL, Call, Expr, Function, Item, Literal, fold, run

from convoy.report.decision import Report

IMAGE = (2, 4, 8, 8)
RANDOM = np.random.default_rng(1)


def weight(f: Function, out: int = 4, channels: int = 4, size: int = 3) -> Literal:
    return f.constant(RANDOM.standard_normal((out, channels, size, size)))


def conv(f: Function, x: Expr | str, **attrs: Any) -> Expr:
    return f.add("nn.conv2d", x, weight(f), **{**CONV, "padding": (1, 1, 1, 1), **attrs})


def per_channel(f: Function, low: float = 0.5, high: float = 2.0) -> Literal:
    return f.constant(RANDOM.uniform(low, high, (4, 1, 1)))


def norm(f: Function, x: Expr | str, **attrs: Any) -> Expr:
    return f.norm(x, *(f.constant(RANDOM.uniform(0.5, 2.0, 4)) for _ in range(4)), **attrs)


def folded(f: Function, *ops: str, **inputs: np.ndarray) -> Report:
    """Folds, requires these ops, and the same numbers."""
    new, report = fold(f)
    assert new.ops == list(ops)
    given = {name: RANDOM.standard_normal(var.shape) for name, var in f.inputs.items()} | inputs
    before, after = run(f, **given), run(new, **given)
    np.testing.assert_allclose(after, before, rtol=0, atol=2e-6 * np.abs(before).max())
    return report


def decisions(report: Report) -> list[tuple[str, str]]:
    return [(decision.choice, decision.reason) for decision in report.decisions]


# conv2d -> batch_norm  =>  conv2d -> add
def test_a_batch_norm_after_a_convolution() -> None:
    f = Function(x=IMAGE)
    norm(f, conv(f, "x"))
    report = folded(f, "nn.conv2d", "add")
    assert decisions(report) == [("folded", "into conv2d v0")]
    assert report.decisions[0].about == ("conv2d v0",)


# conv2d -> tanh -> batch_norm  =>  conv2d -> tanh -> multiply -> add
def test_a_batch_norm_behind_what_nothing_crosses_is_one_multiply_and_add() -> None:
    f = Function(x=IMAGE)
    norm(f, f.add("tanh", conv(f, "x")))
    ((choice, reason),) = decisions(folded(f, "nn.conv2d", "tanh", "multiply", "add"))
    assert choice == "merged"
    assert reason.startswith("into one multiply and one add: ")


# conv2d -> multiply -> add -> subtract -> divide  =>  conv2d -> add
def test_a_chain_of_arithmetic_is_one_bias() -> None:
    f = Function(x=IMAGE)
    y = conv(f, "x")
    for name in ("multiply", "add", "subtract", "divide"):
        y = f.add(name, y, per_channel(f))
    folded(f, "nn.conv2d", "add")


# conv2d -> multiply(run-time value)  stays
def test_arithmetic_with_a_run_time_value_stays() -> None:
    f = Function(x=IMAGE, s=(4, 1, 1))
    f.add("multiply", conv(f, "x"), "s")
    new, _ = fold(f)
    assert new.bindings == f.bindings


# add -> matmul  =>  matmul -> add
def test_a_shift_before_a_matmul_goes_into_its_bias() -> None:
    f = Function(x=(2, 4))
    w = f.constant(RANDOM.standard_normal((4, 6)))
    f.add("matmul", f.add("add", "x", f.constant(RANDOM.standard_normal(4))), w)
    report = folded(f, "matmul", "add")
    assert ("folded", "forward into the weight of matmul v1") in decisions(report)


# add -> padded conv2d  stays
def test_a_shift_before_a_padded_convolution_stays() -> None:
    f = Function(x=IMAGE)
    conv(f, f.add("add", "x", per_channel(f)))
    report = folded(f, "add", "nn.conv2d")
    assert any("zeros are not shifted" in reason for _, reason in decisions(report))


# multiply -> relu -> conv2d  =>  relu -> conv2d
def test_a_scale_rises_through_a_relu() -> None:
    f = Function(x=IMAGE)
    conv(f, f.add("nn.relu", f.add("multiply", "x", per_channel(f))))
    folded(f, "nn.relu", "nn.conv2d")


# multiply(negative) -> relu -> conv2d  stays
def test_a_negative_scale_does_not() -> None:
    f = Function(x=IMAGE)
    conv(f, f.add("nn.relu", f.add("multiply", "x", per_channel(f, -2.0, -0.5))))
    folded(f, "multiply", "nn.relu", "nn.conv2d")


# conv2d -> max_pool -> batch_norm  =>  conv2d -> add -> max_pool
def test_a_norm_behind_a_pool() -> None:
    f = Function(x=IMAGE)
    norm(f, f.add("nn.max_pool2d", conv(f, "x"), **POOL))
    folded(f, "nn.conv2d", "add", "nn.max_pool2d")


# conv2d + conv2d -> multiply  =>  conv2d + conv2d
def test_a_scale_behind_a_residual_goes_into_both_branches() -> None:
    f = Function(x=IMAGE, z=IMAGE)
    f.add("multiply", f.add("add", conv(f, "x"), conv(f, "z")), per_channel(f))
    folded(f, "nn.conv2d", "nn.conv2d", "add")


# conv2d + z -> multiply  stays
def test_a_scale_behind_a_sum_with_an_input_stays() -> None:
    f = Function(x=IMAGE, z=IMAGE)
    f.add("multiply", f.add("add", conv(f, "x"), "z"), per_channel(f))
    folded(f, "nn.conv2d", "add", "multiply")


# concat(conv2d, conv2d) -> batch_norm  =>  concat(conv2d -> add, conv2d -> add)
def test_a_norm_behind_a_concat_goes_into_its_branches() -> None:
    f = Function(x=IMAGE)
    y = f.add("concat", conv(f, "x"), conv(f, "x"), axis=1)
    f.norm(y, *(f.constant(RANDOM.uniform(0.5, 2.0, 8)) for _ in range(4)))
    folded(f, "nn.conv2d", "add", "nn.conv2d", "add", "concat")


# conv2d read by two, one of them multiply  stays
def test_a_weight_that_others_read_through_is_not_scaled() -> None:
    f = Function(x=IMAGE)
    y = conv(f, "x")
    f.add("add", f.add("multiply", y, per_channel(f)), f.add("tanh", y))
    report = folded(f, "nn.conv2d", "tanh", "multiply", "add")
    assert any("is read 2 times" in reason for _, reason in decisions(report))


# one weight, two convolutions, one batch_norm  =>  two weights
def test_a_shared_weight_is_copied() -> None:
    f = Function(x=IMAGE)
    w = weight(f)
    before = w.array.copy()
    first, second = (f.add("nn.conv2d", "x", w, **CONV) for _ in range(2))
    f.add("add", norm(f, first), f.add("tanh", second))
    folded(f, "nn.conv2d", "tanh", "nn.conv2d", "add", "add")
    np.testing.assert_array_equal(w.array, before)


# sqrt and divide of constants -> multiply -> after a conv2d  =>  conv2d
def test_constants_that_are_expressions_are_computed_on_the_way() -> None:
    f = Function(x=IMAGE)
    y = conv(f, "x")
    deviation = f.add("sqrt", per_channel(f))
    f.add("multiply", y, f.add("divide", f.constant(1.0), deviation))
    folded(f, "nn.conv2d")


# x -> alias -> multiply after a conv2d  =>  conv2d
def test_another_name_of_a_value_is_seen_through() -> None:
    f = Function(x=IMAGE)
    f.add("multiply", f.bind(conv(f, "x")), per_channel(f))
    folded(f, "nn.conv2d")


# batch_norm(training)  stays
def test_a_batch_norm_in_training_stays() -> None:
    f = Function(x=IMAGE)
    norm(f, conv(f, "x"), training=True)
    new, report = fold(f)
    assert new.ops == ["nn.conv2d", "nn.batch_norm"]
    assert decisions(report) == [
        ("kept", "expected inference, got training=True; its statistics are those of the batch")
    ]


def test_the_statistics_of_a_norm_are_constants() -> None:
    f = Function(x=IMAGE)
    parameters = [f.constant(RANDOM.uniform(0.5, 2.0, 4)) for _ in range(4)]
    y = f.add("nn.batch_norm", conv(f, "x"), *parameters, **NORM)
    first = f.bind(Item(IMAGE, "float32", y, 0))
    mean = f.bind(Item((4,), "float32", y, 1))
    f.add("add", first, f.add("reshape", mean, shape=(4, 1, 1)))
    new, _ = fold(f)
    assert new.ops == ["nn.conv2d", "add"]
    ((_, bias),) = [(v, b) for v, b in new.bindings if isinstance(b, Call) and b.name == "add"]
    assert isinstance(bias.args[1], Literal)


# conv2d -> multiply -> add in float16, out of its range  stays
def test_half_precision_stays_in_its_range() -> None:
    f = Function("float16", x=IMAGE)
    f.add("multiply", conv(f, "x"), f.constant(60000.0))
    assert fold(f)[0].ops == ["nn.conv2d", "multiply"]
    g = Function("float16", x=IMAGE)
    g.add("multiply", conv(g, "x"), g.constant(2.0))
    assert fold(g)[0].ops == ["nn.conv2d"]


# x * clip(x + 3) / 6  stays in one piece
def test_the_last_step_of_a_hard_swish_is_not_taken_into_the_next_weight() -> None:
    f = Function(x=IMAGE)
    x = f.add("tanh", "x")
    gate = f.add("clip", f.add("add", x, f.constant(3.0)), min=0.0, max=6.0)
    conv(f, f.add("divide", f.add("multiply", x, gate), f.constant(6.0)))
    new, _ = fold(f)
    assert new.ops.count("divide") + new.ops.count("multiply") == 2
    g = Function(x=IMAGE)
    conv(g, g.add("divide", g.add("tanh", "x"), g.constant(6.0)))
    assert fold(g)[0].ops == ["tanh", "nn.conv2d"]


# x * clip(x / 6 + 1/2, 0, 1) * s + t -> conv2d  loses s and t
def test_a_scale_behind_a_hard_swish_is_taken_into_the_next_weight() -> None:
    f = Function(x=IMAGE)
    x = f.add("tanh", "x")
    line = f.add("add", f.add("divide", x, f.constant(6.0)), f.constant(0.5))
    y = f.add("multiply", x, f.add("clip", line, min=0.0, max=1.0))
    scaled = f.add("add", f.add("multiply", y, f.constant(1.5)), f.constant(0.25))
    conv(f, scaled, padding=(0, 0, 0, 0))
    assert fold(f)[0].ops[-3:] == ["multiply", "nn.conv2d", "add"]


def test_a_function_without_maps_is_the_same() -> None:
    f = Function(x=IMAGE)
    f.add("nn.relu", conv(f, "x"))
    new, report = fold(f)
    assert [value for _, value in new.bindings] == [value for _, value in f.bindings]
    assert decisions(report) == []
