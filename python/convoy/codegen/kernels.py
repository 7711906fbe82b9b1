"""One emitter per step: the body of the function that calls its kernel.

An emitter writes the step's data as C literals and one call; it decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from convoy.graph.ops import Pair
from convoy.plan import steps as s
from convoy.plan.batch import takes_rows
from convoy.plan.steps import Activation, Array, Epilogue, Expr, Map, Operand, Plan, Step

ACTIVATION_KINDS = {"clip": "CV_CLAMP"}
"""cv_activation_kind of kinds whose name differs."""

BINARY = {
    "add": "cv_add({0}, {1})",
    "sub": "cv_sub({0}, {1})",
    "mul": "cv_mul({0}, {1})",
    "div": "cv_div({0}, {1})",
    "max": "cv_select(cv_unordered({0}, {1}), cv_add({0}, {1}), cv_max({0}, {1}))",
    "min": "cv_select(cv_unordered({0}, {1}), cv_add({0}, {1}), cv_min({0}, {1}))",
    "pow": "cv_pow({0}, {1})",
}


STRAIGHT_TAPS = 32
"""Of all channels of a planar x, at most, that a tile adds without loops: 3x3 of 3 are 7 KB of code."""


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
        return f"{{{pointer}, {_list(numbers)}}}"

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
        self, pixels: int, blocks: int, inner: int, stride: int, kernel: Pair = (1, 1), rows: int = 1
    ) -> str:
        """The name of a direct convolution's register tile."""
        known = (0, kernel[1]) if inner == 1 else kernel if kernel == (1, 1) else (0, 0)
        size = f"{rows}x{pixels}x{blocks}" if rows != 1 else f"{pixels}x{blocks}"
        name = f"tile_{size}_{inner}_{stride}_{known[0]}x{known[1]}"
        sizes = _list((rows, pixels, blocks, inner, stride * inner, *known))
        self.declare(f"CV_CONV2D_TILE({name}, {sizes})")
        return name

    def planar_tile(self, pixels: int, blocks: int, stride: int, kernel: Pair, channels: int) -> str:
        """The name of a tile without loops: of a planar x of ``channels``, for few taps."""
        name = f"tile_{pixels}x{blocks}_planar{channels}_{stride}_{kernel[0]}x{kernel[1]}"
        sizes = _list((pixels, blocks, stride, *kernel, channels))
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


def comment(text: str) -> str:
    """What may stand in a C comment."""
    return text.replace("*/", "* /")


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


def emit_step(step: Step, writer: Writer) -> str:
    """The body of a step's function: uses ``t`` (cv_thread) and ``f`` (frame)."""
    return EMITTERS[type(step)](step, writer)


def emit_pack(step: s.Pack, w: Writer) -> str:
    w.headers.add("layout")
    kernel = "cv_pack_planar" if step.y.lanes == 1 else "cv_pack"
    return f"{w.map('y', step.y)}  {kernel}(t, y, {w.pointer(step.x)}, {_list(step.strides)});\n"


def emit_unpack(step: s.Unpack, w: Writer) -> str:
    w.headers.add("layout")
    return f"{w.map('x', step.x)}  cv_unpack(t, {w.pointer(step.y)}, {_list(step.strides)}, x);\n"


def emit_clear_halo(step: s.ClearHalo, w: Writer) -> str:
    w.headers.add("layout")
    return f"{w.map('y', step.y)}  cv_map_clear_halo(t, y);\n"


