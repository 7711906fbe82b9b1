"""Attention and what stands around it, in the forms in which exporters write them."""

from __future__ import annotations

import numpy as np

from fuzz.networks.draft import Draft, Unsuitable

MOST_TOKENS = 64
MOST_STEPS = 12
"""Classic TVM writes out the loop of an LSTM, and takes minutes for a long one."""


def draw_attention(d: Draft, x: str) -> None:
    """Queries, keys and values in heads; scores with a scale and masks; softmax; values; heads joined."""
    x = _draw_tokens(d, x)
    _, tokens, width = d.shapes[x]
    heads = d.pick((1, 2, 2, 3, 4))
    depth = d.pick((1, 4, 5, 8, 16, 17))
    q, k, v = _draw_heads(d, x, heads, depth)
    spread = d.pick(("queries", "both", "scores", "scores", "none"))
    if spread in ("queries", "both"):
        q = _scale(d, q, depth**-0.5 if spread == "queries" else depth**-0.25)
        k = _scale(d, k, depth**-0.25) if spread == "both" else k
    if d.chance(0.15):
        q, k = _rotate(d, q), _rotate(d, k)
    y = d.add("MatMul", q, d.add("Transpose", k, perm=[0, 1, 3, 2]))
    if spread == "scores":
        divided = d.chance(0.5)
        factor = d.add_array(np.array(depth**0.5 if divided else depth**-0.5, np.float32))
        y = d.add("Div" if divided else "Mul", y, factor)
    y = _draw_mask(d, y, tokens)
    y = d.add("MatMul", d.add("Softmax", y, axis=d.pick((-1, 3))), v)
    y = d.add("Transpose", y, perm=[0, 2, 1, 3])
    y = d.add("Reshape", y, d.add_numbers(0, 0, -1) if d.chance(0.5) else d.add_numbers(0, tokens, -1))
    if d.chance(0.7):
        y = _project(d, y, width)
        if d.chance(0.6):
            d.add("Add", x, y)


def _draw_tokens(d: Draft, x: str) -> str:
    """Rows of features: x itself, or the pixels of its map."""
    shape = d.expect_rank(x, 3, 4, 4)
    if 0 in shape:
        raise Unsuitable("no element")
    if len(shape) == 4:
        if shape[2] * shape[3] > MOST_TOKENS:
            raise Unsuitable("too many tokens")
        x = d.add("Reshape", x, d.add_numbers(0, shape[1], -1))
        x = d.add("Transpose", x, perm=[0, 2, 1])
    if d.shapes[x][1] > MOST_TOKENS:
        raise Unsuitable("too many tokens")
    return x


def _project(d: Draft, x: str, width: int) -> str:
    k = d.shapes[x][-1]
    y = d.add("MatMul", x, d.constant_like(k, width, scale=k**-0.5))
    return d.add("Add", y, d.constant_like(width, scale=0.3)) if d.chance(0.6) else y


def _draw_heads(d: Draft, x: str, heads: int, depth: int) -> tuple[str, str, str]:
    """Three tensors [batch, heads, tokens, depth]."""
    tokens = d.shapes[x][1]
    if d.chance(0.4):  # one product for all three
        y = d.add("Reshape", _project(d, x, 3 * heads * depth), d.add_numbers(0, tokens, 3, heads, depth))
        y = d.add("Transpose", y, perm=[2, 0, 3, 1, 4])
        if d.chance(0.5):
            return tuple(  # type: ignore[return-value]
                d.add("Gather", y, d.add_array(np.array(i, np.int64)), axis=0) for i in range(3)
            )
        parts = d.add_several("Split", 3, y, d.add_numbers(1, 1, 1), axis=0)
        return tuple(d.add("Squeeze", part, d.add_numbers(0)) for part in parts)  # type: ignore[return-value]
    shared = 1 if d.chance(0.2) else heads  # heads of keys and values
    made = []
    for count in (heads, shared, shared):
        y = d.add("Reshape", _project(d, x, count * depth), d.add_numbers(0, tokens, count, depth))
        made.append(d.add("Transpose", y, perm=[0, 2, 1, 3]))
    return made[0], made[1], made[2]


