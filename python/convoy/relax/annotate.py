"""Mark the composites of a dataflow block: which ops Convoy takes, grouped by pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tvm import relax

from convoy.graph.fusion import Addition, Kernel, kind_of_addition, pattern_name, share_out
from convoy.graph.idioms import IDIOMS
from convoy.graph.sizes import Size
from convoy.offload import reasons
from convoy.offload.names import is_anchor, stem, switched_off
from convoy.offload.refusal import refuse_tensors
from convoy.ops.reader import TensorType
from convoy.ops.table import name_activation, output_axis, row_of
from convoy.options import Options
from convoy.relax import idioms
from convoy.relax.dataflow import Dataflow, dims, dtype, name_of, node_name, op_name, same_dims
from convoy.relax.images import FLAT, OPEN, image_places, image_readings
from convoy.relax.patterns import TAKEN, readings, refusal
from convoy.relax.reader import BlockReader


@dataclass(frozen=True)
class Composite:
    """One matched pattern."""

    pattern: str
    positions: tuple[int, ...]
    """Positions of its bindings in the block, in running order; the last one gives the result."""
    readings: frozenset[str]
    """The ways in which axis 0 may be read, see ``patterns.readings``."""
    heavy: bool
    """Worth a call of its own, however small."""


Refuse = Callable[[relax.Call], str | None]
"""Says why a backend does not take a call, in words, or None."""


class Annotator:
    """Finds the composites of one block and why the other ops are none."""

    def __init__(self, flow: Dataflow, options: Options, refuse: Refuse, left: Mapping[str, str]) -> None:
        self.flow = flow
        self.options = options
        self.left = left
        """Why ops are left that were tried before, by their names."""
        self.refuse: Refuse = lambda call: reasons.in_words(refuse(call))
        """Has the last word on what the patterns take; an idiom needs it for all its ops."""
        self.known: dict[int, idioms.Idiom] = {}
        """The idioms that may be taken, by the position of their first op."""
        self.claimed: set[int] = set()
        """Bindings in the kernels of anchors."""
        self.taken: dict[int, Composite] = {}
        """The composite that each taken binding belongs to."""
        self.reasons: dict[int, str] = {}
        """Why each op that is left is left."""
        self.refusals: dict[int, str | None] = {}
        """What was said of each op that was looked at."""

    def run(self) -> list[Composite]:
        """Composites in running order; then ``reasons`` is complete."""
        self.known = self._idioms()
        kernels = self._kernels()
        for i, binding in enumerate(self.flow.bindings):
            if i in self.taken:
                continue
            if isinstance(binding.value, relax.TupleGetItem):
                self._take_item(i)
            elif i in self.known:
                self._take_idiom(self.known[i])
            elif isinstance(binding.value, relax.Call) and not self._waits(i):
                self._take_call(i, kernels)
        for i, binding in enumerate(self.flow.bindings):
            if op_name(binding.value) and i not in self.taken:
                self.reasons.setdefault(i, "nothing uses its result")
        found = {c.positions[-1]: c for c in self.taken.values()}
        return [found[i] for i in sorted(found)]

    # Idioms -------------------------------------------------------------------------------------

    def _idioms(self) -> dict[int, idioms.Idiom]:
        """The idioms that may be taken, by the position of their first op."""
        found: dict[int, idioms.Idiom] = {}
        claimed: set[int] = set()
        for last in reversed(range(len(self.flow.bindings))):
            if last in claimed:
                continue
            idiom = idioms.match(self.flow, last)
            if idiom is None or f"convoy.{idiom.name}" in self.options.disabled_patterns:
                continue
            if self._idiom_readings(idiom):
                found[idiom.positions[0]] = idiom
                claimed.update(idiom.positions)
        return found

    def _idiom_readings(self, idiom: idioms.Idiom) -> frozenset[str]:
        calls = [self.flow.bindings[i].value for i in idiom.positions]
        at, images = BlockReader(self.flow), idiom.name in ("lrn", "channel_shuffle")
        tensors = [TensorType(dtype(x), at.dims(x)) for x in (idiom.data, calls[-1])]
        if (
            any(self._switched_off(i) for i in idiom.positions)
            or any(self.refuse(call) for call in calls)
            or refuse_tensors(tensors, at.image_axis, open_sizes=not images) is not None
        ):
            return frozenset()
        if images:
            return image_readings(dims(idiom.data) or ())
        if idiom.name == "coalesce":
            shape = at.dims(idiom.data) or ()
            static = all(isinstance(d, int | Size) for d in shape)
            known = frozenset({FLAT, OPEN} if static else {OPEN} if at.opens(idiom.data) else ())
            return known | image_places(shape, self.flow, self.flow.rows_of(idiom.data)).keys()
        if any(refusal(call, self.flow) for call in calls):
            return frozenset()
        return self._readings(idiom.positions)

    def _take_idiom(self, idiom: idioms.Idiom) -> None:
        self._take(
            f"convoy.{idiom.name}", idiom.positions, self._idiom_readings(idiom), idiom.name == "lrn"
        )

    # Single ops and anchors ---------------------------------------------------------------------

    def _waits(self, i: int) -> bool:
        """Tuple ops are taken with their items."""
        return _gives_tuple(self.flow.bindings[i].value) and not self._refuse(i)

    def _kernels(self) -> dict[int, Kernel[int] | None]:
        """The largest kernel of each anchor, by its position; None where all its patterns are off."""
        at = BlockReader(self.flow)
        starts = [
            Kernel(stem(op_name(binding.value)), i)
            for i, binding in enumerate(self.flow.bindings)
            if is_anchor(binding.value, at) and not self._refuse(i)
        ]
        return share_out(starts, self, self.options.disabled_patterns)

    def _take_call(self, i: int, kernels: dict[int, Kernel[int] | None]) -> None:
        name = op_name(self.flow.bindings[i].value)
        if self._refuse(i):
            return
        alone = Kernel(stem(name), i)
        off = pattern_name(alone.name) in self.options.disabled_patterns
        kernel = kernels.get(i, None if off else alone)
        if kernel is None:
            self.reasons[i] = reasons.pattern_off(pattern_name(alone.name))
        else:
            self._take(pattern_name(kernel.name), kernel.ops, self._readings(kernel.ops), TAKEN[name].heavy)

    def _readings(self, positions: Iterable[int]) -> frozenset[str]:
        return frozenset.intersection(
            *(readings(self.flow.bindings[i].value, self.flow) for i in positions)
        )

    # ``graph.fusion.Program``, of bindings by their positions

    def activation(self, made: int) -> tuple[str, tuple[int, ...]] | None:
        users = self.flow.users[made]
        if self.flow.escapes(made) or not users:
            return None
        idiom = self.known.get(users[0])
        if idiom is not None:
            alone = set(users) <= set(idiom.positions) and self.flow.makes(made, idiom.data)
            return (idiom.name, idiom.positions) if alone and idiom.name in IDIOMS else None
        if len(users) > 1 or users[0] in self.claimed or self._refuse(users[0], note=False):
            return None
        name = name_activation(self.flow.bindings[users[0]].value, BlockReader(self.flow))
        return (name, (users[0],)) if name else None

    def addition(self, made: int, anchor: int) -> tuple[Addition, int] | None:
        users = self.flow.users[made]
        if self.flow.escapes(made) or len(users) != 1 or users[0] in self.claimed | self.known.keys():
            return None
        add, start = self.flow.bindings[users[0]].value, self.flow.bindings[anchor].value
        if op_name(add) != "add" or self._refuse(users[0], note=False):
            return None
        others = [arg for arg in add.args if not self.flow.makes(made, arg)]
        shape = dims(add)
        if len(others) != 1 or shape is None or not same_dims(add, self.flow.bindings[made].var):
            return None
        operand, constant = dims(others[0]) or (), self.flow.is_constant(others[0])
        kind = kind_of_addition(
            operand,
            shape,
            constant=constant,
            channel=output_axis(op_name(start), len(shape)),
            per_image=TAKEN[op_name(start)].images or not isinstance(shape[0], int),
        )
        return None if kind is None else (kind, users[0])

    def reads_first(self, add: int, made: int) -> bool:
        return self.flow.makes(made, self.flow.bindings[add].value.args[0])

    def may_be(self, kernel: Kernel[int]) -> bool:
        return bool(self._readings(kernel.ops))

    # Items of tuples ----------------------------------------------------------------------------

    def _take_item(self, i: int) -> None:
        """A used item of a batch_norm, dropout or split, if all its used items can be taken."""
        item = self.flow.bindings[i].value
        source = item.tuple_value
        if not isinstance(source, relax.Var) or source not in self.flow.position:
            return
        origin = self.flow.position[source]
        call = self.flow.bindings[origin].value
        name = op_name(call)
        if not _gives_tuple(call) or origin in self.reasons:
            return
        items = [self.flow.bindings[u].value for u in self.flow.users[origin]]
        if self.flow.escapes(origin) or not all(isinstance(u, relax.TupleGetItem) for u in items):
            self.reasons[origin] = reasons.TUPLE_AS_WHOLE
        elif name != "split" and any(int(u.index) for u in items):
            self.reasons[origin] = reasons.OTHER_ITEMS
        elif (pattern := f"convoy.{stem(name)}") in self.options.disabled_patterns:
            self.reasons[origin] = reasons.pattern_off(pattern)
        else:
            self._take(pattern, (origin, i), readings(call, self.flow), False)

    # What all share -----------------------------------------------------------------------------

    def _take(self, pattern: str, positions: tuple[int, ...], labels: frozenset[str], heavy: bool) -> None:
        composite = Composite(pattern, positions, labels, heavy)
        self.taken |= dict.fromkeys(positions, composite)
        # An item's tuple may be read by other composites too: each then computes its own item.
        self.taken[positions[-1]] = composite

    def _refuse(self, i: int, note: bool = True) -> bool:
        """Is this op refused?  The reason is noted."""
        if i not in self.refusals:
            call = self.flow.bindings[i].value
            tried = self.left.get(name_of(self.flow.bindings[i], call))
            refused = tried or refusal(call, self.flow) or self.refuse(call)
            self.refusals[i] = self._switched_off(i) or refused
        reason = self.refusals[i]
        if reason is not None and note:
            self.reasons[i] = reason
        return reason is not None

    def _switched_off(self, i: int) -> str | None:
        binding = self.flow.bindings[i]
        names = (node_name(binding), str(binding.var.name))
        return switched_off(self.options, op_name(binding.value), names, prefix="relax.")


def _gives_tuple(value: relax.Expr) -> bool:
    """Is this an op of which items are taken?"""
    return row_of(op_name(value)).item is not None