def emit_direct_conv(step: s.DirectConv, w: Writer) -> str:
    w.headers.add("conv2d_direct")
    channels = step.chunks[0].in_count
    dilated = step.x.lanes == 1 and step.dilation[1] != 1
    known = (0, 0) if dilated else step.kernel
    straight = (
        step.x.lanes == 1
        and not dilated
        and channels * math.prod(step.kernel) <= STRAIGHT_TAPS
        and all(c.in_count == channels for c in step.chunks)
    )
    tiles = []
    for height, pixels in zip((step.tile_rows, min(step.tile_rows, 1)), step.rows.pixels, strict=True):
        names = []
        for blocks in step.blocks:
            if straight:
                names.append(w.planar_tile(pixels, blocks, step.stride[1], step.kernel, channels))
            else:
                names.append(w.conv_tile(pixels, blocks, step.x.lanes, step.stride[1], known, height))
        tiles.append(f"{{{_list(names)}}}")
    rows = [
        f"{{{c.out_block}, {c.blocks}, {c.in_begin}, {c.in_count}, {c.weights}, {c.adds:d}, {c.partial:d}}}"
        for c in step.chunks
    ]
    chunks = w.table("cv_conv2d_chunk", rows)
    return (
        f"{w.maps(x=step.x, y=step.y)}{epilogue(step.epilogue, w)}"
        f"  static const cv_conv2d c = {{{_list(step.kernel)}, {_list(step.stride)}, "
        f"{_list(step.dilation)}, {_list(step.pad)},\n"
        f"      {chunks}, {len(rows)}, {int(step.split_chunks)},\n"
        f"      {step.tile_rows}, {{{_list(step.rows.pixels)}}}, {{{_list(step.rows.tiles)}}}, "
        f"{step.tiles_per_block},\n"
        f"      {{{_list(tiles)}}}, {_list(step.blocks)}}};\n"
        f"  cv_conv2d_direct(t, &c, x, {w.pointer(step.w)}, y, &e);\n"
    )


def emit_winograd(step: s.WinogradConv, w: Writer) -> str:
    base = (
        f"{{{_list(step.pad)}, {step.chunk_count}, {_list(step.blocks)}, {_list(step.tiles)}, "
        f"{step.groups}, {step.room}, {int(step.split_chunks)}}}"
    )
    pooled = int(step.pool is not None)
    rows, columns = step.last
    form = f"{rows}x{columns}{'_pooled' * pooled}"
    if step.slab:
        w.headers.add("conv2d_winograd")
        name = f"winograd_{step.out}_{form}"
        w.declare(f"CV_WINOGRAD({name}, {step.out}, {rows}, {columns}, {pooled})")
        row = f"{{{base}, {step.slab}, {int(step.resident)}, {step.pixels[0]}, {_winograd_tiles(step, w)}}}"
        c = w.table("cv_winograd_slabs", [row])
    else:
        w.headers.add("conv2d_winograd_streamed")
        name = f"winograd_streamed_{form}"
        w.declare(f"CV_WINOGRAD_STREAMED({name}, {rows}, {columns}, {pooled})")
        c = w.table("cv_winograd", [base])
    names = ("v", "u", "m") if step.slab else ("v", "m")
    scratch = zip(names, step.scratch, strict=True)
    return (
        f"{w.map('x', step.x)}  const cv_map y = {w.map_literal(step.y, step.keeps)};\n"
        f"{epilogue(step.epilogue, w)}{_winograd_pool(step, w)}"
        f"{''.join(f'  float *{n} = {w.pointer(a)};' + chr(10) for n, a in scratch)}"
        f"  {name}(t, {c}, x, {w.pointer(step.w)}, y, &e, {'&pool' if step.pool else 'NULL'}, "
        f"{', '.join(names)});\n"
    )


def _winograd_tiles(step: s.WinogradConv, w: Writer) -> str:
    """The name of the table of a step's register tiles."""
    name = f"tiles_{'_'.join(map(str, step.pixels))}x{'_'.join(map(str, step.blocks))}"
    rows = []
    for pixels in sorted(step.pixels):
        tiles = [w.conv_tile(pixels, blocks, step.x.lanes, 1) for blocks in step.blocks]
        rows.append(f"[{pixels}] = {{{_list(tiles)}}}")
    w.declare(f"static const cv_conv2d_tile {name}[][2] = {{{_list(rows)}}};")
    return name


def _winograd_pool(step: s.WinogradConv, w: Writer) -> str:
    """The declaration of ``pool``, where there is one."""
    if step.pool is None:
        return ""
    kind = {"max": "CV_POOL_MAX", "avg": "CV_POOL_MEAN"}[step.pool.kind]
    return (
        f"  const cv_winograd_pool pool = {{{kind}, {activation(step.pool.outer)}, "
        f"{w.map_literal(step.pool.y)}}};\n"
    )


