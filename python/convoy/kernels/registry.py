"""All kinds of kernels, found by the node they compute or by the step they write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from convoy.codegen.writer import Writer
from convoy.errors import GraphError
from convoy.graph.graph import Graph
from convoy.graph.messages import describe
from convoy.kernels import (
    attention,
    computed_scales,
    concat,
    copy,
    elementwise,
    elementwise_bytes,
    grid_sample,
    group_norm,
    layer_norm,
    layout,
    lrn,
    matmul,
    matmul_bytes,
    pad,
    pool,
    product,
    product_bytes,
    quantize,
    recurrent,
    reduce,
    reduce_bytes,
    reshape,
    resize,
    rotate,
    shuffle,
    slice,
    softmax,
    table,
    transpose,
)
from convoy.kernels.byte_scales import scales_fit
from convoy.kernels.conv2d import bytes, convolution, transposed
from convoy.kernels.conv2d.choose import Choice
from convoy.kernels.kernel import KernelKind
from convoy.kernels.precision import Narrow
from convoy.kernels.strips import strips
from convoy.options import Options
from convoy.plan.fuse import Fusion, Takes
from convoy.plan.step import Step
from convoy.target import Target

KERNELS = (
    convolution.KERNEL,
    bytes.KERNEL,
    transposed.KERNEL,
    transposed.BYTES,
    matmul.KERNEL,
    matmul_bytes.KERNEL,
    product.KERNEL,
    product_bytes.KERNEL,
    attention.KERNEL,
    rotate.KERNEL,
    recurrent.KERNEL,
    pool.KERNEL,
    elementwise.KERNEL,
    elementwise_bytes.KERNEL,
    quantize.KERNEL,
    concat.KERNEL,
    slice.KERNEL,
    reshape.KERNEL,
    transpose.KERNEL,
    reduce.KERNEL,
    reduce_bytes.KERNEL,
    softmax.KERNEL,
    resize.KERNEL,
    grid_sample.KERNEL,
    pad.KERNEL,
    lrn.KERNEL,
    layer_norm.KERNEL,
    group_norm.KERNEL,
    shuffle.KERNEL,
    strips.KERNEL,
    table.KERNEL,
    computed_scales.KERNEL,
    pool.BYTES,
    resize.BYTES,
    KernelKind(
        emitters={
            layout.Pack: layout.emit_pack,
            layout.Unpack: layout.emit_unpack,
            layout.ClearHalo: layout.emit_clear_halo,
            layout.Convert: layout.emit_convert,
            copy.CopyChannels: copy.emit_copy_channels,
            copy.CopyRows: copy.emit_copy_rows,
        }
    ),
)

_OF_NODE = {node: kernel for kernel in KERNELS if not kernel.takes_bytes for node in kernel.nodes}
_OF_BYTES = {node: kernel for kernel in KERNELS if kernel.takes_bytes for node in kernel.nodes}
_EMITTERS = {step: emit for kernel in KERNELS for step, emit in kernel.emitters.items()}


def find_kernel(fusion: Fusion) -> KernelKind:
    """The kernel that computes a fusion.

    Raises
    ------
    GraphError
        If there is none.
    """
    node = fusion.anchor
    kernels = _OF_BYTES if fusion.of_bytes else _OF_NODE
    if type(node) not in kernels:
        raise GraphError(
            "plan", f"{type(node).__name__} {node.output}", "expected an op with a kernel, got none",
            "leave the op to TVM",
        )  # fmt: skip
    return kernels[type(node)]


def find_takers(graph: Graph, target: Target, threads: int, options: Options) -> Takes:
    """Which fusions of bytes become kernels (``plan.fuse.fuse``)."""

    def takes(fusion: Fusion) -> bool:
        kernel = _OF_BYTES.get(type(fusion.anchor))
        if kernel is None or kernel.takes_bytes is None:
            return False
        return kernel.takes_bytes(fusion, graph, target, threads, options) and scales_fit(fusion, graph)

    return takes


def check_types(graph: Graph, fusions: Sequence[Fusion]) -> None:
    """Hold every fusion to the element types its kernel knows.

    Raises
    ------
    GraphError
        Naming the first node that is of another.
    """
    for fusion in fusions:
        known = find_kernel(fusion).dtypes
        for name in (*fusion.reads, fusion.output):
            if graph.dtype(name) not in known:
                problem = (
                    f"expected tensors of {', '.join(sorted(known))}, got %{name} of {graph.dtype(name)}"
                )
                raise GraphError("plan", describe(fusion.anchor), problem, "leave the op to TVM")


def find_narrow(
    graph: Graph, fusions: Sequence[Fusion], choices: Mapping[str, Choice]
) -> dict[str, Narrow]:
    """What the kernel of each fusion knows of bfloat16, by the fusion's output."""
    return {f.output: find_kernel(f).narrow(f, graph, choices) for f in fusions}


def emit_step(step: Step, writer: Writer) -> str:
    """The body of a step's function: uses ``t`` (cv_thread) and ``f`` (frame)."""
    return _EMITTERS[type(step)](step, writer)


def choose_layouts(graph: Graph, fusions: Sequence[Fusion]) -> dict[str, bool]:
    """True for each tensor that is made in the blocked layout, False for row-major."""
    blocked = dict.fromkeys(graph.inputs, False)
    for fusion in fusions:
        blocked[fusion.output] = find_kernel(fusion).wants_map(fusion, graph, blocked)
    return blocked
