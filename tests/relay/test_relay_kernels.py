"""A composite of Relay is called as the kernel that is made of it: one grammar, see ``graph/fusion.py``."""

from __future__ import annotations

import pytest
from relay_modules import const, module, weight
from tvm import relay
from tvm.relay import op

from convoy import zoo
from convoy.options import Options
from convoy.relay.dataflow import Dataflow, composite_name, op_name
from convoy.relay.fold import fold
from convoy.relay.lower import lower
from convoy.relay.partition import external_functions, partition
from relax.drawn import SHAPES, constants, draw, is_kernel, kernels, some_of

ANCHORS = {
    "conv2d": lambda x: op.nn.conv2d(x, weight(4, 4, 3, 3), padding=(1, 1)),
    "conv1d": lambda x: op.nn.conv1d(x, weight(4, 4, 3), padding=(1, 1)),
    "matmul": lambda x: op.nn.batch_matmul(x, weight(1, 4, 4)),
}
POOLS = {
    "conv2d": lambda x: op.nn.max_pool2d(x, (3, 3), padding=(1, 1)),
    "conv1d": lambda x: op.nn.avg_pool1d(x, (3,), padding=(1, 1)),
}


def network(anchor, seed, x):
    """The outputs of a random network."""
    values = {name: const(array) for name, array in constants(SHAPES[anchor]).items()}

    def hardsigmoid(y):
        return op.clip(op.add(op.multiply(y, const(1 / 6)), const(0.5)), 0, 1)

    def gelu(y):
        half = op.multiply(y, const(0.5))
        return op.multiply(half, op.add(op.erf(op.multiply(y, const(0.5**0.5))), const(1.0)))

    def elu(y):
        below = op.nn.relu(op.subtract(const(1.0), op.exp(y)))
        return op.add(op.multiply(const(-0.7), below), op.nn.relu(y))

    def mish(y):
        return op.multiply(y, op.tanh(op.log(op.add(op.exp(y), const(1.0)))))

    unary = {
        "anchor": ANCHORS[anchor],
        **({"pool": POOLS[anchor]} if anchor in POOLS else {}),
        **{name: lambda y, name=name: op.add(values[name], y) for name in ("bias", "number", "whole")},
        "scale": lambda y: op.multiply(y, values["scale"]),
        "relu": op.nn.relu,
        "clip": lambda y: op.clip(y, 0, 6),
        "sigmoid": op.sigmoid,
        "leaky_relu": lambda y: op.nn.leaky_relu(y, 0.1),
        "silu": lambda y: op.multiply(y, op.sigmoid(y)),
        "hardswish": lambda y: op.multiply(hardsigmoid(y), y),
        "hardsigmoid": hardsigmoid,
        "gelu": gelu,
        "elu": elu,
        "mish": mish,
    }
    return draw(seed, x, unary, op.add)


def cut(mod, options=None):
    """The names of a folded module's composites and single ops, and its graphs."""
    functions = external_functions(partition(fold()(mod), options)).values()
    nodes = [node for function in functions for node in Dataflow(function.body).nodes]
    names = [name for node in nodes if (name := composite_name(node) or op_name(node))]
    return sorted(name.rpartition(".")[2] for name in names), [lower(function) for function in functions]


@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("seed", range(26))
def test_random_networks(anchor, seed):
    # with all patterns, and again with half of those that were found switched off
    source = module(lambda x: network(anchor, seed, x), SHAPES[anchor])
    disabled: frozenset[str] = frozenset()
    for _ in range(2):
        names, graphs = cut(source, Options(disabled_patterns=disabled))
        assert kernels(graphs, disabled) == list(filter(is_kernel, names))
        disabled = some_of(filter(is_kernel, names), seed)


@pytest.mark.parametrize("name", ["resnet18", "shufflenet"])
def test_zoo_networks(name):
    source, _ = relay.frontend.from_onnx(zoo.load(name), freeze_params=True)
    names, graphs = cut(source)
    assert kernels(graphs) == list(filter(is_kernel, names))


def test_the_second_operand_of_an_add_takes_it_where_the_first_cannot():
    # y = conv2d, read twice; y + conv2d -> relu  =>  the second one's kernel
    def make(x):
        y = ANCHORS["conv2d"](x)
        return [op.nn.relu(op.add(y, ANCHORS["conv2d"](op.nn.relu(x)))), op.sigmoid(y)]

    names, graphs = cut(module(make, SHAPES["conv2d"]))
    assert kernels(graphs) == list(filter(is_kernel, names)) == ["conv2d", "conv2d_add_relu"]


def test_a_pattern_that_is_switched_off_is_no_kernel_of_a_merged_region():
    # dense + bias -> relu without dense_bias_relu  =>  the relu by itself, also behind the graph
    off = frozenset({"convoy.dense_bias_relu"})
    source = module(lambda x: op.nn.relu(op.add(op.nn.dense(x, weight(64, 64)), weight(64))), (4, 64))
    names, graphs = cut(source, Options(disabled_patterns=off))
    assert names == ["dense_bias", "relu"]
    assert kernels(graphs, off) == ["dense_bias"]
    assert kernels(graphs) == ["dense_bias_relu"]
