"""A backend of one's own on Convoy's road, from what its library takes to the code that calls it.

The library (``library.h``) has three kernels: a 3x3 convolution, an add, a ReLU; ``emit.py`` writes the C
that calls them.  The page that walks through this file is ``docs/your-own-backend.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from convoy.relax.codegen import current, link_regions
from convoy.relax.lower import lower
from own_backend.emit import emit

# 1. What the library takes ------------------------------------------------------------------------


def refuse(call: relax.Call) -> str | None:
    """Why the library cannot compute a call; None if it can."""
    name = call.op.name
    if name == "relax.nn.conv2d":
        kernel = tuple(int(size) for size in list(call.args[1].ty.shape)[2:])
        if kernel != (3, 3):
            return f"acme has 3x3 convolutions only, this is {kernel[0]}x{kernel[1]}"
        attributes = call.attrs
        plain = [[1, 1], [1, 1, 1, 1], [1, 1], 1]
        found = [attributes.strides, attributes.padding, attributes.dilation, attributes.groups]
        if [list(f) if hasattr(f, "__len__") else f for f in found] != plain:
            return "acme has convolutions of stride 1, padding 1, dilation 1, one group only"
        return None
    return None if name in ("relax.add", "relax.nn.relu") else f"acme has no {name}"


# 2. What TVM calls --------------------------------------------------------------------------------


def compile_functions(
    functions: Sequence[relax.Function], options: Mapping[str, Any], constants: Mapping[Any, str]
) -> list[tvm.runtime.Module]:
    """``relax.ext.acme``: the functions that belong to acme, compiled."""
    del options, constants
    regions = [emit(lower(f), str(f.attrs["global_symbol"])) for f in functions]
    return link_regions(regions, current())


tvm_ffi.register_global_func("relax.ext.acme", compile_functions, override=True)
