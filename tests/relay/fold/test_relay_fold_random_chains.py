"""Relay: random chains of everything the folds know, before and after, on plain TVM."""

from __future__ import annotations

import numpy as np
import pytest
from relay_fold_modules import assert_same_numbers, const, module, norm, parameters, random
from tvm import relay

from convoy.relay.fold import fold

nn = relay.nn
X = (1, 4, 6, 6)
PER_CHANNEL = [(1, 4, 1, 1), (4, 1, 1), (1,), ()]


class Draft:
    """Draws ops; each reads the newest value, sometimes an older one."""

    def __init__(self, x: relay.Expr, seed: int) -> None:
        self.values, self.rng, self.seed = [x], np.random.default_rng(seed), seed

    def constant(self, low: float, high: float) -> relay.Expr:
        shape = PER_CHANNEL[self.rng.integers(len(PER_CHANNEL))]
        return const(self.rng.uniform(low, high, shape))

    def weight(self, *shape: int) -> relay.Expr:
        return const(random(*shape, seed=int(self.rng.integers(1 << 30))))

    def draw(self) -> None:
        x = self.values[-1 if self.rng.random() < 0.8 else self.rng.integers(len(self.values))]
        padded = {"kernel_size": (3, 3), "channels": 4, "padding": (1, 1)}
        drawn = [
            lambda: nn.conv2d(x, self.weight(4, 4, 3, 3), **padded),
            lambda: nn.conv2d(x, self.weight(4, 1, 3, 3), **padded, groups=4),
            lambda: x * self.constant(0.5, 2),
            lambda: self.constant(-2, 2) * x,
            lambda: x + self.constant(-1, 1),
            lambda: self.constant(-1, 1) - x,
            lambda: x / self.constant(0.5, 2),
            lambda: nn.bias_add(x, self.weight(4)),
            lambda: nn.relu(x),
            lambda: nn.leaky_relu(x, 0.1),
            lambda: nn.max_pool2d(x, (3, 3), padding=(1, 1)),
            lambda: nn.avg_pool2d(x, (3, 3), padding=(1, 1), count_include_pad=True),
            lambda: x + self.values[self.rng.integers(len(self.values))],
            lambda: norm(x, parameters(4, seed=self.seed)),
            lambda: nn.conv2d(
                relay.concatenate([x, self.values[-1]], 1), self.weight(4, 8, 3, 3), **padded
            ),
        ]
        self.values.append(drawn[self.rng.integers(len(drawn))]())


@pytest.mark.parametrize("seed", range(16))
def test_a_random_chain_keeps_its_numbers(seed: int) -> None:
    # eight drawn ops, then a conv2d  =>  fewer ops, the same numbers
    def make(x: relay.Expr) -> relay.Expr:
        draft = Draft(x, seed)
        for _ in range(8):
            draft.draw()
        return nn.conv2d(draft.values[-1], const(random(4, 4, 3, 3)), padding=(1, 1))

    before = module(make, X)
    assert_same_numbers(before, fold()(before), random(*X))
