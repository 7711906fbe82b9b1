"""Shape functions for ops that regions take and TVM has none for.

Where the images are counted at run time, TVM's virtual machine computes by them how large a region's result
is, and needs one of every op inside.  TVM does without where it fuses an op or simplifies it away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relay, topi
from tvm.relay.op.op import register_shape_func

_RESULTS = {
    **dict.fromkeys(("abs", "erf", "nn.lrn", "nn.log_softmax"), (0,)),
    **dict.fromkeys(("qnn.quantize", "qnn.dequantize", "annotation.stop_fusion"), (0,)),
    **dict.fromkeys(("nn.layer_norm", "nn.group_norm", "nn.instance_norm"), (0,)),
    "nn.batch_norm": (0, 3, 4),
    "nn.dropout": (0, 0),
}
"""The operands whose shapes the results of an op have."""


def register_shape_functions() -> None:
    """Give each of these ops one, if it has none."""
    for name, operands in _RESULTS.items():
        if relay.op.get(name).get_attr("FShapeFunc") is None:
            register_shape_func(name, False, _shapes_of(operands))


def _shapes_of(operands: Sequence[int]) -> Callable[[Any, Any, Any], list[Any]]:
    def shapes(attrs: Any, inputs: Any, ndims: Any) -> list[Any]:
        del attrs, ndims
        return [topi.math.identity(inputs[i]) for i in operands]

    return shapes
