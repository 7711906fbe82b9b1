"""The fold of batch norms, scales, shifts, biases and add chains, in one walk.

Each op that is an affine map per channel is held back and composed with its neighbours (``affine``);
a map sinks into the anchor that made its input (``pending``) or rises into the anchor that reads its
output; what is left is written as at most one multiply and one add with constants.
"""

from __future__ import annotations

import numpy as np
from tvm import IRModule
from tvm.ir import Call, Expr, Op, Span, TupleGetItem, Var
from tvm.ir import Tuple as TupleExpr

from convoy.relax.dataflow import op_name
from convoy.relax.fold.affine import Affine, Vector, batch_norm, dims, dtype_of, recognise
from convoy.relax.fold.anchors import ANCHORS, Anchor, read_geometry
from convoy.relax.fold.constants import literal
from convoy.relax.fold.crossing import read_crossing
from convoy.relax.fold.pending import Crossed, Joined, Leaf, Pending, Produced, Step, Sum
from convoy.relax.fold.walk import Walk, describe
from convoy.report.decision import Report

_NO_ANCHOR = "its input is not made by a convolution or matmul"


class FoldScales(Walk):
    """One function's walk; see the head of this file."""

    def __init__(self, module: IRModule, report: Report) -> None:
        super().__init__(module)
        self.report = report
        self.pending: dict[Var, Pending] = {}
        self.norms: dict[Var, tuple[Call, Affine]] = {}
        self.shared: dict[Var, str] = {}
        """Anchors bound because they are read more than once, and the reason in words."""
        self.definitions: dict[Var, Expr] = {}

    def held(self) -> list[Var]:
        return list(self.pending)

    def force(self, var: Var) -> None:
        pending = self.pending.pop(var, None)
        if pending is not None:
            self._emit(pending)

    def interpret(self, var: Var, value: Expr) -> bool:
        self.definitions[var] = value
        if isinstance(value, TupleGetItem):
            return self._read_norm(var, value)
        if isinstance(value, Var):
            return self._rename(var, value)
        name = op_name(value)
        if not name:
            return False
        if name == "nn.batch_norm":
            return self._see_norm(var, value)
        if name in ANCHORS:
            pending = self._see_anchor(var, value, name)
        elif (found := recognise(name, value, self.constant)) is not None:
            pending = self._see_affine(Step(var, value, describe(value, var), found[1]), found[0])
        elif name in ("add", "concat"):
            pending = self._see_join(var, value, name)
        elif value.args and self._sole(value.args[0]) and (crossing := read_crossing(name, value)):
            pending = self._hold(Crossed(value, self._take(value.args[0]), crossing), var)
        else:
            return False
        return pending is not None and self._keep_pending(pending)

    # Reading.

    def _see_norm(self, var: Var, call: Call) -> bool:
        affine = batch_norm(call, self.constant)
        if isinstance(affine, Affine):
            if not _representable(affine, dtype_of(call.args[0])):
                affine = "expected scale and shift in the range of float16, got larger ones"
            elif not self.only_projected(var):
                affine = "expected its first result to be read once, got the whole tuple"
        if isinstance(affine, str):
            self.report.add(describe(call, var), "fold", "left", affine)
            return False
        self.norms[var] = (call, affine)
        return True

    def _read_norm(self, var: Var, item: TupleGetItem) -> bool:
        if item.tuple_value not in self.norms:
            return False
        call, affine = self.norms[item.tuple_value]
        if item.index == 0:
            step = Step(var, call, describe(call, item.tuple_value), affine)
            return self._keep_pending(self._see_affine(step, call.args[0]))
        statistics = self.constant(call.args[2 + item.index])
        assert statistics is not None, "batch_norm() checked that the statistics are constants"
        self.constants[var] = statistics
        return True

    def _rename(self, var: Var, source: Var) -> bool:
        if not self._sole(source):
            return False
        pending = self.pending.pop(source)
        pending.var = var
        return self._keep_pending(pending)

    def _see_anchor(self, var: Var, call: Call, name: str) -> Pending | None:
        geometry = read_geometry(name, call)
        if geometry is None:
            return None
        anchor = Anchor(call, geometry, self.constant, describe(call, var))
        x, weight = call.args
        if self._sole(x):
            self._lift(self.pending[x], anchor)
        for argument in (x, weight):
            if isinstance(argument, Var):
                self.force(argument)
        return self._hold(Produced(anchor), var)

    def _lift(self, pending: Pending, anchor: Anchor) -> None:
        """Move the map before an anchor into its weight and bias, if that is exact."""
        before = pending.liftable()
        if before.trivial:
            return
        pending.note = self._hard_activation(pending) or anchor.input_refusal(before)
        if pending.note:
            return
        for step in pending.all_steps():
            self.report.add(step.node, "fold", "folded", f"forward into the weight of {anchor.name}")
        pending.strip()
        anchor.take_input(before)

    def _see_affine(self, step: Step, x: Expr) -> Pending:
        pending = self._take(x)
        if pending.affine.then(step.affine) is None:
            self._emit(pending)
            pending = self._leaf(pending.var)
        anchors = ", ".join(anchor.name for anchor in pending.anchors())
        pending.steps.append(step)
        pending.absorb(step.affine)
        pending.var = step.var
        if not pending.steps:
            into = f"into {anchors}" if anchors else "it changes nothing"
            self.report.add(step.node, "fold", "folded", into)
        elif step.affine.scales and not pending.affine.scales:
            self.report.add(step.node, "fold", "folded", f"its scale into {anchors}; its shift is one add")
        return pending

    def _see_join(self, var: Var, call: Call, name: str) -> Pending | None:
        parts = list(call.args) if name == "add" else _fields(call.args[0])
        variables = [part for part in parts if isinstance(part, Var) and part not in self.constants]
        sole = [self._sole(part) for part in variables]
        if len(variables) != len(parts) or dims(call) is None:
            return None
        if name == "add":
            if not any(sole) or any(dims(part) is None for part in parts):
                return None
            return self._hold(Sum(call, (self._take(parts[0]), self._take(parts[1]))), var)
        shapes = [dims(part) for part in parts]
        axis = int(call.attrs.axis or 0) % len(dims(call) or (1,))
        sizes = [size for shape in shapes if shape is not None and (size := shape[axis]) is not None]
        if not all(sole) or len(sizes) != len(parts):
            return None
        return self._hold(Joined(call, [self._take(part) for part in parts], axis, sizes), var)

    # Holding.

    def _sole(self, value: Expr) -> bool:
        return isinstance(value, Var) and value in self.pending and self.uses[value] == 1

    def _hold(self, base: Produced | Crossed | Sum | Joined, var: Var) -> Pending:
        return Pending(base, var, var)

    def _leaf(self, var: Expr) -> Pending:
        return Pending(Leaf(var, self.shared.get(var, _NO_ANCHOR)), var, var)

    def _take(self, x: Expr) -> Pending:
        """The tree that makes ``x``, if nobody else reads it; else ``x`` itself, bound."""
        if self._sole(x):
            return self.pending.pop(x)
        if isinstance(x, Var):
            self.force(x)
        return self._leaf(self._inline(x))

    def _keep_pending(self, pending: Pending) -> bool:
        var = pending.var
        self.pending[var] = pending
        if self.uses[var] != 1:
            names = ", ".join(anchor.name for anchor in pending.anchors())
            if names:
                self.shared[var] = f"{names} is read {self.uses[var]} times, so its weight is not scaled"
            self.force(var)
        return True

    def _hard_activation(self, pending: Pending) -> str:
        """x · clip(x + 3, 0, 6) / 6 stays in one piece: it is one activation, not a scale."""
        if pending.affine.axis is not None or not isinstance(pending.base, Leaf):
            return ""
        product = self.definitions.get(pending.base.var)
        if product is None or op_name(product) != "multiply":
            return ""
        factors = [op_name(self.definitions[a]) for a in product.args if a in self.definitions]
        return "it is the last step of a hard swish" if "clip" in factors else ""

    # Writing.

    def _emit(self, pending: Pending) -> None:
        """Bind ``pending.var``."""
        if pending.affine.trivial:
            self._emit_base(pending, pending.var)
            return
        x = pending.base.var if isinstance(pending.base, Leaf) else pending.base_var
        if not isinstance(pending.base, Leaf):
            self._emit_base(pending, pending.base_var)
        self._explain(pending)
        step = pending.steps[-1]
        # As it was written, unless a map before it has sunk: then nothing makes what it read.
        written = self._inline(step.value)
        reads_x = any(argument.same_as(x) for argument in written.args)
        if step.affine is pending.affine and reads_x and op_name(step.value) != "nn.batch_norm":
            self.bind(written, pending.var)
            return
        affine, span = pending.affine, step.value.span
        if affine.scales and affine.shifts:
            scaled = self._binary("multiply", x, affine.scale, affine.axis, span)
            x = self.bind(scaled, hint=step.var.name)
        name, vector = ("add", affine.shift) if affine.shifts else ("multiply", affine.scale)
        self.bind(self._binary(name, x, vector, affine.axis, span), pending.var)

    def _emit_base(self, pending: Pending, var: Var) -> None:
        base = pending.base
        if isinstance(base, Leaf):
            if not base.var.same_as(var):
                self.bind(base.var, var)
        elif isinstance(base, Produced):
            self._emit_anchor(base.anchor, pending.base_var, var)
        elif isinstance(base, (Crossed, Sum, Joined)):
            for child in base.children:
                self._emit(child)
            self.bind(base.call, var)

    def _emit_anchor(self, anchor: Anchor, own: Var, var: Var) -> None:
        call, weight, shift = anchor.call, anchor.scaled_weight(), anchor.shift
        x = self._inline(call.args[0])
        if not (weight.same_as(call.args[1]) and x.same_as(call.args[0])):
            call = Call(call.op, [x, weight], call.attrs, call.ty_args, call.span, call.ty)
        if not np.any(shift != 0.0):
            self.bind(call, var)
            return
        y = self.bind(call, hint=own.name) if own.same_as(var) else self.bind(call, own)
        bias = np.broadcast_to(shift, (anchor.channels_out,))
        self.bind(self._binary("add", y, bias, anchor.geometry.out_axis, call.span), var)

    def _binary(self, name: str, x: Expr, vector: Vector, axis: int | None, span: Span | None) -> Expr:
        """x op constant; along the last axis the constant is [C], along axis 1 of 4 it is [1, C, 1, 1]."""
        shape = dims(x)
        if axis is not None and vector.ndim == 0:
            axis = None
        if axis is not None and shape is not None and axis != len(shape) - 1:
            vector = vector.reshape([-1 if a == axis else 1 for a in range(len(shape))])
        return Call(Op.get(f"relax.{name}"), [x, literal(vector, dtype_of(x))], span=span, ret_ty=x.ty)

    def _explain(self, pending: Pending) -> None:
        """Report why a map stays a multiply and an add."""
        reason = pending.note or pending.base.refusal(pending.affine)
        form = " and ".join(
            name
            for name, there in (("one multiply", pending.affine.scales), ("one add", pending.affine.shifts))
            if there
        )
        for step in pending.steps:
            if len(pending.steps) > 1 or op_name(step.value) == "nn.batch_norm":
                self.report.add(step.node, "fold", "merged", f"into {form}: {reason}")
            elif reason != _NO_ANCHOR:
                self.report.add(step.node, "fold", "kept", reason)


def _fields(value: Expr) -> list[Expr]:
    return list(value.fields) if isinstance(value, TupleExpr) else [value]


def _representable(affine: Affine, dtype: str) -> bool:
    if dtype != "float16":
        return True
    limit = float(np.finfo(np.float16).max)
    return bool(np.abs(affine.scale).max() <= limit and np.abs(affine.shift).max() <= limit)
