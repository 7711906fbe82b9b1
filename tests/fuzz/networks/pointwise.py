"""Elementwise ops: activations, arithmetic with constants in every form of broadcast, residuals."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.networks.draft import Draft, Unsuitable

ACTIVATIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Relu", {}), ("Relu", {}), ("Relu", {}), ("LeakyRelu", {}), ("LeakyRelu", {"alpha": 0.2}),
    ("Elu", {}), ("Elu", {"alpha": 0.5}), ("Selu", {}), ("Celu", {"alpha": 2.0}), ("Sigmoid", {}),
    ("HardSigmoid", {}), ("HardSigmoid", {"alpha": 0.1666667, "beta": 0.5}), ("HardSwish", {}),
    ("Tanh", {}), ("Softplus", {}), ("Softsign", {}), ("Erf", {}), ("Abs", {}), ("Neg", {}), ("Sin", {}),
    ("Cos", {}), ("Identity", {}), ("Dropout", {}), ("Atan", {}), ("Sinh", {}),
)  # fmt: skip


def draw_activation(d: Draft, x: str) -> None:
    form = d.rng.random()
    if form < 0.12:
        draw_clip(d, x)
    elif form < 0.2:
        draw_prelu(d, x)
    elif form < 0.32:
        draw_idiom(d, x)
    else:
        op, attributes = d.pick(ACTIVATIONS)
        if op == "Sinh":  # grows like exp
            x = d.add("Tanh", x)
        d.add(op, x, **attributes)


def draw_clip(d: Draft, x: str) -> None:
    low, high = d.pick(((0.0, 6.0), (-1.0, 1.0), (-0.5, 0.75), (0.0, 1.0)))
    bounds = [d.add_array(np.array(v, np.float32)) for v in (low, high)]
    form = d.below(4)
    d.add("Clip", x, *([bounds[0]] if form == 0 else ["", bounds[1]] if form == 1 else bounds))


def draw_prelu(d: Draft, x: str) -> None:
    shape = d.expect_rank(x, 2, 3, 4, 4)
    slope = d.pick(((1,), (shape[1], *(1,) * (len(shape) - 2)), shape[1:]))
    d.add("PRelu", x, d.add_constant(*slope, scale=0.3))


def draw_idiom(d: Draft, x: str) -> None:
    """Activations that exporters write out."""
    form = d.below(5)
    if form == 0:
        d.add("Mul", *_shuffled(d, x, d.add("Sigmoid", x)))
    elif form == 1:
        d.add("Mul", *_shuffled(d, x, d.add("Tanh", d.add("Softplus", x))))
    elif form == 2:
        six, three, zero = (d.add_array(np.array(v, np.float32)) for v in (6.0, 3.0, 0.0))
        gate = d.add("Clip", d.add("Add", *_shuffled(d, x, three)), zero, six)
        y = d.add("Mul", *_shuffled(d, x, gate))
        d.add("Div", y, six)
    elif form == 3:
        root, one, half = (d.add_array(np.array(v, np.float32)) for v in (2**0.5, 1.0, 0.5))
        y = d.add("Add", *_shuffled(d, d.add("Erf", d.add("Div", x, root)), one))
        d.add("Mul", d.add("Mul", *_shuffled(d, x, y)), half)
    else:
        d.add("Mul", *_shuffled(d, x, d.add("HardSigmoid", x, alpha=1 / 6, beta=0.5)))


def draw_function(d: Draft, x: str) -> None:
    """Functions with a limited domain, on values brought into it."""
    kind = d.pick(("Exp", "Log", "Sqrt", "Reciprocal", "Pow", "square"))
    low, high = (
        d.add_array(np.array(v, np.float32))
        for v in ((-2.0, 2.0) if kind in ("Exp", "square") else (0.25, 4.0))
    )
    y = d.add("Clip", x if kind in ("Exp", "square") else d.add("Abs", x), low, high)
    if kind == "Pow":
        d.add("Pow", y, d.add_array(np.array(d.pick((0.5, 1.5, 2.0, 3.0, -1.0)), np.float32)))
    elif kind == "square":
        d.add(*(("Mul", y, y) if d.chance(0.5) else ("Pow", y, d.add_array(np.array(2.0, np.float32)))))
    else:
        d.add(kind, y)


def draw_arithmetic(d: Draft, x: str) -> None:
    """x and a constant: a scalar, one value a channel, a row, a column, or as large as x."""
    shape = draw_broadcast(d, d.shapes[x])
    kind = d.pick(("Add", "Add", "Sub", "Mul", "Mul", "Div", "Max", "Min"))
    if kind == "Div":
        # away from zero, and of either sign
        c = d.add_array((d.rng.uniform(0.5, 2.0, shape) * d.rng.choice([-1, 1], shape)).astype(np.float32))
        d.add("Div", x, c)
    else:
        d.add(kind, *_shuffled(d, x, d.constant_like(*shape)))


def draw_broadcast(d: Draft, shape: tuple[int, ...]) -> tuple[int, ...]:
    rank = len(shape)
    if rank < 2:
        return d.pick(((), (1,), shape))
    channels = (shape[1], *(1,) * (rank - 2))
    forms: list[tuple[int, ...]] = [
        (),
        (1,),
        channels,
        channels,
        (1, *channels),
        shape[-1:],
        (1, *shape[1:]),
    ]
    if rank > 2:
        forms += [(shape[-2], 1), shape[-2:], shape[1:], (1, 1, *shape[2:]), (1,) * rank]
    if not d.symbolic:
        forms += [shape, (shape[0], *(1,) * (rank - 1))]
    return d.pick(forms)


def draw_residual(d: Draft, x: str) -> None:
    """x and an earlier tensor that broadcasts with it, itself at worst."""
    fitting = [n for n in d.made if _broadcasts(d.shapes[n], d.shapes[x])]
    y = d.pick(fitting)
    kind = d.pick(("Add", "Add", "Add", "Add", "Mul", "Sub", "Max", "Min", "Div"))
    if kind == "Div":
        offset = d.add_array(np.array(1.5, np.float32))
        d.add("Div", x, d.add("Add", d.add("Tanh", y), offset))
    else:
        y = d.add("Tanh", y) if kind == "Mul" else y
        d.add(kind, *((x, y) if kind == "Sub" and x != y else _shuffled(d, x, y)))


def draw_variadic(d: Draft, x: str) -> None:
    fitting = [n for n in d.made if _broadcasts(d.shapes[n], d.shapes[x])]
    d.add(d.pick(("Sum", "Max", "Min", "Mean")), x, *(d.pick(fitting) for _ in range(d.below(3))))


def draw_where(d: Draft, x: str) -> None:
    """A choice by a constant mask."""
    shape = d.shapes[x]
    if not shape:
        raise Unsuitable("a scalar")
    mask = d.add_array(d.rng.random(shape[1:]) < 0.5)
    d.add("Where", mask, x, d.constant_like(*draw_broadcast(d, shape)))


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    same_rank = len(shape) == len(target)
    return same_rank and all(a in (1, b) for a, b in zip(shape, target, strict=True))


def _shuffled(d: Draft, x: str, y: str) -> tuple[str, str]:
    return (y, x) if d.chance(0.3) else (x, y)
