"""Products of matrices, and attention, which is two of them."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from convoy.graph.ops import Attention, MatMul, Product
from convoy.graph.views import View, broadcast_view, exchanged, permuted, product_views, view_whole
from convoy.ops.operands import Operands
from convoy.ops.reader import Call, Reader
from convoy.ops.row import Lowering, OpRow

# Products ------------------------------------------------------------------------------------------


def has_weight(at: Reader, call: Call) -> bool:
    """Is the second operand of a product one constant matrix?  Then it is an anchor."""
    shape = at.dims(call.args[1]) or ()
    matrix = len(shape) >= 2 and all(length == 1 for length in shape[:-2])
    return matrix and not getattr(call.attrs, "transpose_a", False) and at.is_constant(call.args[1])


def _check_product(at: Reader, call: Call) -> str | None:
    axes = len(at.dims(call.args[1]) or ())
    return None if axes >= 2 else f"expected a second operand of two axes or more, got {axes}"


def _product(pattern: str = "", *, transposed: bool = False) -> Lowering:
    def lower_product(at: Operands, call: Call) -> str:
        x, y = call.args
        exchange = [
            bool(getattr(call.attrs, "transpose_a", False)),
            transposed or bool(getattr(call.attrs, "transpose_b", False)),
        ]
        array = at.constant(y)
        if array is not None and prod(array.shape[:-2]) == 1 and not exchange[0]:
            matrix = array.reshape(array.shape[-2:])
            weight = at.build.constant(matrix.T if exchange[1] else matrix)
            return at.build.node(MatMul, (at.tensor(x), weight), at.shape(call), pattern=pattern)
        names = (at.tensor(x), at.tensor(y))
        wholes = (view_whole(at.build.shape_of(name)) for name in names)
        left, right = (
            exchanged(view) if change else view for view, change in zip(wholes, exchange, strict=True)
        )
        left = left if len(left.shape) > 1 else View((1, *left.shape), (0, *left.strides))
        a, b, made = product_views(left, right)
        return at.build.node(Product, names, at.shape(call), a=a, b=b, y=made)

    return lower_product


# Attention -----------------------------------------------------------------------------------------


def _check_attention(at: Reader, call: Call) -> str | None:
    if call.attrs.window_size is not None:
        return f"expected all keys to be seen, got a window of {call.attrs.window_size}"
    mask = str(call.attrs.causal_mask or "TopLeft")
    return None if mask in ("TopLeft", "BottomRight") else f"expected a causal mask TVM has, got {mask}"


def _lower_attention(at: Operands, call: Call) -> str:
    """Tensors are [B, length, H, D], a mask broadcasts to [B, H, M, N]; axes may be in front."""
    names = tuple(at.tensor(arg) for arg in call.args)
    shape = at.shape(call)
    shapes = (*(at.build.shape_of(name) for name in names[:3]), shape)
    front = len(shape) - 4
    perm = (*range(front), *(front + axis for axis in (0, 2, 1, 3)))
    q, k, v, y = (permuted(view_whole(each), perm) for each in shapes)  # [B, H, length, D]
    m, n = q.shape[-2], k.shape[-2]
    given = {}
    if len(names) > 3:
        given["mask"] = broadcast_view(view_whole(at.build.shape_of(names[3])), (*q.shape[:-1], n))
    scale = q.shape[-1] ** -0.5 if call.attrs.scale is None else float(call.attrs.scale)
    diagonal = {"TopLeft": 0, "BottomRight": abs(m - n)}.get(str(call.attrs.causal_mask))
    return at.build.node(
        Attention, names, shape, q=q, k=k, v=v, y=y, scale=scale, diagonal=diagonal, **given
    )


_PRODUCT = OpRow(
    cost="product",
    axis_zero="rows",
    heavy=True,
    open_sizes=True,
    takes_constants=True,
    check=_check_product,
)
_ATTENTION = OpRow(
    cost="attention",
    heavy=True,
    open_sizes=True,
    takes_constants=True,
    check=_check_attention,
    lower=_lower_attention,
)

ROWS = (
    replace(_PRODUCT, relax="matmul", relay="nn.matmul", lower=_product()),
    replace(_PRODUCT, relay="nn.dense", lower=_product("dense", transposed=True)),
    replace(_PRODUCT, relay="nn.batch_matmul", lower=_product("batch_matmul")),
    replace(_ATTENTION, relax="nn.attention"),
    replace(_ATTENTION, relax="nn.attention_bias"),
)