def emit_depthwise(step: s.DepthwiseConv, w: Writer) -> str:
    w.headers.add("conv2d_depthwise")
    names = []
    for pixels in step.rows.pixels:
        kh, kw = step.kernel
        stride, dilation = step.stride[1], step.dilation[1]
        name = f"depthwise_{kh}x{kw}_s{stride}_d{dilation}_{pixels}"
        w.declare(f"CV_DEPTHWISE_TILE({name}, {kh}, {kw}, {stride}, {dilation}, {pixels})")
        names.append(name)
    return (
        f"{w.maps(x=step.x, y=step.y)}{epilogue(step.epilogue, w)}"
        f"  static const cv_depthwise c = {{{_list(step.kernel)}, {_list(step.stride)}, "
        f"{step.dilation[0]}, {_list(step.pad)},\n"
        f"      {{{_list(step.rows.pixels)}}}, {{{_list(step.rows.tiles)}}}, {{{_list(names)}}}}};\n"
        f"  cv_conv2d_depthwise(t, &c, x, {w.pointer(step.w)}, y, &e);\n"
    )


def emit_gemm(step: s.Gemm, w: Writer) -> str:
    w.headers.add("gemm")
    w.declare(f'_Static_assert(CV_GEMM_PANEL == {step.panel}, "weights are packed for other panels");')
    e = step.epilogue
    residual = w.pointer(e.residual) if e.residual is not None else "NULL"
    rows = "(int)f->images" if w.batched and takes_rows(step) else str(step.m)
    return (
        f"  const cv_activation inner = {activation(e.inner)}, outer = {activation(e.outer)};\n"
        f"  cv_gemm(t, {rows}, {step.k}, {step.n}, {w.pointer(step.x)}, {w.pointer(step.w)},\n"
        f"          {w.pointer(step.y)}, {w.pointer(e.bias)}, {residual}, inner, outer);\n"
    )


def emit_pool(step: s.Pool, w: Writer) -> str:
    w.headers.add("pool")
    padding: tuple[object, ...] = step.padding
    storage = "static const"
    if w.cut is not None:  # windows of an inner strip do not reach above the image
        padding, storage = ("s->above", *step.padding[1:]), "const"
    return (
        f"  {storage} cv_pool c = {{{_list(step.kernel)}, {_list(step.stride)}, {_list(step.dilation)}, "
        f"{_list(padding)}, {int(step.count_include_pad)}, {activation(step.outer)}}};\n"
        f"{w.maps(x=step.x, y=step.y)}  cv_{step.kind}_pool(t, &c, x, y);\n"
    )


def emit_reduce_map(step: s.ReduceMap, w: Writer) -> str:
    w.headers.add("reduce")
    return f"{w.maps(x=step.x, y=step.y)}  cv_reduce_map(t, CV_{step.kind.upper()}, x, y);\n"


def emit_reduce_array(step: s.ReduceArray, w: Writer) -> str:
    w.headers.add("reduce")
    return (
        f"  cv_reduce_plain(t, CV_{step.kind.upper()}, {w.pointer(step.y)}, {w.pointer(step.x)}, "
        f"{step.outer}, {step.axis}, {step.inner});\n"
    )


def emit_softmax(step: s.SoftmaxArray, w: Writer) -> str:
    w.headers.add("softmax")
    return (
        f"  cv_softmax(t, {w.pointer(step.y)}, {w.pointer(step.x)}, {step.outer}, {step.axis}, "
        f"{step.inner}, {int(step.log)});\n"
    )


def emit_copy_channels(step: s.CopyChannels, w: Writer) -> str:
    w.headers.add("channels")
    return (
        f"{w.maps(x=step.x, y=step.y)}"
        f"  cv_copy_channels(t, y, {step.y_channel}, x, {step.x_channel}, {step.count});\n"
    )


def emit_shuffle(step: s.ShuffleMap, w: Writer) -> str:
    w.headers.add("channels")
    return f"{w.maps(x=step.x, y=step.y)}  cv_channel_shuffle(t, y, x, {step.groups});\n"


def emit_resize_nearest(step: s.ResizeNearest, w: Writer) -> str:
    w.headers.add("resize")
    rows = w.table("int", [str(i) for i in step.rows])
    columns = w.table("int", [str(i) for i in step.columns])
    return f"{w.maps(x=step.x, y=step.y)}  cv_resize_nearest(t, y, x, {rows}, {columns});\n"


