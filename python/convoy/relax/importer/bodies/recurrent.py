"""RNN, GRU and LSTM, written out step by step, or as a Scan where the steps are many or open.

The products with the inputs are one for all steps.  What is left for a step is the product with the state
before it, and the gates.  Images are in front throughout, as Convoy's regions have them::

    gx = x · Wᵀ + bias          [N, T, gates · H]
    g  = gx[:, t] + h · Rᵀ      [N, gates · H]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from convoy.relax.importer.bodies.call import Call

MOST_NODES = 2_000
"""Nodes of one op written out, at most; a longer sequence is a Scan."""
NODES_A_STEP = 32

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DEFAULTS = {"RNN": ["tanh"], "GRU": ["sigmoid", "tanh"], "LSTM": ["sigmoid", "tanh", "tanh"]}
"""The activations of one direction, where a node names none."""
DIRECTIONS = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
"""For each direction of a node, whether it is backward."""
_PARAMETERS: dict[str, tuple[float | None, float | None]] = {
    "relu": (None, None),
    "tanh": (None, None),
    "sigmoid": (None, None),
    "softsign": (None, None),
    "softplus": (None, None),
    "leakyrelu": (0.01, None),
    "thresholdedrelu": (1.0, None),
    "elu": (1.0, None),
    "hardsigmoid": (0.2, 0.5),
    "scaledtanh": (1.0, 1.0),
    "affine": (1.0, 0.0),
}
"""Activations, and what alpha and beta of each are where the node says nothing; None: it has none."""
_OPS = {
    "relu": "Relu",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "softsign": "Softsign",
    "softplus": "Softplus",
    "leakyrelu": "LeakyRelu",
    "thresholdedrelu": "ThresholdedRelu",
    "elu": "Elu",
    "hardsigmoid": "HardSigmoid",
}


class Activation(NamedTuple):
    """An activation of ONNX's; None where it has no such parameter."""

    kind: str
    alpha: float | None
    beta: float | None


def write_recurrent(call: Call) -> str | None:
    """The body of RNN, GRU or LSTM; None for an activation that ONNX does not name."""
    layout = call.attribute("layout", 0)
    x, weights = call.shape_with_open(0), call.shape(1)
    if x is None or len(x) != 3 or weights is None or len(weights) != 3:
        return None
    op = call.node.op_type
    steps, hidden = x[1 if layout else 0], weights[1] // _GATES[op]
    directions = DIRECTIONS.get(call.attribute("direction", "forward"), [False])
    given = (call.attribute(f"activation{name}", None) for name in ("s", "_alpha", "_beta"))
    activations = read_activations(op, len(directions), *given)
    if (steps is not None and steps < 1) or activations is None or weights[0] != len(directions):
        return None
    if steps is not None and steps * len(directions) * NODES_A_STEP > MOST_NODES:
        steps = None
    return _Body(call, steps, hidden, directions, activations, bool(layout)).write()


def read_activations(
    op: str,
    directions: int,
    given: Sequence[str | bytes] | None,
    alpha: Iterable[float] | None,
    beta: Iterable[float] | None,
) -> list[list[Activation]] | None:
    """The activations of each direction, of a node's attributes; None for one that ONNX does not name."""
    defaults = DEFAULTS[op]
    names = [(n.decode() if isinstance(n, bytes) else n).lower() for n in given or defaults * directions]
    if len(names) != len(defaults) * directions or any(n not in _PARAMETERS for n in names):
        return None
    alphas, betas = iter(alpha or ()), iter(beta or ())
    found = []
    for name in names:
        a, b = _PARAMETERS[name]
        numbers = None if a is None else next(alphas, a), None if b is None else next(betas, b)
        found.append(Activation(name, *numbers))
    each = len(defaults)
    return [found[i * each : (i + 1) * each] for i in range(directions)]


