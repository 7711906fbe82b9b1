"""Constants that Python and C both have are equal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from convoy import options
from convoy.kernels import gemm, matmul_scaled, product, strided
from convoy.kernels.conv2d import choose, depthwise, row_points, schedules
from convoy.kernels.strips import window
from convoy.plan import maps, tiles
from convoy.target.instructions import INSTRUCTIONS, InstructionSet

CSRC = Path(__file__).parents[2] / "csrc"

SHARED = {
    "CV_STRIP_MEMBERS": ("kernels/strips.h", window.MOST_MEMBERS),
    "CV_GEMM_BLOCKS": ("kernels/gemm_form.h", gemm.GEMM_BLOCKS),
    "CV_GEMM_DEPTH": ("kernels/gemm_form.h", gemm.GEMM_DEPTH),
    "CV_GEMM_GROUP": ("kernels/gemm_form.h", matmul_scaled.GROUP),
    "CV_GEMM_NIBBLES": ("kernels/gemm_scaled_panel.h", matmul_scaled.NIBBLES),
    "CV_PRODUCT_PANELS": ("kernels/product.h", product.PRODUCT_PANELS),
    "CV_STACK": ("kernels/strides.h", strided.STACK),
    "CV_DEPTHWISE_MAX_KERNEL_W": ("kernels/conv2d_depthwise.h", choose.DEPTHWISE_KERNEL_WIDTH),
    "CV_WINOGRAD_FOUR": ("kernels/conv2d_winograd_streamed.h", schedules.STREAMED_TILES),
    "CV_WINOGRAD_ROWS_OUT": ("kernels/conv2d_winograd_rows.h", row_points.OUT),
    "CV_WINOGRAD_ROWS_ROOM": ("kernels/conv2d_winograd_rows.h", row_points.ROOM),
    "CV_WINOGRAD_ROWS_MAX_SPAN": ("kernels/conv2d_winograd_rows.h", row_points.MOST_SPAN),
    "CV_WINOGRAD_MAX_OUT": ("kernels/conv2d_winograd_transforms.h", max(schedules.OUTS["fastest"])),
    "CV_CONV2D_LINE": ("kernels/conv2d_direct_form.h", maps.LINE_BYTES // 4),
    "CV_CONV2D_MAX_SPAN": ("kernels/conv2d_direct_taps.h", tiles.MOST_SPAN),
    "CV_MAX_THREADS": ("runtime/team.c", options.MOST_THREADS),
}


def read_constant(file: str, name: str) -> int:
    """A macro or a member of an enum that is a number."""
    text = (CSRC / file).read_text()
    found = re.findall(rf"(?:#define {name} |\b{name} = )(\d+)\b", text)
    assert len(found) == 1, f"{file}: {name} is defined {len(found)} times"
    return int(found[0])


@pytest.mark.parametrize("name", SHARED)
def test_python_and_c_have_one_number(name: str) -> None:
    file, value = SHARED[name]
    assert read_constant(file, name) == value


@pytest.mark.parametrize("isa", INSTRUCTIONS)
def test_an_instruction_set_has_one_shape(isa: InstructionSet) -> None:
    header, one = f"simd/{isa}.h", INSTRUCTIONS[isa]
    assert read_constant(header, "CV_LANES") == one.lanes
    assert read_constant(header, "CV_REGISTERS") == one.registers
    assert one.accumulators < one.registers


def test_a_tile_fits_its_kernel() -> None:
    widest = read_constant("kernels/conv2d_depthwise.h", "CV_DEPTHWISE_MAX_PIXELS")
    assert widest >= depthwise.DEPTHWISE_PIXELS
    most = read_constant("kernels/conv2d_direct_form.h", "CV_CONV2D_MAX_ACCUMULATORS")
    assert max(one.accumulators for one in INSTRUCTIONS.values()) <= most


def test_a_number_that_is_not_there_is_seen() -> None:
    with pytest.raises(AssertionError, match="CV_NO_SUCH is defined 0 times"):
        read_constant("kernels/strips.h", "CV_NO_SUCH")
