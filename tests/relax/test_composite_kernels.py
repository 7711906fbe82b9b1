"""A composite is called as the kernel that is made of it: one grammar, see ``graph/fusion.py``."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from convoy import zoo
from convoy.backend import load
from convoy.graph import reference
from convoy.options import Options
from convoy.relax.fold import fold
from convoy.relax.importer import load as load_model
from convoy.relax.lower import lower
from convoy.relax.partition import partition
from relax.drawn import SHAPES, constants, draw, is_kernel, kernels, some_of
from relax.sketch import const, module, random, weight

ANCHORS = {
    "conv2d": lambda x: op.nn.conv2d(x, weight(4, 4, 3, 3), padding=1),
    "conv1d": lambda x: op.nn.conv1d(x, weight(4, 4, 3), padding=1),
    "matmul": lambda x: op.matmul(x, weight(4, 4)),
}
POOLS = {
    "conv2d": lambda x: op.nn.max_pool2d(x, [3, 3], padding=(1, 1)),
    "conv1d": lambda x: op.nn.avg_pool1d(x, [3], padding=(1, 1)),
}
NORMS = {
    "conv2d": lambda x: op.nn.group_norm(x, weight(4), weight(4), 2, 1, [2, 3]),
    "conv1d": lambda x: op.nn.instance_norm(x, weight(4), weight(4), 1, [2]),
}


def network(anchor, seed, bind, x):
    """The outputs of a random network."""
    values = {name: const(array) for name, array in constants(SHAPES[anchor]).items()}

    def hardsigmoid(y):
        return bind(op.clip(bind(op.add(bind(op.multiply(y, const(1 / 6))), const(0.5))), 0, 1))

    def gelu(y):
        curve = bind(op.erf(bind(op.multiply(y, const(0.5**0.5)))))
        return bind(op.multiply(bind(op.multiply(y, const(0.5))), bind(op.add(curve, const(1.0)))))

    def elu(y):
        below = bind(op.nn.relu(bind(op.subtract(const(1.0), bind(op.exp(y))))))
        return bind(op.add(bind(op.multiply(const(-0.7), below)), bind(op.nn.relu(y))))

    def mish(y):
        late = bind(op.log(bind(op.add(const(1.0), bind(op.exp(y))))))
        return bind(op.multiply(y, bind(op.tanh(late))))

    unary = {
        "anchor": lambda y: bind(ANCHORS[anchor](y)),
        **({"pool": lambda y: bind(POOLS[anchor](y))} if anchor in POOLS else {}),
        **({"norm": lambda y: bind(NORMS[anchor](y))} if anchor in NORMS else {}),
        **{
            name: lambda y, name=name: bind(op.add(y, values[name])) for name in ("bias", "number", "whole")
        },
        "scale": lambda y: bind(op.multiply(y, values["scale"])),
        "relu": lambda y: bind(op.nn.relu(y)),
        "clip": lambda y: bind(op.nn.relu6(y)),
        "sigmoid": lambda y: bind(op.sigmoid(y)),
        "leaky_relu": lambda y: bind(op.nn.leakyrelu(y, 0.1)),
        "silu": lambda y: bind(op.multiply(y, bind(op.sigmoid(y)))),
        "hardswish": lambda y: bind(op.multiply(y, hardsigmoid(y))),
        "hardsigmoid": hardsigmoid,
        "gelu": gelu,
        "elu": elu,
        "mish": mish,
    }
    return draw(seed, x, unary, lambda a, b: bind(op.add(a, b)))


def cut(mod, options=None):
    """The names of a folded module's composites, and its graphs."""
    after = partition(options)(fold()(mod))
    regions = [f for _, f in after.functions_items() if f.attrs and f.attrs.get("Codegen") == "convoy"]
    inner = [b.value for f in regions for b in f.body.blocks[0].bindings]
    names = [str(f.attrs["Composite"]) for f in inner if isinstance(f, relax.Function)]
    return sorted(n.removeprefix("convoy.") for n in names), [lower(f) for f in regions]


