"""What the emitters of a region share, and the C of what most of them need: literals, maps, epilogues."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from convoy.graph.dtypes import BYTES, QUANTISED, DType, cell_elements
from convoy.graph.sizes import is_open
from convoy.plan.buffers import Map, Operand
from convoy.plan.plan import Plan
from convoy.plan.step import Activation, Epilogue, Requantize, Scale, Step

ACTIVATION_KINDS = {"clip": "CV_CLAMP"}
"""cv_activation_kind of kinds whose name differs."""


C_TYPES: Mapping[DType, str] = {
    "float32": "float", "bfloat16": "uint16_t", "int32": "int32_t", "int8": "int8_t", "uint8": "uint8_t",
}  # fmt: skip
"""What an element is in C."""


class Cut(Protocol):
    """Where a step works on a few rows at a time: C that cuts the literal of a whole map to those rows."""

    def source(self, literal: str, inside: bool) -> str: ...

    def result(self, literal: str, m: Map) -> str: ...

    def beside(self, literal: str, m: Map) -> str: ...


class Writer:
    """What the emitters of one region share: its plan, the headers it needs, its declarations."""

    def __init__(self, plan: Plan, symbol: str, emit_step: Emitter) -> None:
        self.plan = plan
        self.symbol = symbol
        self.emit_step = emit_step
        """Writes any step: the body of its function, which uses ``t`` (cv_thread) and ``f`` (frame)."""
        self.headers: set[str] = set()
        self.declarations: list[str] = []
        self.has: set[str] = set()
        """What kernels leave out of a unit that does not say that it has it, by macro."""
        self.batched = False
        """In a step that computes all images."""
        self.cut: Cut | None = None
        """In a step that works on a few rows at a time."""
        self._numbers = 0
        self._tables: dict[tuple[str, str], str] = {}

    def pointer(self, operand: Operand) -> str:
        """The operand's first element, by a pointer to its type; const, where nobody may write it."""
        buffer = self.plan.buffers[operand.buffer]
        const = "const " * (buffer.space in ("input", "weights"))
        kind = f"({const}{C_TYPES[operand.dtype]} *)"
        offset = operand.offset * BYTES[operand.dtype]
        if buffer.space in ("input", "output"):
            sizes = self.plan.inputs if buffer.space == "input" else self.plan.outputs
            argument = f"{kind}f->{buffer.space}s[{buffer.index}] + f->image * {sizes[buffer.index]}"
            return _plus(argument, operand.offset)
        if buffer.space == "batch":
            own = f"f->batch + f->images * {buffer.index} + f->image * {buffer.bytes}"
            return f"{kind}({_plus(own, offset)})"
        bases = {"thread": "f->own", "weights": f"{self.symbol}_weights", "arena": "f->arena"}
        place = _plus(bases[buffer.space], buffer.index + offset)
        return f"{kind}({place})" if buffer.index + offset != 0 else f"{kind}{place}"

    def map_literal(self, m: Map, written: bool = True) -> str:
        """The initializer of a ``cv_map``; of one that nobody writes, its data is NULL."""
        pointer = self.pointer(m) if written else "NULL"
        dtype, cell = "", 1
        if self.plan.buffers[m.buffer].space == "weights":
            pointer = f"({C_TYPES[m.dtype]} *){pointer}"
        if m.dtype == "bfloat16":  # a map's strides are in cells
            self.has.add("CV_BFLOAT16_MAPS")
            pointer = f"(float *){pointer}" if written else pointer
            dtype, cell = "CV_BFLOAT16", cell_elements(m.dtype)
        top, left, bottom, right = m.halo
        return fields(
            data=pointer, channels=m.channels, height=m.height, width=m.width, plane=m.plane // cell,
            row=m.row // cell, step=m.step // cell, top=top, left=left, bottom=bottom, right=right,
            dtype=dtype,
        )  # fmt: skip

    def bytes_map(self, name: str, m: Map) -> str:
        """The declaration of a ``cv_byte_map``."""
        top, left, bottom, right = m.halo
        value = fields(
            data=self.pointer_to_bytes(m), channels=m.channels, height=m.height, width=m.width,
            plane=m.plane, row=m.row, step=m.step, top=top, left=left, bottom=bottom, right=right,
        )  # fmt: skip
        return f"  const cv_byte_map {name} = {value};\n"

    def pointer_to_bytes(self, operand: Operand) -> str:
        """As ``pointer``, of bytes of either type, that nobody writes who may not."""
        return f"(uint8_t *){self.pointer(operand)}"

    def cells(self, operand: Operand) -> str:
        """As ``pointer``, of a packed constant, by a pointer to cells."""
        found = self.pointer(operand)
        return found if operand.dtype == "float32" else f"(const float *){found}"

    def source(self, name: str, m: Map, inside: bool = False) -> str:
        """The declaration of a ``cv_map`` that the step reads through its window.

        With ``inside`` it reads the rows inside the image only, not its halo.
        """
        value = self.map_literal(m)
        return _declared(name, self.cut.source(f"(cv_map){value}", inside) if self.cut else value)

    def result(self, name: str, m: Map) -> str:
        """The declaration of the ``cv_map`` that the step makes."""
        value = self.map_literal(m)
        return _declared(name, self.cut.result(f"(cv_map){value}", m) if self.cut else value)

    def beside(self, name: str, m: Map) -> str:
        """The declaration of a ``cv_map`` that the step reads pixel by pixel as it makes its result."""
        value = self.map_literal(m)
        return _declared(name, self.cut.beside(f"(cv_map){value}", m) if self.cut else value)

    def maps(self, x: Map, y: Map) -> str:
        """The declarations of the source x and the result y."""
        return self.source("x", x) + self.result("y", y)

    def declare(self, declaration: str) -> None:
        """A declaration at file scope, once."""
        if declaration not in self.declarations:
            self.declarations.append(declaration)

    def expect_parts(self, parts: int) -> None:
        """That bytes are multiplied in so many parts, for which their weights are packed."""
        self.declare(f'_Static_assert(CV_DOT_PARTS == {parts}, "weights are packed for other parts");')

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

    def sizes(self, kind: str, values: Sequence[int]) -> str:
        """A constant table of sizes; of those known at the call, one that lives as long as the block."""
        rows = [str(value) for value in values]
        return (
            f"(const {kind}[]){{{', '.join(rows)}}}" if is_open(tuple(values)) else self.table(kind, rows)
        )


