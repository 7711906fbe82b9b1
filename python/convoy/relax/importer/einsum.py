"""Einsum as sums, transposes and products of matrices, of any sizes; TVM has a scalar loop for it.

A letter is an axis.  Two operands become one at a time: letters that both have and a later term or the
result reads are the batch of a product; those that nothing reads are summed over by it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

from tvm import relax, te

from convoy.relax.checks import check
from convoy.relax.importer.agree import common_size, fit
from convoy.relax.importer.corrected import FLOATS
from convoy.relax.importer.node_error import NodeError

Term: TypeAlias = tuple[str, ...]
"""The letters of an operand's axes; numbers for those of an ellipsis, counted from behind."""

_TERM = re.compile(r"([A-Za-z]*)(\.\.\.)?([A-Za-z]*)")


def convert_einsum(bb: Any, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """With operands of floats; None (the frontend's own) for others.

    Raises
    ------
    NodeError
        For an equation that does not fit the operands.
    """
    shapes = [bb.algebra.sizes(x) for x in inputs]
    if any(shape is None for shape in shapes) or {str(x.ty.dtype) for x in inputs} - set(FLOATS):
        return None
    equation = attrs["equation"].decode()
    terms, result = _parse(equation, [len(shape) for shape in shapes])
    operands = [_take_diagonal(bb, x, term) for x, term in zip(inputs, terms, strict=True)]
    sizes: dict[str, Any] = {}
    for letter in sorted({letter for _, term in operands for letter in term}):
        found = [bb.algebra.sizes(x)[term.index(letter)] for x, term in operands if letter in term]
        sizes[letter] = common_size(bb.algebra, found, broadcast=True)
    (x, term), *rest = [(_stretch(bb, x, term, sizes), term) for x, term in operands]
    x, term = _sum(bb, x, term, {*result, *(letter for _, other in rest for letter in other)})
    for i, (y, other) in enumerate(rest, 1):
        later = {*result, *(letter for _, behind in rest[i:] for letter in behind)}
        y, other = _sum(bb, y, other, {*later, *term})
        x, term = _join(bb, (x, term), (y, other), result, later, sizes)
    x, term = _sum(bb, x, term, result)
    return _transpose(bb, x, term, result)


def _parse(equation: str, ranks: Sequence[int]) -> tuple[list[Term], Term]:
    """The letters of each operand, and of the result."""
    wrong = NodeError(
        f"expected an equation for operands of {list(ranks)} axes, got {equation!r}", "correct it"
    )
    left, arrow, right = equation.replace(" ", "").partition("->")
    found = [_TERM.fullmatch(text) for text in (*left.split(","), right)]
    written = [match.groups("") for match in found if match is not None]
    if len(written) < len(found) or len(found) != len(ranks) + 1:
        raise wrong
    terms = []
    for (before, dots, behind), rank in zip(written, ranks, strict=False):
        covered = rank - len(before) - len(behind)
        if covered < 0 or (covered and not dots):
            raise wrong
        terms.append((*before, *map(str, range(covered, 0, -1)), *behind))
    letters = [letter for term in terms for letter in term]
    around = tuple(sorted({letter for letter in letters if letter.isdigit()}, key=int, reverse=True))
    before, dots, behind = written[-1]
    result = (*before, *(around if dots else ()), *behind)
    if not arrow:
        once = [letter for letter in letters if letters.count(letter) == 1 and letter not in around]
        result = (*around, *sorted(once))
    if len({*result}) < len(result) or {*result} - {*letters}:
        raise wrong
    return terms, result


def _take_diagonal(bb: Any, x: Any, term: Term) -> tuple[Any, Term]:
    """The elements of ``x`` where axes of one letter have one index."""
    once = tuple(dict.fromkeys(term))
    if once == term:
        return x, term
    shape = bb.algebra.sizes(x)
    firsts = [shape[term.index(letter)] for letter in term]
    for size, first in zip(shape, firsts, strict=True):
        if isinstance(size, int) and isinstance(first, int) and size != first:
            raise NodeError(
                f"expected axes of one letter to be as long, got {shape}", "correct the equation"
            )
        if not bb.algebra.same(size, first):
            check(bb, [size], [first])

    def compute(x: te.Tensor) -> te.Tensor:
        sizes = [x.shape[term.index(letter)] for letter in once]
        return te.compute(
            sizes, lambda *at: x(*(at[once.index(letter)] for letter in term)), name="diagonal"
        )

    return bb.emit_te(compute, x, primfunc_name_hint="diagonal"), once


def _stretch(bb: Any, x: Any, term: Term, sizes: dict[str, Any]) -> Any:
    return fit(bb, x, bb.algebra.sizes(x), [sizes[letter] for letter in term], broadcast=True)


def _sum(bb: Any, x: Any, term: Term, read: Collection[str]) -> tuple[Any, Term]:
    """Over the letters that nothing reads."""
    over = [axis for axis, letter in enumerate(term) if letter not in read]
    kept = tuple(letter for letter in term if letter in read)
    return (bb.emit(relax.op.sum(x, over)) if over else x), kept


def _transpose(bb: Any, x: Any, term: Term, order: Term) -> Any:
    return (
        x if term == order else bb.emit(relax.op.permute_dims(x, [term.index(letter) for letter in order]))
    )


def _join(
    bb: Any, one: tuple[Any, Term], other: tuple[Any, Term], result: Term, later: Collection[str],
    sizes: dict[str, Any],
) -> tuple[Any, Term]:  # fmt: skip
    """The product of two operands, without the letters that nothing reads later."""
    (x, of_x), (y, of_y) = one, other
    order = [*result, *dict.fromkeys(letter for letter in (*of_x, *of_y) if letter not in result)]
    shared = tuple(letter for letter in order if letter in of_x and letter in of_y)
    batch = tuple(letter for letter in shared if letter in later)
    over = tuple(letter for letter in shared if letter not in later)
    left = tuple(letter for letter in order if letter in of_x and letter not in of_y)
    right = tuple(letter for letter in order if letter in of_y and letter not in of_x)
    x = _transpose(bb, x, of_x, (*batch, *left, *over))
    y = _transpose(bb, y, of_y, (*batch, *over, *right))
    whole = (*batch, *left, *right)
    if not over:
        x = bb.emit(relax.op.reshape(x, _shape([*bb.algebra.sizes(x), *[1] * len(right)])))
        own = bb.algebra.sizes(y)
        y = bb.emit(relax.op.reshape(y, _shape([*own[: len(batch)], *[1] * len(left), *own[len(batch) :]])))
        return bb.emit(relax.op.multiply(x, y)), whole
    x = _merge(bb, _repeat(bb, x, (*batch, *left, *over), over, sizes), len(batch), len(left))
    y = _merge(bb, _repeat(bb, y, (*batch, *over, *right), over, sizes), len(batch), len(over))
    made = bb.emit(relax.op.matmul(x, y))
    if len(left) != 1 or len(right) != 1:
        made = bb.emit(relax.op.reshape(made, _shape([sizes[letter] for letter in whole])))
    return made, whole


def _repeat(bb: Any, x: Any, term: Term, over: Term, sizes: dict[str, Any]) -> Any:
    """A single element along a letter that is summed over, as often as the other operand has it."""
    before = bb.algebra.sizes(x)
    wanted = [sizes[letter] if letter in over else d for letter, d in zip(term, before, strict=True)]
    if all(bb.algebra.same(d, w) for d, w in zip(before, wanted, strict=True)):
        return x
    return bb.emit(relax.op.broadcast_to(x, _shape(wanted)))


def _merge(bb: Any, x: Any, batch: int, rows: int) -> Any:
    """One axis of the first ``rows`` behind the batch, and one of the rest."""
    shape = bb.algebra.sizes(x)
    if rows == 1 and len(shape) == batch + 2:
        return x
    product = bb.algebra.product
    sides = product(shape[batch : batch + rows]), product(shape[batch + rows :])
    return bb.emit(relax.op.reshape(x, _shape([*shape[:batch], *sides])))


def _shape(sizes: Sequence[Any]) -> relax.ShapeExpr:
    return relax.ShapeExpr(list(sizes))
