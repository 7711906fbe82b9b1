"""Nodes that are no dataflow: matches and references.  No network computes with them.

The walks of ``dataflow`` stop at them, so what stands inside is not folded and not offloaded.  Who has to
find every function of a module looks into their parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tvm import relay
from tvm.relay.adt import Clause, Pattern, PatternConstructor, PatternTuple, PatternVar

OPAQUE = (relay.Match, relay.RefCreate, relay.RefRead, relay.RefWrite)


def parts(node: relay.Expr) -> list[relay.Expr]:
    """The expressions such a node is made of; none for any other."""
    if isinstance(node, relay.Match):
        return [node.data, *(clause.rhs for clause in node.clauses)]
    if isinstance(node, relay.RefCreate):
        return [node.value]
    if isinstance(node, relay.RefRead):
        return [node.ref]
    return [node.ref, node.value] if isinstance(node, relay.RefWrite) else []


def with_parts(
    node: relay.Expr, new: Sequence[relay.Expr], variables: Mapping[relay.Expr, relay.Expr] | None = None
) -> relay.Expr:
    """The same node made of others; itself if they are the same.

    ``variables`` are bound in the places of those that a match binds.
    """
    named = {var: now for var, now in (variables or {}).items() if not now.same_as(var)}
    if not named and all(now.same_as(was) for now, was in zip(new, parts(node), strict=True)):
        return node
    if isinstance(node, relay.Match):
        lefts = (_with_variables(clause.lhs, named) for clause in node.clauses)
        return relay.Match(new[0], list(map(Clause, lefts, new[1:])), node.complete)
    return type(node)(*new)


def bound_in(node: relay.Expr) -> list[relay.Var]:
    """The variables that such a node binds: those in the patterns of a match."""
    clauses = node.clauses if isinstance(node, relay.Match) else []
    return [var for clause in clauses for var in _variables(clause.lhs)]


def _variables(pattern: Pattern) -> Iterator[relay.Var]:
    if isinstance(pattern, PatternVar):
        yield pattern.var
    elif isinstance(pattern, PatternConstructor | PatternTuple):
        for part in pattern.patterns:
            yield from _variables(part)


def _with_variables(pattern: Pattern, new: Mapping[relay.Expr, relay.Expr]) -> Pattern:
    if isinstance(pattern, PatternVar):
        return PatternVar(new.get(pattern.var, pattern.var))
    if not isinstance(pattern, PatternConstructor | PatternTuple):
        return pattern
    inside = [_with_variables(part, new) for part in pattern.patterns]
    if isinstance(pattern, PatternTuple):
        return PatternTuple(inside)
    return PatternConstructor(pattern.constructor, inside)
