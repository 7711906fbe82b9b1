"""One emitter per step: the body of the function that calls its kernel; those of convolutions stand in
``codegen/convolutions.py``.

An emitter writes the step's data as C literals and one call; it decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from convoy.codegen import convolutions
from convoy.codegen.writer import Writer, activation, joined, number
from convoy.plan import steps as s
from convoy.plan.batch import takes_rows
from convoy.plan.steps import Array, Expr, Map, Step

BINARY = {
    "add": "cv_add({0}, {1})",
    "sub": "cv_sub({0}, {1})",
    "mul": "cv_mul({0}, {1})",
    "div": "cv_div({0}, {1})",
    "max": "cv_select(cv_unordered({0}, {1}), cv_add({0}, {1}), cv_max({0}, {1}))",
    "min": "cv_select(cv_unordered({0}, {1}), cv_add({0}, {1}), cv_min({0}, {1}))",
    "pow": "cv_pow({0}, {1})",
}


def emit_step(step: Step, writer: Writer) -> str:
    """The body of a step's function: uses ``t`` (cv_thread) and ``f`` (frame)."""
    return EMITTERS[type(step)](step, writer)


def emit_pack(step: s.Pack, w: Writer) -> str:
    w.headers.add("layout")
    kernel = "cv_pack_planar" if step.y.lanes == 1 else "cv_pack"
    return f"{w.map('y', step.y)}  {kernel}(t, y, {w.pointer(step.x)}, {joined(step.strides)});\n"


def emit_unpack(step: s.Unpack, w: Writer) -> str:
    w.headers.add("layout")
    return f"{w.map('x', step.x)}  cv_unpack(t, {w.pointer(step.y)}, {joined(step.strides)}, x);\n"


def emit_clear_halo(step: s.ClearHalo, w: Writer) -> str:
    w.headers.add("layout")
    return f"{w.map('y', step.y)}  cv_map_clear_halo(t, y);\n"


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
        f"  {storage} cv_pool c = {{{joined(step.kernel)}, {joined(step.stride)}, {joined(step.dilation)}, "
        f"{joined(padding)}, {int(step.count_include_pad)}, {activation(step.outer)}}};\n"
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
    return f"{w.maps(x=step.x, y=step.y)}  cv_resize_bilinear(t, y, x, {joined(tables)});\n"


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


EMITTERS: dict[type[Step], Callable[[Any, Writer], str]] = {
    s.Pack: emit_pack,
    s.Unpack: emit_unpack,
    s.ClearHalo: emit_clear_halo,
    s.DirectConv: convolutions.emit_direct_conv,
    s.TransformRows: convolutions.emit_transform_rows,
    s.WinogradConv: convolutions.emit_winograd,
    s.DepthwiseConv: convolutions.emit_depthwise,
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