@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("seed", range(25))
def test_random_networks(anchor, seed):
    # with all patterns, and again with half of those that were found switched off
    source = module(lambda bind, x: network(anchor, seed, bind, x), SHAPES[anchor])
    disabled: frozenset[str] = frozenset()
    for _ in range(2):
        names, graphs = cut(source, Options(disabled_patterns=disabled))
        assert kernels(graphs, disabled) == list(filter(is_kernel, names))
        disabled = some_of(filter(is_kernel, names), seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "shufflenet", "efficientnet_b0"])
def test_zoo_networks(name):
    names, graphs = cut(load_model(zoo.load(name)))
    assert kernels(graphs) == list(filter(is_kernel, names))


def test_both_sides_of_a_residual_are_activated_in_one_kernel():
    # conv2d + bias -> relu -> add x -> relu  =>  one composite, one kernel
    def make(bind, x):
        y = bind(op.nn.relu(bind(op.add(bind(ANCHORS["conv2d"](x)), weight(1, 4, 1, 1)))))
        return bind(op.nn.relu(bind(op.add(x, y))))

    names, graphs = cut(module(make, SHAPES["conv2d"]))
    assert names == kernels(graphs) == ["conv2d_bias_relu_add_relu"]


def test_a_second_activation_or_an_add_that_broadcasts_is_none_of_the_kernel():
    # conv2d -> relu -> sigmoid; conv2d -> add of a tensor of one channel  =>  the op stays by itself
    def twice(bind, x):
        return bind(op.sigmoid(bind(op.nn.relu(bind(ANCHORS["conv2d"](x))))))

    def broadcast(bind, x):
        return bind(op.add(bind(ANCHORS["conv2d"](x)), bind(op.mean(x, [1], keepdims=True))))

    names, graphs = cut(module(twice, SHAPES["conv2d"]))
    assert (names, kernels(graphs)) == (["conv2d_relu", "sigmoid"], ["conv2d_relu"])
    names, graphs = cut(module(broadcast, SHAPES["conv2d"]))
    assert (names, kernels(graphs)) == (["add", "conv2d", "mean"], ["conv2d"])


def test_a_pool_takes_an_activation_and_nothing_else():
    # max_pool2d -> relu; max_pool2d -> add
    x = SHAPES["conv2d"]
    names, graphs = cut(module(lambda bind, x: bind(op.nn.relu(bind(POOLS["conv2d"](x)))), x))
    assert names == kernels(graphs) == ["max_pool2d_relu"]
    names, graphs = cut(module(lambda bind, x: bind(op.add(bind(POOLS["conv2d"](x)), x)), x))
    assert (names, kernels(graphs)) == (["add", "max_pool2d"], ["max_pool2d"])


@pytest.mark.parametrize(
    ("slopes", "name"), [([0.2] * 4, "conv2d_prelu"), ([0.1, 0.2, 0.3, 0.4], "conv2d")]
)
def test_a_prelu_of_one_slope_is_an_activation(slopes, name):
    def make(bind, x):
        return bind(op.nn.prelu(bind(ANCHORS["conv2d"](x)), const(slopes)))

    names, graphs = cut(module(make, SHAPES["conv2d"]))
    assert kernels(graphs) == list(filter(is_kernel, names)) == [name]


@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("batch", [1, 3])
def test_a_constant_residual_and_both_activations_are_computed(anchor, batch):
    # relu(silu(anchor + bias) + constant), by C
    shape = (batch, *SHAPES[anchor][1:])
    full = (batch if anchor == "matmul" else 1, *shape[1:])

    def make(bind, x):
        y = bind(op.add(bind(ANCHORS[anchor](x)), const(constants(SHAPES[anchor])["bias"])))
        y = bind(op.multiply(y, bind(op.sigmoid(y))))
        return bind(op.nn.relu(bind(op.add(y, weight(*full)))))

    names, (graph,) = cut(module(make, shape))
    assert names == kernels([graph]) == [f"{anchor}_bias_silu_add_relu"]
    x = random(*shape)
    (got,), (expected,) = load(graph)(x), reference.run(graph, [x])
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
