"""Elementwise chains: one loop over the output, every operand broadcast into it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from convoy.codegen.writer import C_TYPES, Writer, fill_halo, number
from convoy.graph.dtypes import QUANTISED, cell_elements, range_of
from convoy.graph.dynamic import HeldSteps, find_held_steps
from convoy.graph.graph import Graph
from convoy.graph.ops import Binary, Dequantize, Quantize, Unary
from convoy.kernels import quantize
from convoy.kernels.conv2d.choose import Choice
from convoy.kernels.kernel import KernelKind, Membership, follows, stores
from convoy.kernels.note import make_note
from convoy.kernels.precision import Narrow
from convoy.kernels.quantize import plan_quantize
from convoy.kernels.strips.window import Window
from convoy.kernels.values import Values
from convoy.plan.buffers import Array, Map, Operand, row_major
from convoy.plan.fuse import Fusion
from convoy.plan.maps import Role, image_shape, operand_role
from convoy.plan.step import Step, is_few
from convoy.target import Target

BINARY = {
    "add": "cv_add({0}, {1})",
    "sub": "cv_sub({0}, {1})",
    "mul": "cv_mul({0}, {1})",
    "div": "cv_div({0}, {1})",
    "max": "cv_select(cv_unordered({0}, {1}), cv_add({0}, {1}), cv_max({0}, {1}))",
    "min": "cv_select(cv_unordered({0}, {1}), cv_add({0}, {1}), cv_min({0}, {1}))",
    "pow": "cv_pow({0}, {1})",
    "coalesce": "cv_select(cv_unordered({0}, {0}), {1}, {0})",
}


@dataclass(frozen=True)
class Expr:
    """One operation of an elementwise chain.

    ``args`` number the chain's operands first, then the results of earlier operations.
    """

    op: str
    args: tuple[int, ...]
    a: float = 0.0
    b: float = 0.0
    scale: float = 0.0
    """dequantize: less a, times the scale.  quantize, requantize: of steps, held between a and b.

    quantize_computed: by a scale and a zero point that are operands, as bytes from a to b.
    """


@dataclass(frozen=True, kw_only=True)
class ElementwiseMap(Step):
    """A chain on blocked maps.  ``roles[i]`` says how operand i meets a pixel of y."""

    operands: tuple[Operand, ...]
    roles: tuple[Role, ...]
    """map: same shape · channel: one value per channel (a 1x1 map or a padded vector) · pixel: one
    channel, broadcast · scalar: an array of one."""
    exprs: tuple[Expr, ...]
    y: Map


@dataclass(frozen=True, kw_only=True)
class ElementwiseArray(Step):
    """A chain on row-major tensors: ``loops`` outermost first, ``strides[i]`` of operand i in each."""

    operands: tuple[Array, ...]
    loops: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    exprs: tuple[Expr, ...]
    y: Array

    @property
    def unshared(self) -> bool:
        return is_few(math.prod(self.loops))


def wants_map(fusion: Fusion, graph: Graph, blocked: Mapping[str, bool]) -> bool:
    if not _is_chain(fusion):
        return quantize.wants_map(fusion, graph, blocked)
    out = graph.shape(fusion.output)
    return follows(fusion, graph, blocked) and all(
        _fits_map(graph.shape(name), out, name in graph.constants) for name in operands(fusion)
    )


def _fits_map(shape: Sequence[int], out: Sequence[int], constant: bool) -> bool:
    role = operand_role(shape, out)
    if len(shape) < 4 and not constant:
        return role == "scalar"
    return role is not None


def plan_elementwise(fusion: Fusion, values: Values) -> Iterator[Step]:
    if not _is_chain(fusion):
        yield from plan_quantize(fusion, values)
        return
    names = operands(fusion)
    exprs = _exprs(fusion, values.graph)
    note = make_note(fusion, values.graph)
    if values.blocked[fusion.output]:
        out = values.graph.shape(fusion.output)
        pairs = [_map_operand(name, out, values) for name in names]
        yield ElementwiseMap(
            note=note, operands=tuple(o for o, _ in pairs), roles=tuple(r for _, r in pairs),
            exprs=exprs, y=values.define_map(fusion.output),
        )  # fmt: skip
        return
    arrays = tuple(values.array(name) for name in names)
    y = values.define_array(fusion.output)
    loops, strides = collapse(y.shape, [x.shape for x in arrays])
    yield ElementwiseArray(note=note, operands=arrays, loops=loops, strides=strides, exprs=exprs, y=y)


def _is_chain(fusion: Fusion) -> bool:
    """Is there more than to quantise, or to dequantise?"""
    return len(fusion.nodes) > 1 or not isinstance(fusion.anchor, Quantize | Dequantize)


def operands(fusion: Fusion) -> tuple[str, ...]:
    """What a chain reads; scales and zero points are numbers in its code."""
    quantised = (node for node in fusion.nodes if isinstance(node, Quantize | Dequantize))
    numbers = {name for node in quantised for name in node.inputs[1:]}
    return tuple(name for name in fusion.reads if name not in numbers)


def _exprs(fusion: Fusion, graph: Graph) -> tuple[Expr, ...]:
    number = {name: i for i, name in enumerate(operands(fusion))}
    made = len(number)
    exprs: list[Expr] = []
    computed = _find_computed_scale(fusion, graph)
    for node in fusion.nodes[:-5] if computed else fusion.nodes:
        if isinstance(node, Dequantize) and node not in fusion.dequantized:  # with the one before
            number[node.output] = number[node.inputs[0]]
            continue
        if isinstance(node, Dequantize):
            scale, zero = quantize.numbers(node, graph)
            exprs.append(Expr("dequantize", (number[node.inputs[0]],), a=zero, scale=scale))
        elif node is fusion.quantize:
            exprs.append(replace(_requantize(node, number[node.inputs[0]], graph), op="quantize"))
        elif isinstance(node, Quantize):
            exprs.append(_requantize(node, number[node.inputs[0]], graph))
        else:
            assert isinstance(node, (Unary, Binary))
            a, b = (node.a, node.b) if isinstance(node, Unary) else (0.0, 0.0)
            exprs.append(Expr(node.kind, tuple(number[name] for name in node.inputs), a, b))
        number[node.output] = made
        made += 1
    if computed:
        args = (*computed.exact.inputs, computed.zero)
        exprs.append(Expr("quantize_computed", tuple(number[name] for name in args), *range_of("uint8")))
    return tuple(exprs)


def _find_computed_scale(fusion: Fusion, graph: Graph) -> HeldSteps | None:
    """What a chain ends with where it makes bytes by a scale and a zero point that it reads."""
    last = fusion.quantize
    if last is None or graph.dtype(last.output) != "uint8" or quantize.numbers(last, graph) != (1.0, 0):
        return None
    found = find_held_steps(last.inputs[0], graph)
    if found is None or not {found.exact.inputs[1], found.zero} <= set(operands(fusion)):
        return None
    parts = [found.exact, found.rounded, found.shifted, found.clip, last]
    return found if fusion.nodes[-5:] == parts else None


def _requantize(node: Quantize, x: int, graph: Graph) -> Expr:
    scale, zero = (graph.scalar(name) for name in node.inputs[1:])
    assert scale is not None
    assert zero is not None
    least, most = range_of(graph.dtype(node.output))
    return Expr("requantize", (x,), least - zero, most - zero, scale)


def _map_operand(name: str, out: Sequence[int], values: Values) -> tuple[Operand, Role]:
    role = operand_role(values.graph.shape(name), out)
    assert role is not None, f"{name} does not fit a map of {out}"
    if role == "scalar":
        return values.array(name), role
    if name not in values.graph.constants:
        return values.map(name, None), role
    shape = image_shape(out)
    assert shape is not None
    if role == "channel":
        return values.vector([name], shape[0], values.lanes), role
    return values.constant_map(name, shape), "map"


def collapse(
    shape: Sequence[int], operands: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """The fewest nested loops that compute ``shape``, and each operand's stride in every loop.

    The innermost stride of an operand is 1 or 0 (broadcast).
    """
    strides = []
    for operand in operands:
        aligned = (1,) * (len(shape) - len(operand)) + tuple(operand)
        dense = row_major(aligned)
        strides.append([0 if d == 1 else s for d, s in zip(aligned, dense, strict=True)])
    loops: list[int] = []
    merged: list[list[int]] = [[] for _ in operands]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        if loops and all(m[-1] == s[axis] * size for m, s in zip(merged, strides, strict=True)):
            loops[-1] *= size
            for m, s in zip(merged, strides, strict=True):
                m[-1] = s[axis]
            continue
        loops.append(size)
        for m, s in zip(merged, strides, strict=True):
            m.append(s[axis])
    if not loops:
        return (math.prod(shape),), tuple((0,) for _ in operands)
    return tuple(loops), tuple(tuple(m) for m in merged)


def _setup(exprs: Sequence[Expr]) -> str:
    """What a chain computes once, of operands that are one number."""
    last = exprs[-1]
    if last.op != "quantize_computed":
        return ""
    _, scale, zero = last.args
    made = f"cv_computed_scale_of(v{scale}, v{zero}, {number(last.a)}, {number(last.b)})"
    return f"const cv_computed_scale computed = {made};\n"


def _chain(exprs: Sequence[Expr], operands: int, indent: str) -> tuple[str, str]:
    """The statements of a chain on v0 … (its operands), and the name of its result."""
    text = ""
    name = "v0"
    for i, expr in enumerate(exprs):
        name = f"v{operands + i}"
        args = [f"v{j}" for j in expr.args]
        kind = "cv_vec"
        if expr.op == "dequantize":
            value = (
                f"cv_dequantize_steps(cv_sub({args[0]}, cv_set1({number(expr.a)})), {number(expr.scale)})"
            )
        elif expr.op == "quantize":
            kind = "cv_int"
            bounds = f"{number(expr.a)}, {number(expr.b)}, {-int(expr.a)}"
            value = f"cv_quantize_by({args[0]}, {number(1 / expr.scale)}, {bounds})"
        elif expr.op == "quantize_computed":
            kind = "cv_int"
            value = f"cv_quantize_computed({args[0]}, computed)"
        elif expr.op == "requantize":
            value = f"cv_quantize_held({args[0]}, {number(expr.scale)}, {number(expr.a)}, {number(expr.b)})"
        elif expr.op in BINARY:
            value = BINARY[expr.op].format(*args)
        else:
            value = f"cv_op_{expr.op}({args[0]}, {number(expr.a)}, {number(expr.b)})"
        text += f"{indent}const {kind} {name} = {value};\n"
    return text, name


def emit_elementwise_map(step: ElementwiseMap, w: Writer) -> str:
    """Threads share the rows of all blocks."""
    w.headers |= {"activation", "halo", "quantize_arrays"}
    y, of_bytes = step.y, step.y.dtype in QUANTISED
    text = w.bytes_map("y", y) + fill_halo("y", y, w) if of_bytes else w.result("y", y)
    setup, loads = "", ""
    for i, (operand, role) in enumerate(zip(step.operands, step.roles, strict=True)):
        if role == "scalar":
            text += f"  const cv_vec v{i} = cv_set1(*({w.pointer(operand)}));\n"
        elif role == "channel":
            plane = operand.plane if isinstance(operand, Map) else y.lanes
            load = _load("", operand, f"{w.pointer(operand)} + block * {plane}")
            setup += f"    const cv_vec v{i} = {load};\n"
        elif operand.dtype in QUANTISED:
            assert isinstance(operand, Map)
            text += w.bytes_map(f"x{i}", operand)
            block, at = f" + block * x{i}.plane" if role == "map" else "", f"x{i}_row + x * {operand.step}"
            load = _load("", operand, at) if role == "map" else f"cv_set1((float)*({at}))"
            setup += f"    const uint8_t *x{i}_row = x{i}.data{block} + row * x{i}.row;\n"
            loads += f"      const cv_vec v{i} = {load};\n"
        else:
            assert isinstance(operand, Map)
            text += w.beside(f"x{i}", operand)
            block = f" + block * x{i}.plane" if role == "map" else ""
            kind, apart = _in_memory(operand)
            load = "cv_load{2}(x{0}_row + x * {1})" if role == "map" else "cv_set1(x{0}_row[x * {1}])"
            if role == "pixel" and kind:
                load = "cv_low_bf16(cv_set1(x{0}_row[x * {1}]))"
            setup += f"    const float *x{i}_row = x{i}.data{block} + row * x{i}.row;\n"
            loads += f"      const cv_vec v{i} = {load.format(i, apart, kind)};\n"
    once = _setup(step.exprs)
    text += f"  {once}" if once else ""
    chain, result = _chain(step.exprs, len(step.operands), "      ")
    kind, apart = _in_memory(y)
    halo = "" if of_bytes else "  cv_map_clear_halo(t, y);\n"
    store = f"cv_store{kind}(y_row + x * {apart}, {result});"
    tail = y.channels % y.lanes
    if of_bytes:
        store = f"cv_store_bytes(y_row + x * {y.step}, {result});"
    elif tail:  # lanes past the channels stay zero
        first = (
            f"cv_store(y_row + x * {apart}, cv_zero())",
            f"cv_store_n(y_row + x * {apart}, {result}, {tail})",
        )
        if kind:
            first = (
                f"float pixel[CV_LANES]; cv_storeu(pixel, {result})",
                f"cv_store_bf16(y_row + x * {apart}, cv_load_n(pixel, {tail}))",
            )
        store = (
            f"if (block == {y.blocks - 1}) {{\n"
            f"        {first[0]};\n"
            f"        {first[1]};\n"
            f"      }} else {{\n        {store}\n      }}"
        )
    return (
        f"{text}{halo}"
        f"  const cv_range share = cv_share(t, {y.blocks} * y.height);\n"
        f"  int block = share.begin / y.height, row = share.begin % y.height;\n"
        f"  for (int i = share.begin; i < share.end; i++) {{\n"
        f"{setup}"
        f"    {'uint8_t' if of_bytes else 'float'} *y_row = y.data + block * y.plane + row * y.row;\n"
        f"    for (int x = 0; x < {y.width}; x++) {{\n{loads}{chain}      {store}\n    }}\n"
        f"    if (++row == y.height) row = 0, block++;\n  }}\n"
    )


def _load(how: str, operand: Operand, place: str) -> str:
    """A vector of an operand; how it is loaded is the end of ``cv_load``'s name."""
    if operand.dtype in QUANTISED:
        return f"cv_from_int(cv_load_bytes{how.removeprefix('u')}({place}))"
    return f"cv_load{how}({place})"


