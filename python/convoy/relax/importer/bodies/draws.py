"""Ops that draw at random, by numbers that are uniform."""

from __future__ import annotations

from convoy.relax.importer.bodies.call import Call


def bernoulli(call: Call) -> str | None:
    """A 1 as likely as the input says, else a 0; ONNX's own body has these the other way round."""
    kind = call.attribute("dtype", None)
    as_asked = "CastLike (truth, x)" if kind is None else f"Cast <to = {kind}> (truth)"
    return f"""(x) => (y) {{
        uniform = RandomUniformLike <dtype = 1{_seed(call)}> (x)
        chance = Cast <to = 1> (x)
        truth = Less (uniform, chance)
        y = {as_asked}
    }}"""


def multinomial(call: Call) -> str | None:
    """[batch, sample_size] of classes, as likely as the logarithms [batch, classes] say.

    A class is where a uniform number falls on the sums of the chances.
    """
    count = call.attribute("sample_size", 1)
    if count < 1:
        return None
    return f"""(x) => (y) {{
        last = Constant <value_ints = [-1]> ()
        inner = Constant <value_ints = [1]> ()
        axis = Constant <value_int = 1> ()
        floats = Cast <to = 1> (x)
        chances = Softmax <axis = 1> (floats)
        sums = CumSum (chances, axis)
        batch = Shape <start = 0, end = 1> (x)
        count = Constant <value_ints = [{count}]> ()
        shape = Concat <axis = 0> (batch, count)
        places = ConstantOfShape <value = float[1] {{0}}> (shape)
        uniform = RandomUniformLike <dtype = 1{_seed(call)}> (places)
        end = Constant <value_ints = [9223372036854775807]> ()
        whole = Slice (sums, last, end, inner)
        fallen = Mul (uniform, whole)
        across = Unsqueeze (fallen, last)
        row = Unsqueeze (sums, inner)
        past = LessOrEqual (row, across)
        each = Cast <to = 7> (past)
        number = ReduceSum <keepdims = 0> (each, last)
        y = Cast <to = {call.attribute("dtype", 6)}> (number)
    }}"""


def _seed(call: Call) -> str:
    seed = call.attribute("seed", None)
    return "" if seed is None else f", seed = {float(seed)!r}"
