"""resize2d: what Convoy takes has TVM's pixels, whatever TVM's float32 coordinates round to."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tvm
from tvm import relax

from convoy.ops.resize import COORDINATES, ROUNDINGS, bilinear_places, nearest_pixels, refuse_resize

OUTPUTS = {2: (7,), 3: (5, 29), 7: (4, 46)}
"""By sizes; several have pixels that lie just between two."""


@pytest.mark.slow
def test_a_resize_that_is_taken_has_the_pixels_of_tvm() -> None:
    builder, kept, taken = relax.BlockBuilder(), [], []
    inputs = {size: relax.Var(f"x{size}", relax.TensorType((1, 1, 2, size), "float32")) for size in OUTPUTS}
    rules = itertools.product(COORDINATES, (*ROUNDINGS, "linear"))
    with builder.function("main", list(inputs.values())):
        with builder.dataflow():
            for (coordinates, rounding), size in itertools.product(rules, OUTPUTS):
                for output in OUTPUTS[size]:
                    call = relax.op.image.resize2d(
                        inputs[size],
                        (2, output),
                        method="linear" if rounding == "linear" else "nearest_neighbor",
                        coordinate_transformation_mode=coordinates,
                        rounding_method=rounding.replace("linear", ""),
                    )
                    reason = refuse_resize(call.attrs, (1, 1, 2, size), (1, 1, 2, output))
                    case = (coordinates, rounding, size, output)
                    if reason is None:
                        taken.append((*case, builder.emit(call)))
                    else:
                        kept.append(case)
                        assert reason.endswith(f"round to other pixels, from {size} to {output}")
            result = builder.emit_output(relax.Tuple([made for *_, made in taken]))
        builder.emit_func_output(result)
    machine = relax.VirtualMachine(tvm.compile(builder.get(), "llvm"), tvm.cpu())
    ramps = [np.tile(np.arange(size, dtype=np.float32), (1, 1, 2, 1)) for size in OUTPUTS]
    outputs = machine["main"](*map(tvm.runtime.tensor, ramps))
    for (coordinates, rounding, size, output, _), made in zip(taken, outputs, strict=True):
        if rounding == "linear":
            wanted = np.clip(bilinear_places(coordinates, size, output), 0, size - 1)
        else:
            wanted = nearest_pixels(coordinates, rounding, size, output)
        np.testing.assert_allclose(
            made.numpy()[0, 0, 0], wanted, atol=1e-5, err_msg=f"{coordinates} {rounding}"
        )
    assert len(taken) > 10 * len(kept) > 0  # few are left to TVM, but some are
