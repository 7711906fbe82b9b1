"""Batch norms in every form, and the other normalizations."""

from __future__ import annotations

import numpy as np

from fuzz.networks.draft import Draft, Unsuitable

MASKS = ("zero", "all zero", "negative", "plain", "plain", "plain", "plain", "one")


def draw_batch_norm(d: Draft, x: str) -> None:
    """One to three batch norms in a row, as the op, or now and then written out."""
    d.expect_rank(x, 2, 3, 4, 4, 5)
    for _ in range(d.pick((1, 1, 1, 1, 2, 3))):
        x = draw_written_out(d, x) if d.chance(0.15) else draw_op(d, x)


def draw_parameters(d: Draft, channels: int) -> tuple[np.ndarray, ...]:
    """Scale, shift, mean, variance and epsilon of a batch norm: tame, but with what breaks foldings."""
    scale = d.rng.uniform(0.5, 1.5, channels)
    form = d.pick(MASKS)
    if form in ("zero", "negative"):
        chosen = d.rng.random(channels) < 0.4
        scale = np.where(chosen, 0.0 if form == "zero" else -scale, scale)
    elif form in ("all zero", "one"):
        scale = np.full(channels, 0.0 if form == "all zero" else 1.0)
    shift = d.rng.standard_normal(channels) * d.pick((0.0, 1.0, 1.0, 1.0))
    mean = d.rng.standard_normal(channels) * d.pick((0.0, 0.3, 0.3, 1.0))
    variance = d.rng.uniform(0.3, 2.0, channels)
    epsilon = d.pick((1e-5, 1e-5, 1e-5, 1e-3, 1e-7, 0.1))
    if d.chance(0.1):  # tiny: as the channels that training left dead
        tiny = d.rng.random(channels) < 0.5
        small = 10.0 ** -d.pick((4, 6, 8, 12))
        variance = np.where(tiny, small, variance)
        scale = np.where(tiny, scale * np.sqrt(small + epsilon), scale)
    single = (a.astype(np.float32) for a in (scale, shift, mean, variance))
    return (*single, np.float32(epsilon))


def draw_op(d: Draft, x: str) -> str:
    *parameters, epsilon = draw_parameters(d, d.shapes[x][1])
    attributes = {} if epsilon == np.float32(1e-5) and d.chance(0.5) else {"epsilon": float(epsilon)}
    return d.add("BatchNormalization", x, *map(d.add_array, parameters), **attributes)


def draw_written_out(d: Draft, x: str) -> str:
    """(x - mean) / sqrt(variance + epsilon) * scale + shift, with the constants as [C, 1, 1]."""
    scale, shift, mean, variance, epsilon = draw_parameters(d, d.shapes[x][1])
    spread = (-1, *(1,) * (d.rank(x) - 2))
    as_constant = [
        d.add_array(a.reshape(spread)) for a in (mean, np.sqrt(variance + epsilon), scale, shift)
    ]
    y = d.add("Sub", x, as_constant[0])
    y = d.add("Div", y, as_constant[1])
    y = d.add("Mul", *_either_way(d, y, as_constant[2]))
    return d.add("Add", *_either_way(d, y, as_constant[3]))


def _either_way(d: Draft, x: str, c: str) -> tuple[str, str]:
    return (c, x) if d.chance(0.3) else (x, c)


def draw_other_norm(d: Draft, x: str) -> None:
    """Instance, layer and local response normalization."""
    shape = d.expect_rank(x, 2, 3, 4, 4)
    if 0 in shape:
        raise Unsuitable("no element")
    form = d.below(3)
    if form == 0 and len(shape) > 2:
        c = shape[1]
        scale, shift = d.add_constant(c, scale=0.3, offset=1.0), d.add_constant(c)
        d.add("InstanceNormalization", x, scale, shift, epsilon=d.pick((1e-5, 1e-3)))
    elif form == 1 and d.opset >= 17:
        axis = int(d.rng.integers(1, len(shape)))
        scale, shift = (d.add_constant(*shape[axis:], scale=0.3, offset=o) for o in (1.0, 0.0))
        d.add("LayerNormalization", x, scale, shift, axis=axis - len(shape) * d.chance(0.5))
    elif form == 2 and len(shape) == 4:
        attributes = {"alpha": 0.1, "beta": 0.75, "bias": 1.0} if d.chance(0.5) else {}
        d.add("LRN", x, size=d.pick((1, 3, 5)), **attributes)
    else:
        raise Unsuitable("no such norm")