def _in_memory(m: Map) -> tuple[str, int]:
    """What a pixel of a map is loaded and stored with, and the cells to the next one."""
    return ("_bf16" if m.dtype == "bfloat16" else ""), m.step // cell_elements(m.dtype)


def emit_elementwise_array(step: ElementwiseArray, w: Writer) -> str:
    """Threads share the outer loops, or vectors of the only one."""
    w.headers |= {"activation", "map", "quantize_arrays"}
    *outer, inner = step.loops
    rows, kind = math.prod(outer), C_TYPES[step.y.dtype]
    of_bytes = step.y.dtype in QUANTISED
    text = f"  {kind} *y = {w.pointer(step.y)};\n"
    setup = ""
    full, rest = "", ""
    for i, (operand, strides) in enumerate(zip(step.operands, step.strides, strict=True)):
        text += f"  const {C_TYPES[operand.dtype]} *x{i} = {w.pointer(operand)};\n"
        terms = _row_offset(outer, strides[:-1])
        setup += f"    const {C_TYPES[operand.dtype]} *r{i} = x{i}{terms};\n"
        if strides[-1] == 0:
            cast = "(float)" if operand.dtype in QUANTISED else ""
            setup += f"    const cv_vec v{i} = cv_set1({cast}*r{i});\n"
        else:
            assert strides[-1] == 1
            full += f"      const cv_vec v{i} = {_load('u', operand, f'r{i} + x')};\n"
            rest += f"      const cv_vec v{i} = {_load('_n', operand, f'r{i} + x, n')};\n"
    once = _setup(step.exprs)
    setup += f"    {once}" if once else ""
    chain, result = _chain(step.exprs, len(step.operands), "      ")
    if outer:
        split = (
            f"  const cv_range rows = cv_share(t, {rows});\n"
            f"  const int begin = 0, end = {inner};\n"
        )  # fmt: skip
    else:
        split = (
            f"  const cv_range rows = {{0, 1}}, vectors = cv_share(t, cv_blocks({inner}));\n"
            f"  const int begin = vectors.begin * CV_LANES;\n"
            f"  const int end = vectors.end * CV_LANES < {inner} ? vectors.end * CV_LANES : {inner};\n"
        )
    return (
        f"{text}{split}"
        f"  for (int i = rows.begin; i < rows.end; i++) {{\n{setup}"
        f"    {kind} *y_row = y + (ptrdiff_t)i * {inner};\n"
        f"    int x = begin;\n"
        f"    for (; x + CV_LANES <= end; x += CV_LANES) {{\n{full}{chain}"
        f"      cv_store{'_bytes' if of_bytes else 'u'}(y_row + x, {result});\n    }}\n"
        f"    if (x < end) {{\n      const int n = end - x;\n{rest}{chain}"
        f"      cv_store{'_bytes' * of_bytes}_n(y_row + x, {result}, n);\n    }}\n  }}\n"
    )


