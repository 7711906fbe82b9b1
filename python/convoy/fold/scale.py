"""The fold of batch norms, scales, shifts, biases and add chains, in one walk.

Each op that is an affine map per channel is held back and composed with its neighbours (``affine``);
a map sinks into the anchor that made its input (``pending``) or rises into the anchor that reads its
output; what is left is written as at most one multiply and one add with constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from convoy.fold.affine import Affine, Vector, batch_norm, recognise
from convoy.fold.anchors import WEIGHTED_OPS, Anchor, read_geometry
from convoy.fold.constants import Array, Const
from convoy.fold.crossing import read_crossing
from convoy.fold.node import Node, Value
from convoy.fold.pending import Crossed, Joined, Leaf, MappedOp, Pending, Produced, Sum
from convoy.report.decision import Report

_NO_ANCHOR = "its input is not made by a convolution or matmul"


class Door(Protocol):
    """The walk over a function of either TVM that the fold reads from and writes to."""

    @property
    def uses(self) -> Mapping[Value, int]:
        """How often each value is read."""
        ...

    @property
    def constants(self) -> dict[Value, Const]:
        """The values known to be constants; the fold may add some."""
        ...

    def constant(self, value: Value) -> Const | None:
        """The constant ``value`` is, literally or by ``constants``."""
        ...

    def only_projected(self, value: Value) -> bool:
        """Whether a tuple is only ever read field by field, each field at most once."""
        ...

    def operand(self, value: Value) -> Value:
        """What stands for a value of the old function in the new one."""
        ...

    def rebuilt(self, call: Value) -> Value:
        """A call of the old function with the operands it has in the new one."""
        ...

    def with_args(self, node: Node, args: Sequence[Value]) -> Value:
        """The node's call with other arguments."""
        ...

    def product(self, array: Array, factor: Vector, dtype: str) -> Value:
        """The literal array · factor, rounded once."""
        ...

    def binary(self, name: str, x: Value, constant: Array, like: Node) -> Value:
        """The call ``x name constant``, in the place of the node it comes from."""
        ...

    def bind(self, value: Value, var: Value = None, near: Value = None) -> Value:
        """Make ``value`` what stands for ``var``, or for nothing of the old function, beside ``near``."""
        ...


