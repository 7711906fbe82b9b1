"""3-D convolutions and pools through the Relay door, against Relay itself."""

from __future__ import annotations

import numpy as np
import pytest
from relay_modules import Cut, close, compare, const, module, random, run, run_plain, weight
from tvm import relay
from tvm.relay import op

SHAPE = (2, 4, 5, 7, 6)


def conv(x, out: int, channels: int, *kernel: int, **given):
    return op.nn.conv3d(x, weight(out, channels, *kernel), kernel_size=kernel, channels=out, **given)


NETWORKS = {
    "conv, bias, relu, pool": lambda x: op.nn.max_pool3d(
        op.nn.relu(op.add(conv(x, 6, 4, 3, 3, 3, padding=(1, 1, 1)), const(np.ones((6, 1, 1, 1))))),
        (2, 2, 2), strides=(2, 2, 2),
    ),
    "strided, then average": lambda x: op.nn.avg_pool3d(
        conv(x, 6, 4, 3, 3, 3, padding=(1, 1, 1), strides=(2, 1, 2)), (2, 2, 2), padding=(1, 0, 0),
    ),
    "grouped": lambda x: conv(x, 6, 2, 3, 3, 3, padding=(1, 1, 1), groups=2),
    "transposed": lambda x: op.nn.relu(
        op.nn.conv3d_transpose(
            x, weight(4, 5, 2, 2, 2), kernel_size=(2, 2, 2), channels=5, strides=(2, 2, 2),
        )
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_of_volumes_agrees(name: str) -> None:
    cut = Cut(NETWORKS[name], SHAPE)
    assert not cut.reasons
    compare(cut, random(*SHAPE))


def test_it_is_built_and_run() -> None:
    mod, x = module(NETWORKS["conv, bias, relu, pool"], SHAPE), random(*SHAPE)
    built = relay.build(mod, target="convoy")
    close(run(built, x), run_plain(mod, x))


def test_a_depth_of_padding_alone_is_left_with_a_reason() -> None:
    cut = Cut(lambda x: conv(x, 6, 4, 3, 1, 1, padding=(3, 0, 0)), SHAPE)
    assert cut.reasons == ["expected data at every depth, got none at depth 0"]
