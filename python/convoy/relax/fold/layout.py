"""Channels-last convolutions and pools become channels-first; transposes sink and cancel.

A channels-last value is held as a view: a channels-first variable and the permutation that gives the
value asked for. Ops that do not care about the order of axes are moved onto the channels-first
variable, so the permutation travels with the data until an op needs the value itself. A whole NHWC
network so ends with one permute at each edge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm import IRModule, relax
from tvm.ir import Call, Expr, TupleGetItem, Var
from tvm.ir import Tuple as TupleExpr

from convoy.fold.node import known_lengths
from convoy.ops import reductions
from convoy.ops.table import RELAX, of_cost
from convoy.relax.dataflow import dims, op_name
from convoy.relax.fold.constants import literal, write_constant
from convoy.relax.fold.node import make_label
from convoy.relax.fold.walk import Walk
from convoy.report.decision import Report

Perm = tuple[int, ...]

_CHANNELS_LAST = {"NWC": "NCW", "NHWC": "NCHW", "NDHWC": "NCDHW"}
_POOLS = tuple(name for name, row in RELAX.items() if row.pool)
_CONVOLUTIONS = of_cost(RELAX, "convolution", "transposed")


@dataclass(frozen=True)
class View:
    """permute_dims(inner, perm), not written yet."""

    inner: Expr
    perm: Perm

    @property
    def movable(self) -> bool:
        """A channels-last view of channels-first data: the kind worth sinking."""
        return len(self.perm) > 2 and self.perm == _to_last(len(self.perm))


class NormalizeLayout(Walk):
    """One function's walk; see the head of this file."""

    def __init__(self, module: IRModule, report: Report) -> None:
        super().__init__(module)
        self.report = report
        self.views: dict[Var, View] = {}
        self.bound: set[Var] = set()
        self.transposed: dict[tuple[Var, Perm], Expr] = {}
        """permute_dims already written for a variable."""
        self.norms: dict[Var, tuple[Expr, Perm]] = {}
        self.channels_last = False
        """Seen a channels-last op: the network is of that kind, other operands follow."""
        self.handlers: dict[str, Callable[[Var, Call, str], bool]] = {
            "permute_dims": self._permute,
            "concat": self._concat,
            "nn.batch_norm": self._batch_norm,
            "nn.softmax": self._axis,
            "nn.log_softmax": self._axis,
            "nn.prelu": self._axis,
            "nn.pad": self._pad,
            "image.resize2d": self._resize,
            "reshape": self._reshape,
            "squeeze": self._reshape,
            **dict.fromkeys((n for n, row in RELAX.items() if row.one_operand), self._unary),
            **dict.fromkeys((n for n, row in RELAX.items() if row.binary), self._binary),
            **dict.fromkeys(reductions.KINDS, self._reduce),
            **dict.fromkeys(_POOLS, self._pool),
            **dict.fromkeys(_CONVOLUTIONS, self._convolve),
        }

    def held(self) -> list[Var]:
        return [var for var in self.views if var not in self.bound]

    def force(self, var: Var) -> None:
        view = self.views.get(var)
        if view is None or var in self.bound:
            return
        self.bound.add(var)
        if view.perm == tuple(range(len(view.perm))):
            self.bind(view.inner, var)
        else:
            self.bind(relax.op.permute_dims(view.inner, list(view.perm)), var)

    def substitute(self, var: Var) -> Expr:
        view = self.views.get(var)
        return view.inner if view is not None and view.perm == tuple(range(len(view.perm))) else var

    def close_block(self) -> None:
        self.views.clear()
        self.norms.clear()
        self.transposed.clear()

    def interpret(self, var: Var, value: Expr) -> bool:
        if isinstance(value, TupleGetItem):
            return self._read_norm(var, value)
        if isinstance(value, Var) and value in self.views:
            self.views[var] = self.views[value]
            return True
        handler = self.handlers.get(op_name(value))
        return handler is not None and handler(var, value, op_name(value))

    # Views.

    def _view(self, value: Expr) -> View | None:
        """The movable view a value is, if it is one."""
        view = self.views.get(value) if isinstance(value, Var) else None
        return view if view is not None and view.movable else None

    def _inner(self, value: Expr, perm: Perm) -> Expr:
        """``value`` with the permutation undone: permute_dims(result, perm) = value."""
        constant = self.constant(value)
        back = _inverse(perm)
        if constant is not None:
            return literal(constant.array.transpose(back), constant.dtype)
        view = self.views.get(value)
        if view is not None and view.perm == perm:
            return view.inner
        if view is not None:
            joined = tuple(view.perm[axis] for axis in back)
            if joined == tuple(range(len(joined))):
                return view.inner
            value, back = view.inner, joined
        key = (value, back)
        if key not in self.transposed:
            self.transposed[key] = self.bind(relax.op.permute_dims(value, list(back)))
        return self.transposed[key]

    def _hold(self, var: Var, value: Expr, perm: Perm) -> bool:
        """``var`` is permute_dims(value, perm); the value is bound, the permutation is not."""
        self.views[var] = View(self.bind(value, near=var), perm)
        return True

    def _rebuild(self, call: Call, *leading: Expr) -> Call:
        """The same call with its leading operands replaced."""
        args = [*leading, *call.args[len(leading) :]]
        return Call(call.op, args, call.attrs, call.ty_args, call.span)

    # Ops.

    def _permute(self, var: Var, call: Call, name: str) -> bool:
        shape = dims(call)
        if shape is None:
            return False
        axes = call.attrs.axes
        rank = len(shape)
        perm = tuple(reversed(range(rank))) if axes is None else tuple(int(a) % rank for a in axes)
        source = call.args[0]
        view = self.views.get(source) if isinstance(source, Var) else None
        if view is None:
            if not isinstance(source, Var):
                return False
            self.views[var] = View(source, perm)
            return True
        joined = tuple(view.perm[axis] for axis in perm)
        self.views[var] = View(view.inner, joined)
        self.report.add(make_label(call, var), "fold", "folded", "into the transpose before it")
        return True

    def _convolve(self, var: Var, call: Call, name: str) -> bool:
        attrs = call.attrs
        data, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
        wanted = ("IO" if name.endswith("transpose") else "OI") + data.replace("N", "").replace("C", "")
        first = _CHANNELS_LAST.get(data, data)
        if str(attrs.out_layout or data) != data or sorted(kernel) != sorted(wanted):
            return False
        if first == data and kernel == wanted:
            return False
        x, weight = call.args
        if self.constant(weight) is None and isinstance(weight, Var):
            self.force(weight)
        if kernel != wanted:
            weight = self._inner(weight, tuple(wanted.index(letter) for letter in kernel))
        perm = _to_last(len(data)) if first != data else None
        self.channels_last |= perm is not None
        x = self._inner(x, perm) if perm is not None else self._plain(x)
        options = {key: getattr(attrs, key) for key in ("strides", "padding", "dilation", "groups")}
        if name.endswith("transpose"):
            options["output_padding"] = attrs.output_padding
        options = {key: _integers(option) for key, option in options.items()}
        layouts = {"data_layout": first, "kernel_layout": wanted, "out_layout": first}
        make = getattr(relax.op.nn, name.removeprefix("nn."))
        new = make(x, weight, **options, **layouts, out_dtype=attrs.out_dtype)
        self.report.add(
            make_label(call, var), "fold", "folded", f"{data}/{kernel} rewritten as {first}/{wanted}"
        )
        new = self._with_span(new, call)
        if perm is not None:
            return self._hold(var, new, perm)
        self.bind(new, var)
        return True

    def _pool(self, var: Var, call: Call, name: str) -> bool:
        attrs = call.attrs
        layout = str(attrs.layout)
        first = _CHANNELS_LAST.get(layout)
        if first is None or str(attrs.out_layout or layout) != layout:
            return False
        perm = _to_last(len(layout))
        keys = ("output_size",) if "adaptive" in name else ("pool_size", "strides", "padding", "dilation")
        options = {key: _integers(getattr(attrs, key)) for key in keys}
        if "adaptive" not in name:
            options |= {"ceil_mode": attrs.ceil_mode, "count_include_pad": attrs.count_include_pad}
        make = getattr(relax.op.nn, name.removeprefix("nn."))
        new = make(self._inner(call.args[0], perm), **options, layout=first, out_layout=first)
        return self._hold(var, self._with_span(new, call), perm)

    def _unary(self, var: Var, call: Call, name: str) -> bool:
        view = self._view(call.args[0])
        return view is not None and self._hold(var, self._rebuild(call, view.inner), view.perm)

    def _binary(self, var: Var, call: Call, name: str) -> bool:
        found = [view for argument in call.args if (view := self._view(argument)) is not None]
        if not found:
            return False
        perm = found[0].perm
        operands = [self._broadcast(argument, perm) for argument in call.args]
        if any(operand is None for operand in operands):
            return False
        return self._hold(var, self._rebuild(call, *operands), perm)

    def _broadcast(self, value: Expr, perm: Perm) -> Expr | None:
        """An operand of an elementwise op in the order of the channels-first result."""
        constant = self.constant(value)
        shape = known_lengths(dims(value))
        if constant is not None:
            array = constant.array
            if array.ndim > len(perm):
                return None
            if array.size == 1:
                return write_constant(constant)
            array = array.reshape((1,) * (len(perm) - array.ndim) + array.shape)
            return literal(array.transpose(_inverse(perm)), constant.dtype)
        if shape is None or not isinstance(value, Var):
            return None
        if not shape:
            return self._plain(value)
        if len(shape) != len(perm):
            return None
        narrow = sum(n != 1 for n in shape[1:]) <= 1
        return self._inner(value, perm) if narrow or self.channels_last or value in self.views else None

    def _concat(self, var: Var, call: Call, name: str) -> bool:
        fields = call.args[0]
        if not isinstance(fields, TupleExpr) or call.attrs.axis is None:
            return False
        found = [view for item in fields.fields if (view := self._view(item)) is not None]
        if not found:
            return False
        perm = found[0].perm
        items = [self._broadcast(item, perm) for item in fields.fields]
        if any(item is None for item in items):
            return False
        axis = perm[int(call.attrs.axis) % len(perm)]
        return self._hold(var, self._with_span(relax.op.concat(items, axis=axis), call), perm)

    def _batch_norm(self, var: Var, call: Call, name: str) -> bool:
        view = self._view(call.args[0])
        if view is None or not self.only_projected(var):
            return False
        attrs = call.attrs
        for argument in call.args[1:]:
            if isinstance(argument, Var) and argument not in self.constants:
                self.force(argument)
        parameters = [self.inline(argument) for argument in call.args[1:]]
        new = relax.op.nn.batch_norm(
            view.inner,
            *parameters,
            axis=view.perm[int(attrs.axis) % len(view.perm)],
            epsilon=attrs.epsilon,
            center=attrs.center,
            scale=attrs.scale,
            momentum=attrs.momentum,
            training=attrs.training,
        )
        self.norms[var] = (self.bind(self._with_span(new, call), near=var), view.perm)
        return True

    def _read_norm(self, var: Var, item: TupleGetItem) -> bool:
        if item.tuple_value not in self.norms:
            return False
        norm, perm = self.norms[item.tuple_value]
        field = TupleGetItem(norm, item.index)
        if item.index == 0:
            return self._hold(var, field, perm)
        self.bind(field, var)
        return True

    def _axis(self, var: Var, call: Call, name: str) -> bool:
        view = self._view(call.args[0])
        if view is None:
            return False
        axis = view.perm[int(call.attrs.axis) % len(view.perm)]
        make = getattr(relax.op.nn, name.removeprefix("nn."))
        for argument in call.args[1:]:
            if isinstance(argument, Var) and argument not in self.constants:
                self.force(argument)
        rest = [self.inline(argument) for argument in call.args[1:]]
        return self._hold(var, self._with_span(make(view.inner, *rest, axis), call), view.perm)

    def _reduce(self, var: Var, call: Call, name: str) -> bool:
        view = self._view(call.args[0])
        if view is None or call.attrs.axis is None:
            return False
        rank = len(view.perm)
        logical = [int(axis) % rank for axis in call.attrs.axis]
        axes = sorted(view.perm[axis] for axis in logical)
        keep = bool(call.attrs.keepdims)
        new = self._with_span(getattr(relax.op, name)(view.inner, axes, keep), call)
        if keep:
            return self._hold(var, new, view.perm)
        order = [view.perm[axis] for axis in range(rank) if axis not in logical]
        if order != sorted(order):
            return self._hold(var, new, tuple(sorted(order).index(axis) for axis in order))
        self.bind(new, var)
        return True

    def _pad(self, var: Var, call: Call, name: str) -> bool:
        view = self._view(call.args[0])
        if view is None:
            return False
        widths = [int(width) for width in call.attrs.pad_width]
        back = _inverse(view.perm)
        moved = [widths[2 * axis + side] for axis in back for side in (0, 1)]
        new = relax.op.nn.pad(
            view.inner, moved, pad_value=float(call.attrs.pad_value), pad_mode=str(call.attrs.pad_mode)
        )
        return self._hold(var, self._with_span(new, call), view.perm)

    def _resize(self, var: Var, call: Call, name: str) -> bool:
        attrs = call.attrs
        if str(attrs.layout) != "NHWC":
            return False
        perm = _to_last(4)
        new = relax.op.image.resize2d(
            self._inner(call.args[0], perm),
            call.args[1],
            roi=tuple(float(r.value) if hasattr(r, "value") else float(r) for r in attrs.roi),
            layout="NCHW",
            method=str(attrs.method),
            coordinate_transformation_mode=str(attrs.coordinate_transformation_mode),
            rounding_method=str(attrs.rounding_method),
            cubic_alpha=float(attrs.cubic_alpha),
            cubic_exclude=int(attrs.cubic_exclude),
            extrapolation_value=float(attrs.extrapolation_value),
            out_dtype=attrs.out_dtype,
        )
        return self._hold(var, self._with_span(new, call), perm)

    def _reshape(self, var: Var, call: Call, name: str) -> bool:
        """A reshape of [N, 1, 1, C] is a reshape of [N, C, 1, 1]."""
        view = self._view(call.args[0])
        shape, target = known_lengths(dims(call.args[0])), call.ty.shape
        if view is None or shape is None or target is None:
            return False
        wide = [view.perm[axis] for axis, n in enumerate(shape) if n != 1]
        if wide != sorted(wide):
            return False
        self.bind(self._with_span(relax.op.reshape(view.inner, target), call), var)
        return True

    def _plain(self, value: Expr) -> Expr:
        """``value`` as it was asked for, bound."""
        if isinstance(value, Var) and value not in self.constants and self.substitute(value).same_as(value):
            self.force(value)
        return self.inline(value)

    @staticmethod
    def _with_span(new: Call, old: Call) -> Call:
        return Call(new.op, list(new.args), new.attrs, new.ty_args, old.span)


def _to_last(rank: int) -> Perm:
    """Channels-first to channels-last."""
    return (0, *range(2, rank), 1)


def _inverse(perm: Perm) -> Perm:
    return tuple(int(axis) for axis in np.argsort(perm))


def _integers(value: object) -> object:
    """Plain integers of an attribute, alone or in a sequence."""
    if hasattr(value, "__iter__"):
        return [int(item) for item in value]
    return value if value is None else int(value)  # type: ignore[call-overload]
