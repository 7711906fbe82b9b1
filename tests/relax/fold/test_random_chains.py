"""Random chains of everything the folds know, before and after, on plain TVM."""

from __future__ import annotations

import numpy as np
import pytest
from fold_modules import assert_same_numbers, const, module, parameters, random
from tvm import relax
from tvm.ir import Expr

from convoy.relax.fold import fold

op = relax.op
nn = relax.op.nn

X = (1, 4, 6, 6)
PER_CHANNEL = [(1, 4, 1, 1), (4, 1, 1), (1,), ()]


class Draft:
    """Draws ops; each reads the newest value, sometimes an older one."""

    def __init__(self, body, x, seed: int) -> None:
        self.body, self.values, self.rng = body, [x], np.random.default_rng(seed)
        self.seed = seed

    def constant(self, low: float, high: float) -> Expr:
        shape = PER_CHANNEL[self.rng.integers(len(PER_CHANNEL))]
        return const(self.rng.uniform(low, high, shape))

    def weight(self, *shape: int) -> Expr:
        return const(random(*shape, seed=int(self.rng.integers(1 << 30))))

    def draw(self) -> None:
        x = self.values[-1 if self.rng.random() < 0.8 else self.rng.integers(len(self.values))]
        drawn = [
            lambda: nn.conv2d(x, self.weight(4, 4, 3, 3), padding=1),
            lambda: nn.conv2d(x, self.weight(4, 1, 3, 3), padding=1, groups=4),
            lambda: op.multiply(x, self.constant(0.5, 2)),
            lambda: op.multiply(self.constant(-2, 2), x),
            lambda: op.add(x, self.constant(-1, 1)),
            lambda: op.subtract(self.constant(-1, 1), x),
            lambda: op.divide(x, self.constant(0.5, 2)),
            lambda: nn.relu(x),
            lambda: nn.leakyrelu(x, 0.1),
            lambda: nn.max_pool2d(x, (3, 3), padding=(1, 1)),
            lambda: nn.avg_pool2d(x, (3, 3), padding=(1, 1), count_include_pad=True),
            lambda: op.add(x, self.values[self.rng.integers(len(self.values))]),
        ]
        which = int(self.rng.integers(len(drawn) + 1))
        if which < len(drawn):
            self.values.append(self.body(drawn[which]()))
        else:
            norm = [const(p) for p in parameters(4, seed=self.seed)]
            self.values.append(self.body.batch_norm(x, norm))


@pytest.mark.parametrize("seed", range(16))
def test_a_random_chain_keeps_its_numbers(seed):
    # eight drawn ops, then a conv2d  =>  fewer ops, the same numbers
    def make(body, x):
        draft = Draft(body, x, seed)
        for _ in range(8):
            draft.draw()
        return body(nn.conv2d(draft.values[-1], const(random(4, 4, 3, 3)), padding=1))

    before = module(make, X)
    assert_same_numbers(before, fold()(before), random(*X))