def _scale(d: Draft, x: str, factor: float) -> str:
    return d.add("Mul", x, d.add_array(np.array(factor, np.float32)))


def _rotate(d: Draft, x: str) -> str:
    """Rotary positions: x · cos + turned(x) · sin, the halves of a row turned."""
    tokens, depth = d.shapes[x][-2:]
    if depth % 2:
        raise Unsuitable("no halves")
    first, second = (
        d.add("Slice", x, d.add_numbers(a), d.add_numbers(b), d.add_numbers(3))
        for a, b in ((0, depth // 2), (depth // 2, depth))
    )
    turned = d.add("Concat", d.add("Neg", second), first, axis=-1)
    cos, sin = (d.add_constant(tokens, depth) for _ in range(2))
    return d.add("Add", d.add("Mul", x, cos), d.add("Mul", turned, sin))


def _draw_mask(d: Draft, scores: str, tokens: int) -> str:
    form = d.below(5)
    if form == 0:
        causal = np.where(np.tri(tokens, dtype=bool), 0, d.pick((-1e4, -1e9, -3e38))).astype(np.float32)
        return d.add("Add", scores, d.add_array(causal))
    if form == 1:  # positions
        return d.add("Add", scores, d.constant_like(*d.pick(((tokens, tokens), (1, 1, tokens, tokens)))))
    if form == 2:
        kept = d.rng.random((1, 1, d.pick((1, tokens)), tokens)) < 0.8
        kept[..., 0] = True
        lowest = d.add_array(np.array(d.pick((-1e9, -3e38)), np.float32))
        return d.add("Where", d.add_array(kept), scores, lowest)
    return scores


def draw_root_mean_square(d: Draft, x: str) -> None:
    """RMS norm, written out."""
    shape = d.shapes[x]
    if len(shape) < 2 or 0 in shape:
        raise Unsuitable("no row")
    square = d.add("Mul", x, x) if d.chance(0.5) else d.add("Pow", x, d.add_array(np.array(2, np.float32)))
    y = d.add("ReduceMean", square, axes=[-1], keepdims=1)
    y = d.add("Sqrt", d.add("Add", y, d.add_array(np.array(1e-3, np.float32))))
    y = d.add("Div", x, y) if d.chance(0.5) else d.add("Mul", x, d.add("Reciprocal", y))
    d.add("Mul", *d.rng.permutation([y, d.constant_like(shape[-1])]))


def draw_sequence(d: Draft, x: str) -> None:
    """LSTM, GRU or RNN over the rows of x."""
    shape = d.expect_rank(x, 3, 4)
    if 0 in shape:
        raise Unsuitable("no element")
    x = d.add("Reshape", x, d.add_numbers(0, shape[1], -1)) if len(shape) == 4 else x
    _, steps, width = d.shapes[x]
    if steps > MOST_STEPS:
        raise Unsuitable("too many steps")
    op, gates = d.pick((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    way = d.pick(("forward", "forward", "reverse", "bidirectional"))
    ways, hidden = 2 if way == "bidirectional" else 1, d.pick((1, 3, 8, 16, 17))
    given = [d.constant_like(ways, gates * hidden, n, scale=n**-0.5) for n in (width, hidden)]
    if d.chance(0.8):
        given.append(d.constant_like(ways, 2 * gates * hidden, scale=0.3))
    attributes: dict[str, object] = {"hidden_size": hidden, "direction": way}
    if op == "GRU":
        attributes["linear_before_reset"] = d.pick((0, 1))
    y = d.add("Transpose", x, perm=[1, 0, 2])  # [steps, batch, width]
    y = d.add(op, y, *given, **attributes)  # [steps, ways, batch, hidden]
    y = d.add("Transpose", y, perm=[2, 0, 1, 3])
    d.add("Reshape", y, d.add_numbers(0, 0, -1))