@dataclass
class _Body:
    call: Call
    steps: int | None
    """None: they are a Scan's, which counts them."""
    hidden: int
    directions: list[bool]
    activations: list[list[Activation]]
    batch_first: bool
    lines: list[str] = field(default_factory=list)
    made: int = 0

    def write(self) -> str:
        call, count = self.call, len(self.directions)
        given = ("x", "w", "r", "b", "lengths", "h0", "c0", "p")[: len(call.node.input)]
        self.put("images", "x" if self.batch_first else "Transpose <perm = [1, 0, 2]> (x)")
        if self.steps is None or call.has(4):
            self.put_counts()
        if call.has(4):
            self.put_lengths()
        runs = [self.run(d, back) for d, back in enumerate(self.directions)]
        rows, states = zip(*runs, strict=True)
        self.put("rows", f"Concat <axis = -1> ({', '.join(rows)})")
        # a 0 is the size that is there
        self.lines.append(f"shape = Constant <value_ints = [0, 0, {count}, {self.hidden}]> ()")
        self.put("apart", "Reshape (rows, shape)")
        self.put("y", "apart" if self.batch_first else "Transpose <perm = [1, 2, 0, 3]> (apart)")
        for i, name in enumerate(("yh", "yc")[: len(states[0])]):
            axis = 1 if self.batch_first else 0
            wide = [self.new(f"Unsqueeze ({state[i]}, {'one' if axis else 'zero'})") for state in states]
            self.put(name, f"Concat <axis = {axis}> ({', '.join(wide)})")
        outputs = ("y", "yh", "yc")[: len(call.node.output)]
        constants = """one = Constant <value_ints = [1]> ()
            zero = Constant <value_ints = [0]> ()
            unit = Constant <value = float {1}> ()
            unit_like = CastLike (unit, x)"""
        body = "\n".join((constants, *self.lines))
        return f"({', '.join(given)}) => ({', '.join(outputs)}) {{ {body} }}"

    def put(self, name: str, expression: str) -> str:
        """Make a tensor of this name."""
        self.lines.append(f"{name} = {expression if '(' in expression else f'Identity ({expression})'}")
        return name

    def put_lengths(self) -> None:
        """The lengths [N, 1]; to take one of the numbers up to the steps checks that it is one."""
        after = self.new("Add (count, next)")
        places = self.new(f"Range (first, {after}, next)")
        long = self.new("Cast <to = 7> (lengths)")
        outside = self.new(f"Less ({long}, first)")
        given = self.new(f"Where ({outside}, {after}, {long})")
        checked = self.new(f"Gather <axis = 0> ({places}, {given})")
        self.put("length", f"Unsqueeze ({checked}, one)")
        self.put("some", "Less (first, length)")

    def put_counts(self) -> None:
        """How many steps there are, and the numbers that are counted with."""
        self.put("first", "Constant <value_int = 0> ()")
        self.put("next", "Constant <value_int = 1> ()")
        self.put("sizes", "Shape (images)")
        known = f"Constant <value_int = {self.steps}> ()"
        self.put("count", "Gather <axis = 0> (sizes, next)" if self.steps is None else known)

    def new(self, expression: str) -> str:
        """Make a tensor of a name of its own."""
        self.made += 1
        return self.put(f"v{self.made}", expression)

    def part(self, name: str, begin: int, end: int, axis: int = -1) -> str:
        """x[begin:end] along an axis."""
        bounds = [self.new(f"Constant <value_ints = [{n}]> ()") for n in (begin, end, axis)]
        return self.new(f"Slice ({name}, {', '.join(bounds)})")

    def run(self, direction: int, back: bool) -> tuple[str, tuple[str, ...]]:
        """One direction: all its outputs [N, T, H], and its last states [N, H]."""
        call, op = self.call, self.call.node.op_type
        gates, h = _GATES[op], self.hidden
        at = self.new(f"Constant <value_int = {direction}> ()")
        own = {
            name: self.new(f"Gather <axis = 0> ({name}, {at})")
            for index, name in ((1, "w"), (2, "r"), (3, "b"), (7, "p"))
            if call.has(index)
        }
        for name in ("w", "r"):
            own[name] = self.new(f"Transpose <perm = [1, 0]> ({own[name]})")
        product = self.new(f"MatMul (images, {own['w']})")
        apart = op == "GRU" and bool(call.attribute("linear_before_reset", 0))
        if "b" in own:
            ours, theirs = self.part(own["b"], 0, gates * h), self.part(own["b"], gates * h, 2 * gates * h)
            if apart:  # the reset gate multiplies the state's part of the last gate with its bias
                own["rb"] = self.part(theirs, 2 * h, 3 * h)
                none = self.new(f"Sub ({own['rb']}, {own['rb']})")
                theirs = self.new(f"Concat <axis = 0> ({self.part(theirs, 0, 2 * h)}, {none})")
            product = self.new(f"Add ({product}, {self.new(f'Add ({ours}, {theirs})')})")
        states = tuple(
            self.new(f"Gather <axis = {1 if self.batch_first else 0}> ({name}, {at})")
            if call.has(index)
            else ""
            for index, name in ((5, "h0"), (6, "c0"))[: 2 if op == "LSTM" else 1]
        )
        activations = [self.activation(a) for a in self.activations[direction]]
        step = {"RNN": self.step_rnn, "GRU": self.step_gru, "LSTM": self.step_lstm}[op]
        rows = [""] * (self.steps or 0)
        for t in reversed(range(len(rows))) if back else range(len(rows)):
            at = self.new(f"Constant <value_int = {t}> ()")
            after = step(self.new(f"Gather <axis = 1> ({product}, {at})"), states, own, activations)
            states, row = self.keep(at, states, after)
            rows[t] = self.new(f"Unsqueeze ({row}, one)")
        if rows:
            made = self.new(f"Concat <axis = 1> ({', '.join(rows)})")
        else:
            made, states = self.scan(
                product, states, lambda x, before: step(x, before, own, activations), back=back
            )
        if call.has(4):
            none = self.new("Sub (unit_like, unit_like)")
            states = tuple(self.new(f"Where (some, {state}, {none})") for state in states)
        return made, states

    def scan(
        self,
        product: str,
        given: tuple[str, ...],
        step: Callable[[str, tuple[str, ...]], tuple[str, ...]],
        *,
        back: bool,
    ) -> tuple[str, tuple[str, ...]]:
        """All steps of a direction as a Scan: its outputs [N, T, H], and its last states [N, H]."""
        first = self.new("Gather <axis = 0> (sizes, zero)")
        width = self.new(f"Constant <value_ints = [{self.hidden}]> ()")
        shape = self.new(f"Concat <axis = 0> ({first}, {width})")
        zeros = self.new(f"CastLike ({self.new(f'ConstantOfShape ({shape})')}, x)")
        places = self.new("Range (first, count, next)")
        outside, self.lines = self.lines, []
        self.made += 1
        name, kind = f"s{self.made}", self.call.dtype_name(0)
        before = tuple(f"{name}_before{i}" for i in range(len(given)))
        x, at = f"{name}_x", f"{name}_at"
        after, row = self.keep(at, before, step(x, before))
        # each result of a graph has a name of its own
        results = [self.new(f"Identity ({made})") for made in (*after, row)]
        body, self.lines = "\n".join(self.lines), outside
        wide = f"{kind}[?, {self.hidden}]"
        inputs = [*(f"{wide} {state}" for state in before), f"{kind}[?, ?] {x}", f"int64[] {at}"]
        attributes = (
            f"num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [{back:d}, {back:d}], "
            f"scan_output_axes = [1], scan_output_directions = [{back:d}], body = {name} "
            f"({', '.join(inputs)}) => ({', '.join(f'{wide} {made}' for made in results)}) {{ {body} }}"
        )
        states = tuple(f"{name}_last{i}" for i in range(len(given)))
        fed = [*(state or zeros for state in given), product, places]
        self.lines.append(f"{', '.join((*states, name))} = Scan <{attributes}> ({', '.join(fed)})")
        return name, states

    def keep(self, at: str, before: tuple[str, ...], after: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
        """The states and the output of a step: behind the end of a sequence nothing changes, and y is 0."""
        if not self.call.has(4):
            return after, after[0]
        inside = self.new(f"Less ({at}, length)")
        none = self.new("Sub (unit_like, unit_like)")
        states = tuple(
            self.new(f"Where ({inside}, {new}, {old or none})")
            for old, new in zip(before, after, strict=True)
        )
        return states, self.new(f"Where ({inside}, {after[0]}, {none})")

    def activation(self, of: Activation) -> _Apply:
        return _Apply(self, of)

    def clipped(self, x: str) -> str:
        bound = self.call.attribute("clip", 0.0)
        if not bound:
            return x
        low, high = (
            self.new(f"CastLike ({self.new(f'Constant <value = float {{{n!r}}}> ()')}, x)")
            for n in (-bound, bound)
        )
        return self.new(f"Clip ({x}, {low}, {high})")

    def split(self, x: str, count: int) -> Iterator[str]:
        return (self.part(x, i * self.hidden, (i + 1) * self.hidden) for i in range(count))

    def plus(self, x: str, state: str, weight: str) -> str:
        """x + state · weight; a state that is not given is 0."""
        return self.new(f"Add ({x}, {self.new(f'MatMul ({state}, {weight})')})") if state else x

    def step_rnn(
        self, x: str, states: tuple[str, ...], own: dict[str, str], f: list[_Apply]
    ) -> tuple[str, ...]:
        return (f[0](self.clipped(self.plus(x, states[0], own["r"]))),)

    def step_gru(
        self, x: str, states: tuple[str, ...], own: dict[str, str], f: list[_Apply]
    ) -> tuple[str, ...]:
        """h = (1 - z) · g + z · h, of update z, reset r and g, which sees the state through r."""
        h, (state,) = self.hidden, states
        if self.call.attribute("linear_before_reset", 0):
            if state:
                seen = self.new(f"MatMul ({state}, {own['r']})")
                gates = self.new(f"Add ({self.part(x, 0, 2 * h)}, {self.part(seen, 0, 2 * h)})")
                seen = self.part(seen, 2 * h, 3 * h)
                seen = self.new(f"Add ({seen}, {own['rb']})") if "rb" in own else seen
            else:
                gates, seen = self.part(x, 0, 2 * h), own.get("rb", "")
            z, r = (f[0](self.clipped(gate)) for gate in self.split(gates, 2))
            given = self.part(x, 2 * h, 3 * h)
            if seen:
                given = self.new(f"Add ({given}, {self.new(f'Mul ({r}, {seen})')})")
        else:
            weights = [self.part(own["r"], 0, 2 * h), self.part(own["r"], 2 * h, 3 * h)]
            gates = self.plus(self.part(x, 0, 2 * h), state, weights[0])
            z, r = (f[0](self.clipped(gate)) for gate in self.split(gates, 2))
            kept = self.new(f"Mul ({r}, {state})") if state else ""
            given = self.plus(self.part(x, 2 * h, 3 * h), kept, weights[1])
        g = f[1](self.clipped(given))
        rest = self.new(f"Mul ({self.new(f'Sub (unit_like, {z})')}, {g})")
        return (self.new(f"Add ({rest}, {self.new(f'Mul ({z}, {state})')})") if state else rest,)

    def step_lstm(
        self, x: str, states: tuple[str, ...], own: dict[str, str], f: list[_Apply]
    ) -> tuple[str, ...]:
        """c = forget · c + in · g; h = out · tanh(c)."""
        state, cell = states
        i, o, forget, g = self.split(self.plus(x, state, own["r"]), 4)
        peep = list(self.split(own["p"], 3)) if "p" in own else None
        if peep and cell:
            i = self.new(f"Add ({i}, {self.new(f'Mul ({peep[0]}, {cell})')})")
            forget = self.new(f"Add ({forget}, {self.new(f'Mul ({peep[2]}, {cell})')})")
        i = f[0](self.clipped(i))
        coupled = self.call.attribute("input_forget", 0)
        forget = self.new(f"Sub (unit_like, {i})") if coupled else f[0](self.clipped(forget))
        new = self.new(f"Mul ({i}, {f[1](self.clipped(g))})")
        new = self.new(f"Add ({new}, {self.new(f'Mul ({forget}, {cell})')})") if cell else new
        if peep:
            o = self.new(f"Add ({o}, {self.new(f'Mul ({peep[1]}, {new})')})")
        return self.new(f"Mul ({f[0](self.clipped(o))}, {f[2](new)})"), new


@dataclass
class _Apply:
    """An activation, to be called with the name of a tensor."""

    body: _Body
    of: Activation

    def __call__(self, x: str) -> str:
        new, alpha, beta = self.body.new, self.of.alpha, self.of.beta
        if self.of.kind in _OPS:
            given = [f"{n} = {v!r}" for n, v in (("alpha", alpha), ("beta", beta)) if v is not None]
            return new(
                f"{_OPS[self.of.kind]} <{', '.join(given)}> ({x})"
                if given
                else f"{_OPS[self.of.kind]} ({x})"
            )
        first, second = (
            new(f"CastLike ({new(f'Constant <value = float {{{value!r}}}> ()')}, x)")
            for value in (alpha, beta)
        )
        if self.of.kind == "affine":
            return new(f"Add ({new(f'Mul ({x}, {first})')}, {second})")
        stretched = new(f"Mul ({x}, {second})")
        return new(f"Mul ({new(f'Tanh ({stretched})')}, {first})")
