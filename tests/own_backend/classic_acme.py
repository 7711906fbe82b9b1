"""The backend of ``acme.py`` in classic TVM (Relay): what its library takes, and what TVM calls."""

from __future__ import annotations

import tvm
from tvm import relay

from convoy.graph.digest import content_hash
from convoy.relay.codegen import constant_updater, current, link_function
from convoy.relay.errors_through_tvm import remember_error
from convoy.relay.lower import lower
from own_backend.emit import emit


def refuse(call: relay.Call) -> str | None:
    """Why the library cannot compute a call; None if it can."""
    name = call.op.name
    if name == "nn.conv2d":
        kernel = tuple(int(size) for size in call.args[1].checked_type.shape[2:])
        if kernel != (3, 3):
            return f"acme has 3x3 convolutions only, this is {kernel[0]}x{kernel[1]}"
        attributes = call.attrs
        found = [list(map(int, f)) for f in (attributes.strides, attributes.padding, attributes.dilation)]
        if [*found, int(attributes.groups)] != [[1, 1], [1, 1, 1, 1], [1, 1], 1]:
            return "acme has convolutions of stride 1, padding 1, dilation 1, one group only"
        return None
    return None if name in ("add", "nn.relu") else f"acme has no {name}"


@remember_error  # what it raises reaches the caller of relay.build as it is
def compile_function(function: relay.Function) -> tvm.runtime.Module:
    """``relay.ext.acme``: a function that belongs to acme, compiled."""
    graph = lower(function)
    return link_function(function, emit(graph, f"acme_{content_hash(graph)}"), current())


tvm.register_func("relay.ext.acme", compile_function, override=True)
tvm.register_func("relay.ext.acme.constant_updater", constant_updater, override=True)
