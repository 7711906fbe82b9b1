"""Loops over the steps of RNN, GRU and LSTM, for one direction, as TVM runs them.

Every function takes what the inputs add to the gates, gx [N, T, gates · H], and the packed weights of the
state::

    r[p, k, w] = Rᵀ[k, p · W + w]      [gates · H / W, H, W]

and gives all outputs y [N, T, H] and the last states [N, H].  States before the first step are [N, H],
or [1, H] of zeros where the model gives none.  A number of steps that is open is a variable.
"""

# mypy: ignore-errors
# What TVMScript parses is Python in its form alone.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T

from convoy.graph.ops import Curve

LANES = 16
"""Floats of a vector; on machines of narrower ones LLVM splits it."""
PANEL = 128
"""Columns of a panel of weights: sums that stay in registers."""


def number_of_steps(steps: Any) -> int | tirx.Var:
    """What a loop is made for: a number, or a variable of its own for an open one."""
    return int(steps) if isinstance(steps, int | tirx.IntImm) else tirx.Var("steps", "int64")


def largest_divisor(number: int, most: int) -> int:
    """The largest power of two up to ``most`` that divides a number."""
    while number % most:
        most //= 2
    return most


def _exp(x: Any) -> Any:
    """e^x for x within ±87, to 2e-7 of it; NaN stays NaN."""
    scaled = T.floor(x * T.float32(1.44269504) + T.float32(0.5))
    rest = x - scaled * T.float32(0.693359375) - scaled * T.float32(-2.12194440e-4)
    power = T.float32(1.9875691500e-4)
    for factor in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        power = power * rest + T.float32(factor)
    power = power * rest * rest + rest + T.float32(1)
    return power * T.reinterpret("float32", T.shift_left(T.Cast("int32", scaled) + 127, 23))


def _bounded(x: Any, bound: float) -> Any:
    low = T.Select(x < T.float32(-bound), T.float32(-bound), x)
    return T.Select(low > T.float32(bound), T.float32(bound), low)


def _at_least(x: Any, least: float) -> Any:
    return T.Select(x < T.float32(least), T.float32(least), x)


def _sigmoid(x: Any) -> Any:
    return T.float32(1) / (T.float32(1) + _exp(_bounded(T.float32(0) - x, 80.0)))


def _tanh(x: Any) -> Any:
    """1 - 2 / (e^2x + 1); near 0, where that cancels, its series."""
    large = T.float32(1) - T.float32(2) / (_exp(_bounded(x * T.float32(2), 80.0)) + T.float32(1))
    square = x * x
    series = T.float32(-17 / 315)
    for factor in (2 / 15, -1 / 3):
        series = series * square + T.float32(factor)
    return T.Select(T.fabs(x) < T.float32(0.1), x + x * square * series, large)


def _activation(curve: Curve) -> Callable[[Any], Any]:
    """What the kinds of ``recurrent.CURVES`` are in TVM."""
    a, b = T.float32(curve.a), T.float32(curve.b)
    return {
        "sigmoid": _sigmoid,
        "tanh": _tanh,
        "relu": lambda x: _at_least(x, 0.0),
        "leaky_relu": lambda x: T.Select(x < T.float32(0), a * x, x),
        "elu": lambda x: T.Select(x < T.float32(0), a * (_exp(_bounded(x, 80.0)) - T.float32(1)), x),
        "hardsigmoid": lambda x: _at_least(-_at_least(-(a * x + b), -1.0), 0.0),
    }[curve.kind]


@dataclass(frozen=True)
class Form:
    """What a loop is made for."""

    steps: int | tirx.Var
    hidden: int
    back: bool
    fed: bool
    """From states of its own for each image."""
    clip: float
    curves: tuple[Curve, ...]
    """``gate``, ``inner`` and ``outer`` of ``graph.ops.Recurrent``."""

    def read(self) -> tuple[Callable[..., Any], ...]:
        """Where step t and the first state of image n are, what goes into a gate, and the activations."""
        at = (lambda t: self.steps - 1 - t) if self.back else (lambda t: t)
        row = (lambda n: n) if self.fed else (lambda n: 0)
        cut = (lambda x: _bounded(x, self.clip)) if self.clip else (lambda x: x)
        return at, row, cut, *map(_activation, self.curves)