Emitter = Callable[[Step, Writer], str]


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


def fields(**values: object) -> str:
    """The initializer of a struct, by its members' names; those that are 0 or empty are left out."""
    named = [f".{name} = {value}" for name, value in values.items() if value not in (0, "")]
    return f"{{{wrap(named, 96).strip().removesuffix(',')}}}"


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


def write_scale(scale: Scale) -> str:
    """A ``cv_scale``."""
    return f"(cv_scale){{{number(scale.scale)}, {scale.zero}, {scale.low}, {scale.high}}}"


def epilogue(e: Epilogue, w: Writer) -> str:
    """The declarations of ``residual`` (where there is one) and ``e``."""
    text = ""
    residual = "NULL"
    if isinstance(e.residual, Map):
        if e.residual.dtype in QUANTISED:
            text += w.bytes_map("added", e.residual)
            text += "  const cv_map residual = cv_map_of_cells(added);\n"
        else:
            text += w.beside("residual", e.residual)
        residual = "&residual"
    if e.requantize is not None:
        return text + _requantize(e, e.requantize, residual, w)
    return (
        f"{text}  const cv_epilogue e = {{.bias = {w.pointer(e.bias)}, .inner = {activation(e.inner)}, "
        f".residual = {residual}, .outer = {activation(e.outer)}}};\n"
    )


def _requantize(e: Epilogue, r: Requantize, residual: str, w: Writer) -> str:
    """The declarations of ``requantize``, which has the whole epilogue, and ``e``."""
    return (
        f"{requantize(e, r, w)}"
        f"  const cv_epilogue e = {{.bias = {w.cells(e.bias)}, .residual = {residual}, "
        ".requantize = &requantize};\n"
    )


def requantize(e: Epilogue, r: Requantize, w: Writer) -> str:
    """The declaration of ``requantize``."""
    value = fields(
        scale=w.pointer(r.scale), shift=w.pointer(r.shift), low=number(r.low), high=number(r.high),
        zero=r.zero, floats=int(r.floats), residual_scale=number(r.residual_scale),
        residual_shift=number(r.residual_shift), inner=activation(e.inner), outer=activation(e.outer),
        unit=number(r.unit), plain=int(r.plain), held=int(r.held), held_low=number(r.held_low),
        held_high=number(r.held_high), held_unit=number(r.held_unit),
    )  # fmt: skip
    return f"  const cv_requantize requantize = {value};\n"


def fill_halo(name: str, m: Map, w: Writer) -> str:
    """The statement that fills the halo of a map of bytes of this name."""
    w.headers.add("halo")
    return f"  cv_byte_map_fill_halo(t, {name}, {m.lanes}, {m.zero});\n" if any(m.halo) else ""


def source_cells(name: str, m: Map, w: Writer) -> str:
    """As ``Writer.source``; bytes are declared as a map of cells."""
    if m.dtype not in QUANTISED:
        return w.source(name, m)
    return f"{w.bytes_map(f'{name}_bytes', m)}  const cv_map {name} = cv_map_of_cells({name}_bytes);\n"


def result_cells(name: str, m: Map, w: Writer) -> str:
    """As ``Writer.result``; bytes are declared as a map of cells, and their halo is filled."""
    if m.dtype not in QUANTISED:
        return w.result(name, m)
    return source_cells(name, m, w) + fill_halo(f"{name}_bytes", m, w)


def joined(items: Sequence[object]) -> str:
    return ", ".join(str(item) for item in items)


def _declared(name: str, value: str) -> str:
    return f"  const cv_map {name} = {value};\n"


def _plus(base: str, offset: int) -> str:
    return f"{base} + {offset}" if offset != 0 else base
