"""Relay's quantised ops become ops on floats between quantise and dequantise, and are one region."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay import qnn

from convoy.graph.ops import Conv2d, Dequantize
from convoy.graph.weights import quantize_weights
from convoy.relay.dataflow import Dataflow, op_name
from convoy.relay.fold import fold
from convoy.relay.fold.quantised import raise_quantised
from convoy.relay.lower import lower
from convoy.relay.partition import external_functions, partition
from relay.relay_modules import run_plain

random = np.random.default_rng(5)
X = (1, 4, 8, 8)


def const(value: object, dtype: str = "float32") -> relay.Constant:
    return relay.const(np.asarray(value, dtype))


def zero(value: object) -> relay.Constant:
    return const(value, "int32")


WEIGHT = random.integers(-127, 128, (6, 4, 3, 3)).astype("int8")
EACH = random.uniform(0.01, 0.02, 6).astype("float32")
BIAS = random.integers(-9999, 9999, 6).astype("int32")


def convolution(
    x: relay.Expr, *, bias: str = "nn.bias_add", out: str = "uint8", **given: object
) -> relay.Expr:
    made = qnn.op.conv2d(
        x, const(WEIGHT, "int8"), zero(3), zero(0), const(0.1), const(EACH), kernel_size=(3, 3), channels=6,
        padding=(1, 1), **given,
    )  # fmt: skip
    if bias == "nn.bias_add":
        made = relay.nn.bias_add(made, const(BIAS, "int32"))
    elif bias == "add":
        made = relay.add(made, const(BIAS.reshape(1, -1, 1, 1), "int32"))
    return qnn.op.requantize(
        made, const(np.float32(0.1) * EACH), zero(0), const(1.5), zero(20), axis=1, out_dtype=out
    )


def dense(x: relay.Expr, each: object = 0.02) -> relay.Expr:
    x = relay.nn.batch_flatten(x)
    made = qnn.op.dense(
        x, const(random.integers(-127, 128, (5, 256)), "int8"), zero(3), zero(0), const(0.1), const(each),
        units=5,
    )  # fmt: skip
    return qnn.op.requantize(
        made,
        const(np.float32(0.1) * np.float32(each)),
        zero(0),
        const(2.0),
        zero(20),
        axis=1,
        out_dtype="uint8",
    )


def pair(op: Callable[..., relay.Expr]) -> Callable[[relay.Expr], relay.Expr]:
    numbers = [const(0.1), zero(3), const(0.1), zero(3), const(0.21), zero(4)]
    return lambda x: op(x, relay.reverse(x, 1), *numbers)


def behind(op: Callable[[relay.Expr], relay.Expr]) -> Callable[[relay.Expr], relay.Expr]:
    """An op on the bytes that a convolution makes."""
    return lambda x: qnn.op.dequantize(op(convolution(x)), const(1.5), zero(20))


def mean(x: relay.Expr) -> relay.Expr:
    wide = relay.mean(relay.cast(x, "int32"), [2, 3], True)
    return relay.cast(wide, "uint8")


def products(x: relay.Expr, scale: object = 0.01) -> relay.Expr:
    """Sums of products, int32."""
    return qnn.op.conv2d(
        x, const(WEIGHT, "int8"), zero(3), zero(0), const(0.1), const(scale),
        kernel_size=(3, 3), channels=6, padding=(1, 1),
    )  # fmt: skip


def to_bytes(sums: relay.Expr, scale: object = 0.001, given: object = 0) -> relay.Expr:
    """Bytes of int32 that stand for floats by this scale and zero point."""
    return qnn.op.requantize(
        sums, const(scale), zero(given), const(1.5), zero(90), axis=1, out_dtype="uint8"
    )


def depthwise(x: relay.Expr) -> relay.Expr:
    """Two filters for each channel, channels last, a scale for each of the eight results."""
    each = random.uniform(0.01, 0.02, 8).astype("float32")
    made = qnn.op.conv2d(
        relay.transpose(x, (0, 2, 3, 1)), const(random.integers(-127, 128, (3, 3, 4, 2)), "int8"),
        zero(3), zero(0), const(0.1), const(each), kernel_size=(3, 3), channels=8, groups=4,
        data_layout="NHWC", kernel_layout="HWOI",
    )  # fmt: skip
    scale = np.float32(0.1) * each
    return qnn.op.requantize(made, const(scale), zero(0), const(1.5), zero(90), axis=3, out_dtype="uint8")


def wide_mean(x: relay.Expr) -> relay.Expr:
    """As FakeQuantizationToInteger writes a mean of another scale: int32 of that scale first."""
    wide = qnn.op.requantize(x, const(0.1), zero(3), const(0.08), zero(20), out_dtype="int32")
    return relay.cast(relay.clip(relay.nn.adaptive_avg_pool2d(wide, (2, 2)), 0, 255), "uint8")


CASES: dict[str, Callable[[relay.Expr], relay.Expr]] = {
    "conv2d": convolution,
    "conv2d, bias as an add": lambda x: convolution(x, bias="add"),
    "conv2d without bias, to signed bytes": lambda x: convolution(x, bias="", out="int8"),
    "dense": dense,
    "dense, a scale a channel": lambda x: dense(x, random.uniform(0.01, 0.02, 5)),
    "add": pair(qnn.op.add),
    "subtract": pair(qnn.op.subtract),
    "mul": pair(qnn.op.mul),
    "requantize": lambda x: qnn.op.requantize(
        x, const(0.1), zero(3), const(0.25), zero(7), out_dtype="uint8"
    ),
    "concatenate": lambda x: qnn.op.concatenate(
        relay.Tuple([x, x]), relay.Tuple([const(0.1), const(0.2)]), relay.Tuple([zero(3), zero(9)]),
        const(0.25), zero(7), 1,
    ),
    "quantize and dequantize": lambda x: qnn.op.dequantize(
        qnn.op.quantize(qnn.op.dequantize(x, const(0.1), zero(3)), const(0.3), zero(9), out_dtype="uint8"),
        const(0.3), zero(9),
    ),
    "max_pool2d": behind(lambda x: relay.nn.max_pool2d(x, (2, 2), (2, 2))),
    "clip": behind(lambda x: relay.clip(x, 20, 200)),
    "maximum": behind(lambda x: relay.maximum(x, const(20, "uint8"))),
    "pad": behind(lambda x: relay.nn.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), 20)),
    "reshape": behind(lambda x: relay.reshape(x, (1, 6, 64))),
    "transpose": behind(lambda x: relay.transpose(x, (0, 2, 3, 1))),
    "mean": behind(mean),
    "depthwise of two filters a channel, channels last": depthwise,
    "sum with a constant": lambda x: qnn.op.add(
        x, const(np.full((4, 1, 1), 9), "uint8"), const(0.1), zero(3), const(0.2), zero(5),
        const(0.3), zero(4),
    ),
    "bias before the sums": lambda x: to_bytes(
        relay.add(const(BIAS.reshape(6, 1, 1), "int32"), products(x))
    ),
    "sum of two convolutions": lambda x: to_bytes(relay.add(products(x), products(x))),
    "difference of sums, a scale a channel": lambda x: to_bytes(
        relay.subtract(products(x, EACH), products(x, EACH)), np.float32(0.1) * EACH
    ),
    "sums by another scale": lambda x: to_bytes(products(x), 0.0017),
    "sums by another zero point": lambda x: to_bytes(products(x), 0.001, 77),
    "sums by a scale a channel": lambda x: to_bytes(products(x), np.float32(0.1) * EACH, 5),
    "mean of int32": wide_mean,
    "mean that counts zeros around a map, which stand for 0": lambda x: relay.cast(
        relay.nn.avg_pool2d(
            relay.cast(qnn.op.requantize(
                x, const(0.1), zero(3), const(0.2), zero(0), out_dtype="uint8"
            ), "int32"),
            (3, 3), padding=(1, 1), count_include_pad=True,
        ), "uint8",
    ),
}  # fmt: skip


def module(make: Callable[[relay.Expr], relay.Expr]) -> tvm.IRModule:
    x = relay.var("x0", shape=X, dtype="uint8")
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], make(x))))


def compute(mod: tvm.IRModule, x: np.ndarray) -> list[np.ndarray]:
    """What TVM computes, its quantised ops written out in others."""
    return run_plain(qnn.transform.CanonicalizeOps()(relay.transform.InferType()(mod)), x)


def ops(mod: tvm.IRModule) -> Counter[str]:
    return Counter(op_name(call) for call in Dataflow(mod["main"].body).calls)


@pytest.mark.parametrize("name", CASES)
def test_no_op_on_integers_is_left(name: str) -> None:
    mod = module(CASES[name])
    raised = tvm.IRModule.from_expr(raise_quantised(mod["main"]))
    raised = relay.transform.InferType()(raised)
    assert {op for op in ops(raised) if op.startswith("qnn.")} <= {"qnn.quantize", "qnn.dequantize"}
    x = random.integers(0, 256, X).astype("uint8")
    (found,), (wanted,) = compute(raised, x), compute(mod, x)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    unit = 1 if found.dtype.kind in "iu" else 1.5
    assert np.abs(found.astype(np.float64) - wanted).max() <= unit * 1.001
    twice = "mean" in name or name in (
        "add",
        "subtract",
        "sum with a constant",
    )  # TVM rounds what it adds, too, and what it divides down
    if found.size >= 64:  # six means say nothing of a share: it would hang on the order of the tests
        assert (found != wanted).mean() < (0.5 if twice else 0.02)


@pytest.mark.parametrize("name", ["add", "subtract", "mul"])
def test_a_sum_of_bytes_is_rounded_once(name: str) -> None:
    x = random.integers(0, 256, X).astype("uint8")
    raised = tvm.IRModule.from_expr(raise_quantised(module(CASES[name])["main"]))
    (found,) = compute(raised, x)
    number = ((x.astype(np.int64) - 3) * np.float32(0.1)).astype(np.float64)
    exact = getattr(np, {"mul": "multiply"}.get(name, name))(number, number[:, ::-1]) / np.float32(0.21) + 4
    assert np.abs(found - np.clip(exact, 0, 255)).max() < 0.5001


def test_a_network_of_integers_is_one_region() -> None:
    def make(x: relay.Expr) -> relay.Expr:
        y = relay.nn.max_pool2d(relay.clip(convolution(x), 20, 255), (2, 2), (2, 2))
        y = qnn.op.add(y, y, const(1.5), zero(20), const(1.5), zero(20), const(3.0), zero(9))
        return qnn.op.dequantize(y, const(3.0), zero(9))

    mod = partition(fold()(module(make)))
    assert not ops(mod) - Counter()
    (function,) = external_functions(mod).values()
    graph = lower(function)
    assert [graph.dtype(name) for name in graph.inputs] == ["uint8"]
    made = quantize_weights(graph)
    (conv,) = [node for node in made.nodes if isinstance(node, Conv2d)]
    weight = made.producer[conv.inputs[1]]
    assert isinstance(weight, Dequantize)
    np.testing.assert_array_equal(np.abs(made.constants[weight.inputs[0]]), np.abs(WEIGHT))


def test_what_fake_quantization_gave_is_the_network_it_was() -> None:
    def make(x: relay.Expr) -> relay.Expr:
        y = qnn.op.dequantize(x, const(0.1), zero(3))
        w = qnn.op.dequantize(const(WEIGHT, "int8"), const(EACH), zero(0), axis=0)
        y = relay.nn.relu(relay.nn.conv2d(y, w, kernel_size=(3, 3), channels=6, padding=(1, 1)))
        y = qnn.op.quantize(y, const(1.5), zero(20), out_dtype="uint8")
        y = relay.nn.max_pool2d(qnn.op.dequantize(y, const(1.5), zero(20)), (2, 2), (2, 2))
        y = qnn.op.quantize(y, const(1.5), zero(20), out_dtype="uint8")
        return qnn.op.dequantize(y, const(1.5), zero(20))

    plain = module(make)
    integers = relay.transform.FakeQuantizationToInteger()(plain)
    assert ops(integers)["qnn.conv2d"] == 1
    x = random.integers(0, 256, X).astype("uint8")
    raised = fold()(integers)
    assert {op for op in ops(raised) if op.startswith("qnn.")} <= {"qnn.quantize", "qnn.dequantize"}
    np.testing.assert_array_equal(compute(raised, x)[0], compute(fold()(plain), x)[0])


def test_sums_that_are_read_as_integers_stay() -> None:
    def make(x: relay.Expr) -> relay.Expr:
        return qnn.op.conv2d(
            x,
            const(WEIGHT, "int8"),
            zero(3),
            zero(0),
            const(0.1),
            const(EACH),
            kernel_size=(3, 3),
            channels=6,
        )

    mod = module(make)
    assert raise_quantised(mod["main"]).same_as(mod["main"])


def uncounted(x: relay.Expr, *, counts: bool) -> relay.Expr:
    wide = relay.cast(convolution(x), "int32")
    made = relay.nn.avg_pool2d(wide, (3, 3), padding=(1, 1), count_include_pad=counts)
    return relay.cast(made, "uint8")


@pytest.mark.parametrize("counts", [True, False])
def test_a_mean_that_counts_integers_around_a_map_stays(counts: bool) -> None:
    # zeros around it stand for -20 steps, and not for 0
    mod = module(lambda x: uncounted(x, counts=counts))
    raised = relay.transform.InferType()(tvm.IRModule.from_expr(raise_quantised(mod["main"])))
    x = random.integers(0, 256, X).astype("uint8")
    (found,), (wanted,) = compute(raised, x), compute(mod, x)
    assert (ops(raised)["cast"] == 2) is counts
    assert np.abs(found.astype(int) - wanted).max() <= (0 if counts else 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: to_bytes(relay.add(products(x), const(np.ones((1, 1, 1, 1, 1)), "int32"))),
        lambda x: to_bytes(relay.add(products(x), products(x, 0.02))),
        lambda x: to_bytes(relay.subtract(const(BIAS.reshape(6, 1, 1), "int32"), products(x))),
        lambda x: to_bytes(relay.add(products(x), relay.cast(relay.max(x, 1, keepdims=True), "int32"))),
    ],
    ids=["more axes", "another scale", "taken from a constant", "integers of no scale"],
)
def test_what_is_no_sum_of_one_scale_stays(make: Callable[[relay.Expr], relay.Expr]) -> None:
    mod = module(make)
    assert ops(tvm.IRModule.from_expr(raise_quantised(mod["main"])))["qnn.requantize"] == 1
