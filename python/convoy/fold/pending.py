"""Values the fold holds back: trees of ops whose results are each used once.

A ``Pending`` is a base and an affine map after it that nothing has swallowed yet. Bases form a tree:
an anchor at the bottom, and above it ops that a map may cross (relu, pools, a residual add, concat).

    absorb   moves a map down the tree, towards the anchors that made the value
    liftable tells which map may move up out of the tree, to the anchor that reads the value

Since every value in a tree is used once, nobody else sees that it was scaled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from convoy.fold.affine import IDENTITY, Affine
from convoy.fold.anchors import Anchor
from convoy.fold.crossing import Crossing
from convoy.fold.node import Node, Shape, Value


class Base(Protocol):
    """What stands under the affine map of a ``Pending``."""

    def refusal(self, affine: Affine) -> str:
        """Why the whole of a map cannot be absorbed; empty if it can."""
        ...

    def absorb(self, affine: Affine) -> None:
        """Take a map that was not refused."""
        ...

    def liftable(self) -> Affine:
        """The map that may leave upwards, ``IDENTITY`` if none."""
        ...

    def strip(self) -> None:
        """Give up what ``liftable`` told."""
        ...

    def anchors(self) -> Iterator[Anchor]:
        """All anchors below."""
        ...


@dataclass
class MappedOp:
    """One op of the original function that became (part of) an affine map."""

    var: Value
    node: Node
    affine: Affine


@dataclass
class Pending:
    """affine(base), the value of ``var``."""

    base: Base
    var: Value
    base_var: Value
    """Held the base alone in the original function."""
    affine: Affine = IDENTITY
    mapped: list[MappedOp] = field(default_factory=list)
    """Ops that are still in ``affine``."""
    note: str = ""
    """Why the anchor that reads the value did not take the map, if it was asked."""

    def refusal(self, affine: Affine) -> str:
        """Why a map would cost an op here; empty if it is free."""
        total = self.affine.then(affine)
        if total is None:
            return "the maps run along different axes"
        reason = self.base.refusal(total)
        if not reason:
            return ""
        free_scale = self.affine.scales or not affine.scales
        free_shift = self.affine.shifts or not total.shifts
        return "" if free_scale and free_shift else reason

    def absorb(self, affine: Affine) -> None:
        """Take a map; what the base refuses stays in ``self.affine``."""
        total = affine if self.affine.trivial else self.affine.then(affine)
        assert total is not None
        if not self.base.refusal(total):
            self.base.absorb(total)
            self.affine, self.mapped = IDENTITY, []
        elif total.scales and not self.base.refusal(total.only_scale()):
            self.base.absorb(total.only_scale())
            self.affine = total.only_shift()
        else:
            self.affine = total

    def liftable(self) -> Affine:
        below = self.base.liftable()
        return below.then(self.affine) or self.affine

    def strip(self) -> None:
        if self.base.liftable().then(self.affine) is not None:
            self.base.strip()
        self.affine, self.mapped = IDENTITY, []

    def anchors(self) -> Iterator[Anchor]:
        return self.base.anchors()

    def all_mapped(self) -> list[MappedOp]:
        """Ops still in a map anywhere in the tree that ``strip`` would give up."""
        below = [] if self.base.liftable().trivial else list(_mapped_ops(self.base))
        return below + self.mapped


@dataclass
class Leaf:
    """A value bound already: it absorbs nothing."""

    value: Value
    """As it is in the new function."""
    reason: str

    def refusal(self, affine: Affine) -> str:
        return self.reason

    def absorb(self, affine: Affine) -> None:
        raise AssertionError("a leaf absorbs nothing")

    def liftable(self) -> Affine:
        return IDENTITY

    def strip(self) -> None:
        pass

    def anchors(self) -> Iterator[Anchor]:
        return iter(())


@dataclass
class Produced:
    """An anchor: it absorbs maps of its output channels."""

    anchor: Anchor

    def refusal(self, affine: Affine) -> str:
        return self.anchor.refusal(affine)

    def absorb(self, affine: Affine) -> None:
        self.anchor.take(affine)

    def liftable(self) -> Affine:
        return IDENTITY

    def strip(self) -> None:
        pass

    def anchors(self) -> Iterator[Anchor]:
        yield self.anchor


@dataclass
class Crossed:
    """An op with one input that some maps may cross: relu, pool, transpose and others."""

    node: Node
    child: Pending
    crossing: Crossing

    def refusal(self, affine: Affine) -> str:
        return self.crossing.refusal(affine) or self.child.refusal(self.crossing.down(affine))

    def absorb(self, affine: Affine) -> None:
        self.child.absorb(self.crossing.down(affine))

    def liftable(self) -> Affine:
        lifted = self.crossing.up(self.child.liftable())
        return IDENTITY if lifted is None or self.crossing.refusal(lifted) else lifted

    def strip(self) -> None:
        if not self.liftable().trivial:
            self.child.strip()

    @property
    def children(self) -> tuple[Pending]:
        return (self.child,)

    def anchors(self) -> Iterator[Anchor]:
        return self.child.anchors()


@dataclass
class Sum:
    """A residual add: a scale goes into both branches, a shift into one."""

    node: Node
    children: tuple[Pending, Pending]

    def refusal(self, affine: Affine) -> str:
        if affine.scales:
            if affine.axis is not None and not self._agree(affine.axis):
                return "the branches broadcast along the channel axis"
            scale = affine.only_scale()
            reason = self.children[0].refusal(scale) or self.children[1].refusal(scale)
            if reason:
                return f"only one branch of the add could be scaled: {reason}"
        if affine.shifts and self._shifted(affine) is None:
            return (
                self.children[0].refusal(affine.only_shift()) or "no branch of the add has all its channels"
            )
        return ""

    def absorb(self, affine: Affine) -> None:
        target = self._shifted(affine) if affine.shifts else None
        assert target is not None or not affine.shifts, "a shift that was not refused"
        for child in self.children:
            part = affine if child is target else affine.only_scale()
            if not part.trivial:
                child.absorb(part)

    def liftable(self) -> Affine:
        return IDENTITY

    def strip(self) -> None:
        pass

    def anchors(self) -> Iterator[Anchor]:
        for child in self.children:
            yield from child.anchors()

    def _shifted(self, affine: Affine) -> Pending | None:
        """The branch that takes the shift for free."""
        for child, shape in zip(self.children, self.node.arg_shapes, strict=True):
            part = affine if affine.scales else affine.only_shift()
            if _same_channels(shape, self.node.shape, affine.axis) and not child.refusal(part):
                return child
        return None

    def _agree(self, axis: int) -> bool:
        return all(_same_channels(shape, self.node.shape, axis) for shape in self.node.arg_shapes)


@dataclass
class Joined:
    """A concat: each branch takes its channels' part of a map, if all can."""

    node: Node
    children: Sequence[Pending]
    axis: int
    sizes: Sequence[int]
    """Lengths of the branches along ``axis``."""

    def refusal(self, affine: Affine) -> str:
        for child, part in self._parts(affine):
            if not part.trivial and (reason := child.refusal(part)):
                return f"not every branch of the concat could take it: {reason}"
        return ""

    def absorb(self, affine: Affine) -> None:
        for child, part in self._parts(affine):
            if not part.trivial:
                child.absorb(part)

    def liftable(self) -> Affine:
        return IDENTITY

    def strip(self) -> None:
        pass

    def anchors(self) -> Iterator[Anchor]:
        for child in self.children:
            yield from child.anchors()

    def _parts(self, affine: Affine) -> Iterator[tuple[Pending, Affine]]:
        begin = 0
        for child, size in zip(self.children, self.sizes, strict=True):
            whole = affine.axis is None or affine.axis != self.axis
            yield child, affine if whole else affine.part(begin, begin + size)
            begin += size


def _mapped_ops(base: Base) -> Iterator[MappedOp]:
    if isinstance(base, Crossed):
        yield from base.child.all_mapped()


def _same_channels(operand: Shape | None, result: Shape | None, axis: int | None) -> bool:
    """Whether an operand has the result's rank and its extent along ``axis``."""
    if operand is None or result is None or len(operand) != len(result):
        return False
    return axis is None or operand[axis] == result[axis] is not None
