"""Mark the composites of a dataflow block: which ops Convoy takes, grouped by pattern."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import relax

from convoy.offload import reasons
from convoy.offload.elementwise import is_per_channel
from convoy.offload.names import stem, switched_off
from convoy.options import Options
from convoy.relax import idioms
from convoy.relax.dataflow import Dataflow, dims, node_name, op_name, rank
from convoy.relax.patterns import (
    ACTIVATIONS,
    ANCHORS,
    RULES,
    TUPLE_OPS,
    image_readings,
    readings,
    refusal,
    tensors_refusal,
)


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

Step = tuple[str, tuple[int, ...], frozenset[str]]
"""A pattern that may be taken: its name, positions and readings."""


class Annotator:
    """Finds the composites of one block and why the other ops are none."""

    def __init__(self, flow: Dataflow, options: Options, refuse: Refuse) -> None:
        self.flow = flow
        self.options = options
        self.refuse: Refuse = lambda call: reasons.in_words(refuse(call))
        """Has the last word on what the patterns take; an idiom needs it for all its ops."""
        self.taken: dict[int, Composite] = {}
        """The composite that each taken binding belongs to."""
        self.reasons: dict[int, str] = {}
        """Why each op that is left is left."""
        self.refusals: dict[int, str | None] = {}
        """What was said of each op that was looked at."""

    def run(self) -> list[Composite]:
        """Composites in running order; then ``reasons`` is complete."""
        known = self._idioms()
        for i, binding in enumerate(self.flow.bindings):
            if i in self.taken:
                continue
            if isinstance(binding.value, relax.TupleGetItem):
                self._take_item(i)
            elif i in known:
                self._take_idiom(known[i])
            elif isinstance(binding.value, relax.Call) and not self._waits(i):
                self._take_call(i, known)
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
            if idiom is not None and f"convoy.{idiom.name}" in self.options.disabled_patterns:
                self._note_switched_off(idiom)
            elif idiom is not None and self._idiom_readings(idiom):
                found[idiom.positions[0]] = idiom
                claimed.update(idiom.positions)
        return found

    def _idiom_readings(self, idiom: idioms.Idiom) -> frozenset[str]:
        calls = [self.flow.bindings[i].value for i in idiom.positions]
        if (
            any(self._switched_off(i) for i in idiom.positions)
            or any(self.refuse(call) for call in calls)
            or tensors_refusal([idiom.data, calls[-1]]) is not None
        ):
            return frozenset()
        if idiom.name in ("lrn", "channel_shuffle"):
            return image_readings(dims(idiom.data) or ())
        if any(refusal(call, self.flow) for call in calls):
            return frozenset()
        return frozenset.intersection(*(readings(call, self.flow) for call in calls))

    def _note_switched_off(self, idiom: idioms.Idiom) -> None:
        """Ops that could be taken only as this idiom are left because its pattern is switched off."""
        for i in idiom.positions:
            if self._refuse(i, note=False) and not self._switched_off(i):
                self.refusals[i] = reasons.pattern_off(f"convoy.{idiom.name}")

    def _take_idiom(self, idiom: idioms.Idiom) -> None:
        self._take(
            f"convoy.{idiom.name}", idiom.positions, self._idiom_readings(idiom), idiom.name == "lrn"
        )

    # Single ops and anchors ---------------------------------------------------------------------

    def _waits(self, i: int) -> bool:
        """Tuple ops are taken with their items."""
        return op_name(self.flow.bindings[i].value) in TUPLE_OPS and not self._refuse(i)

    def _take_call(self, i: int, known: dict[int, idioms.Idiom]) -> None:
        call = self.flow.bindings[i].value
        name = op_name(call)
        if self._refuse(i):
            return
        allowed = readings(call, self.flow)
        steps: list[Step] = [(f"convoy.{stem(name)}", (i,), allowed)]
        if name in ANCHORS:
            steps += self._epilogues(*steps[0], known)
        for pattern, positions, labels in reversed(steps):
            if pattern not in self.options.disabled_patterns:
                self._take(pattern, positions, labels, RULES[name].heavy)
                return
        self.reasons[i] = reasons.pattern_off(steps[0][0])

    def _epilogues(
        self,
        pattern: str,
        positions: tuple[int, ...],
        labels: frozenset[str],
        known: dict[int, idioms.Idiom],
    ) -> list[Step]:
        """The ever longer patterns that begin with an anchor: bias, residual, activation."""
        found: list[Step] = []
        channel = bias_axis(self.flow.bindings[positions[0]].value)
        for kind in ("bias", "add", "activation"):
            suffix, more = self._epilogue(kind, positions[-1], channel, known)
            calls = [self.flow.bindings[i].value for i in more]
            allowed = labels.intersection(*(readings(call, self.flow) for call in calls))
            if more and allowed:
                pattern, positions, labels = f"{pattern}_{suffix}", (*positions, *more), allowed
                found.append((pattern, positions, labels))
        return found

    def _epilogue(
        self, kind: str, last: int, channel: int, known: dict[int, idioms.Idiom]
    ) -> tuple[str, tuple[int, ...]]:
        """The ops of an epilogue on binding ``last``, none if there is no such epilogue."""
        users = self.flow.users[last]
        if self.flow.escapes(last) or not users:
            return kind, ()
        idiom = known.get(users[0])
        if idiom is not None:
            inside = set(users) <= set(idiom.positions)
            if kind == "activation" and inside and f"idiom.{idiom.name}" in ACTIVATIONS:
                return ACTIVATIONS[f"idiom.{idiom.name}"], idiom.positions
            return kind, ()
        user = users[0]
        if len(users) > 1 or user in self.taken or self._refuse(user, note=False):
            return kind, ()
        call = self.flow.bindings[user].value
        name = op_name(call)
        if kind == "activation":
            return ACTIVATIONS.get(name, kind), (user,) if name in ACTIVATIONS else ()
        if name != "add" or dims(call) != dims(self.flow.bindings[last].var):
            return kind, ()
        return kind, (user,) if (kind == "bias") == is_bias(call, channel, self.flow) else ()

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
        if name not in TUPLE_OPS or origin in self.reasons:
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
            self.refusals[i] = self._switched_off(i) or refusal(call, self.flow) or self.refuse(call)
        reason = self.refusals[i]
        if reason is not None and note:
            self.reasons[i] = reason
        return reason is not None

    def _switched_off(self, i: int) -> str | None:
        binding = self.flow.bindings[i]
        names = (node_name(binding), str(binding.var.name))
        return switched_off(self.options, op_name(binding.value), names, prefix="relax.")


def bias_axis(anchor: relax.Call) -> int:
    """The axis of an anchor's output channels: the last of a matrix product, else 1."""
    return rank(anchor) - 1 if op_name(anchor) == "matmul" else 1


def is_bias(add: relax.Call, channel: int, flow: Dataflow) -> bool:
    """Has this add a constant of one number per channel?"""
    constants = [arg for arg in add.args if flow.is_constant(arg)]
    shape, result = dims(constants[0]) if constants else None, dims(add)
    return shape is not None and result is not None and is_per_channel(shape, result, channel)