class FoldScales:
    """The fold of one function; see the head of this file."""

    def __init__(self, door: Door, report: Report) -> None:
        self.door = door
        self.report = report
        self.pending: dict[Value, Pending] = {}
        self.norms: dict[Value, tuple[Node, Affine]] = {}
        self.taken: set[Value] = set()
        """Those whose first field has been taken."""
        self.shared: dict[Value, str] = {}
        """Anchors bound because they are read more than once, and the reason in words."""
        self.definitions: dict[Value, Node] = {}
        self.expected = {_NO_ANCHOR}
        """Reasons that are worth no word where an op stays as it was."""

    def held(self) -> list[Value]:
        """Values taken over and not bound yet, oldest first."""
        return list(self.pending)

    def force(self, var: Value) -> None:
        """Bind ``var`` now, if it was held back."""
        pending = self.pending.pop(var, None)
        if pending is not None:
            self._emit(pending)

    def interpret(self, var: Value, node: Node) -> bool:
        """Take over the value ``var`` that the node computes; False leaves it as it is."""
        self.definitions[var] = node
        if node.name == "nn.batch_norm":
            return self._see_norm(var, node)
        if node.name in WEIGHTED_OPS:
            pending = self._see_anchor(var, node)
        elif (found := recognise(node, self.door.constant)) is not None:
            pending = self._see_affine(MappedOp(var, node, found[1]), found[0])
        elif node.name in ("add", "concat", "concatenate"):
            pending = self._see_join(var, node)
        elif node.args and self._sole(node.args[0]) and (crossing := read_crossing(node)):
            pending = self._hold(Crossed(node, self._take(node.args[0]), crossing), var)
        else:
            return False
        return pending is not None and self._keep_pending(pending)

    def interpret_item(self, var: Value, source: Value, index: int) -> bool:
        """Take over field ``index`` of the tuple ``source``, if that is a batch norm's."""
        if source not in self.norms:
            return False
        node, affine = self.norms[source]
        if index == 0:
            self.taken.add(source)
            return self._keep_pending(self._see_affine(MappedOp(var, node, affine), node.args[0]))
        statistics = self.door.constant(node.args[2 + index])
        assert statistics is not None, "batch_norm() checked that the statistics are constants"
        self.door.constants[var] = statistics
        return True

    def keep_norms(self) -> None:
        """Bind batch norms of which the first field has not been taken yet, as they are."""
        for var in [var for var in self.norms if var not in self.taken]:
            node, _ = self.norms.pop(var)
            self.force(node.args[0])
            self.door.bind(self.door.rebuilt(node.call), var)

    def interpret_alias(self, var: Value, source: Value) -> bool:
        """Take over another name of a value."""
        if not self._sole(source):
            return False
        pending = self.pending.pop(source)
        pending.var = var
        return self._keep_pending(pending)

    # Reading.

    def _see_norm(self, var: Value, node: Node) -> bool:
        affine = batch_norm(node, self.door.constant)
        if isinstance(affine, Affine):
            if not _representable(affine, node.dtype):
                affine = "expected scale and shift in the range of float16, got larger ones"
            elif not self.door.only_projected(var):
                affine = "expected its results to be taken one by one, got the whole tuple"
        if isinstance(affine, str):
            self.report.add(node.label, "fold", "kept", affine)
            return False
        self.norms[var] = (node, affine)
        return True

    def _see_anchor(self, var: Value, node: Node) -> Pending | None:
        geometry = read_geometry(node)
        if geometry is None:
            return None
        anchor = Anchor(node, geometry, self.door.constant)
        x, weight = node.args
        if self._sole(x):
            self._lift(self.pending[x], anchor)
        for argument in (x, weight):
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
        for op in pending.all_mapped():
            into = f"forward into the weight of {anchor.name}"
            self.report.add(op.node.label, "fold", "folded", into, about=[anchor.name])
        pending.strip()
        anchor.take_input(before)

    def _see_affine(self, op: MappedOp, x: Value) -> Pending:
        pending = self._take(x)
        if pending.affine.then(op.affine) is None:
            self._emit(pending)
            pending = self._leaf(pending.var)
        about = [anchor.name for anchor in pending.anchors()]
        anchors = ", ".join(about)
        pending.mapped.append(op)
        pending.absorb(op.affine)
        pending.var = op.var
        if not pending.mapped:
            into = f"into {anchors}" if anchors else "it changes nothing"
            self.report.add(op.node.label, "fold", "folded", into, about=about)
        elif op.affine.scales and not pending.affine.scales:
            said = f"its scale into {anchors}; its shift is one add"
            self.report.add(op.node.label, "fold", "folded", said, about=about)
        return pending

    def _see_join(self, var: Value, node: Node) -> Pending | None:
        sole = [self._sole(part) for part in node.args]
        known = all(shape is not None for shape in node.arg_shapes)
        if node.shape is None or any(self.door.constant(part) is not None for part in node.args):
            return None
        if node.name == "add":
            if not any(sole) or not known:
                return None
            first, second = (self._take(part) for part in node.args)
            return self._hold(Sum(node, (first, second)), var)
        axis = int(node.attrs.axis or 0) % len(node.shape)
        sizes = [
            size for shape in node.arg_shapes if shape is not None and (size := shape[axis]) is not None
        ]
        if not all(sole) or len(sizes) != len(node.args):
            return None
        return self._hold(Joined(node, [self._take(part) for part in node.args], axis, sizes), var)

    # Holding.

    def _sole(self, value: Value) -> bool:
        return value in self.pending and self.door.uses[value] == 1

    def _hold(self, base: Produced | Crossed | Sum | Joined, var: Value) -> Pending:
        return Pending(base, var, var)

    def _leaf(self, var: Value) -> Pending:
        reason = self.shared.get(var) or self._no_anchor(self.definitions.get(var))
        return Pending(Leaf(self.door.operand(var), reason), var, var)

    def _no_anchor(self, node: Node | None) -> str:
        """Why nothing is folded into what this node makes, which is no anchor or one of another form."""
        if node is None or node.name not in WEIGHTED_OPS:
            return _NO_ANCHOR
        if read_geometry(node) is not None:
            return _NO_ANCHOR
        reason = f"expected one weight in a known layout in {node.label}, got another form"
        self.expected.add(reason)
        return reason

    def _take(self, x: Value) -> Pending:
        """The tree that makes ``x``, if nobody else reads it; else ``x`` itself, bound."""
        if self._sole(x):
            return self.pending.pop(x)
        self.force(x)
        return self._leaf(x)

    def _keep_pending(self, pending: Pending) -> bool:
        var = pending.var
        self.pending[var] = pending
        if self.door.uses[var] != 1:
            names = ", ".join(anchor.name for anchor in pending.anchors())
            if names:
                self.shared[var] = (
                    f"{names} is read {self.door.uses[var]} times, so its weight is not scaled"
                )
            self.force(var)
        return True

    def _hard_activation(self, pending: Pending) -> str:
        """x · clip(x + 3, 0, 6) / 6 stays in one piece: it is one activation, not a scale.

        With the sixth inside, x · clip(x / 6 + 1/2, 0, 1), a scale behind it is one.
        """
        if pending.affine.axis is not None or not isinstance(pending.base, Leaf) or not pending.mapped:
            return ""
        if not np.allclose(pending.mapped[0].affine.scale, 1 / 6, rtol=1e-4):
            return ""
        product = self.definitions.get(pending.base_var)
        if product is None or product.name != "multiply":
            return ""
        factors = [self.definitions[a].name for a in product.args if a in self.definitions]
        return "it is the last step of a hard swish" if "clip" in factors else ""

    # Writing.

    def _emit(self, pending: Pending) -> None:
        """Bind ``pending.var``."""
        if pending.affine.trivial:
            self._emit_base(pending, pending.var)
            return
        base = pending.base
        x = base.value if isinstance(base, Leaf) else self._emit_base(pending, pending.base_var)
        self._explain(pending)
        op = pending.mapped[-1]
        # As it was written, unless a map before it has sunk: then nothing makes what it read.
        if op.affine is pending.affine and op.node.name != "nn.batch_norm":
            written = self.door.rebuilt(op.node.call)
            if any(argument.same_as(x) for argument in written.args):
                self.door.bind(written, pending.var)
                return
        affine = pending.affine
        if affine.scales and affine.shifts:
            x = self.door.bind(self._binary("multiply", x, affine.scale, affine.axis, op.node), near=op.var)
        name, vector = ("add", affine.shift) if affine.shifts else ("multiply", affine.scale)
        self.door.bind(self._binary(name, x, vector, affine.axis, op.node), pending.var)

    def _emit_base(self, pending: Pending, var: Value) -> Value:
        base = pending.base
        if isinstance(base, Leaf):
            return base.value if base.value.same_as(var) else self.door.bind(base.value, var)
        if isinstance(base, Produced):
            return self._emit_anchor(base.anchor, pending.base_var, var)
        assert isinstance(base, Crossed | Sum | Joined)
        for child in base.children:
            self._emit(child)
        return self.door.bind(self.door.rebuilt(base.node.call), var)

    def _emit_anchor(self, anchor: Anchor, own: Value, var: Value) -> Value:
        node, shift = anchor.node, anchor.shift
        x, weight = (self.door.operand(argument) for argument in node.args)
        if (factor := anchor.factor) is not None:
            assert anchor.weight is not None, "an anchor without a constant weight takes no map"
            weight = self.door.product(anchor.weight.array, factor, anchor.weight.dtype)
        same = weight.same_as(node.args[1]) and x.same_as(node.args[0])
        call = node.call if same else self.door.with_args(node, [x, weight])
        if not np.any(shift != 0.0):
            return self.door.bind(call, var)
        y = self.door.bind(call, near=own) if own.same_as(var) else self.door.bind(call, own)
        bias = np.broadcast_to(shift, (anchor.channels_out,))
        return self.door.bind(self._binary("add", y, bias, anchor.geometry.out_axis, node), var)

    def _binary(self, name: str, x: Value, vector: Vector, axis: int | None, like: Node) -> Value:
        """x op constant; along the last axis the constant is [C], along axis 1 of 4 it is [1, C, 1, 1]."""
        if axis is not None and vector.ndim and like.shape is not None and axis != len(like.shape) - 1:
            vector = vector.reshape([-1 if a == axis else 1 for a in range(len(like.shape))])
        return self.door.binary(name, x, vector, like)

    def _explain(self, pending: Pending) -> None:
        """Report why a map stays a multiply and an add."""
        reason = pending.note or pending.base.refusal(pending.affine)
        form = " and ".join(
            name
            for name, there in (("one multiply", pending.affine.scales), ("one add", pending.affine.shifts))
            if there
        )
        for op in pending.mapped:
            if len(pending.mapped) > 1 or op.node.name == "nn.batch_norm":
                self.report.add(op.node.label, "fold", "merged", f"into {form}: {reason}")
            elif reason not in self.expected:
                self.report.add(op.node.label, "fold", "kept", reason)


def _representable(affine: Affine, dtype: str) -> bool:
    if dtype != "float16":
        return True
    limit = float(np.finfo(np.float16).max)
    return bool(np.abs(affine.scale).max() <= limit and np.abs(affine.shift).max() <= limit)