@T.inline
def _start(state, given, image, row, hidden, cells):
    """state[image] = given[row]."""
    for q in range(hidden // cells):
        for v in T.vectorized(cells):
            state[image, q * cells + v] = given[row, q * cells + v]


@T.inline
def _blend(h, g, image, hidden, first, cells):
    """h = (1 - z) · g + z · h, of the gates z, r, g."""
    for v in T.vectorized(cells):
        h[image, first + v] = (T.float32(1) - g[first + v]) * g[2 * hidden + first + v] + g[first + v] * h[
            image, first + v
        ]


@T.inline
def _put(y, h, image, step, first, cells):
    """y[image, step] = h[image]."""
    for v in T.vectorized(cells):
        y[image, step, first + v] = h[image, first + v]


@T.inline
def _activate(g, first, cells, function):
    """g[first + …] = function(g[first + …]).

    A function names its argument up to a hundred times, and TVM walks each: so a sum is stored first.
    """
    for v in T.vectorized(cells):
        g[first + v] = function(g[first + v])


@T.inline
def _gate(g, gx, image, step, first, cells, cut, function):
    """g[first + …] = function(g[first + …] + gx[image, step, first + …])."""
    for v in T.vectorized(cells):
        g[first + v] = cut(g[first + v] + gx[image, step, first + v])
    _activate(g, first, cells, function)


@T.inline
def _peeping_gate(g, gx, peep, c, gate, image, step, first, hidden, cells, cut, function):
    """A gate of an LSTM, i, o or f, which sees the cell."""
    for v in T.vectorized(cells):
        g[gate * hidden + first + v] = cut(
            g[gate * hidden + first + v]
            + gx[image, step, gate * hidden + first + v]
            + peep[gate, first + v] * c[image, first + v]
        )
    _activate(g, gate * hidden + first, cells, function)


@T.inline
def _multiply(g, sums, state, r, image, panels, depth, vectors, lanes, first):
    """g[first + …] = state[image] · r, a panel at a time."""
    for p in range(panels):
        for q in T.unroll(vectors):
            for v in T.vectorized(lanes):
                sums[q * lanes + v] = T.float32(0)
        for k in range(depth):
            for q in T.unroll(vectors):
                for v in T.vectorized(lanes):
                    sums[q * lanes + v] = sums[q * lanes + v] + state[image, k] * r[p, k, q * lanes + v]
        for q in T.unroll(vectors):
            for v in T.vectorized(lanes):
                g[first + (p * vectors + q) * lanes + v] = sums[q * lanes + v]


def lstm_loop(form: Form) -> tirx.PrimFunc:
    """i, o, f, c: the gates; c = f · c + i · g, h = o · outer(c).  With weights p [3, H] of peepholes."""
    steps, hidden = form.steps, form.hidden
    width = largest_divisor(4 * hidden, PANEL)
    lanes, cells = min(LANES, width), largest_divisor(hidden, LANES)
    panels, vectors = 4 * hidden // width, width // lanes
    at, row, cut, gate, inner, outer = form.read()

    @T.prim_func(private=True, s_tir=True)
    def loop(
        gx_: T.handle,
        r: T.Buffer((panels, hidden, width), "float32"),
        peep: T.Buffer((3, hidden), "float32"),
        h0_: T.handle,
        c0_: T.handle,
        y_: T.handle,
        h_: T.handle,
        c_: T.handle,
    ):
        T.func_attr({"tirx.noalias": True, "convoy.recurrent": "lstm"})
        N = T.int64()
        M = T.int64()
        gx = T.match_buffer(gx_, (N, steps, 4 * hidden), "float32")
        h0 = T.match_buffer(h0_, (M, hidden), "float32")
        c0 = T.match_buffer(c0_, (M, hidden), "float32")
        y = T.match_buffer(y_, (N, steps, hidden), "float32")
        h = T.match_buffer(h_, (N, hidden), "float32")
        c = T.match_buffer(c_, (N, hidden), "float32")
        for n in T.parallel(N):
            g = T.alloc_buffer((4 * hidden,), "float32")
            sums = T.alloc_buffer((width,), "float32", scope="local")
            _start(h, h0, n, row(n), hidden, cells)
            _start(c, c0, n, row(n), hidden, cells)
            for t in range(steps):
                _multiply(g, sums, h, r, n, panels, hidden, vectors, lanes, 0)
                for q in range(hidden // cells):
                    _peeping_gate(g, gx, peep, c, 0, n, at(t), q * cells, hidden, cells, cut, gate)
                    _peeping_gate(g, gx, peep, c, 2, n, at(t), q * cells, hidden, cells, cut, gate)
                    _gate(g, gx, n, at(t), 3 * hidden + q * cells, cells, cut, inner)
                    for v in T.vectorized(cells):
                        c[n, q * cells + v] = (
                            g[2 * hidden + q * cells + v] * c[n, q * cells + v]
                            + g[q * cells + v] * g[3 * hidden + q * cells + v]
                        )
                    _peeping_gate(g, gx, peep, c, 1, n, at(t), q * cells, hidden, cells, cut, gate)
                    for v in T.vectorized(cells):
                        h[n, q * cells + v] = g[hidden + q * cells + v] * outer(c[n, q * cells + v])
                    _put(y, h, n, at(t), q * cells, cells)

    return loop


def gru_loop(form: Form) -> tirx.PrimFunc:
    """z, r, g: the gates; g = inner(gx + r · (h · R + b)), h = (1 - z) · g + z · h."""
    steps, hidden = form.steps, form.hidden
    width = largest_divisor(3 * hidden, PANEL)
    lanes, cells = min(LANES, width), largest_divisor(hidden, LANES)
    panels, vectors = 3 * hidden // width, width // lanes
    at, row, cut, gate, inner, _ = form.read()

    @T.prim_func(private=True, s_tir=True)
    def loop(
        gx_: T.handle,
        r: T.Buffer((panels, hidden, width), "float32"),
        bias: T.Buffer((hidden,), "float32"),
        h0_: T.handle,
        y_: T.handle,
        h_: T.handle,
    ):
        T.func_attr({"tirx.noalias": True, "convoy.recurrent": "gru"})
        N = T.int64()
        M = T.int64()
        gx = T.match_buffer(gx_, (N, steps, 3 * hidden), "float32")
        h0 = T.match_buffer(h0_, (M, hidden), "float32")
        y = T.match_buffer(y_, (N, steps, hidden), "float32")
        h = T.match_buffer(h_, (N, hidden), "float32")
        for n in T.parallel(N):
            g = T.alloc_buffer((3 * hidden,), "float32")
            sums = T.alloc_buffer((width,), "float32", scope="local")
            _start(h, h0, n, row(n), hidden, cells)
            for t in range(steps):
                _multiply(g, sums, h, r, n, panels, hidden, vectors, lanes, 0)
                for q in range(hidden // cells):
                    _gate(g, gx, n, at(t), q * cells, cells, cut, gate)
                    _gate(g, gx, n, at(t), hidden + q * cells, cells, cut, gate)
                    for v in T.vectorized(cells):
                        g[2 * hidden + q * cells + v] = cut(
                            gx[n, at(t), 2 * hidden + q * cells + v]
                            + g[hidden + q * cells + v]
                            * (g[2 * hidden + q * cells + v] + bias[q * cells + v])
                        )
                    _activate(g, 2 * hidden + q * cells, cells, inner)
                    _blend(h, g, n, hidden, q * cells, cells)
                    _put(y, h, n, at(t), q * cells, cells)

    return loop


def gru_reset_first_loop(form: Form) -> tirx.PrimFunc:
    """z, r, g: the gates; g = inner(gx + (r · h) · R), h = (1 - z) · g + z · h.

    The weights are those of z and r, then those of g.
    """
    steps, hidden = form.steps, form.hidden
    width, inner_width = largest_divisor(2 * hidden, PANEL), largest_divisor(hidden, PANEL)
    lanes, cells = min(LANES, width), largest_divisor(hidden, LANES)
    panels, vectors = 2 * hidden // width, width // lanes
    inner_panels, inner_vectors = hidden // inner_width, inner_width // cells
    at, row, cut, gate, inner, _ = form.read()

    @T.prim_func(private=True, s_tir=True)
    def loop(
        gx_: T.handle,
        r: T.Buffer((panels, hidden, width), "float32"),
        r_inner: T.Buffer((inner_panels, hidden, inner_width), "float32"),
        h0_: T.handle,
        y_: T.handle,
        h_: T.handle,
    ):
        T.func_attr({"tirx.noalias": True, "convoy.recurrent": "gru, reset first"})
        N = T.int64()
        M = T.int64()
        gx = T.match_buffer(gx_, (N, steps, 3 * hidden), "float32")
        h0 = T.match_buffer(h0_, (M, hidden), "float32")
        y = T.match_buffer(y_, (N, steps, hidden), "float32")
        h = T.match_buffer(h_, (N, hidden), "float32")
        for n in T.parallel(N):
            g = T.alloc_buffer((3 * hidden,), "float32")
            kept = T.alloc_buffer((1, hidden), "float32")
            more = T.alloc_buffer((inner_width,), "float32", scope="local")
            sums = T.alloc_buffer((width,), "float32", scope="local")
            _start(h, h0, n, row(n), hidden, cells)
            for t in range(steps):
                _multiply(g, sums, h, r, n, panels, hidden, vectors, lanes, 0)
                for q in range(hidden // cells):
                    _gate(g, gx, n, at(t), q * cells, cells, cut, gate)
                    _gate(g, gx, n, at(t), hidden + q * cells, cells, cut, gate)
                    for v in T.vectorized(cells):
                        kept[0, q * cells + v] = h[n, q * cells + v] * g[hidden + q * cells + v]
                _multiply(g, more, kept, r_inner, 0, inner_panels, hidden, inner_vectors, cells, 2 * hidden)
                for q in range(hidden // cells):
                    _gate(g, gx, n, at(t), 2 * hidden + q * cells, cells, cut, inner)
                    _blend(h, g, n, hidden, q * cells, cells)
                    _put(y, h, n, at(t), q * cells, cells)

    return loop


def rnn_loop(form: Form) -> tirx.PrimFunc:
    """h = inner(gx + h · R)."""
    steps, hidden = form.steps, form.hidden
    width, cells = largest_divisor(hidden, PANEL), largest_divisor(hidden, LANES)
    panels, vectors = hidden // width, width // cells
    at, row, cut, _, inner, _ = form.read()

    @T.prim_func(private=True, s_tir=True)
    def loop(
        gx_: T.handle,
        r: T.Buffer((panels, hidden, width), "float32"),
        h0_: T.handle,
        y_: T.handle,
        h_: T.handle,
    ):
        T.func_attr({"tirx.noalias": True, "convoy.recurrent": "rnn"})
        N = T.int64()
        M = T.int64()
        gx = T.match_buffer(gx_, (N, steps, hidden), "float32")
        h0 = T.match_buffer(h0_, (M, hidden), "float32")
        y = T.match_buffer(y_, (N, steps, hidden), "float32")
        h = T.match_buffer(h_, (N, hidden), "float32")
        for n in T.parallel(N):
            g = T.alloc_buffer((hidden,), "float32")
            sums = T.alloc_buffer((width,), "float32", scope="local")
            _start(h, h0, n, row(n), hidden, cells)
            for t in range(steps):
                _multiply(g, sums, h, r, n, panels, hidden, vectors, cells, 0)
                for q in range(hidden // cells):
                    for v in T.vectorized(cells):
                        g[q * cells + v] = cut(g[q * cells + v] + gx[n, at(t), q * cells + v])
                    for v in T.vectorized(cells):
                        h[n, q * cells + v] = inner(g[q * cells + v])
                    _put(y, h, n, at(t), q * cells, cells)

    return loop
