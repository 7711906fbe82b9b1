"""Nodes that are no dataflow: matches and references.  No network computes with them.

The walks of ``dataflow`` stop at them, so what stands inside is not folded and not offloaded.  Who has to
find every function of a module looks into their parts.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relay
from tvm.relay.adt import Clause

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


def with_parts(node: relay.Expr, new: Sequence[relay.Expr]) -> relay.Expr:
    """The same node made of others; itself if they are the same."""
    if all(now.same_as(was) for now, was in zip(new, parts(node), strict=True)):
        return node
    if isinstance(node, relay.Match):
        clauses = [Clause(clause.lhs, rhs) for clause, rhs in zip(node.clauses, new[1:], strict=True)]
        return relay.Match(new[0], clauses, node.complete)
    return type(node)(*new)
