"""What the emitters of a region share, and the C of what most of them need: literals, maps, epilogues."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from convoy.graph.ops import Pair
from convoy.plan.steps import Activation, Epilogue, Map, Operand, Plan

ACTIVATION_KINDS = {"clip": "CV_CLAMP"}
"""cv_activation_kind of kinds whose name differs."""


class Writer:
    """What the emitters of one region share: its plan, the headers it needs, its declarations."""

    def __init__(self, plan: Plan, symbol: str) -> None:
        self.plan = plan
        self.symbol = symbol
        self.headers: set[str] = set()
        self.declarations: list[str] = []
        self.batched = False
        """In a step that computes all images."""
        self.cut: Callable[[str, Map, str], str] | None = None
        """In a member of strips: the rows it works on, of the map (name, map, its literal)."""
        self._numbers = 0
        self._tables: dict[tuple[str, str], str] = {}

    def pointer(self, operand: Operand) -> str:
        """``float *`` or ``const float *`` to the operand's first element."""
        buffer = self.plan.buffers[operand.buffer]
        if buffer.space in ("input", "output"):
            sizes = self.plan.inputs if buffer.space == "input" else self.plan.outputs
            argument = f"f->{buffer.space}s[{buffer.index}] + f->image * {sizes[buffer.index]}"
            return _plus(argument, operand.offset)
        offset = buffer.index + operand.offset
        if buffer.space == "thread":
            return _plus("f->own", offset)
        if buffer.space == "batch":
            own = f"f->batch + f->images * {buffer.index} + f->image * {buffer.size}"
            return _plus(own, operand.offset)
        base = f"{self.symbol}_weights" if buffer.space == "weights" else f"f->{buffer.space}"
        return _plus(base, offset)

    def map_literal(self, m: Map, written: bool = True) -> str:
        """The initializer of a ``cv_map``; of one that nobody writes, its data is NULL."""
        pointer = self.pointer(m) if written else "NULL"
        if self.plan.buffers[m.buffer].space == "weights":
            pointer = f"(float *)({pointer})"
        numbers = (m.channels, m.height, m.width, m.plane, m.row, m.step, *m.halo)
        return f"{{{pointer}, {joined(numbers)}}}"

    def map(self, name: str, m: Map) -> str:
        """The declaration of a ``cv_map``."""
        value = self.map_literal(m)
        if self.cut is not None:
            value = self.cut(name, m, f"(cv_map){value}")
        return f"  const cv_map {name} = {value};\n"

    def maps(self, **maps: Map) -> str:
        """The declarations of several, by name."""
        return "".join(self.map(name, m) for name, m in maps.items())

    def declare(self, declaration: str) -> None:
        """A declaration at file scope, once."""
        if declaration not in self.declarations:
            self.declarations.append(declaration)

    def conv_tile(
        self, pixels: int, blocks: int, inner: int, stride: int, kernel: Pair = (1, 1), rows: int = 1,
        grouped: bool = False,
    ) -> str:  # fmt: skip
        """The name of a direct convolution's register tile; ``grouped``: groups share blocks."""
        known = (0, kernel[1]) if inner == 1 else kernel if kernel == (1, 1) else (0, 0)
        size = f"{rows}x{pixels}x{blocks}" if rows != 1 else f"{pixels}x{blocks}"
        name = f"tile_{size}_{inner}_{stride}_{known[0]}x{known[1]}"
        if grouped:
            name += "_grouped"
            sizes = joined((rows, pixels, blocks, stride * inner, *known))
            self.declare(f"CV_CONV2D_GROUPED_TILE({name}, {sizes})")
        else:
            sizes = joined((rows, pixels, blocks, inner, stride * inner, *known))
            self.declare(f"CV_CONV2D_TILE({name}, {sizes})")
        return name

    def planar_tile(self, pixels: int, blocks: int, stride: int, kernel: Pair, channels: int) -> str:
        """The name of a tile without loops: of a planar x of ``channels``, for few taps."""
        name = f"tile_{pixels}x{blocks}_planar{channels}_{stride}_{kernel[0]}x{kernel[1]}"
        sizes = joined((pixels, blocks, stride, *kernel, channels))
        self.declare(f"CV_CONV2D_PLANAR_TILE({name}, {sizes})")
        return name

    def number(self) -> int:
        """A new number for a function's name."""
        self._numbers += 1
        return self._numbers - 1

    def table(self, kind: str, rows: Sequence[str]) -> str:
        """The name of a constant table at file scope; equal tables are one."""
        body = wrap(rows)
        key = (kind, body)
        if key not in self._tables:
            name = f"table_{len(self._tables)}"
            self._tables[key] = name
            self.declare(f"static const {kind} {name}[{len(rows)}] = {{\n{body}}};")
        return self._tables[key]


def wrap(items: Sequence[str], width: int = 100) -> str:
    """Items separated by commas, several a line."""
    lines: list[str] = []
    line = "   "
    for item in items:
        if line.strip() and len(line) + len(item) + 2 > width:
            lines.append(line)
            line = "   "
        line += f" {item},"
    return "\n".join([*lines, line]) + "\n"


def number(value: float) -> str:
    """A float literal that reads back as the same float32; infinite past its range."""
    with np.errstate(over="ignore"):
        single = float(np.float32(value))
    if math.isnan(single):
        return "NAN"
    if math.isinf(single):
        return "INFINITY" if single > 0 else "-INFINITY"
    return f"{single!r}f"


def activation(act: Activation) -> str:
    kind = ACTIVATION_KINDS.get(act.kind, f"CV_{act.kind.upper()}")
    return f"{{{kind}, {number(act.a)}, {number(act.b)}}}"


def epilogue(e: Epilogue, w: Writer) -> str:
    """The declarations of ``residual`` (where there is one) and ``e``."""
    text = ""
    residual = "NULL"
    if isinstance(e.residual, Map):
        text += w.map("residual", e.residual)
        residual = "&residual"
    return (
        f"{text}  const cv_epilogue e = {{{w.pointer(e.bias)}, {activation(e.inner)}, {residual}, "
        f"{activation(e.outer)}}};\n"
    )


def joined(items: Sequence[object]) -> str:
    return ", ".join(str(item) for item in items)


def _plus(base: str, offset: int) -> str:
    return f"{base} + {offset}" if offset else base
