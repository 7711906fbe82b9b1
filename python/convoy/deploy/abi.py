"""The C by which TVM's executable calls a region: ``__tvm_ffi_<symbol>``.

What the entry checks is data: a table of the arguments' names, shapes and element types.  The checking
itself is ordinary C, ``csrc/runtime/arguments.c``, written once for this and ``deploy/classic.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from convoy.graph.dtypes import BYTES, DType
from convoy.graph.graph import OpenAxis
from convoy.graph.ops import Tensor
from convoy.graph.sizes import is_open, spell
from convoy.text import c_comment, c_name, c_string, line

CODES: Mapping[DType, str] = {dtype: f"CV_{dtype.upper()}" for dtype in BYTES}
"""The names of element types in ``convoy/entry.h``."""

THREAD_FUNCTIONS = ("convoy_num_threads", "convoy_set_num_threads")
"""TVM functions of every exported library: ``() -> int``, and ``(int) -> None`` (0: the default)."""
LOOP_POINTERS = ("__TVMBackendParallelLaunch", "__TVMBackendParallelBarrier")
"""What loops that TVM compiles read the functions from that share them (``csrc/runtime/tvm_loops.c``)."""
TRACE_FUNCTIONS = ("convoy_trace", "convoy_trace_call")
"""TVM functions of a library that is traced (``csrc/runtime/trace.c``)."""


def export_name(function: str) -> str:
    """The C name under which TVM finds ``function`` in a library."""
    return c_name(f"__tvm_ffi_{function}")


def emit_entry(
    symbol: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], batch: int | None,
    open_axes: Sequence[OpenAxis] = (), called: str = "",
) -> str:  # fmt: skip
    """C of the TVM entry of the region ``symbol``.

    Parameters
    ----------
    symbol : str
        C name of the region (see ``convoy/region.h``).
    inputs, outputs : Sequence[Tensor]
        Its tensors with the shapes of one image, in the order of the call.
    batch : int | None
        Images of a call; None: any number, the same in all arguments.
    open_axes : Sequence[OpenAxis]
        Where sizes are read that are known at the call.
    called : str
        What TVM and messages call it; "": as it is in C.

    Returns
    -------
    str
        A C unit that defines ``__tvm_ffi_<called>``; it takes the inputs, then the outputs.
    """
    return f"""\
/* How TVM calls {c_comment(called or symbol)}: {len(inputs):d} inputs, then {len(outputs):d} outputs. */
#include "convoy/tvm_entry.h"

{emit_table(symbol, inputs, outputs, batch, open_axes, called)}
CV_TVM_EXPORT int {export_name(called or symbol)}(void *self, const cv_tvm_any *args, int32_t count,
                                        cv_tvm_any *result) {{
  (void)self, (void)result; /* no state; the results are the last arguments */
  return convoy_call_region(&entry, args, count);
}}
"""


def emit_table(
    symbol: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], batch: int | None,
    open_axes: Sequence[OpenAxis] = (), called: str = "",
) -> str:  # fmt: skip
    """C of ``entry``: what the region ``symbol`` may be called with.  Parameters as ``emit_entry``."""
    tensors = [*inputs, *outputs]
    shapes = "".join(
        f"static const int64_t shape_{i}[] = {{{_lengths(tensor)}}};\n" for i, tensor in enumerate(tensors)
    )
    rows = "".join(
        f"    {{{c_string(line(tensor.name))}, {len(tensor.shape)}, shape_{i}, {CODES[tensor.dtype]}}},\n"
        for i, tensor in enumerate(tensors)
    )
    region, parameter, measure = f".region = {symbol}", "", ""
    if open_axes:
        region, parameter = _open_members(symbol, open_axes), ", const int64_t *sizes"
        measure = _emit_measure(tensors, open_axes)
    return f"""\
int {c_name(symbol)}(const void *const *inputs, void *const *outputs, int64_t images{parameter});

{shapes}{measure}
static const cv_argument arguments[] = {{
{rows}}};

static const cv_entry entry = {{
    .name = {c_string(called or symbol)},
    {region},
    .vectors = CV_VECTORS,
    .inputs = {len(inputs)},
    .outputs = {len(outputs)},
    .arguments = arguments,
    .batch = {-1 if batch is None else batch},
}};
"""


def _lengths(tensor: Tensor) -> str:
    return ", ".join("0" if is_open(length) else str(length) for length in tensor.shape) or "0"


def _open_members(symbol: str, open_axes: Sequence[OpenAxis]) -> str:
    return (
        f".open_region = {symbol},\n    .sizes = {len(open_axes)},\n    .open_axes = open_axes,\n"
        "    .measure = measure"
    )


def _emit_measure(tensors: Sequence[Tensor], open_axes: Sequence[OpenAxis]) -> str:
    """C of where sizes are read, and of what all lengths are by them."""
    axes = ", ".join(f"{{{at.input}, {at.axis}, {at.times}, {at.symbol.least}}}" for at in open_axes)
    lengths = [length for tensor in tensors for length in tensor.shape]
    rows = "".join(f"  lengths[{i}] = {spell(length, 'f.')};\n" for i, length in enumerate(lengths))
    return f"""
static const cv_open_axis open_axes[] = {{{axes}}};

static void measure(const int64_t *sizes, int64_t *lengths) {{
  const struct {{ const int64_t *size; }} f = {{sizes}};
{rows}}}
"""


def emit_settings(threads: int) -> str:
    """C of what was chosen when compiling: the threads of a launch, 0 for the machine's cores."""
    return f"/* See convoy_num_threads in convoy/runtime.h. */\nint convoy_compiled_threads = {threads};\n"