def emit_resize_bilinear(step: s.ResizeBilinear, w: Writer) -> str:
    w.headers.add("resize")
    tables = [
        w.table("int", [str(i) for i in step.rows]),
        w.table("float", [number(v) for v in step.row_weights]),
        w.table("int", [str(i) for i in step.columns]),
        w.table("float", [number(v) for v in step.column_weights]),
    ]
    return f"{w.maps(x=step.x, y=step.y)}  cv_resize_bilinear(t, y, x, {_list(tables)});\n"


def emit_lrn(step: s.LrnMap, w: Writer) -> str:
    w.headers.add("lrn")
    return (
        f"{w.maps(x=step.x, y=step.y)}  cv_lrn(t, y, x, {step.size}, {number(step.alpha)}, "
        f"{number(step.beta)}, {number(step.bias)});\n"
    )


def emit_transpose(step: s.TransposeArray, w: Writer) -> str:
    w.headers.add("tensor")
    shape = w.table("ptrdiff_t", [str(d) for d in step.y.shape])  # type: ignore[union-attr]
    strides = w.table("ptrdiff_t", [str(d) for d in step.strides])
    start = f" + {step.start}" if step.start else ""
    return (
        f"  cv_transpose_plain(t, {w.pointer(step.y)}, {w.pointer(step.x)}{start}, {len(step.strides)}, "
        f"{shape}, {strides});\n"
    )


def emit_pad(step: s.PadArray, w: Writer) -> str:
    w.headers.add("tensor")
    assert isinstance(step.y, Array)
    x_shape = w.table("ptrdiff_t", [str(d) for d in step.x.shape])
    before = w.table("ptrdiff_t", [str(d) for d in step.before])
    y_shape = w.table("ptrdiff_t", [str(d) for d in step.y.shape])
    return (
        f"  cv_pad_plain(t, {w.pointer(step.y)}, {w.pointer(step.x)}, {len(step.before)}, {x_shape}, "
        f"{before}, {y_shape}, {number(step.value)});\n"
    )


def emit_copy_rows(step: s.CopyRows, w: Writer) -> str:
    w.headers.add("tensor")
    start = f" + {step.y_start}" if step.y_start else ""
    return (
        f"  cv_copy_rows(t, {w.pointer(step.y)}{start}, {step.y_stride}, {w.pointer(step.x)}, "
        f"{step.x_stride}, {step.rows}, {step.columns});\n"
    )


def _chain(exprs: Sequence[Expr], operands: int, indent: str) -> tuple[str, str]:
    """The statements of a chain on v0 … (its operands), and the name of its result."""
    text = ""
    name = "v0"
    for i, expr in enumerate(exprs):
        name = f"v{operands + i}"
        args = [f"v{j}" for j in expr.args]
        if expr.op in BINARY:
            value = BINARY[expr.op].format(*args)
        else:
            value = f"cv_op_{expr.op}({args[0]}, {number(expr.a)}, {number(expr.b)})"
        text += f"{indent}const cv_vec {name} = {value};\n"
    return text, name


