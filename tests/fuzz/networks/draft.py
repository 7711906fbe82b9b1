"""An ONNX network while it is drawn.

Shapes come from ONNX's own inference of each node, so that a network is valid by construction.  Values stay
near 1: what must be told apart is rounding and a wrong result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper, shape_inference

Shape = tuple[int, ...]
Item = TypeVar("Item")

CHANNELS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 20, 24, 31, 32, 33)
MANY_CHANNELS = (48, 63, 64, 65, 96, 100, 128, 129, 255, 256, 257, 384, 511, 512, 517)
SIZES = (1, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 11, 13)
LARGE_SIZES = (14, 16, 17, 19, 23, 28, 31, 33)
LARGEST = 12_000
"""Elements of a tensor."""
MOST_WEIGHTS = 60_000
"""Elements of a constant."""


class Unsuitable(Exception):
    """A node that cannot be added: its shapes do not fit, or would be too large."""


@dataclass(frozen=True)
class Form:
    """What all networks of one model have alike."""

    opset: int = 17
    batch: int = 1
    symbolic: bool = False
    """The inputs leave the batch open, so no node may move or fix it; ``batch`` is what it is run with."""
    quantised: bool = False
    """Bytes are between many of its nodes."""
    sides: bool = False
    """The inputs leave open what lies behind their channels: heights, widths, lengths."""


class Draft:
    """The nodes, shapes and constants so far, and the random choices."""

    def __init__(self, rng: np.random.Generator, form: Form) -> None:
        self.rng = rng
        self.form = form
        self.opset, self.batch, self.symbolic = form.opset, form.batch, form.symbolic
        self.nodes: list[onnx.NodeProto] = []
        self.shapes: dict[str, Shape] = {}
        self.inputs: list[str] = []
        self.made: list[str] = []
        """Inputs and outputs of nodes, in order."""
        self.constants: dict[str, np.ndarray] = {}

    # Choices.

    def pick(self, choices: Sequence[Item]) -> Item:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def below(self, bound: int) -> int:
        return int(self.rng.integers(max(bound, 1)))

    def pick_channels(self) -> int:
        return self.pick(MANY_CHANNELS) if self.chance(0.06) else self.pick(CHANNELS)

    def pick_size(self) -> int:
        return self.pick(LARGE_SIZES) if self.chance(0.08) else self.pick(SIZES)

    def pick_divisor(self, number: int) -> int:
        return self.pick([d for d in range(1, number + 1) if number % d == 0])

    def pick_tensor(self) -> str:
        """Mostly the last one made, sometimes an earlier one: that makes it a DAG."""
        return self.made[-1] if self.chance(0.75) else self.pick(self.made)

    def pick_axis(self, x: str, *, moving: bool = False) -> int:
        """An axis of x; not the first where it is open, or ``moving`` would leave the batch."""
        rank = len(self.shapes[x])
        if rank < 2:
            raise Unsuitable("no axis beside the batch")
        first = 1 if self.symbolic or (moving and self.chance(0.8)) or self.chance(0.8) else 0
        return int(self.rng.integers(first, rank))

    # Parts.

    def rank(self, x: str) -> int:
        return len(self.shapes[x])

    def expect_rank(self, x: str, *ranks: int) -> Shape:
        if self.rank(x) not in ranks:
            raise Unsuitable(f"rank {self.rank(x)}")
        return self.shapes[x]

    def add_input(self, shape: Shape) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(name)
        self.made.append(name)
        self.shapes[name] = shape
        return name

    def add_array(self, array: np.ndarray) -> str:
        """A constant."""
        if array.size > MOST_WEIGHTS:
            raise Unsuitable("too many weights")
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        self.shapes[name] = array.shape
        return name

    def add_constant(self, *shape: int, scale: float = 1.0, offset: float = 0.0) -> str:
        if prod(shape) > MOST_WEIGHTS:
            raise Unsuitable("too many weights")
        values = self.rng.standard_normal(shape) * scale + offset
        return self.add_array(np.asarray(values, np.float32))

    def add_numbers(self, *numbers: int) -> str:
        return self.add_array(np.array(numbers, np.int64))

    def constant_like(self, *shape: int, scale: float = 1.0) -> str:
        """A constant of this shape: sometimes one that is there already, which makes it shared."""
        known = [n for n, a in self.constants.items() if a.shape == shape and a.dtype == np.float32]
        if known and self.chance(0.25):
            return self.pick(known)
        return self.add_constant(*shape, scale=scale)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """The output of a new node.

        Raises
        ------
        Unsuitable
            If ONNX finds no shape for it, or a large one.
        """
        return self.add_several(op, 1, *inputs, **attributes)[0]

    def add_several(self, op: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """The outputs of a new node that has ``count``; raises as ``add``."""
        number = len(self.nodes)
        names = [f"t{number}" if i == 0 else f"t{number}_{i}" for i in range(count)]
        node = helper.make_node(op, list(inputs), names, name=f"n{number}", **attributes)
        types = {n: helper.make_tensor_type_proto(self._kind(n), self.shapes[n]) for n in inputs if n}
        data = {
            n: numpy_helper.from_array(self.constants[n], n)
            for n in inputs
            if n in self.constants and self.constants[n].size <= 64
        }
        try:
            schema = defs.get_schema(op, self.opset)
            found = shape_inference.infer_node_outputs(
                schema, node, types, data, opset_imports=[helper.make_opsetid("", self.opset)]
            )
        except (defs.SchemaError, onnx.shape_inference.InferenceError) as problem:
            raise Unsuitable(str(problem)) from problem
        for name in names:
            self.shapes[name] = _dims(found, name)
        if any(prod(self.shapes[n]) > LARGEST * max(self.batch, 1) for n in names):
            raise Unsuitable("too large")
        self.nodes.append(node)
        self.made.extend(names)
        return names

    def _kind(self, name: str) -> int:
        array = self.constants.get(name)
        return TensorProto.FLOAT if array is None else helper.np_dtype_to_tensor_dtype(array.dtype)

    def mark(self) -> tuple[int, int, int]:
        """Where the draft stands, for ``take_back``."""
        return len(self.nodes), len(self.made), len(self.constants)

    def take_back(self, mark: tuple[int, int, int]) -> None:
        """Forget what was drawn since: a step that began and could not go on."""
        nodes, made, constants = mark
        del self.nodes[nodes:], self.made[made:]
        for name in list(self.constants)[constants:]:
            del self.constants[name]


def _dims(found: dict[str, onnx.TypeProto], name: str) -> Shape:
    if name not in found or not found[name].tensor_type.HasField("shape"):
        raise Unsuitable("unknown shape")
    dims = found[name].tensor_type.shape.dim
    if not all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in dims):
        raise Unsuitable("open shape")
    return tuple(dim.dim_value for dim in dims)
