"""Names of ONNX nodes on what TVM makes of them."""

from __future__ import annotations

import tvm


def name_call(call: tvm.ir.Call, name: str) -> tvm.ir.Call:
    """The same call with ``name`` in its span: a result of the model loses its variable's name."""
    span = tvm.ir.Span(tvm.ir.SourceName(name), 0, 0, 0, 0)
    return tvm.ir.Call(call.op, list(call.args), call.attrs, call.ty_args, span)