def emit_elementwise_map(step: s.ElementwiseMap, w: Writer) -> str:
    """Threads share the rows of all blocks."""
    w.headers |= {"activation", "halo"}
    y = step.y
    text = w.map("y", y)
    setup, loads = "", ""
    for i, (operand, role) in enumerate(zip(step.operands, step.roles, strict=True)):
        if role == "scalar":
            text += f"  const cv_vec v{i} = cv_set1(*({w.pointer(operand)}));\n"
        elif role == "channel":
            plane = operand.plane if isinstance(operand, Map) else y.lanes
            setup += f"    const cv_vec v{i} = cv_load({w.pointer(operand)} + block * {plane});\n"
        else:
            assert isinstance(operand, Map)
            text += w.map(f"x{i}", operand)
            block = f" + block * x{i}.plane" if role == "map" else ""
            load = "cv_load(x{0}_row + x * {1})" if role == "map" else "cv_set1(x{0}_row[x * {1}])"
            setup += f"    const float *x{i}_row = x{i}.data{block} + row * x{i}.row;\n"
            loads += f"      const cv_vec v{i} = {load.format(i, operand.step)};\n"
    chain, result = _chain(step.exprs, len(step.operands), "      ")
    store = f"cv_store(y_row + x * {y.step}, {result});"
    tail = y.channels % y.lanes
    if tail:  # lanes past the channels stay zero
        store = (
            f"if (block == {y.blocks - 1}) {{\n"
            f"        cv_store(y_row + x * {y.step}, cv_zero());\n"
            f"        cv_store_n(y_row + x * {y.step}, {result}, {tail});\n"
            f"      }} else {{\n        {store}\n      }}"
        )
    return (
        f"{text}  cv_map_clear_halo(t, y);\n"
        f"  const cv_range share = cv_share(t, {y.blocks} * y.height);\n"
        f"  int block = share.begin / y.height, row = share.begin % y.height;\n"
        f"  for (int i = share.begin; i < share.end; i++) {{\n"
        f"{setup}"
        f"    float *y_row = y.data + block * y.plane + row * y.row;\n"
        f"    for (int x = 0; x < {y.width}; x++) {{\n{loads}{chain}      {store}\n    }}\n"
        f"    if (++row == y.height) row = 0, block++;\n  }}\n"
    )


def emit_elementwise_array(step: s.ElementwiseArray, w: Writer) -> str:
    """Threads share the outer loops, or vectors of the only one."""
    w.headers |= {"activation", "map"}
    *outer, inner = step.loops
    rows = math.prod(outer)
    text = f"  float *y = {w.pointer(step.y)};\n"
    setup = ""
    full, rest = "", ""
    for i, (operand, strides) in enumerate(zip(step.operands, step.strides, strict=True)):
        text += f"  const float *x{i} = {w.pointer(operand)};\n"
        terms = _row_offset(outer, strides[:-1])
        setup += f"    const float *r{i} = x{i}{terms};\n"
        if strides[-1] == 0:
            setup += f"    const cv_vec v{i} = cv_set1(*r{i});\n"
        else:
            assert strides[-1] == 1
            full += f"      const cv_vec v{i} = cv_loadu(r{i} + x);\n"
            rest += f"      const cv_vec v{i} = cv_load_n(r{i} + x, n);\n"
    chain, result = _chain(step.exprs, len(step.operands), "      ")
    if rows > 1:
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
        f"    float *y_row = y + (ptrdiff_t)i * {inner};\n"
        f"    int x = begin;\n"
        f"    for (; x + CV_LANES <= end; x += CV_LANES) {{\n{full}{chain}"
        f"      cv_storeu(y_row + x, {result});\n    }}\n"
        f"    if (x < end) {{\n      const int n = end - x;\n{rest}{chain}"
        f"      cv_store_n(y_row + x, {result}, n);\n    }}\n  }}\n"
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


def _plus(base: str, offset: int) -> str:
    return f"{base} + {offset}" if offset else base


def _list(items: Sequence[object]) -> str:
    return ", ".join(str(item) for item in items)


EMITTERS: dict[type[Step], Callable[[Any, Writer], str]] = {
    s.Pack: emit_pack,
    s.Unpack: emit_unpack,
    s.ClearHalo: emit_clear_halo,
    s.DirectConv: emit_direct_conv,
    s.WinogradConv: emit_winograd,
    s.DepthwiseConv: emit_depthwise,
    s.Gemm: emit_gemm,
    s.Pool: emit_pool,
    s.ReduceMap: emit_reduce_map,
    s.ReduceArray: emit_reduce_array,
    s.SoftmaxArray: emit_softmax,
    s.CopyChannels: emit_copy_channels,
    s.ShuffleMap: emit_shuffle,
    s.ResizeNearest: emit_resize_nearest,
    s.ResizeBilinear: emit_resize_bilinear,
    s.LrnMap: emit_lrn,
    s.TransposeArray: emit_transpose,
    s.PadArray: emit_pad,
    s.CopyRows: emit_copy_rows,
    s.ElementwiseMap: emit_elementwise_map,
    s.ElementwiseArray: emit_elementwise_array,
}