def _row_offset(outer: Sequence[int], strides: Sequence[int]) -> str:
    """+ the offset of row i, its index split by the outer loops."""
    text = ""
    below = 1
    for size, stride in zip(reversed(outer), reversed(strides), strict=True):
        if stride:
            text = f" + (i / {below} % {size}) * (ptrdiff_t){stride}" + text
        below *= size
    return text


def elementwise_member(
    fusion: Fusion, graph: Graph, choices: Mapping[str, Choice], target: Target
) -> Membership | None:
    if not _is_chain(fusion):
        return None
    out = graph.shape(fusion.output)
    reads = tuple(n for n in operands(fusion) if operand_role(graph.shape(n), out) == "map")
    _, channels, _, width = out if len(out) == 4 else (*out, 1, 1)
    vectors = -(-channels // target.lanes) * width
    cycles = vectors * (len(fusion.nodes) + len(reads)) * target.direct.elementwise
    return Membership(window=Window(), x=fusion.output, reads=reads, row_cycles=cycles)


def _knows_narrow(fusion: Fusion, graph: Graph, choices: Mapping[str, Choice]) -> Narrow:
    """What only quantises, or only dequantises, is between bytes and float32."""
    return stores(fusion, graph, choices) if _is_chain(fusion) else Narrow()


KERNEL = KernelKind(
    nodes=(Unary, Binary, Quantize, Dequantize),
    plan=plan_elementwise,
    emitters={ElementwiseMap: emit_elementwise_map, ElementwiseArray: emit_elementwise_array},
    wants_map=wants_map,
    dtypes=frozenset({"float32", "int32", "uint8", "int8"}),
    narrow=_knows_narrow,
    member=elementwise_member,
    plan_member=plan_elementwise,
)
